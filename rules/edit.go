package rules

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"dshproxy/rules/tree"

	"gopkg.in/yaml.v3"
)

// NewRule is an exact allow rule to be written into a file.
type NewRule struct {
	Host   string // canonical name or address
	Port   uint16 // 0 leaves ports out
	IPs    []string
	Reason string
}

// match is the rule's match block in flow style, which is valid in JSON files too.
func (n NewRule) match() string {
	var b strings.Builder
	b.WriteString(`{ "network": { "domains": [` + strconv.Quote("="+n.Host) + `]`)
	if n.Port != 0 {
		fmt.Fprintf(&b, `, "ports": [%d]`, n.Port)
	}
	if len(n.IPs) > 0 {
		quoted := make([]string, len(n.IPs))
		for i, ip := range n.IPs {
			quoted[i] = strconv.Quote(ip)
		}
		b.WriteString(`, "ips": [` + strings.Join(quoted, ", ") + `]`)
	}
	b.WriteString(` } }`)
	return b.String()
}

// block is the rule as an item of a block sequence.
func (n NewRule) block(indent, newline string) string {
	match := strings.NewReplacer(`"network":`, "network:", `"domains":`, "domains:", `"ports":`, "ports:", `"ips":`, "ips:").Replace(n.match())
	return indent + "- match: " + match + newline +
		indent + "  action: allow" + newline +
		indent + "  reason: " + strconv.Quote(n.Reason) + newline
}

// flow is the rule as an item of a flow sequence.
func (n NewRule) flow() string {
	return `{ "match": ` + n.match() + `, "action": "allow", "reason": ` + strconv.Quote(n.Reason) + ` }`
}

// equals reports whether a parsed rule is this one.
func (n NewRule) equals(r *Rule) bool {
	want, err := Parse("new", []byte("rules:\n"+n.block("  ", "\n")), Options{})
	if err != nil || r.Match.Network == nil || !r.Enabled {
		return false
	}
	w := &want.Rules[0]
	if r.Action != w.Action || len(r.Match.Tools)+len(r.Match.Agents)+len(r.Match.Params)+len(r.Match.Paths)+len(r.Match.Absent) > 0 || r.Match.Argv != nil || len(r.Match.When.Env)+len(r.Match.When.Platforms) > 0 {
		return false
	}
	return fmt.Sprint(patternTexts(r)) == fmt.Sprint(patternTexts(w))
}

func patternTexts(r *Rule) []string {
	var out []string
	for _, p := range r.Match.Network.Positions {
		out = append(out, p.Field+" "+p.Text)
	}
	return out
}

var errNotEditable = errors.New("the file cannot be edited in place; add the rule by hand")

// InsertRule gives the text of a rule file with a rule at its head. Every other byte stays. A file that does not parse
// is refused; one whose first rule is this one already comes back as it is.
func InsertRule(file string, text []byte, n NewRule, opts Options) ([]byte, error) {
	doc, err := Parse(file, text, opts)
	if err != nil {
		return nil, err
	}
	if len(doc.Rules) > 0 && n.equals(&doc.Rules[0]) {
		return text, nil
	}
	newline := "\n"
	if bytes.Contains(text, []byte("\r\n")) {
		newline = "\r\n"
	}
	var edited []byte
	if !doc.HasRules {
		edited = appendRules(text, n, newline)
	} else if edited, err = splice(text, n, newline); err != nil {
		return nil, err
	}
	after, err := Parse(file, edited, opts)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNotEditable, err)
	}
	if len(after.Rules) != len(doc.Rules)+1 || !n.equals(&after.Rules[0]) {
		return nil, errNotEditable
	}
	return edited, nil
}

// appendRules serves an empty or comment-only file.
func appendRules(text []byte, n NewRule, newline string) []byte {
	out := bytes.Clone(text)
	if len(out) > 0 && out[len(out)-1] != '\n' {
		out = append(out, newline...)
	}
	return append(out, "rules:"+newline+n.block("  ", newline)...)
}

// splice puts the rule before the first one, by the position of the list.
func splice(text []byte, n NewRule, newline string) ([]byte, error) {
	root, key, list, err := rulesNode(text)
	if err != nil {
		return nil, err
	}
	at, err := offset(text, list.Line, list.Column)
	if err != nil {
		return nil, err
	}
	flow := list.Style&yaml.FlowStyle != 0
	if flow && (at >= len(text) || text[at] != '[') {
		return nil, errNotEditable
	}
	switch {
	case flow && len(list.Content) > 0:
		return insert(text, at+1, " "+n.flow()+","), nil
	case flow && bytes.HasPrefix(text[at:], []byte("[]")) && key.Line == list.Line && root.Style&yaml.FlowStyle == 0:
		indent := strings.Repeat(" ", key.Column-1) + "  "
		head := bytes.TrimSuffix(text[:at:at], []byte(" "))
		out := insert(head, len(head), newline+strings.TrimSuffix(n.block(indent, newline), newline))
		return append(out, text[at+2:]...), nil
	case flow:
		return insert(text, at+1, " "+n.flow()+" "), nil
	case key.Line == list.Line:
		return nil, errNotEditable
	}
	// Behind the key's own line, so that comments above the first rule stay with it.
	lineStart, err := offset(text, key.Line+1, 1)
	if err != nil {
		return nil, err
	}
	return insert(text, lineStart, n.block(strings.Repeat(" ", list.Column-1), newline)), nil
}

// rulesNode finds the key and the list of a file that has been parsed already.
func rulesNode(text []byte) (root, key, list *yaml.Node, err error) {
	if bytes.IndexByte(text, '\r') >= 0 && bytes.Count(text, []byte("\r\n")) != bytes.Count(text, []byte("\r")) {
		return nil, nil, nil, errNotEditable
	}
	root, err = tree.Parse("", text, nodesPerRule*DefaultMaxRules)
	if err != nil || root == nil || root.Kind != yaml.MappingNode {
		return nil, nil, nil, errNotEditable
	}
	for i := 0; i+1 < len(root.Content); i += 2 {
		if root.Content[i].Value == "rules" && root.Content[i+1].Kind == yaml.SequenceNode && root.Content[i+1].Anchor == "" {
			return root, root.Content[i], root.Content[i+1], nil
		}
	}
	return nil, nil, nil, errNotEditable
}

// offset turns a 1-based line and column, in characters, into a byte offset.
func offset(text []byte, line, column int) (int, error) {
	at := 0
	for ; line > 1; line-- {
		next := bytes.IndexByte(text[at:], '\n')
		if next < 0 {
			return 0, errNotEditable
		}
		at += next + 1
	}
	if at == 0 && bytes.HasPrefix(text, []byte("\ufeff")) {
		at = len("\ufeff")
	}
	for ; column > 1; column-- {
		if at >= len(text) {
			return 0, errNotEditable
		}
		for at++; at < len(text) && text[at]&0xc0 == 0x80; at++ {
		}
	}
	return at, nil
}

func insert(text []byte, at int, s string) []byte {
	out := make([]byte, 0, len(text)+len(s))
	out = append(out, text[:at]...)
	out = append(out, s...)
	return append(out, text[at:]...)
}

// RemoveRule takes the first rule that equals n out of a block-style file. A file without it comes back as it is.
func RemoveRule(file string, text []byte, n NewRule, opts Options) ([]byte, error) {
	doc, err := Parse(file, text, opts)
	if err != nil {
		return nil, err
	}
	for i := range doc.Rules {
		if !n.equals(&doc.Rules[i]) {
			continue
		}
		_, _, list, err := rulesNode(text)
		if err != nil || list.Style&yaml.FlowStyle != 0 {
			return nil, errNotEditable
		}
		item := list.Content[i]
		start, err := offset(text, item.Line, 1)
		if err != nil {
			return nil, err
		}
		end, err := offset(text, lastLine(item)+1, 1)
		if err != nil {
			end = len(text)
		}
		edited := append(bytes.Clone(text[:start]), text[end:]...)
		if len(doc.Rules) == 1 {
			_, key, _, _ := rulesNode(text)
			if edited, err = emptyList(text, key, start, end); err != nil {
				return nil, err
			}
		}
		after, err := Parse(file, edited, opts)
		if err != nil || !sameRules(after.Rules, slices.Delete(slices.Clone(doc.Rules), i, i+1)) {
			return nil, errNotEditable
		}
		return edited, nil
	}
	return text, nil
}

// emptyList leaves "rules: []" where the only rule was.
func emptyList(text []byte, key *yaml.Node, start, end int) ([]byte, error) {
	at, err := offset(text, key.Line, key.Column)
	if err != nil {
		return nil, err
	}
	colon := bytes.IndexByte(text[at:], ':') // the key is the word rules, however quoted
	if colon < 0 {
		return nil, errNotEditable
	}
	colon += at + 1
	out := append(bytes.Clone(text[:colon]), " []"...)
	out = append(out, text[colon:start]...)
	return append(out, text[end:]...), nil
}

func lastLine(n *yaml.Node) int {
	last := n.Line
	for _, c := range n.Content {
		last = max(last, lastLine(c))
	}
	return last
}

// sameRules reports whether two lists say the same, wherever they stand.
func sameRules(a, b []Rule) bool {
	return slices.EqualFunc(a, b, func(x, y Rule) bool { return reflect.DeepEqual(x.unplaced(), y.unplaced()) })
}

// unplaced is the rule without its positions.
func (r Rule) unplaced() Rule {
	r.Line, r.Col = 0, 0
	if r.Match.Network != nil {
		n := *r.Match.Network
		n.Positions = slices.Clone(n.Positions)
		for i := range n.Positions {
			n.Positions[i].Line, n.Positions[i].Col = 0, 0
		}
		r.Match.Network = &n
	}
	return r
}
