package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"dshproxy/rules/tree"

	"gopkg.in/yaml.v3"
)

// nodeValue is a value that reads its node itself, so that errors have the position of what is wrong inside it.
type nodeValue interface {
	value
	decode(d decoder, path string, n *yaml.Node) error
}

// decoder reads nodes of one settings file.
type decoder struct{ file string }

// dir is what relative paths in the file are relative to.
func (d decoder) dir() string { return filepath.Dir(d.file) }

func (d decoder) fail(n *yaml.Node, hint, format string, args ...any) error {
	return &tree.Error{File: d.file, Line: n.Line, Col: n.Column, What: fmt.Sprintf(format, args...), Hint: hint}
}

// setting fills one setting from a node.
func (d decoder) setting(k setting, path string, n *yaml.Node) error {
	if v, ok := k.value.(nodeValue); ok {
		return v.decode(d, path, n)
	}
	if err := decodeValue(k.value, n); err != nil {
		return d.fail(n, k.doc, "%s: %v", path, err)
	}
	return nil
}

// list visits the items of a list, each with its path.
func (d decoder) list(path, hint string, n *yaml.Node, item func(path string, n *yaml.Node) error) error {
	r := tree.Resolve(n)
	if r.Kind != tree.List {
		return d.fail(n, hint, "%s: want a list, not %s", path, r.Kind)
	}
	for i, c := range r.Node.Content {
		if err := item(fmt.Sprintf("%s[%d]", path, i), c); err != nil {
			return err
		}
	}
	return nil
}

// mapping fills the fields of a mapping and gives the keys that it has.
func (d decoder) mapping(path string, n *yaml.Node, fields []setting) (has map[string]bool, err error) {
	r := tree.Resolve(n)
	if r.Kind != tree.Map {
		return nil, d.fail(n, "it has the keys "+strings.Join(names(fields), ", "), "%s: want a mapping, not %s", path, r.Kind)
	}
	has = map[string]bool{}
	for i := 0; i+1 < len(r.Node.Content); i += 2 {
		key, child := r.Node.Content[i], r.Node.Content[i+1]
		name := tree.KeyText(tree.Deref(key))
		at := indexOf(fields, name)
		if at < 0 {
			return nil, d.fail(key, tree.DidYouMean(name, names(fields)), "unknown key %q", path+"."+name)
		}
		if err := d.setting(fields[at], path+"."+name, child); err != nil {
			return nil, err
		}
		has[name] = true
	}
	return has, nil
}

func indexOf(fields []setting, name string) int {
	for i, f := range fields {
		if f.path == name {
			return i
		}
	}
	return -1
}

func names(fields []setting) []string {
	var out []string
	for _, f := range fields {
		out = append(out, f.path)
	}
	return out
}

// fileOnly is the part of a value that no variable and no flag can set.
type fileOnly struct{}

func (fileOnly) set(string) error { return errors.New("can only be set in the settings file") }

// fileListValue is a list of texts that only the settings file can set.
type fileListValue struct {
	fileOnly
	field *[]string
}

func (v *fileListValue) decode(d decoder, path string, n *yaml.Node) error {
	if err := decodeValue((*listValue)(v.field), n); err != nil {
		return d.fail(n, "a list of texts", "%s: %v", path, err)
	}
	return nil
}

func (v *fileListValue) String() string         { return (*listValue)(v.field).String() }
func (v *fileListValue) schema() map[string]any { return (*listValue)(v.field).schema() }

// filePathValue is a path that only the settings file can set, and that is relative to that file.
type filePathValue struct {
	fileOnly
	field *string
}

func (v *filePathValue) decode(d decoder, path string, n *yaml.Node) error {
	if r := tree.Resolve(n); r.Kind == tree.String && r.Text == "" {
		*v.field = ""
		return nil
	}
	return d.setting(setting{value: &pathValue{v.field, d.dir()}, doc: "a path"}, path, n)
}

func (v *filePathValue) String() string         { return *v.field }
func (v *filePathValue) schema() map[string]any { return map[string]any{"type": "string"} }
