package live

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"dshproxy/rules/toolspec"
)

// part is a group of files that are reloaded together, and apart from the others: what a program does to the files of its
// workspace keeps nobody else's from being read.
type part uint8

const (
	managedPart   part = iota // the layer that no workspace opens
	namedPart                 // the operator's and the user's other files
	workspacePart             // what the governed program may write
	parts
)

// source is a place where a rule file may be.
type source struct {
	path    string
	part    part
	dialect Dialect
	origin  toolspec.Origin // of settings
	// dir and name are a held folder and the path below it; without dir the path is opened as it is named.
	dir, name string
	// fallback gives way to any other file of the workspace's chain.
	fallback bool
	optional bool
	owned    bool // it must pass the test of ownership
}

// text is a file as it was read.
type text struct {
	source
	bytes []byte
	bad   bool // dropped at start, for it does not parse
}

// same reports whether two are the same file in the same role: one path may have two, as settings of a user whose home is
// the workspace.
func (s *source) same(other *source) bool {
	return s.path == other.path && s.part == other.part && s.dialect == other.dialect && s.origin == other.origin
}

func hashOf(texts []text) string {
	h := sha256.New()
	for _, t := range texts {
		fmt.Fprintf(h, "%q %v %v %d\n", t.path, t.part == managedPart, t.bad, len(t.bytes))
		h.Write(t.bytes)
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}

// sources gives every place, in the order of the chain: managed files first.
func (r *Rules) sources() []source {
	var out []source
	for _, path := range r.opts.Managed {
		out = append(out, source{path: path, part: managedPart, dialect: DSH, owned: true})
	}
	if slices.Contains(r.opts.Dialects, DSH) {
		out = append(out, r.chainSources()...)
	}
	out = append(out, r.foreign()...)
	if r.opts.Narrow {
		for i := range out {
			r.claim(&out[i])
		}
	}
	return out
}

// chainSources are the workspace's own rule files, nearest first, and the fallback.
func (r *Rules) chainSources() []source {
	var out []source
	if filepath.IsAbs(r.opts.RulesFile) {
		out = append(out, source{path: r.opts.RulesFile, part: namedPart, dialect: DSH})
	} else {
		for dir := r.opts.Workspace; ; dir = filepath.Dir(dir) {
			out = append(out, source{path: filepath.Join(dir, r.opts.RulesFile), part: workspacePart, dialect: DSH, dir: dir, name: r.opts.RulesFile, optional: true})
			if !r.opts.SearchUp || dir == filepath.Dir(dir) {
				break
			}
		}
	}
	if path := r.opts.FallbackPath; path != "" {
		if abs, err := filepath.Abs(path); err == nil {
			path = abs
		}
		out = append(out, source{path: path, part: namedPart, dialect: DSH, fallback: true})
	}
	return out
}

// claim counts a file as the workspace's when the way to it leads through the workspace, whoever named it: the governed
// program may write it. Managed files stay what they are; reading them refuses.
func (r *Rules) claim(s *source) {
	if s.part != namedPart || !leadsThrough(s.path, r.opts.Workspace) {
		return
	}
	s.part = workspacePart
	if name, ok := strings.CutPrefix(s.path, strings.TrimSuffix(r.opts.Workspace, "/")+"/"); ok {
		s.dir, s.name = r.opts.Workspace, name
	}
}

// leadsThrough reports whether a path, or any link on its way, lies in a folder. A way that cannot be followed does.
func leadsThrough(path, dir string) bool {
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		real = dir
	}
	inside := func(p string) bool { return within(p, dir) || within(p, real) }
	abs, err := filepath.Abs(path)
	if err != nil || inside(abs) {
		return true
	}
	if filepath.IsAbs(path) {
		abs = path // as it is: ".." behind a link leads elsewhere than it reads
	}
	const slash = string(filepath.Separator)
	root := filepath.VolumeName(abs) + slash
	at, rest := root, strings.Split(strings.TrimPrefix(abs, root), slash)
	for links := 0; len(rest) > 0; {
		next := filepath.Join(at, rest[0])
		rest = rest[1:]
		if inside(next) {
			return true
		}
		to, err := os.Readlink(next)
		if err != nil {
			at = next // no link, or nothing at all
			continue
		}
		if links++; links > maxLinks {
			return true
		}
		if filepath.IsAbs(to) {
			at = root
		}
		rest = append(strings.Split(to, slash), rest...)
	}
	return false
}

// within reports whether a clean path is a folder or lies in it.
func within(path, dir string) bool {
	rel, err := filepath.Rel(dir, path)
	return err == nil && rel != ".." && !strings.HasPrefix(rel, ".."+string(filepath.Separator))
}

// maxLinks is how many links may be followed on the way to a file.
const maxLinks = 40

// gathered are the files by their parts, and what is wrong with them.
type gathered struct {
	texts [parts][]text
	errs  [parts][]error
}

// key tells one state of a part from another.
func (g *gathered) key(p part) string {
	return fmt.Sprint(hashOf(g.texts[p]), g.errs[p])
}

func (g *gathered) all() []text { return slices.Concat(g.texts[:]...) }

func (g *gathered) err() error { return errors.Join(slices.Concat(g.errs[:]...)...) }

// gather reads every file of the chain. start says that named files must exist. Later, a file outside of the workspace
// that is gone or bad stays as it was loaded.
func (r *Rules) gather(start bool) *gathered {
	g := &gathered{}
	for _, s := range r.sources() {
		t := text{source: s}
		var err error
		t.bytes, err = r.read(&s)
		missing := errors.Is(err, os.ErrNotExist)
		if s.part == workspacePart {
			switch {
			case missing && (s.optional || !start):
			case err != nil:
				g.errs[s.part] = append(g.errs[s.part], err)
			default:
				g.texts[s.part] = append(g.texts[s.part], t)
			}
			continue
		}
		old := r.find(&s)
		switch {
		case missing && s.optional && old == nil:
			continue
		case missing && s.optional:
			err = fmt.Errorf("%s: was loaded and is gone", s.path)
		case err == nil && (old == nil || !bytes.Equal(old.bytes, t.bytes)):
			err = r.sound([]text{t})
		}
		if err != nil {
			g.errs[s.part] = append(g.errs[s.part], err)
			if old == nil {
				continue
			}
			t = *old
		}
		g.texts[s.part] = append(g.texts[s.part], t)
	}
	return g
}

// find gives a file as it was loaded.
func (r *Rules) find(s *source) *text {
	for i := range r.loaded[s.part] {
		if t := &r.loaded[s.part][i]; t.same(s) {
			return t
		}
	}
	return nil
}

// read reads one file. Errors name its path.
func (r *Rules) read(s *source) ([]byte, error) {
	if s.dir != "" {
		b, err := r.readHeld(s.dir, s.name)
		if err != nil {
			err = fmt.Errorf("%s: %w", s.path, bare(err))
		}
		return b, err
	}
	if s.part == managedPart && r.opts.Narrow && leadsThrough(s.path, r.opts.Workspace) {
		return nil, fmt.Errorf("%s: a managed file in the workspace, where the governed program may write it", s.path)
	}
	if s.owned && s.part != workspacePart {
		if err := CheckOwner(s.path); err != nil {
			return nil, err
		}
	}
	return ReadNamed(s.path, r.opts.MaxBytes)
}

// readHeld reads a file below a folder that is opened once and held: a folder that takes its place later is another one.
func (r *Rules) readHeld(dir, name string) ([]byte, error) {
	root := r.roots[dir]
	if root == nil {
		var err error
		if root, err = os.OpenRoot(dir); err != nil {
			return nil, err
		}
		r.roots[dir] = root
	}
	return readBelow(root, name, r.opts.MaxBytes)
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

// inForce leaves a fallback out where there is a file that it gives way to.
func inForce(texts []text) []text {
	displaced := slices.ContainsFunc(texts, func(t text) bool { return t.dialect == DSH && t.part != managedPart && !t.fallback })
	if !displaced {
		return texts
	}
	return slices.DeleteFunc(slices.Clone(texts), func(t text) bool { return t.fallback })
}

// bare takes the operation and the path off an error that is about to name the whole path.
func bare(err error) error {
	var pe *os.PathError
	if errors.As(err, &pe) {
		return pe.Err
	}
	return err
}
