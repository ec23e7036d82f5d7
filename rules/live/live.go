// Package live keeps the rules of a workspace loaded: it finds the files, reads them safely, merges them into a policy,
// watches them, keeps the last good policy when a change is bad, and edits them on request.
//
// Workspace files are hostile: they are opened below a held folder without following links out of it, regular files
// only, up to a size, never blocking. The bytes that are parsed are the bytes that are hashed.
package live

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"dshproxy/netrule"
	"dshproxy/rules"
)

// DefaultRulesFile is where a workspace keeps its rules.
const DefaultRulesFile = ".dsh/rules.yaml"

// Options say where rules come from and how they become a policy.
type Options struct {
	// Workspace is the folder whose rules are loaded, absolute.
	Workspace string
	// RulesFile is relative to the workspace, or absolute; empty means DefaultRulesFile. An absolute one must exist.
	RulesFile string
	// SearchUp merges the rule files of the parent folders behind the workspace's own, nearest first.
	SearchUp bool
	// FallbackPath is used when no rule file was found. It must exist at start.
	FallbackPath string
	// Managed files form a layer of their own that no workspace can open. They must exist, belong to root or the running
	// user and not be writable by others.
	Managed []string
	// IgnoreBad drops a bad workspace file at start with a warning, and then nothing is allowed by mode. The default is
	// to fail.
	IgnoreBad bool
	// MaxBytes caps each file; 0 means 16 MiB.
	MaxBytes int64
	// Stability is how far apart two equal reads must be before a change is taken.
	Stability time.Duration

	// Baseline are rules that judge tool calls behind the workspace's own.
	Baseline []rules.Rule

	Parse  rules.Options
	Host   rules.Host
	Policy netrule.Options
}

// File is one loaded rule file.
type File struct {
	Path    string
	Rules   int
	Managed bool
	// fallback marks the file that gives way to any that is discovered.
	fallback bool
	// written says that the file has a rules key, if only with an empty list.
	written bool
}

// Snapshot is one loaded state. It is never changed.
type Snapshot struct {
	Policy   *netrule.Policy
	Chain    []rules.Rule // the workspace's, merged
	Managed  []rules.Rule
	Baseline []rules.Rule // the built-in rules; they judge tool calls behind the workspace's
	calls    []rules.Rule // Chain and Baseline
	Files    []File
	Hash     string // of the bytes of all files
	Warnings []string
	Loaded   time.Time
}

// Rules is the live rule set of one workspace.
type Rules struct {
	opts    Options
	current atomic.Pointer[Snapshot]

	mu      sync.Mutex // one load at a time
	roots   map[string]*os.Root
	failure atomic.Pointer[string]
}

// New checks the options. It reads nothing yet.
func New(opts Options) (*Rules, error) {
	if opts.RulesFile == "" {
		opts.RulesFile = DefaultRulesFile
	}
	if opts.MaxBytes == 0 {
		opts.MaxBytes = rules.DefaultMaxRuleBytes
	}
	if !filepath.IsAbs(opts.Workspace) {
		return nil, fmt.Errorf("workspace %q is not absolute", opts.Workspace)
	}
	if opts.SearchUp && filepath.IsAbs(opts.RulesFile) {
		return nil, errors.New("searchUp needs a relative rulesFile")
	}
	return &Rules{opts: opts, roots: map[string]*os.Root{}}, nil
}

// Current gives the loaded state, or nil before the first Load.
func (r *Rules) Current() *Snapshot { return r.current.Load() }

// Policy gives the policy of the loaded state; it has the signature of proxy.Policies.
func (r *Rules) Policy(workspace string) (*netrule.Policy, error) {
	s := r.current.Load()
	if s == nil || workspace != "" {
		return nil, errors.New("no rules are loaded")
	}
	return s.Policy, nil
}

// LastError gives the error of the last reload, empty when it was good.
func (r *Rules) LastError() string {
	if p := r.failure.Load(); p != nil {
		return *p
	}
	return ""
}

// Load reads the rules for the first time. Named files must exist; discovered ones need not.
func (r *Rules) Load() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	texts, err := r.gather(true)
	if err != nil {
		return err
	}
	s, err := r.compile(texts, r.opts.IgnoreBad)
	if err != nil {
		return err
	}
	r.current.Store(s)
	return nil
}

// Reload reads the rules again and reports whether they changed. On an error the loaded state stays. A file that was
// loaded and is gone, unreadable, empty or without a rules key is an error: an intended empty set is "rules: []".
func (r *Rules) Reload() (changed bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	changed, err = r.reload()
	text := ""
	if err != nil {
		text = err.Error()
	}
	r.failure.Store(&text)
	return changed, err
}

func (r *Rules) reload() (bool, error) {
	old := r.current.Load()
	if old == nil {
		return false, errors.New("nothing was loaded yet")
	}
	texts, err := r.stableRead()
	if err != nil {
		return false, err
	}
	if hashOf(texts) == old.Hash {
		return false, nil
	}
	if err := stillThere(old, texts); err != nil {
		return false, err
	}
	s, err := r.compile(texts, false)
	if err != nil {
		return false, err
	}
	r.current.Store(s)
	return true, nil
}

// maxReads bounds how long a file that never stops changing can hold a reload.
const maxReads = 20

// stableRead reads until two reads, one stability interval apart, agree: a file may be half-written.
func (r *Rules) stableRead() ([]text, error) {
	last, err := r.gather(false)
	if err != nil || r.opts.Stability <= 0 {
		return last, err
	}
	for range maxReads {
		time.Sleep(r.opts.Stability)
		next, err := r.gather(false)
		if err != nil {
			return nil, err
		}
		if hashOf(next) == hashOf(last) {
			return next, nil
		}
		last = next
	}
	return nil, errors.New("the rule files keep changing")
}

// stillThere refuses a reload that would lose a file.
func stillThere(old *Snapshot, texts []text) error {
	for _, f := range old.Files {
		found := f.fallback && slices.ContainsFunc(texts, func(t text) bool { return t.discovered })
		for _, t := range texts {
			found = found || t.path == f.Path && t.managed == f.Managed
		}
		if !found {
			return fmt.Errorf("%s: was loaded and is gone", f.Path)
		}
	}
	return nil
}

// text is a file as it was read.
type text struct {
	path       string
	managed    bool
	discovered bool // found in a workspace, and not named by the operator
	bytes      []byte
}

func hashOf(texts []text) string {
	h := sha256.New()
	for _, t := range texts {
		fmt.Fprintf(h, "%q %v %d\n", t.path, t.managed, len(t.bytes))
		h.Write(t.bytes)
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}

// compile parses the files and makes a policy. ignoreBad drops bad workspace files.
func (r *Rules) compile(texts []text, ignoreBad bool) (*Snapshot, error) {
	s := &Snapshot{Hash: hashOf(texts), Loaded: time.Now()}
	old := r.current.Load()
	var workspace, managed []*rules.Document
	dropped := false
	for _, t := range texts {
		doc, err := rules.Parse(t.path, t.bytes, r.opts.Parse)
		if err == nil && !doc.HasRules && old.hadRules(t.path) {
			err = &rules.ParseError{File: t.path, What: "the file holds no rules", Hint: "an intended empty set is rules: []"}
		}
		switch {
		case err != nil && ignoreBad && t.discovered:
			dropped = true
			s.Warnings = append(s.Warnings, err.Error())
			continue
		case err != nil:
			return nil, err
		case t.managed:
			managed = append(managed, doc)
		default:
			workspace = append(workspace, doc)
		}
		s.Files = append(s.Files, File{Path: t.path, Rules: len(doc.Rules), Managed: t.managed, fallback: !t.managed && !t.discovered && t.path != r.opts.RulesFile, written: doc.HasRules})
	}
	var err error
	if s.Chain, err = rules.ParseChain(workspace, r.opts.Parse); err != nil {
		return nil, err
	}
	if s.Managed, err = rules.ParseChain(managed, r.opts.Parse); err != nil {
		return nil, err
	}
	s.Baseline = r.opts.Baseline
	s.calls = slices.Concat(s.Chain, s.Baseline)
	opts := r.opts.Policy
	if dropped {
		// The dropped file may have held the denials that made the mode safe.
		opts.Mode, opts.Unlisted, opts.Loopback = netrule.Whitelist, netrule.Deny, false
		s.Warnings = append(s.Warnings, "a rule file was dropped: nothing is allowed by mode until it is mended")
	}
	var layers []netrule.Layer
	if len(s.Managed) > 0 {
		layers = append(layers, netrule.Layer{Name: "managed", Rules: rules.Connections(s.Managed, r.opts.Host)})
	}
	layers = append(layers, netrule.Layer{Name: "workspace", Rules: rules.Connections(s.Chain, r.opts.Host)})
	s.Policy = netrule.NewPolicy(opts, layers...)
	return s, nil
}

// hadRules reports whether a file was loaded with a rules key.
func (s *Snapshot) hadRules(path string) bool {
	return s != nil && slices.ContainsFunc(s.Files, func(f File) bool { return f.Path == path && f.written })
}

// gather reads every file of the chain, in its order, managed ones first. start says that named files must exist.
func (r *Rules) gather(start bool) ([]text, error) {
	var out []text
	for _, path := range r.opts.Managed {
		if err := CheckOwner(path); err != nil {
			return nil, err
		}
		b, err := ReadNamed(path, r.opts.MaxBytes)
		if err != nil {
			return nil, err
		}
		out = append(out, text{path: path, managed: true, bytes: b})
	}
	found, err := r.discover()
	if err != nil {
		return nil, err
	}
	if r.opts.FallbackPath != "" && (start || len(found) == 0) {
		b, err := ReadNamed(r.opts.FallbackPath, r.opts.MaxBytes)
		if err != nil {
			return nil, err
		}
		fallback, err := filepath.Abs(r.opts.FallbackPath)
		if err != nil {
			return nil, err
		}
		if _, err := rules.Parse(fallback, b, r.opts.Parse); err != nil && len(found) > 0 {
			return nil, err
		}
		if len(found) == 0 {
			found = []text{{path: fallback, bytes: b}}
		}
	}
	return append(out, found...), nil
}

// discover reads the workspace's files, nearest first.
func (r *Rules) discover() ([]text, error) {
	if filepath.IsAbs(r.opts.RulesFile) {
		b, err := ReadNamed(r.opts.RulesFile, r.opts.MaxBytes)
		if err != nil {
			return nil, err
		}
		return []text{{path: r.opts.RulesFile, bytes: b}}, nil
	}
	var out []text
	for dir := r.opts.Workspace; ; dir = filepath.Dir(dir) {
		b, err := r.readHeld(dir)
		switch {
		case errors.Is(err, os.ErrNotExist):
		case err != nil:
			return nil, fmt.Errorf("%s: %w", filepath.Join(dir, r.opts.RulesFile), bare(err))
		default:
			out = append(out, text{path: filepath.Join(dir, r.opts.RulesFile), discovered: true, bytes: b})
		}
		if !r.opts.SearchUp || dir == filepath.Dir(dir) {
			return out, nil
		}
	}
}

// readHeld reads the rules file below a folder that is opened once and held: a folder that takes its place later is
// another one.
func (r *Rules) readHeld(dir string) ([]byte, error) {
	root := r.roots[dir]
	if root == nil {
		var err error
		if root, err = os.OpenRoot(dir); err != nil {
			return nil, err
		}
		r.roots[dir] = root
	}
	return readBelow(root, r.opts.RulesFile, r.opts.MaxBytes)
}

// Close lets the held folders go.
func (r *Rules) Close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for dir, root := range r.roots {
		root.Close()
		delete(r.roots, dir)
	}
}

// bare takes the operation and the path off an error that is about to name the whole path.
func bare(err error) error {
	var pe *os.PathError
	if errors.As(err, &pe) {
		return pe.Err
	}
	return err
}

const (
	pollEvery = 500 * time.Millisecond
	hashEvery = 5 * time.Second // for edits that leave size and times as they were
	hashPause = time.Second     // between two hashes, however often the files change
)

// Watch polls the files until ctx ends and reloads on a change. done is told of every attempt that found one, good or
// bad; a failure is told once, until it changes.
func (r *Rules) Watch(ctx context.Context, done func(changed bool, err error)) {
	ticker := time.NewTicker(pollEvery)
	defer ticker.Stop()
	signature, hashed, lastErr := r.signature(), time.Now(), ""
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		next, since := r.signature(), time.Since(hashed)
		if since < hashPause || next == signature && since < hashEvery {
			continue
		}
		signature, hashed = next, time.Now()
		changed, err := r.Reload()
		text := ""
		if err != nil {
			text = err.Error()
		}
		if changed || text != lastErr {
			done(changed, err)
		}
		lastErr = text
	}
}

// signature is what stat says of every place a rule file may be.
func (r *Rules) signature() string {
	var paths []string
	paths = append(paths, r.opts.Managed...)
	if r.opts.FallbackPath != "" {
		paths = append(paths, r.opts.FallbackPath)
	}
	if filepath.IsAbs(r.opts.RulesFile) {
		paths = append(paths, r.opts.RulesFile)
	} else {
		for dir := r.opts.Workspace; ; dir = filepath.Dir(dir) {
			paths = append(paths, filepath.Join(dir, r.opts.RulesFile))
			if !r.opts.SearchUp || dir == filepath.Dir(dir) {
				break
			}
		}
	}
	out := ""
	for _, p := range paths {
		info, err := os.Stat(p)
		if err != nil {
			out += fmt.Sprintf("%q: none\n", p)
			continue
		}
		out += fmt.Sprintf("%q: %d %d %v\n", p, info.Size(), info.ModTime().UnixNano(), info.Mode())
	}
	return out
}
