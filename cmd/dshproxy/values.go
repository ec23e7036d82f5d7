package main

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"dshproxy/netrule"
	"dshproxy/rules/tree"

	"gopkg.in/yaml.v3"
)

// value reads and prints one setting.
type value interface {
	set(text string) error
	String() string
}

// lister is a value that a list can set.
type lister interface{ setList(items []string) error }

type stringValue string

func (v *stringValue) set(s string) error { *v = stringValue(s); return nil }
func (v *stringValue) String() string     { return string(*v) }

type boolValue bool

func (v *boolValue) set(s string) error {
	switch s {
	case "true":
		*v = true
	case "false":
		*v = false
	default:
		return errors.New("want true or false")
	}
	return nil
}
func (v *boolValue) String() string { return strconv.FormatBool(bool(*v)) }

type intValue int

func (v *intValue) set(s string) error {
	n, err := strconv.Atoi(s)
	if err != nil || n < 0 {
		return errors.New("want a number of 0 or more")
	}
	*v = intValue(n)
	return nil
}
func (v *intValue) String() string { return strconv.Itoa(int(*v)) }

// countValue is a number of at least one.
type countValue int

func (v *countValue) set(s string) error {
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 {
		return errors.New("want a number of 1 or more")
	}
	*v = countValue(n)
	return nil
}
func (v *countValue) String() string { return strconv.Itoa(int(*v)) }

type durationValue time.Duration

func (v *durationValue) set(s string) error {
	if s == "0" {
		*v = 0
		return nil
	}
	d, err := time.ParseDuration(s)
	if err != nil || d < 0 {
		return errors.New("want a duration such as 4.5s or 10m")
	}
	*v = durationValue(d)
	return nil
}
func (v *durationValue) String() string { return time.Duration(*v).String() }

// sizeValue is a number of bytes, with a unit or without.
type sizeValue int64

func (v *sizeValue) set(s string) error {
	units := []struct {
		suffix string
		bytes  int64
	}{{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40}, {"B", 1}, {"", 1}}
	for _, u := range units {
		digits, ok := strings.CutSuffix(s, u.suffix)
		if !ok {
			continue
		}
		n, err := strconv.ParseInt(strings.TrimSpace(digits), 10, 64)
		if err != nil || n < 0 || n > (1<<62)/u.bytes {
			break
		}
		*v = sizeValue(n * u.bytes)
		return nil
	}
	return errors.New("want a size such as 64KiB or 1GiB")
}

func (v *sizeValue) String() string {
	n := int64(*v)
	for _, u := range []struct {
		suffix string
		bytes  int64
	}{{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}} {
		if n != 0 && n%u.bytes == 0 {
			return strconv.FormatInt(n/u.bytes, 10) + u.suffix
		}
	}
	return strconv.FormatInt(n, 10)
}

type enumValue struct {
	field *string
	words []string
}

func enum(field *string, words ...string) *enumValue { return &enumValue{field, words} }

func (v *enumValue) set(s string) error {
	for _, w := range v.words {
		if s == w {
			*v.field = s
			return nil
		}
	}
	return fmt.Errorf("want one of %s, not %q", strings.Join(v.words, ", "), s)
}
func (v *enumValue) String() string { return *v.field }

type listValue []string

func (v *listValue) set(s string) error {
	if s == "" {
		*v = nil
		return nil
	}
	return v.setList(strings.Split(s, ","))
}
func (v *listValue) setList(items []string) error { *v = items; return nil }
func (v *listValue) String() string               { return "[" + strings.Join(*v, ", ") + "]" }

// enumsValue is a list of distinct words, each one of a few, and never empty.
type enumsValue struct {
	dest    *[]string
	allowed []string
}

func enums[T ~string](dest *[]string, allowed ...T) *enumsValue {
	v := &enumsValue{dest: dest}
	for _, a := range allowed {
		v.allowed = append(v.allowed, string(a))
	}
	return v
}

func (v *enumsValue) set(s string) error { return v.setList(strings.Split(s, ",")) }

func (v *enumsValue) setList(items []string) error {
	for i, s := range items {
		if !slices.Contains(v.allowed, s) {
			return fmt.Errorf("%q is not one of %s", s, strings.Join(v.allowed, ", "))
		}
		if slices.Contains(items[:i], s) {
			return fmt.Errorf("%q stands there twice", s)
		}
	}
	if len(items) == 0 {
		return fmt.Errorf("an empty list; want one or more of %s", strings.Join(v.allowed, ", "))
	}
	*v.dest = items
	return nil
}

func (v *enumsValue) String() string { return "[" + strings.Join(*v.dest, ", ") + "]" }

type prefixesValue []netip.Prefix

func (v *prefixesValue) set(s string) error {
	if s == "" {
		*v = nil
		return nil
	}
	return v.setList(strings.Split(s, ","))
}

func (v *prefixesValue) setList(items []string) error {
	var out []netip.Prefix
	for _, s := range items {
		p, err := netip.ParsePrefix(s)
		if err != nil {
			return fmt.Errorf("want a network such as 10.0.0.0/8, not %q", s)
		}
		if p.Masked() != p {
			return fmt.Errorf("%s has bits below its length; write %s", p, p.Masked())
		}
		out = append(out, p)
	}
	*v = out
	return nil
}

func (v *prefixesValue) String() string {
	var out []string
	for _, p := range *v {
		out = append(out, p.String())
	}
	return "[" + strings.Join(out, ", ") + "]"
}

type portsValue []netrule.PortRange

func (v *portsValue) set(s string) error {
	if s == "any" {
		*v = []netrule.PortRange{{Lo: 1, Hi: 65535}}
		return nil
	}
	return v.setList(strings.Split(s, ","))
}

func (v *portsValue) setList(items []string) error {
	var out []netrule.PortRange
	for _, s := range items {
		r, err := netrule.ParsePortPattern(s)
		if err != nil {
			return err
		}
		out = append(out, r)
	}
	*v = out
	return nil
}

func (v *portsValue) String() string {
	var out []string
	for _, r := range *v {
		if r.String() == "*" {
			return "any"
		}
		out = append(out, r.String())
	}
	return "[" + strings.Join(out, ", ") + "]"
}

type listenValue []listenAddr

func (v *listenValue) set(s string) error { return v.setList(strings.Split(s, ",")) }

func (v *listenValue) setList(items []string) error {
	var out []listenAddr
	for i, s := range items {
		if err := checkListen(s); err != nil {
			return err
		}
		name := "proxy"
		if i > 0 {
			name = fmt.Sprintf("proxy%d", i+1)
		}
		out = append(out, listenAddr{name, s, 0o600})
	}
	*v = out
	return nil
}

// decode reads a list whose items are addresses or mappings.
func (v *listenValue) decode(r tree.Value) error {
	if r.Kind != tree.List {
		return errors.New("want a list of addresses")
	}
	var out []listenAddr
	for i, n := range r.Node.Content {
		l := listenAddr{name: "proxy", mode: 0o600}
		if i > 0 {
			l.name = fmt.Sprintf("proxy%d", i+1)
		}
		item := tree.Resolve(n)
		switch item.Kind {
		case tree.String:
			l.address = item.Text
		case tree.Map:
			if err := l.decode(item.Node); err != nil {
				return err
			}
		default:
			return errors.New("want an address or a mapping with name and address")
		}
		if err := checkListen(l.address); err != nil {
			return err
		}
		out = append(out, l)
	}
	*v = out
	return nil
}

func (l *listenAddr) decode(m *yaml.Node) error {
	for i := 0; i+1 < len(m.Content); i += 2 {
		key, item := tree.KeyText(tree.Deref(m.Content[i])), tree.Resolve(m.Content[i+1])
		switch key {
		case "name":
			l.name = item.Text
		case "address":
			l.address = item.Text
		case "mode":
			text := item.Text
			if item.Kind == tree.Number {
				text = strings.TrimPrefix(item.Node.Value, "0o") // as written: 0660 and 0o660 mean the same here
			}
			mode, err := strconv.ParseUint(text, 8, 32)
			if err != nil || mode > 0o777 {
				return errors.New("mode: want permissions such as \"0660\"")
			}
			l.mode = fs.FileMode(mode)
		case "group", "protocols", "tls", "proxyProtocol":
			return fmt.Errorf("%s is not supported by this version", key)
		default:
			return fmt.Errorf("unknown key %q", key)
		}
	}
	return nil
}

func (v *listenValue) String() string {
	var out []string
	for _, l := range *v {
		out = append(out, l.name+"="+l.address)
	}
	return "[" + strings.Join(out, ", ") + "]"
}

// checkListen tests the shape of an address to listen on.
func checkListen(s string) error {
	if path, ok := strings.CutPrefix(s, "unix:"); ok {
		if path == "" {
			return errors.New("unix: needs a path")
		}
		return nil
	}
	_, port, err := splitHostPort(s)
	if err != nil {
		return fmt.Errorf("%q: want host:port or unix:PATH", s)
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || strconv.FormatUint(n, 10) != port {
		return fmt.Errorf("%q: want a port from 0 to 65535", s)
	}
	return nil
}

func splitHostPort(s string) (host, port string, err error) { return net.SplitHostPort(s) }

func hostPort(host string, port int) string { return net.JoinHostPort(host, strconv.Itoa(port)) }

func absolute(path string) (string, error) { return filepath.Abs(path) }
