package live

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"dshproxy/netrule"
	"dshproxy/rules"
)

// AllowRequest asks for one exact allow rule.
type AllowRequest struct {
	Target netrule.Target // a name or a literal; port 0 leaves ports out
	// Addrs are put into ips, which opens special-use addresses.
	Addrs []netip.Addr
	// Remove takes the very rule out again that the same request without Remove would write.
	Remove bool
}

// AllowResult is what an edit did.
type AllowResult struct {
	File    string
	Written bool // false when there was nothing to do
	Diff    string
	// Overrides are the deny and ask rules of the workspace that decided before.
	Overrides []netrule.RuleRef
	// Verdict is recomputed after the edit, by name.
	Verdict netrule.Decision
}

// Allow inserts a rule at the head of the file that judges connections of the workspace, or creates that file. Every
// other byte stays. The new text is parsed before it is written, and written by a rename. Already allowed writes nothing.
func (r *Rules) Allow(req AllowRequest) (AllowResult, error) {
	if req.Target.Host == "" {
		return AllowResult{}, errors.New("no host to allow")
	}
	snapshot := r.current.Load()
	if snapshot == nil {
		return AllowResult{}, errors.New("no rules are loaded")
	}
	if !slices.Contains(r.opts.Dialects, DSH) {
		return AllowResult{}, errors.New("the dialects leave dsh out, and a rule of that kind would not be read")
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	snapshot = r.current.Load()
	q := netrule.Query{Target: req.Target}
	before := r.decide(snapshot, q, req.Addrs)
	result := AllowResult{File: r.editable(snapshot), Verdict: before}
	if before.Action == netrule.Allow && !before.DryRun && !before.NeedsAddrs && !req.Remove {
		return result, nil
	}
	result.Overrides = overridden(snapshot, q, req)
	folder, err := r.folderOf(result.File)
	if err != nil {
		return result, err
	}
	defer folder.close()
	old, err := folder.read(r.opts.MaxBytes)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return result, err
	}
	edited, err := r.edit(result.File, old, req)
	if err != nil {
		return result, err
	}
	if f := r.displaces(result.File); f != "" && !req.Remove {
		return result, fmt.Errorf("the rules of %s hold until the workspace's own file is accepted, and this would accept it: run dshproxy trust first", f)
	}
	accepted := r.acceptedWith(result.File, req)
	if bytes.Equal(edited, old) && sameTexts(accepted, r.accepted) {
		return result, nil
	}
	next, g, err := r.with(result.File, edited, accepted)
	if err != nil {
		return result, err
	}
	if !req.Remove {
		// A rule that changes nothing would only mislead.
		if result.Verdict = r.decide(next, q, req.Addrs); result.Verdict.Action != netrule.Allow {
			return result, nil
		}
	}
	if err := folder.write(edited); err != nil {
		return result, err
	}
	if r.opts.Narrow {
		if err := r.accept(accepted); err != nil {
			return result, err
		}
	}
	result.Written, result.Diff = true, lineDiff(old, edited)
	r.store(next, g)
	for i := range result.Overrides {
		// The rule has moved down by the one that now stands before it.
		if o := &result.Overrides[i]; !req.Remove && o.Index+1 < len(next.Chain) {
			o.Line, o.Index = next.Chain[o.Index+1].Line, o.Index+1
		}
	}
	result.Verdict = r.decide(next, q, req.Addrs)
	return result, nil
}

// edit puts the rule of a request into a file's text, or takes it out.
func (r *Rules) edit(path string, old []byte, req AllowRequest) ([]byte, error) {
	if req.Remove {
		return rules.RemoveRule(path, old, ruleText(req), r.opts.Parse)
	}
	return rules.InsertRule(path, old, ruleText(req), r.opts.Parse)
}

// acceptedWith makes the same edit in what is accepted of the file, and in nothing else: whoever allows a host has not
// looked at what changed besides. An accepted text that does not take the edit stays as it is.
func (r *Rules) acceptedWith(path string, req AllowRequest) []text {
	if !r.opts.Narrow {
		return nil
	}
	at := slices.IndexFunc(r.accepted, func(t text) bool { return t.path == path })
	var old []byte
	switch {
	case at >= 0:
		old = r.accepted[at].bytes
	case req.Remove:
		return r.accepted
	}
	edited, err := r.edit(path, old, req)
	if err != nil {
		return r.accepted
	}
	return r.withText(workspacePart, r.accepted, path, edited)
}

// withText puts a text of a file of the chain among others of its part, at its place.
func (r *Rules) withText(p part, texts []text, path string, edited []byte) []text {
	var out []text
	for _, s := range r.sources() {
		t := text{source: s}
		if i := slices.IndexFunc(texts, func(t text) bool { return t.same(&s) }); i >= 0 {
			t = texts[i]
		} else if s.path != path || s.dialect != DSH || s.part != p {
			continue
		}
		if s.path == path && s.dialect == DSH {
			t.bytes, t.bad = edited, false
		}
		out = append(out, t)
	}
	return out
}

// displaces gives the fallback that would go out of force with what is accepted so far, if the first file of the
// workspace's chain became accepted by this.
func (r *Rules) displaces(path string) string {
	if !r.opts.Narrow {
		return ""
	}
	all := slices.Concat(r.loaded[managedPart], r.loaded[namedPart], r.accepted)
	for _, t := range inForce(all) {
		if t.fallback && t.path != path {
			return t.path
		}
	}
	return ""
}

// overridden gives the rule of the workspace that refused so far. Managed rules hold all the same, so they do not count.
func overridden(s *Snapshot, q netrule.Query, req AllowRequest) []netrule.RuleRef {
	for _, l := range s.Policy.Layers() {
		if l.Name != "workspace" {
			continue
		}
		alone := netrule.NewPolicy(s.Policy.Options(), netrule.Layer{Name: l.Name, Rules: slices.Clone(l.Rules)})
		d := alone.Decide(q)
		if len(req.Addrs) > 0 {
			d = alone.DecideAddrs(q, req.Addrs, nil)
		}
		if d.Matched() && (d.Action != netrule.Allow || d.DryRun) {
			return []netrule.RuleRef{d.Rule}
		}
	}
	return nil
}

// with compiles what the rules will be once a file has this text and so much is accepted.
func (r *Rules) with(path string, edited []byte, accepted []text) (*Snapshot, *gathered, error) {
	if int64(len(edited)) > r.opts.MaxBytes {
		return nil, nil, fmt.Errorf("%s: would become larger than %d bytes", path, r.opts.MaxBytes)
	}
	g := r.gather(false)
	if err := g.err(); err != nil {
		return nil, nil, err
	}
	for _, p := range []part{namedPart, workspacePart} {
		g.texts[p] = r.withText(p, g.texts[p], path, edited)
	}
	if err := r.checkWorkspace(g); err != nil {
		return nil, nil, err
	}
	s, err := r.narrowed(g.all(), accepted)
	return s, g, err
}

// folder is where a rule file stands: a held folder, and the name below it.
type folder struct {
	root *os.Root
	name string
	path string
	own  bool // opened for this edit, and closed behind it
}

// folderOf gives the held folder of a discovered file, below which nothing leads out, or opens that of a named one.
func (r *Rules) folderOf(path string) (*folder, error) {
	for dir, root := range r.roots {
		if path == filepath.Join(dir, r.opts.RulesFile) && !filepath.IsAbs(r.opts.RulesFile) {
			return &folder{root, r.opts.RulesFile, path, false}, nil
		}
	}
	dir, name := filepath.Split(path)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	return &folder{root, name, path, true}, nil
}

func (f *folder) close() {
	if f.own {
		f.root.Close()
	}
}

func (f *folder) read(limit int64) ([]byte, error) {
	b, err := readBelow(f.root, f.name, limit)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.path, bare(err))
	}
	return b, nil
}

func (r *Rules) decide(s *Snapshot, q netrule.Query, addrs []netip.Addr) netrule.Decision {
	if len(addrs) > 0 {
		return s.Policy.DecideAddrs(q, addrs, nil)
	}
	return s.Policy.Decide(q)
}

// editable gives the file at whose head a rule takes effect: the nearest loaded one, else the workspace's own.
func (r *Rules) editable(s *Snapshot) string {
	for _, f := range s.Files {
		if !f.Managed && f.Dialect == DSH {
			return f.Path
		}
	}
	if filepath.IsAbs(r.opts.RulesFile) {
		return r.opts.RulesFile
	}
	return filepath.Join(r.opts.Workspace, r.opts.RulesFile)
}

// ruleText is the rule of a request.
func ruleText(req AllowRequest) rules.NewRule {
	n := rules.NewRule{Host: req.Target.Host, Reason: "allowed with dshproxy allow"}
	if req.Target.Port != 0 {
		n.Port = req.Target.Port
	}
	for _, a := range req.Addrs {
		n.IPs = append(n.IPs, a.String())
	}
	return n
}

// write replaces the file by a rename, and creates its folder when that is missing. A link is refused: the rename would
// replace it and not what it points to. What stands in the place of the temporary file is removed, never written to.
func (f *folder) write(text []byte) error {
	if err := f.root.MkdirAll(filepath.Dir(f.name), 0o755); err != nil {
		return err
	}
	mode := os.FileMode(0o644)
	if info, err := f.root.Lstat(f.name); err == nil {
		if !info.Mode().IsRegular() {
			return fmt.Errorf("%s: is a link or no regular file; edit what it points to", f.path)
		}
		mode = info.Mode().Perm()
	}
	temporary := filepath.Join(filepath.Dir(f.name), fmt.Sprintf(".%s.%d.tmp", filepath.Base(f.name), os.Getpid()))
	_ = f.root.Remove(temporary) // left by a crash, or planted
	file, err := f.root.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = file.Write(text)
	if err == nil {
		err = file.Sync()
	}
	if closeErr := file.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = f.root.Rename(temporary, f.name)
	}
	if err != nil {
		_ = f.root.Remove(temporary) // best effort: the error that matters is the first
	}
	return err
}

// lineDiff shows the lines that an insertion or removal of one block changed.
func lineDiff(old, edited []byte) string {
	a, b := strings.SplitAfter(string(old), "\n"), strings.SplitAfter(string(edited), "\n")
	start := 0
	for start < len(a) && start < len(b) && a[start] == b[start] {
		start++
	}
	endA, endB := len(a), len(b)
	for endA > start && endB > start && a[endA-1] == b[endB-1] {
		endA--
		endB--
	}
	var out strings.Builder
	for _, line := range a[start:endA] {
		out.WriteString("-" + strings.TrimRight(line, "\r\n") + "\n")
	}
	for _, line := range b[start:endB] {
		out.WriteString("+" + strings.TrimRight(line, "\r\n") + "\n")
	}
	return out.String()
}
