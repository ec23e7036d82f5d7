package toolspec

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"dshproxy/netrule"
	"dshproxy/rules/jsonc"
	"dshproxy/rules/tree"
	"dshproxy/rules/work"
)

// Origin is the scope that a settings file belongs to, the strongest first.
type Origin uint8

// The scopes of the client's settings.
const (
	Managed Origin = iota // the administrator's
	Local                 // of one person in one project
	Project               // that everybody in a project shares
	User                  // of one person everywhere
)

// String names the scope.
func (o Origin) String() string { return [...]string{"managed", "local", "project", "user"}[o] }

// Settings is what one settings file of the client says about permissions and the network.
type Settings struct {
	File   string
	Origin Origin
	// Dir is the folder that "/" at the start of a path pattern means.
	Dir string
	// Warnings name rules that never match, with their place.
	Warnings []string

	rules       []listed
	domains     []domain
	strict      int  // line of strictAllowlist, 0 without
	managedOnly bool // rules of other scopes do not count
	managedNet  bool // allowed domains of other scopes do not count
}

// Rules gives how many rules and domains the file holds.
func (s *Settings) Rules() int { return len(s.rules) + len(s.domains) }

// listed is a rule in one of the three lists.
type listed struct {
	Rule
	list netrule.Action
	ref  netrule.RuleRef
}

// domain is an entry of the sandbox's lists.
type domain struct {
	host netrule.HostPattern
	port uint16 // 0 is any
	list netrule.Action
	ref  netrule.RuleRef
}

// ParseSettings reads a settings file. Keys that are not about permissions are left alone: they are the client's. Errors
// are of type *tree.Error.
func ParseSettings(file string, origin Origin, dir string, text []byte) (*Settings, error) {
	s := &Settings{File: file, Origin: origin, Dir: dir}
	root, err := jsonc.Parse(file, text)
	if err != nil || root == nil {
		return s, err
	}
	if root.Kind != jsonc.Map {
		return nil, root.Errorf("", "the settings must be a mapping")
	}
	s.checkKeys(root, "permissions", "sandbox", "allowManagedPermissionRulesOnly")
	s.checkKeys(root.Get("permissions"), "allow", "ask", "deny")
	s.checkKeys(root.Get("sandbox"), "network")
	s.checkKeys(root.Get("sandbox").Get("network"), "allowedDomains", "deniedDomains", "strictAllowlist", "allowManagedDomainsOnly")
	if err := s.readPermissions(root.Get("permissions")); err != nil {
		return nil, err
	}
	if err := s.readNetwork(root.Get("sandbox").Get("network")); err != nil {
		return nil, err
	}
	if origin == Managed {
		if s.managedOnly, err = root.Get("allowManagedPermissionRulesOnly").True("allowManagedPermissionRulesOnly"); err != nil {
			return nil, err
		}
	}
	return s, nil
}

func (s *Settings) readPermissions(v *jsonc.Value) error {
	if v == nil {
		return nil
	}
	if v.Kind != jsonc.Map {
		return v.Errorf("", "permissions must be a mapping, and is %s", v.Kind)
	}
	for _, list := range []netrule.Action{netrule.Deny, netrule.Ask, netrule.Allow} {
		path := "permissions." + list.String()
		items, err := v.Get(list.String()).Strings(path)
		if err != nil {
			return err
		}
		for i := range items {
			rule, err := ParseRule(items[i].Text)
			if err != nil {
				return items[i].Errorf(`as in "Bash(npm run *)", "Read(./src/**)" or "WebFetch"`, "%s: %s", path, err)
			}
			if why := rule.never(list); why != "" {
				s.warn(&items[i], "%s: %q never matches: %s", path, items[i].Text, why)
			}
			s.rules = append(s.rules, listed{rule, list, s.ref(&items[i], path)})
		}
	}
	return nil
}

func (s *Settings) ref(v *jsonc.Value, path string) netrule.RuleRef {
	return netrule.RuleRef{File: s.File, Line: v.Line, Reason: fmt.Sprintf("%s of the %s settings: %s", path, s.Origin, v.Text)}
}

func (s *Settings) warn(v *jsonc.Value, format string, args ...any) {
	e := tree.Error{File: s.File, Line: v.Line, Col: v.Col, What: fmt.Sprintf(format, args...)}
	s.Warnings = append(s.Warnings, e.Error())
}

// never says why a rule that loads matches no call.
func (r Rule) never(list netrule.Action) string {
	switch {
	case !r.Bare && strings.HasPrefix(r.Tool, "mcp__"):
		return "rules for MCP tools take no parentheses"
	case r.Bare && list == netrule.Allow && strings.Contains(r.Tool, "*") && !r.coversTool(true, strings.ReplaceAll(r.Tool, "*", "x"), work.New(work.PerCall)):
		return "an allow rule may have a star only behind mcp__SERVER__"
	case r.unknownTool(list) != "":
		return r.unknownTool(list)
	case r.badPattern() != "":
		return r.badPattern()
	case !r.Bare && slices.Contains(pathless, r.Tool) && r.Spec != "*" && !strings.Contains(r.Spec, ":"):
		return "paths are judged by rules for Read and Edit"
	case !r.Bare && list == netrule.Allow && !slices.Contains([]string{"Bash", "Read", "Edit", "WebFetch", "Agent"}, r.Tool) && r.Spec != "*":
		return "an allow rule for this tool takes no specifier"
	case !r.Bare && r.Tool == "WebFetch" && strings.HasPrefix(r.Spec, "domain:"):
		if _, ok := r.hostPattern(); !ok {
			return "no host can be called that"
		}
		return ""
	case !r.Bare && r.Tool == "WebFetch" && r.Spec != "*" && (list == netrule.Allow || !strings.Contains(r.Spec, ":") || nearlyDomain(r.Spec)):
		return "want WebFetch(domain:HOST)"
	default:
		return ""
	}
}

// nearlyDomain reports a specifier that begins as domain: does, in another spelling.
func nearlyDomain(spec string) bool {
	name, _, ok := strings.Cut(spec, ":")
	return ok && strings.EqualFold(strings.TrimSpace(name), "domain")
}

func (s *Settings) readNetwork(v *jsonc.Value) error {
	if v == nil {
		return nil
	}
	if v.Kind != jsonc.Map {
		return v.Errorf("", "sandbox.network must be a mapping, and is %s", v.Kind)
	}
	for _, l := range []struct {
		key  string
		list netrule.Action
	}{{"deniedDomains", netrule.Deny}, {"allowedDomains", netrule.Allow}} {
		path := "sandbox.network." + l.key
		items, err := v.Get(l.key).Strings(path)
		if err != nil {
			return err
		}
		for i := range items {
			d, err := parseDomain(items[i].Text)
			if err != nil {
				return items[i].Errorf("a host, *.host or host:port", "%s: %q: %s", path, items[i].Text, err)
			}
			d.list, d.ref = l.list, s.ref(&items[i], path)
			s.domains = append(s.domains, d)
		}
	}
	strict, err := v.Get("strictAllowlist").True("sandbox.network.strictAllowlist")
	if err != nil {
		return err
	}
	if strict {
		s.strict = v.Get("strictAllowlist").Line
	}
	if s.Origin == Managed {
		s.managedNet, err = v.Get("allowManagedDomainsOnly").True("sandbox.network.allowManagedDomainsOnly")
	}
	return err
}

// parseDomain reads an entry of the sandbox's lists: a host or *.host, with a port or without.
func parseDomain(text string) (domain, error) {
	d := domain{}
	host := text
	if strings.Contains(text, "://") {
		return d, errors.New("a host takes no scheme")
	}
	if colon := strings.LastIndexByte(text, ':'); colon >= 0 && !strings.HasSuffix(text, "]") && strings.Count(text, ":") == 1 || strings.Contains(text, "]:") {
		port, err := strconv.ParseUint(text[colon+1:], 10, 16)
		if err != nil || port == 0 {
			return d, fmt.Errorf("%q is no port", text[colon+1:])
		}
		d.port, host = uint16(port), text[:colon]
	}
	var err error
	switch name, below := strings.CutPrefix(host, "*."); {
	case host == "*":
		d.host = netrule.AnyHost()
	case below:
		d.host, err = netrule.Subdomains(name)
	default:
		d.host, err = netrule.ExactHost(host)
	}
	return d, err
}

// Set is the settings of every scope, combined: deny before ask before allow, over all of them.
type Set struct {
	settings []*Settings
	rules    []listed // in the order in which they decide
	dirs     map[string]string
}

// NewSet combines settings. Within a list the stronger scope stands first.
func NewSet(settings ...*Settings) *Set {
	set := &Set{settings: slices.Clone(settings), dirs: map[string]string{}}
	slices.SortStableFunc(set.settings, func(a, b *Settings) int { return int(a.Origin) - int(b.Origin) })
	managedOnly := slices.ContainsFunc(settings, func(s *Settings) bool { return s.managedOnly })
	for _, list := range []netrule.Action{netrule.Deny, netrule.Ask, netrule.Allow} {
		for _, s := range set.settings {
			set.dirs[s.File] = s.Dir
			if managedOnly && s.Origin != Managed {
				continue
			}
			for _, r := range s.rules {
				if r.list == list {
					set.rules = append(set.rules, r)
				}
			}
		}
	}
	for i := range set.rules {
		set.rules[i].ref.Index = i
	}
	return set
}

// Settings gives the files, the strongest scope first.
func (s *Set) Settings() []*Settings { return s.settings }

// Listing is one rule of a set, for listings.
type Listing struct {
	Ref  netrule.RuleRef
	List netrule.Action
}

// List gives the rules in the order in which they decide.
func (s *Set) List() []Listing {
	out := make([]Listing, len(s.rules))
	for i, r := range s.rules {
		out[i] = Listing{r.ref, r.list}
	}
	return out
}

// Verdict is what the settings say about a call. The zero value says nothing: the client's own mode decides then.
type Verdict struct {
	Matched bool
	Action  netrule.Action
	Ref     netrule.RuleRef
	// Connects says that the rule judges connections too.
	Connects bool
}

// Decide gives the verdict about a call. The scope's Dir is not looked at: each file has its own. When the work is used up
// before all is looked at, the call is denied.
func (s *Set) Decide(c Call, scope Scope) Verdict {
	sub := newSubject(c)
	v := s.decide(sub, scope)
	if sub.Work.Over() {
		return Verdict{Matched: true, Ref: netrule.RuleRef{Reason: tooMuch}}
	}
	return v
}

const tooMuch = "the call is too long to be judged"

func (s *Set) decide(sub *subject, scope Scope) Verdict {
	for i := range s.rules {
		r := &s.rules[i]
		if !sub.Work.Spend(10) {
			return Verdict{}
		}
		scope.Dir = s.dirs[r.ref.File]
		if r.matches(r.list, sub, scope) {
			_, connects := r.hostPattern()
			return Verdict{true, r.list, r.ref, connects}
		}
	}
	if sub.Tool == "Bash" && sub.shell() {
		return s.allowsTogether(sub)
	}
	return Verdict{}
}

// allowsTogether: allow rules may share the commands of one call among them. The first command's rule stands for all.
func (s *Set) allowsTogether(c *subject) Verdict {
	var rules []Rule
	var refs []netrule.RuleRef
	for _, r := range s.rules {
		if r.list == netrule.Allow && !r.Bare && r.Tool == "Bash" {
			rules, refs = append(rules, r.Rule), append(refs, r.ref)
		}
	}
	if !allowsCommand(rules, c) {
		return Verdict{}
	}
	for k := range c.script.commands {
		cmd := &c.script.commands[k]
		for i, r := range rules {
			if len(cmd.words) > 0 && r.approves(cmd, c.Work) {
				return Verdict{Matched: true, Action: netrule.Allow, Ref: refs[i]}
			}
		}
	}
	return Verdict{}
}

// Strict reports whether hosts that no list allows are denied; Connections then ends in the rule that denies them.
func (s *Set) Strict() bool {
	return slices.ContainsFunc(s.settings, func(f *Settings) bool { return f.strict > 0 })
}

// Connections gives the rules about connections: the sandbox's domains, and the WebFetch rules by domain. Denials come
// first, then ask, then allow. With strictAllowlist whatever they do not allow is denied.
func (s *Set) Connections() []netrule.Rule {
	managedNet := slices.ContainsFunc(s.settings, func(f *Settings) bool { return f.managedNet })
	managedOnly := slices.ContainsFunc(s.settings, func(f *Settings) bool { return f.managedOnly })
	var out []netrule.Rule
	add := func(list netrule.Action, ref netrule.RuleRef, host netrule.HostPattern, port uint16) {
		r := netrule.Rule{Ref: ref, Action: list, Match: netrule.Match{Hosts: []netrule.HostPattern{host}}}
		if port != 0 {
			r.Match.Ports = []netrule.PortRange{{Lo: port, Hi: port}}
		}
		r.Ref.Index = len(out)
		out = append(out, r)
	}
	for _, list := range []netrule.Action{netrule.Deny, netrule.Ask, netrule.Allow} {
		for _, f := range s.settings {
			if list == netrule.Allow && managedNet && f.Origin != Managed {
				continue
			}
			for _, d := range f.domains {
				if d.list == list {
					add(list, d.ref, d.host, d.port)
				}
			}
			for _, r := range f.rules {
				if host, ok := r.hostPattern(); ok && r.list == list && (!managedOnly || f.Origin == Managed) {
					add(list, r.ref, host, 0)
				}
			}
		}
	}
	for _, f := range s.settings {
		if f.strict > 0 {
			add(netrule.Deny, netrule.RuleRef{File: f.File, Line: f.strict, Reason: "sandbox.network.strictAllowlist: no list allows this host"}, netrule.AnyHost(), 0)
			break
		}
	}
	return out
}

// hostPattern gives what WebFetch(domain:…) means for connections. A rule that names no host that can exist means nothing.
func (r Rule) hostPattern() (netrule.HostPattern, bool) {
	text, ok := strings.CutPrefix(r.Spec, "domain:")
	if r.Bare || r.Tool != "WebFetch" || !ok {
		return netrule.HostPattern{}, false
	}
	text = strings.TrimSuffix(strings.TrimSpace(text), ".")
	var p netrule.HostPattern
	var err error
	switch name, below := strings.CutPrefix(text, "*."); {
	case text == "*":
		return netrule.AnyHost(), true
	case !strings.Contains(text, "*"):
		p, err = netrule.ExactHost(text)
	case below && !strings.Contains(name, "*"):
		p, err = netrule.Subdomains(name)
	default:
		p, err = netrule.LabelGlob(text)
	}
	return p, err == nil
}
