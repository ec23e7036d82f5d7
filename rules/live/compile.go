package live

import (
	"fmt"
	"slices"
	"time"

	"dshproxy/netrule"
	"dshproxy/rules"
	"dshproxy/rules/surface"
	"dshproxy/rules/toolspec"
)

// view says how the files of a narrow workspace are read. The zero value reads them as the format says.
type view struct {
	apart map[string]bool // not accepted: each is a layer of its own, and none stands in the way of another
	stale map[string]bool // accepted in another text than the one on disk
	// broken drops what does not parse.
	broken bool
}

// acceptedMark is behind the reasons of rules whose lines are those of an accepted text, and not of the file on disk.
const acceptedMark = ", accepted text"

// compile parses the files and makes a policy.
func (r *Rules) compile(texts []text, v view) (*Snapshot, error) {
	s := &Snapshot{Hash: hashOf(texts), Loaded: time.Now(), home: r.opts.Places.Home, Baseline: r.opts.Baseline, stale: v.stale}
	p := parsed{apart: v.apart}
	dropped := false
	for i := range texts {
		t := &texts[i]
		f, err := r.parse(t, &p)
		switch {
		case err != nil && (t.bad || v.broken && t.part == workspacePart):
			dropped = true
			s.Warnings = append(s.Warnings, err.Error())
		case err != nil:
			return nil, err
		default:
			s.Files = append(s.Files, f)
		}
	}
	var err error
	if s.Chain, err = rules.ParseChain(p.workspace, r.opts.Parse); err != nil {
		return nil, err
	}
	if s.Managed, err = rules.ParseChain(p.managed, r.opts.Parse); err != nil {
		return nil, err
	}
	s.markChain()
	s.layers = layersOf(s.Chain, v.apart)
	s.calls = s.CallLayers()
	for _, c := range p.claude {
		s.Warnings = append(s.Warnings, c.Warnings...)
	}
	if slices.Contains(r.opts.Dialects, ClaudeSettings) {
		s.Claude = toolspec.NewSet(p.claude...)
		alone := r.opts.Policy
		alone.DryRun = false // the verdict about the call takes it into account
		connections := s.claudeConnections()
		s.hosts = netrule.NewPolicy(alone, netrule.Layer{Name: string(ClaudeSettings), Rules: connections})
		s.hostRules = len(connections)
		s.refuseHosts(connections)
	}
	if slices.Contains(r.opts.Dialects, PiPermission) {
		s.Pi = surface.NewSet(p.piTrusted, p.piWorkspace)
		for _, one := range p.piApart {
			s.piApart = append(s.piApart, surface.NewSet(p.piTrusted, []*surface.Permissions{one}))
		}
	}
	opts := r.opts.Policy
	if dropped {
		// The dropped file may have held the denials that made the mode safe.
		opts.Mode, opts.Unlisted, opts.Loopback = netrule.Whitelist, netrule.Deny, false
		s.Warnings = append(s.Warnings, "a rule file was dropped: nothing is allowed by mode until it is mended")
	}
	s.Policy = netrule.NewPolicy(opts, s.connections("", r.opts.Host)...)
	return s, nil
}

// markChain marks the rules of files that are on disk in another text. The rules are this snapshot's own.
func (s *Snapshot) markChain() {
	for i := range s.Chain {
		if s.stale[s.Chain[i].File] {
			s.Chain[i].Reason += acceptedMark
		}
	}
}

// mark does the same for the reference to a rule of another program's file.
func (s *Snapshot) mark(ref netrule.RuleRef) netrule.RuleRef {
	if s.stale[ref.File] {
		ref.Reason += acceptedMark
	}
	return ref
}

// layersOf parts a chain: the rules of each file that stands apart, and the others together. nil is one layer.
func layersOf(chain []rules.Rule, apart map[string]bool) [][]int {
	at := map[string]int{}
	var out [][]int
	for i := range chain {
		key := ""
		if apart[chain[i].File] {
			key = chain[i].File
		}
		n, ok := at[key]
		if !ok {
			n = len(out)
			at[key], out = n, append(out, nil)
		}
		out[n] = append(out[n], i)
	}
	if len(out) < 2 {
		return nil
	}
	return out
}

// connections gives the rules about connections. suffix marks the names of layers that are not accepted.
func (s *Snapshot) connections(suffix string, host rules.Host) []netrule.Layer {
	var out []netrule.Layer
	if len(s.Managed) > 0 {
		out = append(out, netrule.Layer{Name: "managed", Rules: rules.Connections(s.Managed, host)})
	}
	all := rules.Connections(s.Chain, host)
	for _, layer := range s.layers {
		one := make([]netrule.Rule, len(layer))
		for i, at := range layer {
			one[i] = all[at]
		}
		out = append(out, netrule.Layer{Name: "workspace" + suffix, Rules: one})
	}
	if s.layers == nil {
		out = append(out, netrule.Layer{Name: "workspace" + suffix, Rules: all})
	}
	if s.Claude != nil {
		out = append(out, netrule.Layer{Name: string(ClaudeSettings) + suffix, Rules: s.claudeConnections()})
	}
	return out
}

// refuseHosts keeps the rules that deny or ask about hosts by name.
func (s *Snapshot) refuseHosts(connections []netrule.Rule) {
	if s.Claude.Strict() {
		connections = connections[:len(connections)-1] // which is about hosts that no rule names
	}
	for _, c := range connections {
		if c.Action != netrule.Allow {
			s.refusals = append(s.refusals, rules.Rule{Enabled: true, Action: c.Action, Match: rules.Match{Network: &rules.Network{Match: c.Match}}})
			s.refusalRefs = append(s.refusalRefs, c.Ref)
		}
	}
}

// claudeConnections gives what the settings say about connections.
func (s *Snapshot) claudeConnections() []netrule.Rule {
	out := s.Claude.Connections()
	for i := range out {
		out[i].Ref = s.mark(out[i].Ref)
	}
	return out
}

// parsed are the files by what they hold.
type parsed struct {
	workspace, managed     []*rules.Document
	claude                 []*toolspec.Settings
	piTrusted, piWorkspace []*surface.Permissions
	piApart                []*surface.Permissions
	apart                  map[string]bool
}

// parse reads one file by its dialect.
func (r *Rules) parse(t *text, p *parsed) (File, error) {
	f := File{Path: t.path, Dialect: t.dialect, Managed: t.part == managedPart, Workspace: t.part == workspacePart}
	switch t.dialect {
	case DSH:
		doc, err := rules.Parse(t.path, t.bytes, r.opts.Parse)
		if err != nil {
			return f, err
		}
		f.Rules, f.written = len(doc.Rules), doc.HasRules
		if t.part == managedPart {
			p.managed = append(p.managed, doc)
		} else {
			p.workspace = append(p.workspace, doc)
		}
	case ClaudeSettings:
		c, err := toolspec.ParseSettings(t.path, t.origin, r.settingsDir(t), t.bytes)
		if err != nil {
			return f, err
		}
		f.Rules = c.Rules()
		p.claude = append(p.claude, c)
	case PiPermission:
		c, err := surface.ParsePermissions(t.path, t.bytes)
		if err != nil {
			return f, err
		}
		f.Rules = c.Rules()
		switch {
		case t.part != workspacePart:
			p.piTrusted = append(p.piTrusted, c)
		case p.apart[t.path]:
			p.piApart = append(p.piApart, c)
			fallthrough
		default:
			p.piWorkspace = append(p.piWorkspace, c)
		}
	default:
		return f, fmt.Errorf("%s: unknown dialect %q", t.path, t.dialect)
	}
	return f, nil
}
