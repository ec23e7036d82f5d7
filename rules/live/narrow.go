package live

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"dshproxy/netrule"
)

// Trust keeps what has been accepted of each workspace, in a folder of its own that no workspace holds.
type Trust struct {
	Dir string // absolute; made when something is accepted
}

// Accepted is one accepted file.
type Accepted struct {
	Path string `json:"path"`
	Text string `json:"text"`
}

// record is what is kept of a workspace.
type record struct {
	Workspace string     `json:"workspace"`
	Files     []Accepted `json:"files"`
}

// path is where the record of a workspace stands.
func (t Trust) path(workspace string) string {
	h := sha256.Sum256([]byte(workspace))
	return filepath.Join(t.Dir, hex.EncodeToString(h[:16])+".json")
}

// maxRecordBytes bounds a record.
const maxRecordBytes = 64 << 20

// load gives the record of a workspace and the hash of its bytes; nil and empty when there is none. A record that others
// could have written is refused.
func (t Trust) load(workspace string) (*record, string, error) {
	path := t.path(workspace)
	switch err := CheckOwner(path); {
	case errors.Is(err, os.ErrNotExist):
		return nil, "", nil
	case err != nil:
		return nil, "", err
	}
	b, err := ReadNamed(path, maxRecordBytes)
	if err != nil {
		return nil, "", err
	}
	var rec record
	if err := json.Unmarshal(b, &rec); err != nil || rec.Workspace != workspace {
		return nil, "", fmt.Errorf("%s: no record of what is accepted in %s", path, workspace)
	}
	h := sha256.Sum256(b)
	return &rec, hex.EncodeToString(h[:]), nil
}

// save replaces the record of a workspace by a rename.
func (t Trust) save(rec *record) error {
	b, err := json.Marshal(rec)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(t.Dir, 0o700); err != nil {
		return err
	}
	temporary, err := os.CreateTemp(t.Dir, ".accepted-*")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(temporary.Name()) }() // gone already when all went well
	_, err = temporary.Write(b)
	if closeErr := temporary.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return err
	}
	return os.Rename(temporary.Name(), t.path(rec.Workspace))
}

// startNarrow finds out what is accepted. Starting a service accepts what is there; of a file that is dropped because it
// does not parse, what was accepted before stays.
func (r *Rules) startNarrow(now []text) ([]text, error) {
	if !r.opts.Narrow {
		return nil, nil
	}
	bad := slices.ContainsFunc(now, func(t text) bool { return t.bad })
	if !r.opts.AcceptAtStart || bad {
		if err := r.readRecord(); err != nil {
			return nil, err
		}
	}
	if !r.opts.AcceptAtStart {
		return r.accepted, nil
	}
	var out []text
	for i := range now {
		if !now[i].bad {
			out = append(out, now[i])
			continue
		}
		for _, t := range r.accepted {
			if t.same(&now[i].source) {
				out = append(out, t)
			}
		}
	}
	return out, nil
}

// accept takes texts as accepted and records them.
func (r *Rules) accept(texts []text) error {
	rec := &record{Workspace: r.opts.Workspace}
	for _, t := range texts {
		rec.Files = append(rec.Files, Accepted{t.path, string(t.bytes)})
	}
	if err := r.opts.Trust.save(rec); err != nil {
		return fmt.Errorf("what is accepted cannot be recorded: %w", err)
	}
	return r.readRecord()
}

// readRecord takes over what somebody has accepted since. Files that are no files of the workspace any more are left out.
func (r *Rules) readRecord() error {
	if !r.opts.Narrow {
		return nil
	}
	rec, hash, err := r.opts.Trust.load(r.opts.Workspace)
	if err != nil || hash == r.record || rec == nil {
		return err
	}
	r.record, r.accepted = hash, nil
	for _, s := range r.sources() {
		at := slices.IndexFunc(rec.Files, func(f Accepted) bool { return f.Path == s.path })
		if at >= 0 && s.part == workspacePart {
			r.accepted = append(r.accepted, text{source: s, bytes: []byte(rec.Files[at].Text)})
		}
	}
	return nil
}

// pendingSuffix marks the layers of rules that are not accepted.
const pendingSuffix = " (pending)"

// narrowed compiles the files. What of the workspace is not accepted may only narrow: it is walked beside what is.
func (r *Rules) narrowed(texts, accepted []text) (*Snapshot, error) {
	trusted, ours := splitTexts(texts)
	if !r.opts.Narrow || sameTexts(ours, accepted) && !slices.ContainsFunc(ours, func(t text) bool { return t.bad }) {
		return r.compile(inForce(texts), view{})
	}
	changed := changes(accepted, ours)
	apart, stale := map[string]bool{}, map[string]bool{}
	for _, c := range changed {
		apart[c.Path], stale[c.Path] = true, true
	}
	now, err := r.compile(inForce(texts), view{apart: apart})
	if err != nil {
		return nil, err
	}
	s, err := r.compile(inForce(slices.Concat(trusted, accepted)), view{stale: stale, broken: true})
	if err != nil {
		return nil, fmt.Errorf("what was accepted does not load any more: %w", err)
	}
	now.Policy = netrule.NewPolicy(now.Policy.Options(), now.connections(pendingSuffix, r.opts.Host)...)
	s.Policy = s.Policy.And(now.Policy)
	s.Pending, s.Files, s.Changed = now, now.Files, len(changed)
	s.Hash = s.Hash[:8] + now.Hash[:8]
	s.Warnings = append(slices.Clone(now.Warnings), "the rules of the workspace have changed and are not accepted: they narrow at once, and open nothing until dshproxy trust")
	return s, nil
}

// splitTexts parts what the governed program may write from the rest.
func splitTexts(texts []text) (trusted, ours []text) {
	for _, t := range texts {
		if t.part == workspacePart {
			ours = append(ours, t)
		} else {
			trusted = append(trusted, t)
		}
	}
	return trusted, ours
}

// Now gives what the files say, accepted or not.
func (s *Snapshot) Now() *Snapshot {
	if s.Pending != nil {
		return s.Pending
	}
	return s
}

func sameTexts(a, b []text) bool {
	return slices.EqualFunc(a, b, func(x, y text) bool { return x.same(&y.source) && bytes.Equal(x.bytes, y.bytes) })
}

// Review is a file of the workspace that is not accepted as it is. Old is empty for a new one, New for one that is gone.
type Review struct {
	Path     string
	Old, New string
}

// Reviewed are the files as somebody saw them; only these are accepted.
type Reviewed struct {
	Changes []Review
	texts   []text
}

// Review shows what Accept would accept.
func (r *Rules) Review() (Reviewed, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	g := r.gather(false)
	if err := errors.Join(g.errs[workspacePart]...); err != nil {
		return Reviewed{}, err
	}
	if err := r.sound(g.texts[workspacePart]); err != nil {
		return Reviewed{}, err
	}
	out := Reviewed{texts: g.texts[workspacePart]}
	out.Changes = changes(r.accepted, out.texts)
	return out, nil
}

// changes pairs what was accepted with what is there now.
func changes(accepted, now []text) []Review {
	find := func(in []text, path string) *text {
		if i := slices.IndexFunc(in, func(t text) bool { return t.path == path }); i >= 0 {
			return &in[i]
		}
		return nil
	}
	var out []Review
	for _, t := range slices.Concat(now, accepted) {
		old, next := find(accepted, t.path), find(now, t.path)
		c := Review{Path: t.path, New: next.content(), Old: old.content()}
		differ := old == nil || next == nil || next.bad || c.Old != c.New // an empty file is not none
		if differ && !slices.Contains(out, c) {
			out = append(out, c)
		}
	}
	return out
}

// Accept records the files as they were reviewed, and not as they may have become since.
func (r *Rules) Accept(reviewed Reviewed) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.accept(reviewed.texts)
}

// content is the text of a file, empty for none.
func (t *text) content() string {
	if t == nil {
		return ""
	}
	return string(t.bytes)
}
