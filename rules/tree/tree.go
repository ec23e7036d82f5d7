// Package tree reads YAML strictly into a node tree with positions, for rule files and settings alike: one document, no
// directives, no duplicate keys, no unknown tags, bounded depth and size; scalars by the YAML 1.2 core schema. It takes
// bytes and does no IO.
package tree

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"gopkg.in/yaml.v3"
)

// MaxDepth is how deep nodes may be nested.
const MaxDepth = 100

// Parse turns text into a checked node tree: one document, no directives, no duplicate or merge keys that hide
// anything, no unknown tags, bounded depth and size with every alias counted each time it is used. It gives nil for an
// empty document.
func Parse(file string, text []byte, maxNodes int) (root *yaml.Node, err error) {
	defer func() {
		// yaml.v3 reports its own errors; a panic is a bug of the library met by a hostile file.
		if p := recover(); p != nil {
			root, err = nil, &Error{File: file, What: "invalid YAML: the parser gave up"}
		}
	}()
	text, err = normalise(file, text)
	if err != nil {
		return nil, err
	}
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	var doc yaml.Node
	switch err := decoder.Decode(&doc); {
	case errors.Is(err, io.EOF):
		return nil, nil
	case err != nil:
		return nil, yamlError(file, text, err)
	}
	var second yaml.Node
	switch err := decoder.Decode(&second); {
	case err == nil:
		return nil, &Error{File: file, Line: second.Line, Col: second.Column, What: "invalid YAML: a second document", Hint: "a rule file is one document; remove the ---"}
	case !errors.Is(err, io.EOF):
		return nil, yamlError(file, text, err)
	}
	c := treeChecker{file: file, left: maxNodes}
	if err := c.check(doc.Content[0], 0); err != nil {
		return nil, err
	}
	return doc.Content[0], nil
}

// normalise settles encoding and line ends before the YAML library sees the text.
func normalise(file string, text []byte) ([]byte, error) {
	text = bytes.TrimPrefix(text, []byte("\ufeff"))
	if !utf8.Valid(text) {
		return nil, &Error{File: file, What: "invalid YAML: not UTF-8"}
	}
	if at := bytes.IndexByte(text, 0); at >= 0 {
		return nil, &Error{File: file, Line: 1 + bytes.Count(text[:at], []byte("\n")), What: "invalid YAML: a NUL byte"}
	}
	if bytes.IndexByte(text, '\r') >= 0 {
		if bytes.IndexByte(text, '\n') >= 0 {
			text = bytes.ReplaceAll(text, []byte("\r"), nil)
		} else {
			text = bytes.ReplaceAll(text, []byte("\r"), []byte("\n"))
		}
	}
	if at := bytes.IndexAny(text, "\u0085\u2028\u2029"); at >= 0 {
		return nil, &Error{File: file, Line: 1 + bytes.Count(text[:at], []byte("\n")), What: "invalid YAML: a line separator (U+0085, U+2028 or U+2029), which parsers read differently", Hint: `write it as \u2028 in a quoted string`}
	}
	line := 0
	for rest := text; len(rest) > 0; {
		var head []byte
		head, rest, _ = bytes.Cut(rest, []byte("\n"))
		line++
		if bytes.HasPrefix(head, []byte("%")) {
			return nil, &Error{File: file, Line: line, Col: 1, What: "invalid YAML: a % directive", Hint: "remove the line"}
		}
		if trimmed := bytes.TrimSpace(head); len(trimmed) > 0 && trimmed[0] != '#' {
			break
		}
	}
	return text, nil
}

var tabIndent = regexp.MustCompile(`(?m)^ *\t`)

var yamlLine = regexp.MustCompile(`^(?:yaml: )?(?:unmarshal errors:\s*)?line (\d+): (.*)`)

func yamlError(file string, text []byte, err error) error {
	e := &Error{File: file, What: "invalid YAML: " + strings.TrimPrefix(err.Error(), "yaml: ")}
	if m := yamlLine.FindStringSubmatch(err.Error()); m != nil {
		e.Line, _ = strconv.Atoi(m[1])
		e.What = "invalid YAML: " + m[2]
	} else if strings.Contains(e.What, ": did not find") || strings.Contains(e.What, ": found") {
		e.Line = 1 // the library names every line but the first
	}
	// The library says of no character which it is.
	if tabIndent.Match(text) && (strings.Contains(e.What, "cannot start any token") || strings.Contains(e.What, "tab character")) {
		e.Hint = "indent with spaces, not tabs"
	}
	return e
}

type treeChecker struct {
	file string
	left int
}

func (c *treeChecker) fail(n *yaml.Node, hint, format string, args ...any) error {
	return &Error{File: c.file, Line: n.Line, Col: n.Column, What: fmt.Sprintf(format, args...), Hint: hint}
}

func (c *treeChecker) check(n *yaml.Node, depth int) error {
	if c.left--; c.left < 0 {
		return c.fail(n, "", "the document has too many nodes (aliases count each time)")
	}
	if depth > MaxDepth {
		return c.fail(n, "", "the document is nested deeper than %d", MaxDepth)
	}
	if n.Kind == yaml.AliasNode {
		if n.Alias == nil {
			return c.fail(n, "", "invalid YAML: an alias of nothing")
		}
		return c.check(n.Alias, depth+1)
	}
	if err := c.checkTag(n); err != nil {
		return err
	}
	if n.Kind == yaml.ScalarNode && strings.IndexByte(n.Value, 0) >= 0 {
		return c.fail(n, "", "a NUL character in a value")
	}
	if n.Kind == yaml.MappingNode {
		if err := c.checkKeys(n); err != nil {
			return err
		}
	}
	for _, child := range n.Content {
		if err := c.check(child, depth+1); err != nil {
			return err
		}
	}
	return nil
}

// checkTag lets only the tags of the core schema pass: an unquoted "!git*" is a tag, and would otherwise silently
// become an empty value.
func (c *treeChecker) checkTag(n *yaml.Node) error {
	if n.Style&yaml.TaggedStyle == 0 {
		return nil
	}
	switch n.ShortTag() {
	case "!!str", "!!int", "!!float", "!!bool", "!!null", "!!map", "!!seq":
		return nil
	}
	return c.fail(n, "quote patterns that start with !, as in \"!git*\"", "unknown YAML tag")
}

func (c *treeChecker) checkKeys(n *yaml.Node) error {
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := Deref(n.Content[i])
		if key.Kind != yaml.ScalarNode {
			return c.fail(n.Content[i], "", "a key that is no scalar")
		}
		name := KeyText(key)
		if seen[name] {
			return c.fail(n.Content[i], "", "duplicate key %q", name)
		}
		seen[name] = true
	}
	return nil
}

// Deref follows aliases, which Parse has bounded.
func Deref(n *yaml.Node) *yaml.Node {
	for n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	return n
}

// KeyText gives a key as text; keys that are no strings become what they print as.
func KeyText(n *yaml.Node) string {
	if v := Resolve(n); v.Kind == Number || v.Kind == Bool {
		return v.Text
	}
	return n.Value
}

// Kind is what a node is by the core schema.
type Kind uint8

// The kinds.
const (
	Null Kind = iota
	String
	Number
	Bool
	Map
	List
)

func (k Kind) String() string {
	return [...]string{"null", "a string", "a number", "a boolean", "a mapping", "a list"}[k]
}

// Value is a node resolved by the YAML 1.2 core schema. Text is the value as the original prints it: numbers and
// booleans as JavaScript does.
type Value struct {
	Node *yaml.Node
	Kind Kind
	Text string
}

var (
	coreInt   = regexp.MustCompile(`^[-+]?[0-9]+$`)
	coreFloat = regexp.MustCompile(`^[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?$`)
	coreInf   = regexp.MustCompile(`^([-+]?)\.(inf|Inf|INF)$`)
	coreOct   = regexp.MustCompile(`^0o[0-7]+$`)
	coreHex   = regexp.MustCompile(`^0x[0-9a-fA-F]+$`)
)

// Resolve reads a node by the core schema itself: yaml.v3 resolves 012, timestamps and << the way of YAML 1.1.
func Resolve(n *yaml.Node) Value {
	n = Deref(n)
	v := Value{Node: n, Text: n.Value}
	switch n.Kind {
	case yaml.MappingNode:
		v.Kind = Map
	case yaml.SequenceNode:
		v.Kind = List
	default:
		v.Kind, v.Text = resolveScalar(n)
	}
	return v
}

func resolveScalar(n *yaml.Node) (Kind, string) {
	s := n.Value
	if n.Style&yaml.TaggedStyle != 0 && n.ShortTag() == "!!str" {
		return String, s
	}
	if n.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle|yaml.LiteralStyle|yaml.FoldedStyle) != 0 {
		return String, s
	}
	switch s {
	case "", "~", "null", "Null", "NULL":
		return Null, s
	case "true", "True", "TRUE":
		return Bool, "true"
	case "false", "False", "FALSE":
		return Bool, "false"
	case ".nan", ".NaN", ".NAN":
		return Number, "NaN"
	}
	if m := coreInf.FindStringSubmatch(s); m != nil {
		return Number, strings.TrimPrefix(m[1], "+") + "Infinity"
	}
	switch {
	case coreInt.MatchString(s), coreFloat.MatchString(s):
		f, _ := strconv.ParseFloat(s, 64) // out of range gives an infinity, as in JavaScript
		return Number, NumberText(f)
	case coreOct.MatchString(s):
		return Number, NumberText(parseBase(s[2:], 8))
	case coreHex.MatchString(s):
		return Number, NumberText(parseBase(s[2:], 16))
	}
	return String, s
}

func parseBase(digits string, base float64) float64 {
	f := 0.0
	for _, c := range digits {
		d, _ := strconv.ParseUint(string(c), 16, 8)
		f = f*base + float64(d)
	}
	return f
}

// NumberText prints a number as JavaScript does: 1.0 as 1, 1e21 as 1e+21, -0 as 0.
func NumberText(f float64) string {
	switch {
	case math.IsInf(f, 1):
		return "Infinity"
	case math.IsInf(f, -1):
		return "-Infinity"
	case f == 0:
		return "0"
	}
	if abs := math.Abs(f); abs >= 1e21 || abs < 1e-6 {
		s := strconv.FormatFloat(f, 'e', -1, 64)
		// Go pads the exponent to two digits.
		mantissa, exponent, _ := strings.Cut(s, "e")
		return mantissa + "e" + exponent[:1] + strings.TrimLeft(exponent[1:], "0")
	}
	return strconv.FormatFloat(f, 'f', -1, 64)
}
