package rules

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// verbs of tools' names.
const (
	readingVerbs = " read reads reader glob grep ls list view search fetch get find query lookup show cat open describe info stat status diff log blame inspect browse lsp todo todos think task agent commit ask question web fetchurl codebase "
	writingVerbs = " write writes writer edit edits editor replace replaces delete deletes remove removes rm move moves mv rename create creates update updates insert append patch apply put set save copy cp truncate touch mkdir " +
		"modify change add link symlink ln chmod install overwrite store upload unlink mutate exec execute run eval format sync restore reset checkout move_file "
	shellTools = " bash pwsh shell sh zsh terminal "
)

// nameWords splits a tool's name: read_file, readFile and read-file have the same words.
func nameWords(name string) []string {
	var out []string
	start := 0
	runes := []rune(name)
	cut := func(i int) {
		if i > start {
			out = append(out, strings.ToLower(string(runes[start:i])))
		}
	}
	for i, r := range runes {
		switch {
		case !unicode.IsLetter(r):
			cut(i)
			start = i + 1
		case i > start && unicode.IsUpper(r) && unicode.IsLower(runes[i-1]), i > start && unicode.IsUpper(r) && i+1 < len(runes) && unicode.IsLower(runes[i+1]):
			cut(i)
			start = i
		}
	}
	cut(len(runes))
	return out
}

// onlyReads tells from a tool's name that its arguments change no file: some word of it says that it reads, and none that
// it writes. What a shell does is seen in its commands.
func onlyReads(tool string) bool {
	const longest = 200
	if isOneOf(strings.ToLower(tool), shellTools) {
		return true
	}
	if len(tool) > longest {
		return false
	}
	words := nameWords(tool)
	return slices.ContainsFunc(words, func(w string) bool { return isOneOf(w, readingVerbs) }) &&
		!slices.ContainsFunc(words, func(w string) bool { return isOneOf(w, writingVerbs) })
}

// contentKeys hold text, not paths.
const contentKeys = " content contents new_string old_string newstring oldstring new_str old_str newtext oldtext new_text old_text new_content old_content new old text body title description message question questions query prompt note notes comment summary " +
	"pattern regex regexp search replace replacement find value data reason instructions instruction explanation thought thoughts caption subject label header answer options todos activeform new_source file_text insert_text edits_description "

// codeKeys hold programs.
const codeKeys = " code script source python javascript "

// toolArgs reports arguments that name a policy file, of a tool that may write it.
func (g *guard) toolArgs(f *facts) bool {
	if onlyReads(f.call.Tool) && (isOneOf(strings.ToLower(f.call.Tool), shellTools) || !writesContent(&f.args)) {
		return false
	}
	patches := slices.ContainsFunc(nameWords(f.call.Tool), func(w string) bool { return isOneOf(w, " patch diff apply applypatch ") })
	moves := slices.ContainsFunc(nameWords(f.call.Tool), func(w string) bool {
		return isOneOf(w, " delete remove rm move mv rename unlink rmdir trash ")
	})
	return g.argNames(&f.args, "", patches, moves)
}

// writesContent reports a call that brings a text to write, whatever the tool is named.
func writesContent(a *arg) bool {
	for _, key := range a.keys {
		if isOneOf(strings.ToLower(key), " content contents new_string new_str new_source file_text ") {
			return true
		}
	}
	return false
}

// argNames walks the arguments; key is the nearest one above a value.
func (g *guard) argNames(a *arg, key string, patches, moves bool) bool {
	if a.kind == argString {
		return g.argText(a.text, key, patches, moves)
	}
	for i := range a.items {
		under := key
		if a.kind == argObject {
			under = strings.ToLower(a.keys[i])
			if g.mayName(under) && g.work.Spend(g.pathCost(a.keys[i:i+1])) && g.isPolicy(under) {
				return true
			}
		}
		if g.argNames(&a.items[i], under, patches, moves) {
			return true
		}
	}
	return false
}

func (g *guard) argText(s, key string, patches, moves bool) bool {
	if !g.work.Spend(20 + 4*len(s)) {
		return false
	}
	switch {
	case patches && (strings.Contains(s, "\n") || strings.Contains(s, "***")):
		return g.patches(s)
	case isOneOf(key, codeKeys):
		return g.writesInCode(s)
	case isOneOf(key, contentKeys), isOneOf(key, " command cmd command_line commandline "):
		return false
	case moves && !isOneOf(key, " to dst dest destination new_path newpath target ") && len(s) < 4096 && g.work.Spend(g.pathCost([]string{s})) && g.holdsPolicy(s):
		return true
	}
	if g.mayName(s) && g.work.Spend(g.pathCost([]string{s})) && g.isPolicy(s) {
		return true
	}
	return strings.Contains(s, "\n") && g.patches(s)
}

// mayName tells quickly that a text names no policy file.
func (g *guard) mayName(s string) bool {
	if len(g.protected) > 0 && len(s) < 8192 || isPolicyPath(g.cwds[0]+"/*") {
		return true
	}
	lower := lowerASCII(s)
	for _, part := range []string{"dsh", "claude", "pi", "managed-settings", "config.json"} {
		if strings.Contains(lower, part) {
			return true
		}
	}
	return len(s) < 4096 && (strings.ContainsAny(s, "*?[{") || strings.IndexFunc(s, func(r rune) bool { return r >= utf8.RuneSelf }) >= 0)
}

// patchMarks stand before the names in a patch.
var patchMarks = []string{
	"*** Update File:", "*** Add File:", "*** Delete File:", "*** Move to:", "*** ", "+++", "---", "rename to ", "rename from ", "copy to ", "Index:", "diff --git ", "diff -",
}

// patches reports a patch that names a policy file.
func (g *guard) patches(text string) bool {
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		for _, mark := range patchMarks {
			rest, ok := strings.CutPrefix(line, mark)
			if !ok || !g.mayName(rest) {
				continue
			}
			names := []string{rest}
			if cut, _, found := strings.Cut(rest, "\t"); found && strings.TrimSpace(cut) != "" {
				names = append(names, cut)
			}
			names = append(names, strings.Fields(rest)...)
			for _, name := range names {
				if name = strings.Trim(strings.TrimSpace(name), `"`); g.work.Spend(g.pathCost([]string{name})) && g.isPolicy(name) {
					return true
				}
				if _, inner, found := strings.Cut(name, "/"); found && len(name) > 1 && name[1] == '/' && g.isPolicy(inner) {
					return true // a/NAME
				}
			}
		}
	}
	return false
}

// writesInCode reports a program that names a policy file in quotes and seems to write.
func (g *guard) writesInCode(code string) bool {
	lower := lowerASCII(code)
	writes := slices.ContainsFunc([]string{"'w", `"w`, "'a", `"a`, "'x", `"x`, "+'", `+"`, "write", "unlink", "remove", "rename", "replace", "rmtree", "chmod", "truncate", "delete", "system", "exec", "spawn", "popen", "subprocess", "copy", "move", ">", "append", "mkdir", "symlink", "link"},
		func(mark string) bool { return strings.Contains(lower, mark) })
	if !writes || !g.mayName(code) {
		return false
	}
	return slices.ContainsFunc(quotedIn(code), func(s string) bool { return g.work.Spend(g.pathCost([]string{s})) && g.isPolicy(s) })
}

// quotedIn are the texts in quotes of a program.
func quotedIn(code string) []string {
	var out []string
	for i := 0; i < len(code); i++ {
		if c := code[i]; c == '"' || c == '\'' || c == '`' {
			end := strings.IndexByte(code[i+1:], c)
			if end < 0 {
				continue
			}
			if text := strings.TrimLeft(code[i+1:i+1+end], "+<>| "); end < 512 && !strings.ContainsAny(text, "\n;(){}") {
				out = append(out, text)
			}
			i += end + 1
		}
	}
	return out
}
