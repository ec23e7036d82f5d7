package main

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"dshproxy/netrule"
)

// value reads and prints one setting, and tells editors what it takes.
type value interface {
	set(text string) error
	String() string
	schema() map[string]any
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
		p, err := parsePrefix(s)
		if err != nil {
			return err
		}
		out = append(out, p)
	}
	*v = out
	return nil
}

func parsePrefix(s string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(s)
	switch {
	case err != nil:
		return p, fmt.Errorf("want a network such as 10.0.0.0/8, not %q", s)
	case p.Masked() != p:
		return p, fmt.Errorf("%s has bits below its length; write %s", p, p.Masked())
	}
	return p, nil
}

func (v *prefixesValue) String() string {
	var out []string
	for _, p := range *v {
		out = append(out, p.String())
	}
	return "[" + strings.Join(out, ", ") + "]"
}

// prefixValue is one network.
type prefixValue netip.Prefix

func (v *prefixValue) set(s string) error {
	p, err := parsePrefix(s)
	if err == nil {
		*v = prefixValue(p)
	}
	return err
}
func (v *prefixValue) String() string { return netip.Prefix(*v).String() }

// timeValue is a moment, with its time zone.
type timeValue time.Time

func (v *timeValue) set(s string) error {
	t, err := time.Parse(time.RFC3339, s)
	if err != nil {
		return errors.New("want a time such as 2027-01-31T18:00:00Z")
	}
	*v = timeValue(t)
	return nil
}
func (v *timeValue) String() string { return time.Time(*v).Format(time.RFC3339) }

// pathValue is a file or folder; a relative one is beside the settings file.
type pathValue struct {
	field *string
	dir   string
}

func (v *pathValue) set(s string) error {
	if s == "" {
		return errors.New("want a path")
	}
	if !filepath.IsAbs(s) {
		s = filepath.Join(v.dir, s)
	}
	*v.field = s
	return nil
}
func (v *pathValue) String() string { return *v.field }

// namesValue is a list of names that has at least one.
type namesValue []string

func (v *namesValue) set(s string) error { return v.setList([]string{s}) }
func (v *namesValue) setList(items []string) error {
	if len(items) == 0 {
		return errors.New("an empty list; leave the key out instead")
	}
	*v = items
	return nil
}
func (v *namesValue) String() string { return "[" + strings.Join(*v, ", ") + "]" }

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

func splitHostPort(s string) (host, port string, err error) { return net.SplitHostPort(s) }

func hostPort(host string, port int) string { return net.JoinHostPort(host, strconv.Itoa(port)) }

func absolute(path string) (string, error) { return filepath.Abs(path) }
