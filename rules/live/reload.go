package live

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"dshproxy/rules"
)

// Reload reads the rules again and reports whether they changed. What is wrong with a file keeps that file as it was
// loaded, and the files of the workspace all together; the rest is taken all the same, so that changed and err may come
// together. A file that was loaded and is gone, unreadable, empty or without a rules key is an error: an intended empty
// set is "rules: []". A file of a narrow workspace may go once that is accepted.
func (r *Rules) Reload() (changed bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	changed, err = r.reload()
	message := ""
	if err != nil {
		message = err.Error()
	}
	r.failure.Store(&message)
	return changed, err
}

func (r *Rules) reload() (bool, error) {
	old := r.current.Load()
	if old == nil {
		return false, errors.New("nothing was loaded yet")
	}
	g := r.settle()
	err := r.readRecord()
	accepted := r.record != r.applied
	failed := []error{err}
	if err := r.checkWorkspace(g); err != nil {
		failed = append(failed, err)
		g.texts[workspacePart] = r.loaded[workspacePart]
	}
	failed = append(failed, g.errs[managedPart]...)
	failed = append(failed, g.errs[namedPart]...)
	if hashOf(g.all()) == hashOf(slices.Concat(r.loaded[:]...)) && !accepted {
		return false, errors.Join(failed...)
	}
	s, err := r.narrowed(g.all(), r.accepted)
	if err != nil {
		return false, errors.Join(append(failed, err)...)
	}
	changed := s.Hash != old.Hash || accepted
	r.store(s, g)
	return changed, errors.Join(failed...)
}

// checkWorkspace says what keeps the files of the workspace from being taken.
func (r *Rules) checkWorkspace(g *gathered) error {
	if errs := g.errs[workspacePart]; len(errs) > 0 {
		return errors.Join(errs...)
	}
	now, before := g.texts[workspacePart], r.loaded[workspacePart]
	for _, t := range before {
		if !t.bad && !contains(now, &t.source) && (!r.opts.Narrow || contains(r.accepted, &t.source)) {
			return fmt.Errorf("%s: was loaded and is gone", t.path)
		}
	}
	if sameTexts(now, before) {
		for i := range now {
			now[i].bad = before[i].bad
		}
		return nil
	}
	return r.sound(now)
}

func contains(texts []text, s *source) bool {
	return slices.ContainsFunc(texts, func(t text) bool { return t.same(s) })
}

// sound says what is wrong with files, as far as they themselves can tell.
func (r *Rules) sound(texts []text) error {
	var p parsed
	for i := range texts {
		t := &texts[i]
		f, err := r.parse(t, &p)
		if err != nil {
			return err
		}
		if t.dialect == DSH && !f.written && r.current.Load().hadRules(t.path) {
			return &rules.ParseError{File: t.path, What: "the file holds no rules", Hint: "an intended empty set is rules: []"}
		}
	}
	_, err := rules.ParseChain(slices.Concat(p.managed, p.workspace), r.opts.Parse)
	return err
}

// hadRules reports whether a file was loaded with a rules key.
func (s *Snapshot) hadRules(path string) bool {
	return s != nil && slices.ContainsFunc(s.Files, func(f File) bool { return f.Path == path && f.written })
}

// maxReads bounds how long files that never stop changing can hold a reload.
const maxReads = 20

// settle reads until two reads, one stability interval apart, agree: a file may be half-written. A part that never stops
// changing is in error, and keeps nothing else.
func (r *Rules) settle() *gathered {
	last := r.gather(false)
	if r.opts.Stability <= 0 {
		return last
	}
	var settled [parts]bool
	for range maxReads {
		time.Sleep(r.opts.Stability)
		next := r.gather(false)
		for p := range parts {
			if settled[p] {
				continue
			}
			settled[p] = next.key(p) == last.key(p)
			last.texts[p], last.errs[p] = next.texts[p], next.errs[p]
		}
		if settled == [parts]bool{true, true, true} {
			return last
		}
	}
	for p := range parts {
		if !settled[p] {
			last.errs[p] = append(last.errs[p], errors.New("the rule files keep changing"))
			last.texts[p] = r.loaded[p]
		}
	}
	return last
}
