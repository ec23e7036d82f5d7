package live

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"dshproxy/rules"
	"dshproxy/rules/toolspec"
)

// text is a file as it was read.
type text struct {
	path       string
	managed    bool
	discovered bool // found in a workspace, and not named by the operator
	dialect    Dialect
	origin     toolspec.Origin // of settings
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
		out = append(out, text{path: path, managed: true, dialect: DSH, bytes: b})
	}
	if slices.Contains(r.opts.Dialects, DSH) {
		found, err := r.chain(start)
		if err != nil {
			return nil, err
		}
		out = append(out, found...)
	}
	found, err := r.readForeign()
	return append(out, found...), err
}

// chain reads the workspace's own rule files, or the fallback where there is none.
func (r *Rules) chain(start bool) ([]text, error) {
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
			found = []text{{path: fallback, dialect: DSH, bytes: b}}
		}
	}
	return found, nil
}

// discover reads the workspace's files, nearest first.
func (r *Rules) discover() ([]text, error) {
	if filepath.IsAbs(r.opts.RulesFile) {
		b, err := ReadNamed(r.opts.RulesFile, r.opts.MaxBytes)
		if err != nil {
			return nil, err
		}
		return []text{{path: r.opts.RulesFile, dialect: DSH, bytes: b}}, nil
	}
	var out []text
	for dir := r.opts.Workspace; ; dir = filepath.Dir(dir) {
		b, err := r.readHeld(dir, r.opts.RulesFile)
		switch {
		case errors.Is(err, os.ErrNotExist):
		case err != nil:
			return nil, fmt.Errorf("%s: %w", filepath.Join(dir, r.opts.RulesFile), bare(err))
		default:
			out = append(out, text{path: filepath.Join(dir, r.opts.RulesFile), discovered: true, dialect: DSH, bytes: b})
		}
		if !r.opts.SearchUp || dir == filepath.Dir(dir) {
			return out, nil
		}
	}
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

// bare takes the operation and the path off an error that is about to name the whole path.
func bare(err error) error {
	var pe *os.PathError
	if errors.As(err, &pe) {
		return pe.Err
	}
	return err
}
