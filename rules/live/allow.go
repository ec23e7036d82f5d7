package live

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
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
	q := netrule.Query{Target: req.Target}
	before := r.decide(snapshot, q, req.Addrs)
	result := AllowResult{File: r.editable(snapshot), Verdict: before}
	if before.Action == netrule.Allow && !before.DryRun && !before.NeedsAddrs && !req.Remove {
		return result, nil
	}
	if before.Matched() && before.Action != netrule.Allow {
		result.Overrides = []netrule.RuleRef{before.Rule}
	}
	old, err := readNamed(result.File, r.opts.MaxBytes)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return result, err
	}
	var edited []byte
	if req.Remove {
		edited, err = rules.RemoveRule(result.File, old, ruleText(req), r.opts.Parse)
	} else {
		edited, err = rules.InsertRule(result.File, old, ruleText(req), r.opts.Parse)
	}
	if err != nil {
		return result, err
	}
	if bytes.Equal(edited, old) {
		return result, nil
	}
	if err := writeByRename(result.File, edited); err != nil {
		return result, err
	}
	result.Written, result.Diff = true, lineDiff(old, edited)
	return r.finishAllow(result, q, req)
}

// finishAllow loads what was written and decides again.
func (r *Rules) finishAllow(result AllowResult, q netrule.Query, req AllowRequest) (AllowResult, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	texts, err := r.gather(false)
	if err != nil {
		return result, err
	}
	s, err := r.compile(texts, false)
	if err != nil {
		return result, err
	}
	r.current.Store(s)
	for i := range result.Overrides {
		// The rule has moved down by the one that now stands before it.
		if o := &result.Overrides[i]; !req.Remove && o.Layer == "workspace" && o.Index+1 < len(s.Chain) {
			o.Line, o.Index = s.Chain[o.Index+1].Line, o.Index+1
		}
	}
	result.Verdict = r.decide(s, q, req.Addrs)
	return result, nil
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
		if !f.Managed {
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

// writeByRename replaces a file inside its folder, which is created when it is missing. A link is refused: the rename
// would replace it and not what it points to.
func writeByRename(path string, text []byte) error {
	dir, name := filepath.Split(path)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	mode := os.FileMode(0o644)
	if info, err := root.Lstat(name); err == nil {
		if !info.Mode().IsRegular() {
			return fmt.Errorf("%s: is a link or no regular file; edit what it points to", path)
		}
		mode = info.Mode().Perm()
	}
	temporary := fmt.Sprintf(".%s.%d.tmp", name, os.Getpid())
	f, err := root.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, mode)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err == nil {
		err = f.Sync()
	}
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = root.Rename(temporary, name)
	}
	if err != nil {
		_ = root.Remove(temporary) // best effort: the error that matters is the first
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
