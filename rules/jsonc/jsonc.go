// Package jsonc reads JSON, with comments and trailing commas, into a tree that knows where each value stands. It serves
// the configuration files of other programs; it is pure. Texts are hostile: size and depth are the caller's and this
// package's to bound.
package jsonc

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"

	"dshproxy/rules/tree"

	"github.com/tailscale/hujson"
)

// Kind is what a value is.
type Kind uint8

// The kinds of JSON.
const (
	Null Kind = iota
	Bool
	Number
	String
	List
	Map
)

// String names the kind for errors.
func (k Kind) String() string {
	return [...]string{"null", "a boolean", "a number", "text", "a list", "a mapping"}[k]
}

// Value is one value and its place.
type Value struct {
	Kind Kind
	// Text is that of scalars: strings decoded, the others as they are written.
	Text string
	// Items are the values of a list, or of a mapping in the order of the file.
	Items []Value
	// Keys are those of a mapping, parallel to Items.
	Keys []Key

	Line, Col int // 1-based
	file      string
}

// Key is a name in a mapping and its place.
type Key struct {
	Name      string
	Line, Col int
}

// maxBrackets bounds the nesting, by what opens one: the parser recurses.
const maxBrackets = 50_000

// Parse reads a file. An empty one, or one of comments only, is nil without an error. Errors are of type *tree.Error.
func Parse(file string, text []byte) (*Value, error) {
	text = bytes.TrimPrefix(text, []byte("\ufeff"))
	if bytes.Count(text, []byte("["))+bytes.Count(text, []byte("{")) > maxBrackets {
		return nil, &tree.Error{File: file, What: "too many brackets"}
	}
	if onlySpace(text) {
		return nil, nil
	}
	root, err := hujson.Parse(text)
	if err != nil {
		// A comment on the last line may lack its line end.
		ended, again := hujson.Parse(append(slices.Clip(text), '\n'))
		if again != nil {
			return nil, syntaxError(file, err)
		}
		root = ended
	}
	p := parser{file: file, text: text}
	p.lines()
	v, err := p.value(&root)
	if err != nil {
		return nil, err
	}
	return &v, nil
}

// onlySpace reports a text of space and comments: a value behind it is then the first there is.
func onlySpace(text []byte) bool {
	v, err := hujson.Parse(append(bytes.Clone(text), "\nnull"...))
	return err == nil && v.StartOffset > len(text)
}

var syntaxPlace = regexp.MustCompile(`^hujson: line (\d+), column (\d+): (.*)$`)

func syntaxError(file string, err error) error {
	m := syntaxPlace.FindStringSubmatch(err.Error())
	if m == nil {
		return &tree.Error{File: file, What: "no JSON"}
	}
	line, _ := strconv.Atoi(m[1]) // digits, by the expression
	col, _ := strconv.Atoi(m[2])
	return &tree.Error{File: file, Line: line, Col: col, What: "no JSON: " + m[3]}
}

type parser struct {
	file   string
	text   []byte
	starts []int // offsets of lines
}

func (p *parser) lines() {
	p.starts = append(p.starts, 0)
	for i, b := range p.text {
		if b == '\n' {
			p.starts = append(p.starts, i+1)
		}
	}
}

// place gives line and column of an offset. Columns count bytes.
func (p *parser) place(offset int) (line, col int) {
	lo, hi := 0, len(p.starts)
	for hi-lo > 1 {
		if mid := (lo + hi) / 2; p.starts[mid] <= offset {
			lo = mid
		} else {
			hi = mid
		}
	}
	return lo + 1, offset - p.starts[lo] + 1
}

func (p *parser) value(h *hujson.Value) (Value, error) {
	v := Value{file: p.file}
	v.Line, v.Col = p.place(h.StartOffset)
	switch h := h.Value.(type) {
	case hujson.Literal:
		return v, v.scalar(h)
	case *hujson.Array:
		v.Kind = List
		for i := range h.Elements {
			item, err := p.value(&h.Elements[i])
			if err != nil {
				return v, err
			}
			v.Items = append(v.Items, item)
		}
		return v, nil
	case *hujson.Object:
		return p.object(v, h)
	default:
		return v, v.Errorf("", "no JSON value")
	}
}

func (p *parser) object(v Value, h *hujson.Object) (Value, error) {
	v.Kind = Map
	seen := make(map[string]bool, len(h.Members))
	for i := range h.Members {
		name, err := p.value(&h.Members[i].Name)
		if err != nil {
			return v, err
		}
		if seen[name.Text] {
			return v, name.Errorf("", "the key %q stands here twice", name.Text)
		}
		seen[name.Text] = true
		item, err := p.value(&h.Members[i].Value)
		if err != nil {
			return v, err
		}
		v.Keys = append(v.Keys, Key{name.Text, name.Line, name.Col})
		v.Items = append(v.Items, item)
	}
	return v, nil
}

func (v *Value) scalar(l hujson.Literal) error {
	switch l.Kind() {
	case 'n':
		v.Kind = Null
	case 't', 'f':
		v.Kind, v.Text = Bool, string(l)
	case '"':
		v.Kind = String
		if err := json.Unmarshal(l, &v.Text); err != nil {
			return v.Errorf("", "a string that does not decode")
		}
	default:
		v.Kind, v.Text = Number, string(l)
	}
	return nil
}

// Get gives the value of a key of a mapping, or nil.
func (v *Value) Get(name string) *Value {
	if v == nil || v.Kind != Map {
		return nil
	}
	for i := range v.Keys {
		if v.Keys[i].Name == name {
			return &v.Items[i]
		}
	}
	return nil
}

// Errorf makes an error about the value.
func (v *Value) Errorf(hint, format string, args ...any) error {
	return &tree.Error{File: v.file, Line: v.Line, Col: v.Col, What: fmt.Sprintf(format, args...), Hint: hint}
}

// Strings gives the items of a list of strings; a nil value has none. path names the value in errors.
func (v *Value) Strings(path string) ([]Value, error) {
	if v == nil {
		return nil, nil
	}
	if v.Kind != List {
		return nil, v.Errorf(`as in ["…"]`, "%s must be a list, and is %s", path, v.Kind)
	}
	for i := range v.Items {
		if v.Items[i].Kind != String {
			return nil, v.Items[i].Errorf("", "%s: an item that is no text but %s", path, v.Items[i].Kind)
		}
	}
	return v.Items, nil
}

// True reads a boolean that is false when it is absent. path names the value in errors.
func (v *Value) True(path string) (bool, error) {
	if v == nil {
		return false, nil
	}
	if v.Kind != Bool {
		return false, v.Errorf("true or false", "%s must be a boolean, and is %s", path, v.Kind)
	}
	return v.Text == "true", nil
}
