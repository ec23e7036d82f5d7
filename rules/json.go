package rules

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"dshproxy/rules/tree"
	"dshproxy/rules/work"
)

// argKind is what a value of a tool call is.
type argKind uint8

const (
	argNull argKind = iota
	argScalar
	argString // a scalar too
	argList
	argObject
)

// arg is a value of a tool call, in the order of the JSON text: the order of command strings means something.
type arg struct {
	kind    argKind
	text    string   // of scalars, as JavaScript prints them
	keys    []string // of objects, parallel to items
	items   []arg
	nothing bool // nothing was given at all
}

// maxArgs bounds the values of one call.
const maxArgs = 1 << 16

// MaxArgBytes bounds the JSON text of the arguments of one call; a longer call is refused. No model writes as much at once.
const MaxArgBytes = 2 << 20

var errTooManyArgs = fmt.Errorf("%w: it has too many values", ErrTooMuch)

// What reading JSON costs, in units of work.
const (
	perArgByte = 3
	perEscape  = 20
	perArg     = 150 // a value or a key
	perNumeral = 15  // a byte of a number
)

// argReader reads one call.
type argReader struct {
	d    *json.Decoder
	left int // values
	work *work.Budget
}

// parseArgs reads the arguments of a tool call. Text that is no JSON is an error.
func parseArgs(raw []byte, left *work.Budget) (arg, error) {
	if len(raw) > MaxArgBytes || !left.Spend(perArgByte*len(raw)+perEscape*bytes.Count(raw, []byte(`\`))) {
		return arg{}, ErrTooMuch
	}
	if len(bytes.TrimSpace(raw)) == 0 {
		return arg{nothing: true}, nil
	}
	r := argReader{json.NewDecoder(bytes.NewReader(raw)), maxArgs, left}
	r.d.UseNumber()
	a, err := r.value()
	if err != nil {
		return arg{}, err
	}
	if _, err := r.d.Token(); !errors.Is(err, io.EOF) {
		return arg{}, errors.New("text behind the arguments")
	}
	return a, nil
}

// value reads one value. The decoder bounds the depth.
func (r *argReader) value() (arg, error) {
	token, err := r.d.Token()
	if err != nil {
		return arg{}, err
	}
	if r.left--; r.left < 0 || !r.work.Spend(perArg) {
		return arg{}, errTooManyArgs
	}
	switch v := token.(type) {
	case string:
		return arg{kind: argString, text: v}, nil
	case json.Number:
		if !r.work.Spend(perNumeral * len(v)) {
			return arg{}, ErrTooMuch
		}
		f, err := strconv.ParseFloat(v.String(), 64)
		if err != nil && !errors.Is(err, strconv.ErrRange) {
			return arg{}, err
		}
		return arg{kind: argScalar, text: tree.NumberText(f)}, nil
	case bool:
		return arg{kind: argScalar, text: strconv.FormatBool(v)}, nil
	case json.Delim:
		return r.composite(v)
	default:
		return arg{}, nil
	}
}

func (r *argReader) composite(open json.Delim) (arg, error) {
	a := arg{kind: argList}
	if open == '{' {
		a.kind = argObject
	}
	for r.d.More() {
		if a.kind == argObject {
			key, err := r.d.Token()
			if err != nil {
				return arg{}, err
			}
			r.work.Spend(perArg)
			a.keys = append(a.keys, key.(string))
		}
		item, err := r.value()
		if err != nil {
			return arg{}, err
		}
		a.items = append(a.items, item)
	}
	_, err := r.d.Token() // the closing bracket
	return a, err
}

// get gives the value of a top-level key; of a key that stands twice, the last, as JavaScript reads it.
func (a *arg) get(key string) *arg {
	for i := len(a.keys) - 1; i >= 0; i-- {
		if a.keys[i] == key {
			return &a.items[i]
		}
	}
	return nil
}

// value gives what encoding/json would decode.
func (a *arg) value() any {
	switch a.kind {
	case argString:
		return a.text
	case argScalar:
		if a.text == "true" || a.text == "false" {
			return a.text == "true"
		}
		f, _ := strconv.ParseFloat(a.text, 64) // it was printed from one
		return f
	case argList:
		out := make([]any, len(a.items))
		for i := range a.items {
			out[i] = a.items[i].value()
		}
		return out
	case argObject:
		out := make(map[string]any, len(a.items))
		for i := range a.items {
			out[a.keys[i]] = a.items[i].value()
		}
		return out
	default:
		return nil
	}
}

// maxArgDepth is how deep leaves and keys are looked for.
const maxArgDepth = 8

// scalars appends the scalar leaves of a value, itself at level 0.
func (a *arg) scalars(out []string, depth int) []string {
	switch {
	case depth > maxArgDepth || a.kind == argNull:
		return out
	case a.kind == argScalar || a.kind == argString:
		return append(out, a.text)
	}
	for i := range a.items {
		out = a.items[i].scalars(out, depth+1)
	}
	return out
}

// walkKeys visits every key of every object, the arguments themselves at level 0.
func (a *arg) walkKeys(depth int, visit func(key string, value *arg)) {
	if depth > maxArgDepth {
		return
	}
	for i := range a.items {
		if a.kind == argObject {
			visit(a.keys[i], &a.items[i])
		}
		a.items[i].walkKeys(depth+1, visit)
	}
}

// strings gives a string, or the direct string elements of a list.
func (a *arg) strings() []string {
	switch a.kind {
	case argString:
		return []string{a.text}
	case argList:
		var out []string
		for i := range a.items {
			if a.items[i].kind == argString {
				out = append(out, a.items[i].text)
			}
		}
		return out
	default:
		return nil
	}
}

// allStrings reports whether a list holds strings only, and at least one.
func (a *arg) allStrings() bool {
	return a.kind == argList && len(a.items) > 0 && len(a.strings()) == len(a.items)
}

func isOneOf(key string, list string) bool {
	return strings.Contains(list, " "+key+" ")
}
