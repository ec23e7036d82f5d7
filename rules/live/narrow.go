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

// ofWorkspace picks the files that the governed program may write.
func ofWorkspace(texts []text) []text {
	var out []text
	for _, t := range texts {
		if t.discovered {
			out = append(out, t)
		}
	}
	return out
}

// startNarrow finds out what is accepted. Starting a service accepts what is there, and tells later commands so.
func (r *Rules) startNarrow(texts []text) error {
	if !r.opts.Narrow {
		return nil
	}
	if r.opts.AcceptAtStart {
		return r.accept(ofWorkspace(texts))
	}
	_, err := r.readRecord()
	return err
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
	_, err := r.readRecord()
	return err
}

// readRecord takes over what somebody has accepted since, and reports whether there was something new.
func (r *Rules) readRecord() (bool, error) {
	if !r.opts.Narrow {
		return false, nil
	}
	rec, hash, err := r.opts.Trust.load(r.opts.Workspace)
	if err != nil || hash == r.record || rec == nil {
		return false, err
	}
	r.record, r.accepted = hash, nil
	for _, f := range rec.Files {
		if t, ok := r.place(f.Path); ok {
			t.bytes = []byte(f.Text)
			r.accepted = append(r.accepted, t)
		}
	}
	return true, nil
}

// place tells what kind of file of the workspace a path is; false for one that is none any more.
func (r *Rules) place(path string) (text, bool) {
	for _, s := range r.foreign() {
		if s.dir != "" && s.path() == path {
			return text{path: path, dialect: s.dialect, origin: s.origin, discovered: true}, true
		}
	}
	dsh := slices.Contains(r.opts.Dialects, DSH) && !filepath.IsAbs(r.opts.RulesFile) && slices.Contains(r.places(), path)
	return text{path: path, dialect: DSH, discovered: true}, dsh
}

// pendingSuffix marks the layers of rules that are not accepted.
const pendingSuffix = " (pending)"

// narrowed compiles the files. What of the workspace is not accepted may only narrow: it is walked beside what is.
func (r *Rules) narrowed(texts, accepted []text, ignoreBad bool) (*Snapshot, error) {
	now, err := r.compile(texts, ignoreBad)
	if err != nil || !r.opts.Narrow || sameTexts(ofWorkspace(texts), accepted) {
		return now, err
	}
	base := slices.DeleteFunc(slices.Clone(texts), func(t text) bool { return t.discovered })
	s, err := r.compile(slices.Concat(base, accepted), false)
	if err != nil {
		// The settings changed and what was accepted does not load any more: nothing is.
		if s, err = r.compile(base, false); err != nil {
			return nil, err
		}
	}
	now.Policy = netrule.NewPolicy(now.Policy.Options(), now.layers(pendingSuffix, r.opts.Host)...)
	s.Policy = s.Policy.And(now.Policy)
	s.Pending, s.Files, s.Changed = now, now.Files, len(changes(accepted, ofWorkspace(texts)))
	s.Hash = s.Hash[:8] + now.Hash[:8]
	s.Warnings = append(slices.Clone(now.Warnings), "the rules of the workspace have changed and are not accepted: they narrow at once, and open nothing until dshproxy trust")
	return s, nil
}

// Now gives what the files say, accepted or not.
func (s *Snapshot) Now() *Snapshot {
	if s.Pending != nil {
		return s.Pending
	}
	return s
}

// filesHash is the hash of the files as they are.
func (s *Snapshot) filesHash() string { return s.Now().Hash }

func sameTexts(a, b []text) bool {
	return slices.EqualFunc(a, b, func(x, y text) bool { return x.path == y.path && bytes.Equal(x.bytes, y.bytes) })
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
	texts, err := r.gather(false)
	if err != nil {
		return Reviewed{}, err
	}
	if _, err := r.compile(texts, false); err != nil {
		return Reviewed{}, err
	}
	out := Reviewed{texts: ofWorkspace(texts)}
	out.Changes = changes(r.accepted, out.texts)
	return out, nil
}

// changes pairs what was accepted with what is there now.
func changes(accepted, now []text) []Review {
	find := func(in []text, path string) string {
		if i := slices.IndexFunc(in, func(t text) bool { return t.path == path }); i >= 0 {
			return string(in[i].bytes)
		}
		return ""
	}
	var out []Review
	for _, t := range slices.Concat(now, accepted) {
		c := Review{t.path, find(accepted, t.path), find(now, t.path)}
		if c.Old != c.New && !slices.Contains(out, c) {
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
