package main

import (
	"errors"
	"fmt"
	"maps"
	"strings"

	"dshproxy/proxy/identity"
	"dshproxy/rules/tree"

	"gopkg.in/yaml.v3"
)

// identitySettings are the entries that say who clients are, each with its place in the file.
type identitySettings struct {
	tokens       []placed[tokenEntry]
	peers        []placed[identity.Peer]
	certificates []placed[identity.Certificate]
	sources      []placed[identity.Source]
	listeners    []placed[identity.Listener]
}

// tokenEntry is a token that stands in the settings or in a file of its own.
type tokenEntry struct {
	identity.Token
	file string
}

// placed is an entry and where it was read.
type placed[E any] struct {
	entry     E
	file      string
	line, col int
}

func (p *placed[E]) fail(hint, format string, args ...any) error {
	return &tree.Error{File: p.file, Line: p.line, Col: p.col, What: fmt.Sprintf(format, args...), Hint: hint}
}

// asks reports whether any entry keeps strangers out.
func (i *identitySettings) asks() bool {
	return len(i.tokens)+len(i.certificates)+len(i.sources) > 0
}

// entriesValue is a list of mappings, which only the file can hold.
type entriesValue[E any] struct {
	fileOnly
	field  *[]placed[E]
	fields func(e *E, d decoder) []setting
	check  func(e *E, has map[string]bool) error
	needs  map[string]any // what check says, for the schema
	show   func(e *E) string
	doc    string
}

func (v *entriesValue[E]) decode(d decoder, path string, n *yaml.Node) error {
	var out []placed[E]
	err := d.list(path, v.doc, n, func(path string, n *yaml.Node) error {
		p := placed[E]{file: d.file, line: n.Line, col: n.Column}
		has, err := d.mapping(path, n, v.fields(&p.entry, d))
		if err != nil {
			return err
		}
		if err := v.check(&p.entry, has); err != nil {
			return d.fail(n, v.doc, "%s: %v", path, err)
		}
		out = append(out, p)
		return nil
	})
	if err == nil {
		*v.field = out
	}
	return err
}

func (v *entriesValue[E]) schema() map[string]any {
	var e E
	one := mappingSchema(v.fields(&e, decoder{}))
	maps.Copy(one, v.needs)
	return map[string]any{"type": "array", "items": one}
}

func (v *entriesValue[E]) String() string {
	var out []string
	for i := range *v.field {
		out = append(out, v.show(&(*v.field)[i].entry))
	}
	return "[" + strings.Join(out, ", ") + "]"
}

// grantFields are the keys that every entry has.
func grantFields(g *identity.Grant, d decoder, own ...setting) []setting {
	return append(own,
		setting{"name", (*nameValue)(&g.Name), "what the client is called in records"},
		setting{"agents", (*namesValue)(&g.Agents), "names for the agents of rules; without them the entry's name"},
		setting{"workspace", &pathValue{&g.Workspace, d.dir()}, "folder whose rules judge the client"})
}

// needs tests that an entry has a key.
func needs(has map[string]bool, key string) error {
	if !has[key] {
		return errors.New("needs a " + key)
	}
	return nil
}

// shownEntry prints an entry: what it matches, and its name where that is another.
func shownEntry(match string, g *identity.Grant) string {
	if g.Name == "" || g.Name == match {
		return match
	}
	return match + "=" + g.Name
}

func (i *identitySettings) tokensValue() value {
	return &entriesValue[tokenEntry]{
		field: &i.tokens, doc: "an entry has a name, and a token or a tokenFile",
		fields: func(t *tokenEntry, d decoder) []setting {
			return grantFields(&t.Grant, d,
				setting{"token", (*stringValue)(&t.Token.Token), "the secret, of at least 16 bytes"},
				setting{"tokenFile", &pathValue{&t.file, d.dir()}, "file that holds the secret alone"},
				setting{"expires", (*timeValue)(&t.Expires), "when it stops to work"},
				setting{"listener", (*nameValue)(&t.Listener), "name of the only listener on which it works"})
		},
		check: func(_ *tokenEntry, has map[string]bool) error {
			switch {
			case !has["name"]:
				return needs(has, "name")
			case has["token"] && has["tokenFile"]:
				return errors.New("has both token and tokenFile")
			case !has["token"] && !has["tokenFile"]:
				return errors.New("has neither token nor tokenFile")
			}
			return nil
		},
		needs: map[string]any{"required": []string{"name"}, "oneOf": eitherKey("token", "tokenFile")},
		show: func(t *tokenEntry) string {
			if t.file != "" {
				return t.Name + " (in " + t.file + ")"
			}
			return t.Name + " (hidden)"
		},
	}
}

func (i *identitySettings) peersValue() value {
	return &entriesValue[identity.Peer]{
		field: &i.peers, doc: "an entry has a uid",
		fields: func(p *identity.Peer, d decoder) []setting {
			return grantFields(&p.Grant, d, setting{"uid", (*intValue)(&p.UID), "number of a user"})
		},
		check: func(_ *identity.Peer, has map[string]bool) error { return needs(has, "uid") },
		needs: map[string]any{"required": []string{"uid"}},
		show:  func(p *identity.Peer) string { return shownEntry(fmt.Sprint(p.UID), &p.Grant) },
	}
}

func (i *identitySettings) certificatesValue() value {
	return &entriesValue[identity.Certificate]{
		field: &i.certificates, doc: "an entry has a san or a cn",
		fields: func(c *identity.Certificate, d decoder) []setting {
			return grantFields(&c.Grant, d,
				setting{"san", (*nameValue)(&c.SAN), "a subject alternative name, whole: DNS name, URI, mail address or IP address"},
				setting{"cn", (*nameValue)(&c.CN), "a common name, whole"})
		},
		check: func(_ *identity.Certificate, has map[string]bool) error {
			switch {
			case has["san"] && has["cn"]:
				return errors.New("has both san and cn")
			case !has["san"] && !has["cn"]:
				return errors.New("has neither san nor cn")
			}
			return nil
		},
		needs: map[string]any{"oneOf": eitherKey("san", "cn")},
		show:  func(c *identity.Certificate) string { return shownEntry(c.SAN+c.CN, &c.Grant) },
	}
}

func (i *identitySettings) sourcesValue() value {
	return &entriesValue[identity.Source]{
		field: &i.sources, doc: "an entry has a prefix",
		fields: func(s *identity.Source, d decoder) []setting {
			return grantFields(&s.Grant, d, setting{"prefix", (*prefixValue)(&s.Prefix), "a network such as 10.0.0.0/8"})
		},
		check: func(_ *identity.Source, has map[string]bool) error { return needs(has, "prefix") },
		needs: map[string]any{"required": []string{"prefix"}},
		show:  func(s *identity.Source) string { return shownEntry(s.Prefix.String(), &s.Grant) },
	}
}

func (i *identitySettings) listenersValue() value {
	return &entriesValue[identity.Listener]{
		field: &i.listeners, doc: "an entry has a listener",
		fields: func(l *identity.Listener, d decoder) []setting {
			return grantFields(&l.Grant, d, setting{"listener", (*nameValue)(&l.Listener), "name of an entry of listen"})
		},
		check: func(_ *identity.Listener, has map[string]bool) error { return needs(has, "listener") },
		needs: map[string]any{"required": []string{"listener"}},
		show:  func(l *identity.Listener) string { return shownEntry(l.Listener, &l.Grant) },
	}
}
