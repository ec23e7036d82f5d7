// Package live keeps the rules of a workspace loaded: it finds the files, reads them safely, merges them into a policy,
// watches them, keeps the last good policy when a change is bad, and edits them on request.
//
// Workspace files are hostile: they are opened below a held folder without following links out of it, regular files
// only, up to a size, never blocking. The bytes that are parsed are the bytes that are hashed.
package live

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"dshproxy/netrule"
	"dshproxy/rules"
	"dshproxy/rules/surface"
	"dshproxy/rules/toolspec"
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
	// Dialects are the rule languages that are read; empty means DSH alone.
	Dialects []Dialect
	// Places are where other programs keep what holds in every workspace.
	Places Places
	// Narrow makes changes of workspace files narrow at once and widen only once they are accepted. What is accepted
	// stands in Trust.
	Narrow bool
	Trust  Trust
	// AcceptAtStart accepts what the workspace holds when it is loaded. Without it only what Trust has is accepted.
	AcceptAtStart bool
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
	Dialect Dialect
	Managed bool
	// Workspace says that the file was found in the workspace, where the governed program may write it.
	Workspace bool
	// written says that the file has a rules key, if only with an empty list.
	written bool
}

// Snapshot is one loaded state. It is never changed.
type Snapshot struct {
	Policy   *netrule.Policy
	Chain    []rules.Rule // the workspace's, merged
	Managed  []rules.Rule
	Baseline []rules.Rule // the built-in rules; they judge tool calls behind the workspace's
	layers   [][]int      // of Chain, by index: what is not accepted stands alone; nil for one layer
	calls    []CallLayer
	// Claude and Pi are the rules of other programs' files; nil when they are not asked for.
	Claude *toolspec.Set
	// hosts is what Claude says about connections, alone; refusals are its denials and questions by host, as rules that
	// find hosts in shell text, and refusalRefs their places.
	hosts       *netrule.Policy
	hostRules   int // in hosts
	refusals    []rules.Rule
	refusalRefs []netrule.RuleRef
	Pi          *surface.Set
	// piApart has each file that is not accepted alone; the strictest holds.
	piApart []*surface.Set
	// Pending is what the workspace says now, when not all of it is accepted; the rest of the snapshot is what is. Both
	// are walked, and the stricter verdict holds.
	Pending *Snapshot
	// Changed is how many files are not accepted as they are.
	Changed  int
	Files    []File
	stale    map[string]bool // files of which the accepted text is in force, and not what is on disk
	Hash     string          // of the bytes of all files
	Warnings []string
	Loaded   time.Time
	home     string
}

// Rules is the live rule set of one workspace.
type Rules struct {
	opts    Options
	current atomic.Pointer[Snapshot]

	mu       sync.Mutex    // one load at a time
	loaded   [parts][]text // the files of the current state
	accepted []text        // of the workspace, with Narrow
	record   string        // hash of the record in Trust that was read last
	applied  string        // hash of the one that the current state was made with
	roots    map[string]*os.Root
	failure  atomic.Pointer[string]
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
	if len(opts.Dialects) == 0 {
		opts.Dialects = []Dialect{DSH}
	}
	if opts.Narrow && opts.Trust.Dir == "" {
		return nil, errors.New("narrow workspace rules need a folder for what is accepted")
	}
	if opts.Narrow && leadsThrough(opts.Trust.Dir, opts.Workspace) {
		return nil, fmt.Errorf("%s: what is accepted would be recorded in the workspace, where the governed program may write it", opts.Trust.Dir)
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

// Load reads the rules for the first time. Named files must exist; discovered ones need not. What starting a service
// accepts is recorded only when all of it is loaded.
func (r *Rules) Load() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	g := r.gather(true)
	if err := g.err(); err != nil {
		return err
	}
	if r.opts.IgnoreBad {
		r.dropBad(g.texts[workspacePart])
	}
	accepted, err := r.startNarrow(g.texts[workspacePart])
	if err != nil {
		return err
	}
	s, err := r.narrowed(g.all(), accepted)
	if err != nil {
		return err
	}
	if r.opts.Narrow && r.opts.AcceptAtStart {
		if err := r.accept(accepted); err != nil {
			return err
		}
	}
	r.store(s, g)
	return nil
}

// dropBad marks the files that do not parse.
func (r *Rules) dropBad(texts []text) {
	for i := range texts {
		_, err := r.parse(&texts[i], &parsed{})
		texts[i].bad = err != nil
	}
}

// store puts a state in force.
func (r *Rules) store(s *Snapshot, g *gathered) {
	r.loaded, r.applied = g.texts, r.record
	r.current.Store(s)
}
