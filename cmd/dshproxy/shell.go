package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"
)

// variable is a variable of the environment.
type variable struct{ name, value string }

// shells are the languages that env writes. Names of variables are our own; values may be anything.
var shells = map[string]func(variable) string{
	"sh":         func(v variable) string { return "export " + v.name + "=" + quoteSh(v.value) },
	"fish":       func(v variable) string { return "set -gx " + v.name + " " + quoteFish(v.value) },
	"powershell": func(v variable) string { return "$env:" + v.name + " = " + quotePowerShell(v.value) },
}

// plainWord are the bytes that mean themselves in a word of sh and fish, wherever they stand.
const plainWord = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_@+:,./-"

func isPlainWord(s string) bool { return s != "" && strings.Trim(s, plainWord) == "" }

// quoteSh writes a word of a POSIX shell (XCU §2.2.2). Nothing is special within single quotes but their end.
func quoteSh(s string) string {
	if isPlainWord(s) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// quoteFish writes a word of fish, where a backslash within single quotes escapes itself and the quote.
func quoteFish(s string) string {
	if isPlainWord(s) {
		return s
	}
	return "'" + strings.NewReplacer(`\`, `\\`, "'", `\'`).Replace(s) + "'"
}

// quotePowerShell writes a verbatim string. PowerShell takes typographic single quotes for plain ones, so each of them
// is doubled too.
func quotePowerShell(s string) string {
	var b strings.Builder
	b.WriteByte('\'')
	for _, r := range s {
		if strings.ContainsRune("'\u2018\u2019\u201a\u201b", r) {
			b.WriteRune(r)
		}
		b.WriteRune(r)
	}
	b.WriteByte('\'')
	return b.String()
}

// writeComment writes text as comment lines. No byte of it can end a comment early.
func writeComment(w io.Writer, text string) {
	for line := range strings.SplitSeq(text, "\n") {
		fmt.Fprintln(w, strings.TrimRight("# "+escapeControls(line), " "))
	}
}

// escapeControls makes text safe for a terminal and for one line: what cannot be printed, direction marks included, is
// written as an escape.
func escapeControls(s string) string {
	var b strings.Builder
	for s != "" {
		r, size := utf8.DecodeRuneInString(s)
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, `\x%02x`, s[0])
		case r == '\t' || unicode.IsPrint(r):
			b.WriteString(s[:size])
		case r < 0x80:
			fmt.Fprintf(&b, `\x%02x`, r)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
		s = s[size:]
	}
	return b.String()
}

// writeJSON writes an object of variables in their order. Settings of files, when there are any, are its last member.
func writeJSON(w io.Writer, variables []variable, files []clientFile) error {
	var b strings.Builder
	member := func(name string, value any) error {
		k, err := json.Marshal(name)
		if err != nil {
			return err
		}
		v, err := json.Marshal(value)
		if err != nil {
			return err
		}
		if b.Len() > 0 {
			b.WriteString(",\n")
		}
		fmt.Fprintf(&b, "  %s: %s", k, v)
		return nil
	}
	for _, v := range variables {
		if err := member(v.name, v.value); err != nil {
			return err
		}
	}
	if len(files) > 0 {
		if err := member("settings", files); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(w, "{\n%s\n}\n", b.String())
	return err
}
