package rules

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"dshproxy/netrule"
	"dshproxy/netrule/glob"
	"dshproxy/rules/tree"

	"gopkg.in/yaml.v3"
)

// Parse reads one rule file. file is the name that errors and rules carry. Errors are of type *ParseError; nothing of a
// file with an error is used.
func Parse(file string, text []byte, opts Options) (*Document, error) {
	root, err := tree.Parse(file, text, nodesPerRule*opts.maxRules())
	if err != nil {
		return nil, err
	}
	p := parser{file: file, opts: opts}
	doc := &Document{File: file}
	if root == nil || tree.Resolve(root).Kind == tree.Null {
		return doc, nil
	}
	err = p.fields(root, "the document", document(), func(f *field, n *yaml.Node) error {
		doc.HasRules = true
		doc.Rules, err = p.rules(f, n)
		return err
	})
	if err != nil {
		return nil, err
	}
	return doc, nil
}

// ParseChain reads the files of one chain, nearest first, and merges them. MaxRules counts over the whole chain,
// disabled rules included.
func ParseChain(docs []*Document, opts Options) ([]Rule, error) {
	var all []Rule
	for _, d := range docs {
		all = append(all, d.Rules...)
		if len(all) > opts.maxRules() {
			over := all[opts.maxRules()]
			return nil, &ParseError{File: over.File, Line: over.Line, Col: over.Col, What: fmt.Sprintf("the rule count exceeds maxRules %d", opts.maxRules()), Hint: "raise maxRules in the settings"}
		}
	}
	return all, nil
}

type parser struct {
	file string
	opts Options
}

func (p *parser) fail(n *yaml.Node, hint, format string, args ...any) error {
	return &ParseError{File: p.file, Line: n.Line, Col: n.Column, What: fmt.Sprintf(format, args...), Hint: hint}
}

// fields visits a mapping in the order of its fields, after refusing keys that are none of them and asking for those
// that are required.
func (p *parser) fields(n *yaml.Node, path string, known *mapping, visit func(f *field, n *yaml.Node) error) error {
	m := tree.Deref(n)
	if m.Kind != yaml.MappingNode {
		return p.fail(n, "", "%s must be a mapping, not %s", path, tree.Resolve(n).Kind)
	}
	names, byName := known.names(), map[string]*yaml.Node{}
	for i := 0; i+1 < len(m.Content); i += 2 {
		name := tree.KeyText(tree.Deref(m.Content[i]))
		if !slices.Contains(names, name) {
			return p.fail(m.Content[i], tree.DidYouMean(name, names), "unknown field %q in %s", name, path)
		}
		byName[name] = m.Content[i+1]
	}
	for i := range known.fields {
		f := &known.fields[i]
		if child := byName[f.name]; child != nil {
			if err := visit(f, child); err != nil {
				return err
			}
		} else if f.required {
			return p.fail(n, f.hint, "%s.%s %s", path, f.name, f.wants())
		}
	}
	return nil
}

func (p *parser) rules(f *field, n *yaml.Node) ([]Rule, error) {
	list := tree.Deref(n)
	if list.Kind != yaml.SequenceNode {
		return nil, p.fail(n, "write rules: [] for none", "rules must be a list, not %s", tree.Resolve(n).Kind)
	}
	out := make([]Rule, 0, min(len(list.Content), p.opts.maxRules()+1))
	for i, item := range list.Content {
		r, err := p.rule(f.sub, item, fmt.Sprintf("rule %d", i+1))
		if err != nil {
			return nil, err
		}
		out = append(out, r)
	}
	return out, nil
}

func (p *parser) rule(known *mapping, n *yaml.Node, path string) (Rule, error) {
	r := Rule{File: p.file, Line: n.Line, Col: n.Column, Enabled: true}
	err := p.fields(n, path, known, func(f *field, child *yaml.Node) (err error) {
		path, text := path+"."+f.name, ""
		switch f.name {
		case "action":
			text, err = p.scalar(f, child, path)
			r.Action, _ = netrule.ParseAction(text)
		case "reason":
			r.Reason, err = p.scalar(f, child, path)
		case "enabled":
			text, err = p.scalar(f, child, path)
			r.Enabled = text == "true"
		case "description":
			r.Description, err = p.scalar(f, child, path)
		case "match":
			err = p.match(&r.Match, f, child, path)
		case "tags":
			r.Tags, err = p.stringList(child, path)
		}
		return err
	})
	return r, err
}

// scalar reads one of the shapes that are a single value.
func (p *parser) scalar(f *field, n *yaml.Node, path string) (string, error) {
	v := tree.Resolve(n)
	switch {
	case f.shape == shapeBool && v.Kind != tree.Bool:
		return "", p.fail(n, "write true or false", "%s must be a boolean, not %s", path, v.Kind)
	case f.shape == shapeWord && (v.Kind != tree.String || !slices.Contains(f.words, v.Text)):
		return "", p.fail(n, tree.DidYouMean(v.Text, f.words), "%s %s", path, f.wants())
	case f.shape == shapeText && (v.Kind != tree.String || strings.TrimSpace(v.Text) == ""):
		return "", p.fail(n, f.hint, "%s %s", path, f.wants())
	}
	return v.Text, nil
}

func (p *parser) match(m *Match, f *field, n *yaml.Node, path string) error {
	return p.fields(n, path, f.sub, func(f *field, child *yaml.Node) (err error) {
		path := path + "." + f.name
		switch f.name {
		case "tools":
			m.Tools, err = p.globList(child, path, glob.Options{})
		case "agents":
			m.Agents, err = p.globList(child, path, glob.Options{})
		case "params":
			m.Params, err = p.keyed(child, path, "param", f.negatable)
		case "paths":
			m.Paths, err = p.pathPatterns(child, path)
		case "absent":
			m.Absent, err = p.stringList(child, path)
		case "when":
			err = p.when(&m.When, f, child, path)
		case "argv":
			m.Argv, err = p.argv(f, child, path)
		case "network":
			m.Network, err = p.network(f, child, path)
		}
		return err
	})
}

// item is one text of a list, with its node.
type item struct {
	node *yaml.Node
	text string
	path string
}

// strings reads the shape "string list": a non-empty string, or a list of them.
func (p *parser) strings(n *yaml.Node, path string) ([]item, error) {
	v := tree.Resolve(n)
	switch {
	case v.Kind == tree.String && v.Text != "":
		return []item{{n, v.Text, path}}, nil
	case v.Kind != tree.List:
		if v.Kind == tree.String {
			return nil, p.fail(n, "", "%s must be a non-empty string", path)
		}
		return nil, p.fail(n, quoteHint(v), "%s must be a string or a list of strings, not %s", path, v.Kind)
	}
	out := make([]item, 0, len(v.Node.Content))
	for i, child := range v.Node.Content {
		path := fmt.Sprintf("%s[%d]", path, i)
		if c := tree.Resolve(child); c.Kind != tree.String || c.Text == "" {
			return nil, p.fail(child, quoteHint(c), "%s must be a non-empty string", path)
		} else {
			out = append(out, item{child, c.Text, path})
		}
	}
	return out, nil
}

func quoteHint(v tree.Value) string {
	if v.Kind == tree.Number || v.Kind == tree.Bool {
		return "put it in quotes"
	}
	return ""
}

func (p *parser) stringList(n *yaml.Node, path string) ([]string, error) {
	items, err := p.strings(n, path)
	if err != nil {
		return nil, err
	}
	out := make([]string, len(items))
	for i, it := range items {
		out[i] = it.text
	}
	return out, nil
}

// patterns reads the shape "pattern list": a string, number or boolean, or a list of them that are not empty.
func (p *parser) patterns(n *yaml.Node, path string) ([]item, error) {
	v := tree.Resolve(n)
	switch v.Kind {
	case tree.String, tree.Number, tree.Bool:
		return []item{{n, v.Text, path}}, nil
	case tree.List:
	default:
		return nil, p.fail(n, "", "%s must be a string, number or boolean, or a list of them, not %s", path, v.Kind)
	}
	out := make([]item, 0, len(v.Node.Content))
	for i, child := range v.Node.Content {
		path := fmt.Sprintf("%s[%d]", path, i)
		c := tree.Resolve(child)
		switch {
		case c.Kind == tree.Null || c.Kind == tree.Map || c.Kind == tree.List:
			return nil, p.fail(child, "", "%s must be a string, number, or boolean, not %s", path, c.Kind)
		case c.Text == "":
			return nil, p.fail(child, "", "%s must be non-empty", path)
		}
		out = append(out, item{child, c.Text, path})
	}
	return out, nil
}

func (p *parser) glob(it item, opts glob.Options) (*glob.Glob, error) {
	opts.MaxStars = p.opts.MaxGlobStars
	g, err := glob.Compile(it.text, opts)
	var ge *glob.Error
	if errors.As(err, &ge) {
		// The position is enough: values of a rule file are not repeated.
		return nil, p.fail(it.node, "", "%s: the glob %s", it.path, ge.Why)
	}
	return g, err
}

func (p *parser) globList(n *yaml.Node, path string, opts glob.Options) ([]*glob.Glob, error) {
	items, err := p.strings(n, path)
	if err != nil {
		return nil, err
	}
	out := make([]*glob.Glob, len(items))
	for i, it := range items {
		if out[i], err = p.glob(it, opts); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// pattern compiles by patternMode. Negation is taken off first where the dimension has it.
func (p *parser) pattern(it item, negatable bool, opts glob.Options) (Pattern, error) {
	out := Pattern{Text: it.text}
	text := it.text
	if negatable && strings.HasPrefix(text, "!") {
		out.Negate, text = true, text[1:]
		if text == "" {
			return out, p.fail(it.node, "", "%s: an empty negated pattern", it.path)
		}
	}
	var err error
	if p.opts.Regex {
		if out.regex, err = compileRegex(text); err != nil {
			return out, p.fail(it.node, "", "%s: %v", it.path, err)
		}
		return out, nil
	}
	out.glob, err = p.glob(item{it.node, text, it.path}, opts)
	return out, err
}

func (p *parser) patternList(n *yaml.Node, path string, negatable bool) ([]Pattern, error) {
	items, err := p.patterns(n, path)
	if err != nil {
		return nil, err
	}
	out := make([]Pattern, len(items))
	for i, it := range items {
		if out[i], err = p.pattern(it, negatable, glob.Options{}); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// keyed reads a mapping of keys to pattern lists, none of them empty.
func (p *parser) keyed(n *yaml.Node, path, what string, negatable bool) ([]Keyed, error) {
	m := tree.Deref(n)
	if m.Kind != yaml.MappingNode {
		return nil, p.fail(n, "", "%s must be a mapping, not %s", path, tree.Resolve(n).Kind)
	}
	var out []Keyed
	for i := 0; i+1 < len(m.Content); i += 2 {
		key := tree.KeyText(tree.Deref(m.Content[i]))
		if key == "" {
			return nil, p.fail(m.Content[i], "", "%s: %s keys must be non-empty", path, what)
		}
		patterns, err := p.patternList(m.Content[i+1], path+"."+key, negatable)
		if err != nil {
			return nil, err
		}
		if len(patterns) == 0 {
			return nil, p.fail(m.Content[i+1], "", "%s.%s: %s patterns must be non-empty", path, key, what)
		}
		out = append(out, Keyed{key, patterns})
	}
	return out, nil
}

func (p *parser) pathPatterns(n *yaml.Node, path string) ([]Pattern, error) {
	items, err := p.strings(n, path)
	if err != nil {
		return nil, err
	}
	out := make([]Pattern, len(items))
	for i, it := range items {
		if !p.opts.Regex && strings.HasPrefix(it.text, "/") {
			return nil, p.fail(it.node, "paths are relative to the workspace: drop the leading /", "%s: an absolute path pattern can never match", it.path)
		}
		if out[i], err = p.pattern(it, false, glob.Options{Segments: true, Fold: p.opts.CaseInsensitivePaths}); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (p *parser) when(w *When, f *field, n *yaml.Node, path string) error {
	return p.fields(n, path, f.sub, func(f *field, child *yaml.Node) (err error) {
		path := path + "." + f.name
		if f.name == "env" {
			w.Env, err = p.keyed(child, path, "env", f.negatable)
			return err
		}
		items, err := p.strings(child, path)
		if err != nil {
			return err
		}
		for _, it := range items {
			if !slices.Contains(f.words, it.text) {
				return p.fail(it.node, tree.DidYouMean(it.text, f.words), "%s: unknown platform", it.path)
			}
			w.Platforms = append(w.Platforms, it.text)
		}
		return nil
	})
}

func (p *parser) argv(f *field, n *yaml.Node, path string) (*Argv, error) {
	a := &Argv{}
	err := p.fields(n, path, f.sub, func(f *field, child *yaml.Node) (err error) {
		path := path + "." + f.name
		switch f.name {
		case "command":
			a.Command, err = p.globList(child, path, glob.Options{})
		case "pipeline":
			a.Pipeline, err = p.globList(child, path, glob.Options{})
		case "args":
			a.Args, err = p.patternList(child, path, f.negatable)
		case "anyArg":
			a.AnyArg, err = p.patternList(child, path, f.negatable)
		}
		return err
	})
	if err == nil && f.sub.some && len(a.Command)+len(a.Pipeline)+len(a.Args)+len(a.AnyArg) == 0 {
		err = p.fail(n, "", "%s must name at least one of %s", path, strings.Join(f.sub.names(), ", "))
	}
	return a, err
}

func (p *parser) network(f *field, n *yaml.Node, path string) (*Network, error) {
	net := &Network{}
	err := p.fields(n, path, f.sub, func(f *field, child *yaml.Node) error {
		items, err := p.patterns(child, path+"."+f.name)
		if err != nil {
			return err
		}
		for _, it := range items {
			if err := p.networkPattern(net, f, it); err != nil {
				return err
			}
			net.Positions = append(net.Positions, Position{f.name, it.text, it.node.Line, it.node.Column})
		}
		return nil
	})
	if err == nil && f.sub.some && len(net.Positions) == 0 {
		err = p.fail(n, "", "%s must name at least one of %s", path, strings.Join(f.sub.names(), ", "))
	}
	return net, err
}

func (p *parser) networkPattern(net *Network, f *field, it item) error {
	var err error
	switch f.name {
	case "domains":
		var h netrule.HostPattern
		h, err = netrule.ParseHostPattern(it.text, p.opts.MaxGlobStars)
		net.Hosts = append(net.Hosts, h)
	case "ips":
		var a netrule.AddrPattern
		a, err = netrule.ParseAddrPattern(it.text, p.opts.MaxGlobStars)
		net.Addrs = append(net.Addrs, a)
	case "ports":
		var r netrule.PortRange
		r, err = netrule.ParsePortPattern(it.text)
		net.Ports = append(net.Ports, r)
	case "schemes":
		s, ok := netrule.ParseScheme(it.text)
		if !ok {
			return p.fail(it.node, tree.DidYouMean(it.text, f.words), "%s must be one of %s", it.path, strings.Join(f.words, ", "))
		}
		net.Schemes = append(net.Schemes, s)
	}
	if err == nil {
		return nil
	}
	hint := ""
	if pe, ok := err.(*netrule.PatternError); ok { //nolint:errorlint // these parsers return it bare
		hint = pe.Hint
	}
	return p.fail(it.node, hint, "%s: %v", it.path, err)
}
