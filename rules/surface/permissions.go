package surface

import (
	"fmt"
	"slices"
	"strings"

	"dshproxy/netrule"
	"dshproxy/rules/jsonc"
	"dshproxy/rules/tree"
)

// Permissions is what one permission file says, as rules in their order. There are two forms: one map of surfaces below
// "permission", and the older one with a map a surface and a default policy.
type Permissions struct {
	File     string
	surfaces []surfaceMap // in the order of the file
}

// surfaceMap are the rules of one surface.
type surfaceMap struct {
	name  string
	whole bool // an action for the surface as such: it replaces what other files say of it
	rules []placed
}

type placed struct {
	pattern string
	action  netrule.Action
	ref     netrule.RuleRef
}

// ParsePermissions reads a permission file. A value that is no action is an error: a rule that is dropped in silence
// opens what it was to close. Errors are of type *tree.Error.
func ParsePermissions(file string, text []byte) (*Permissions, error) {
	p := &Permissions{File: file}
	root, err := jsonc.Parse(file, text)
	if err != nil || root == nil {
		return p, err
	}
	if root.Kind != jsonc.Map {
		return nil, root.Errorf("", "the file must be a mapping, and is %s", root.Kind)
	}
	if v := root.Get("permission"); v != nil {
		return p, p.read(v)
	}
	return p, p.readOld(root)
}

// Rules gives how many rules the file holds.
func (p *Permissions) Rules() int {
	n := 0
	for _, s := range p.surfaces {
		n += len(s.rules)
	}
	return n
}

func (p *Permissions) read(v *jsonc.Value) error {
	if v.Kind != jsonc.Map {
		return v.Errorf("", "permission must be a mapping, and is %s", v.Kind)
	}
	for i := range v.Items {
		if err := p.add(v.Keys[i].Name, "permission."+v.Keys[i].Name, &v.Items[i]); err != nil {
			return err
		}
	}
	return nil
}

// add reads the rules of a surface: an action, or a map from patterns to actions.
func (p *Permissions) add(surface, path string, v *jsonc.Value) error {
	m := surfaceMap{name: surface}
	switch v.Kind {
	case jsonc.String:
		m.whole = true
		r, err := p.rule("*", path, v)
		if err != nil {
			return err
		}
		m.rules = append(m.rules, r)
	case jsonc.Map:
		for i := range v.Items {
			r, err := p.rule(v.Keys[i].Name, path, &v.Items[i])
			if err != nil {
				return err
			}
			m.rules = append(m.rules, r)
		}
	default:
		return v.Errorf("", "%s must be an action or a mapping of patterns, and is %s", path, v.Kind)
	}
	p.surfaces = append(p.surfaces, m)
	return nil
}

func (p *Permissions) rule(pattern, path string, v *jsonc.Value) (placed, error) {
	action, ok := netrule.ParseAction(v.Text)
	if !ok || v.Kind != jsonc.String {
		what := v.Kind.String()
		if v.Kind == jsonc.String {
			what = fmt.Sprintf("%q", v.Text)
		}
		return placed{}, v.Errorf(tree.DidYouMean(v.Text, []string{"allow", "ask", "deny"}), "%s: %q must be allow, ask or deny, and is %s", path, pattern, what)
	}
	ref := netrule.RuleRef{File: p.File, Line: v.Line, Reason: fmt.Sprintf("%s: %s is %s", path, pattern, action)}
	return placed{pattern, action, ref}, nil
}

// oldSurfaces are the maps of the older form, and the surface that each one's default policy is for.
var oldSurfaces = []struct{ key, surface string }{{"tools", "*"}, {"bash", "bash"}, {"mcp", "mcp"}, {"skills", "skill"}, {"special", "external_directory"}}

// readOld reads the older form: first the default policies, as rules that everything else overrides.
func (p *Permissions) readOld(root *jsonc.Value) error {
	defaults := root.Get("defaultPolicy")
	if defaults != nil && defaults.Kind != jsonc.Map {
		return defaults.Errorf("", "defaultPolicy must be a mapping, and is %s", defaults.Kind)
	}
	for _, o := range oldSurfaces {
		if v := defaults.Get(o.key); v != nil {
			if err := p.add(o.surface, "defaultPolicy."+o.key, v); err != nil {
				return err
			}
		}
	}
	for _, o := range oldSurfaces {
		v := root.Get(o.key)
		if v == nil {
			continue
		}
		if v.Kind != jsonc.Map {
			return v.Errorf("", "%s must be a mapping, and is %s", o.key, v.Kind)
		}
		if o.key == "tools" || o.key == "special" {
			for i := range v.Items {
				if err := p.addTool(v.Keys[i].Name, o.key, &v.Items[i]); err != nil {
					return err
				}
			}
			continue
		}
		if err := p.add(o.surface, o.key, v); err != nil {
			return err
		}
	}
	return nil
}

// addTool reads an entry of the older form's tools and special: a surface, or one with a pattern behind a colon.
func (p *Permissions) addTool(name, key string, v *jsonc.Value) error {
	surface, pattern, ok := strings.Cut(name, ":")
	if !ok || v.Kind != jsonc.String {
		return p.add(name, key+"."+name, v)
	}
	r, err := p.rule(pattern, key+"."+surface, v)
	if err == nil {
		p.surfaces = append(p.surfaces, surfaceMap{name: surface, rules: []placed{r}})
	}
	return err
}

// merge puts files one over another, the weaker first: maps of the same surface are merged key by key, where a key keeps
// its first place, and an action for a whole surface replaces what was there. The rule for every surface comes first.
func merge(files []*Permissions) []placedRule {
	var order []string
	merged := map[string][]placed{}
	for _, f := range files {
		for _, s := range f.surfaces {
			old, known := merged[s.name]
			if !known {
				order = append(order, s.name)
			}
			if s.whole {
				old = nil
			}
			for _, r := range s.rules {
				if i := slices.IndexFunc(old, func(o placed) bool { return o.pattern == r.pattern }); i >= 0 {
					old[i] = r
				} else {
					old = append(old, r)
				}
			}
			merged[s.name] = old
		}
	}
	slices.SortStableFunc(order, func(a, b string) int { return boolToInt(b == "*") - boolToInt(a == "*") })
	var out []placedRule
	for _, name := range order {
		for _, r := range merged[name] {
			r.ref.Index = len(out)
			out = append(out, placedRule{Rule{name, r.pattern, r.action}, r.ref})
		}
	}
	return out
}

type placedRule struct {
	Rule
	ref netrule.RuleRef
}

func boolToInt(b bool) int {
	if b {
		return 1
	}
	return 0
}
