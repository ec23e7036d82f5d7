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

// compile parses the files and makes a policy. ignoreBad drops bad workspace files.
func (r *Rules) compile(texts []text, ignoreBad bool) (*Snapshot, error) {
	s := &Snapshot{Hash: hashOf(texts), Loaded: time.Now(), home: r.opts.Places.Home, Baseline: r.opts.Baseline}
	var p parsed
	dropped := false
	for i := range texts {
		t := &texts[i]
		f, err := r.parse(t, &p)
		switch {
		case err != nil && ignoreBad && t.discovered:
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
	s.calls = slices.Concat(s.Chain, s.Baseline)
	for _, c := range p.claude {
		s.Warnings = append(s.Warnings, c.Warnings...)
	}
	if slices.Contains(r.opts.Dialects, ClaudeSettings) {
		s.Claude = toolspec.NewSet(p.claude...)
	}
	if slices.Contains(r.opts.Dialects, PiPermission) {
		s.Pi = surface.NewSet(p.piTrusted, p.piWorkspace)
	}
	opts := r.opts.Policy
	if dropped {
		// The dropped file may have held the denials that made the mode safe.
		opts.Mode, opts.Unlisted, opts.Loopback = netrule.Whitelist, netrule.Deny, false
		s.Warnings = append(s.Warnings, "a rule file was dropped: nothing is allowed by mode until it is mended")
	}
	s.Policy = netrule.NewPolicy(opts, s.layers("", r.opts.Host)...)
	return s, nil
}

// layers gives the rules about connections. suffix marks the names of layers that are not accepted.
func (s *Snapshot) layers(suffix string, host rules.Host) []netrule.Layer {
	var out []netrule.Layer
	if len(s.Managed) > 0 {
		out = append(out, netrule.Layer{Name: "managed", Rules: rules.Connections(s.Managed, host)})
	}
	out = append(out, netrule.Layer{Name: "workspace" + suffix, Rules: rules.Connections(s.Chain, host)})
	if s.Claude != nil {
		out = append(out, netrule.Layer{Name: string(ClaudeSettings) + suffix, Rules: s.Claude.Connections()})
	}
	return out
}

// parsed are the files by what they hold.
type parsed struct {
	workspace, managed     []*rules.Document
	claude                 []*toolspec.Settings
	piTrusted, piWorkspace []*surface.Permissions
}

// parse reads one file by its dialect.
func (r *Rules) parse(t *text, p *parsed) (File, error) {
	f := File{Path: t.path, Dialect: t.dialect, Managed: t.managed, Workspace: t.discovered}
	switch t.dialect {
	case DSH:
		doc, err := rules.Parse(t.path, t.bytes, r.opts.Parse)
		if err == nil && !doc.HasRules && r.current.Load().hadRules(t.path) {
			err = &rules.ParseError{File: t.path, What: "the file holds no rules", Hint: "an intended empty set is rules: []"}
		}
		if err != nil {
			return f, err
		}
		f.Rules, f.written, f.fallback = len(doc.Rules), doc.HasRules, !t.managed && !t.discovered && t.path != r.opts.RulesFile
		if t.managed {
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
		if t.discovered {
			p.piWorkspace = append(p.piWorkspace, c)
		} else {
			p.piTrusted = append(p.piTrusted, c)
		}
	default:
		return f, fmt.Errorf("%s: unknown dialect %q", t.path, t.dialect)
	}
	return f, nil
}

// hadRules reports whether a file was loaded with a rules key.
func (s *Snapshot) hadRules(path string) bool {
	return s != nil && slices.ContainsFunc(s.Files, func(f File) bool { return f.Path == path && f.written })
}

// stillThere refuses a reload that would lose a file.
func stillThere(old *Snapshot, texts []text) error {
	for _, f := range old.Files {
		found := f.fallback && slices.ContainsFunc(texts, func(t text) bool { return t.discovered && t.dialect == DSH })
		for _, t := range texts {
			found = found || t.path == f.Path && t.managed == f.Managed
		}
		if !found {
			return fmt.Errorf("%s: was loaded and is gone", f.Path)
		}
	}
	return nil
}
