package toolspec

import (
	"path"
	"slices"
	"strings"
)

// What deny and ask rules for paths see of a command: the files that it plainly reads or writes. Names are expanded as
// far as the shell itself would without looking at the disk, and what only the disk could tell counts as possible.

// readCommands are commands whose operands are files that they read.
var readCommands = []string{
	"cat", "head", "tail", "sed", "less", "more", "tac", "nl", "bat", "grep", "egrep", "fgrep", "rg", "awk", "gawk", "cut", "sort", "uniq", "wc", "diff", "cmp", "paste",
	"xxd", "od", "hexdump", "strings", "base64", "cp", "mv", "ln", "install", "source", ".", "tee",
}

// writeCommands are commands that write or remove all of their operands; copyCommands only the last.
var (
	writeCommands = []string{"tee", "mv", "rm", "touch", "truncate", "unlink", "shred"}
	copyCommands  = []string{"cp", "ln", "install"}
)

// runners run the command behind them; rules for commands do not look through them, rules for paths do.
var runners = []string{"sudo", "doas", "env", "exec", "busybox", "setsid", "ionice", "nocorrect", "xargs", "watch", "flock"}

// filePath is a path in a command.
type filePath struct {
	name   string
	glob   bool // it may be a pattern of the shell's
	hidden bool // whose stars match a leading dot
}

// files are the paths of a command, each once.
type files struct {
	reads, writes []filePath
	hidden        bool // a star may match a leading dot anywhere
}

const (
	maxFolders = 16  // that a command may have changed to
	maxBraces  = 256 // words that one word stands for
	perFile    = 100 // work to keep a path
)

// shellFiles gives the files of a call's command, once for all rules.
func (c *subject) shellFiles(s Scope) *files {
	if c.files != nil {
		return c.files
	}
	text := c.script.text
	c.files = &files{hidden: strings.Contains(text, "dotglob") || strings.Contains(text, "GLOBIGNORE")}
	folders := []string{path.Join("/", s.Cwd)}
	add := func(list *[]filePath, words ...string) {
		for _, word := range words {
			for _, p := range c.braces(word) {
				p.name = expandHome(p.name, s)
				p.glob = strings.ContainsAny(p.name, "*?[")
				for _, dir := range folders {
					if !c.Work.Spend(perFile + 5*(len(p.name)+len(dir))) {
						return
					}
					full := p
					if !path.IsAbs(p.name) {
						full.name = dir + "/" + p.name
						full.glob = p.glob || strings.ContainsAny(dir, "*?[")
					}
					*list = append(*list, full)
				}
			}
		}
	}
	for i := range c.script.commands {
		cmd := &c.script.commands[i]
		add(&c.files.reads, cmd.reads...)
		add(&c.files.writes, cmd.writes...)
		words := runs(cmd.plain)
		if len(words) == 0 {
			continue
		}
		name, operands := path.Base(words[0]), operandsOf(words[1:])
		inPlace := name == "sed" && slices.ContainsFunc(words, func(w string) bool { return strings.HasPrefix(w, "-i") || strings.HasPrefix(w, "--in-place") })
		switch name {
		case "cd", "pushd":
			if len(operands) == 0 {
				operands = []string{"~"}
			}
			var to []filePath
			add(&to, operands[len(operands)-1])
			for _, p := range to {
				if p.name = path.Clean(p.name); !slices.Contains(folders, p.name) {
					folders = append(folders, p.name)
				}
			}
			if len(folders) > maxFolders {
				c.Work.Empty()
			}
		case "dd":
			for _, w := range words[1:] {
				if in, ok := strings.CutPrefix(w, "if="); ok {
					add(&c.files.reads, in)
				} else if out, ok := strings.CutPrefix(w, "of="); ok {
					add(&c.files.writes, out)
				}
			}
		}
		if slices.Contains(readCommands, name) {
			add(&c.files.reads, operands...)
		}
		if inPlace || slices.Contains(writeCommands, name) {
			add(&c.files.writes, operands...)
		}
		if slices.Contains(copyCommands, name) && len(operands) > 0 {
			add(&c.files.writes, operands[len(operands)-1])
			for _, w := range words {
				if dir, ok := strings.CutPrefix(w, "--target-directory="); ok {
					add(&c.files.writes, dir)
				}
			}
			if at := slices.Index(words, "-t"); at > 0 && at+1 < len(words) {
				add(&c.files.writes, words[at+1])
			}
		}
		if c.Work.Over() {
			break
		}
	}
	c.files.reads, c.files.writes = once(c.files.reads), once(c.files.writes)
	return c.files
}

// once leaves out what is named again.
func once(list []filePath) []filePath {
	slices.SortFunc(list, func(a, b filePath) int { return strings.Compare(a.name, b.name) })
	return slices.Compact(list)
}

// runs gives the words that a command comes to, whatever runs it.
func runs(words []string) []string {
	for words = strip(words); len(words) > 1 && slices.Contains(runners, path.Base(words[0])); words = strip(words) {
		words = words[1:]
		for len(words) > 1 && (strings.HasPrefix(words[0], "-") || strings.IndexByte(words[0], '=') > 0) {
			words = words[1:]
		}
	}
	return words
}

// operandsOf leaves options out. An option may have its value behind "=".
func operandsOf(words []string) []string {
	var out []string
	for i, w := range words {
		if w == "--" {
			return append(out, words[i+1:]...)
		}
		if !strings.HasPrefix(w, "-") {
			out = append(out, w)
		} else if _, value, ok := strings.Cut(w, "="); ok && value != "" {
			out = append(out, value)
		}
	}
	return out
}

// expandHome expands what a word begins with: the home folder and the working folder.
func expandHome(word string, s Scope) string {
	for _, e := range []struct{ text, to string }{{"~", s.Home}, {"$HOME", s.Home}, {"${HOME}", s.Home}, {"$PWD", s.Cwd}, {"${PWD}", s.Cwd}} {
		if rest, ok := strings.CutPrefix(word, e.text); ok && e.to != "" && (rest == "" || rest[0] == '/') {
			return e.to + rest
		}
	}
	return word
}

// braces gives the words that a word with braces stands for. A sequence is any text. When they are too many the work is
// used up.
func (c *subject) braces(word string) []filePath {
	if tooLong(word) {
		c.Work.Empty()
		return nil
	}
	todo, out := []filePath{{name: word}}, []filePath(nil)
	for len(todo) > 0 {
		w := todo[0]
		todo = todo[1:]
		if !c.Work.Spend(perFile + (1+strings.Count(w.name, "{"))*len(w.name)) {
			return nil
		}
		before, items, rest := firstBraces(w.name)
		switch {
		case items == nil:
			out = append(out, w)
		case len(items) == 1:
			todo = append(todo, filePath{name: before + "*" + rest, hidden: true})
		case len(todo)+len(out)+len(items) > maxBraces:
			c.Work.Empty()
			return nil
		default:
			for _, item := range items {
				todo = append(todo, filePath{name: before + item + rest, hidden: w.hidden})
			}
		}
	}
	return out
}

// firstBraces cuts a word at its first braces that hold a comma or a sequence; a sequence is one item.
func firstBraces(word string) (before string, items []string, rest string) {
	for start := 0; ; {
		at := strings.IndexByte(word[start:], '{')
		if at < 0 {
			return word, nil, ""
		}
		start += at
		depth, from := 0, start+1
		var found []string
		for i := start; i < len(word); i++ {
			switch word[i] {
			case '{':
				depth++
			case ',':
				if depth == 1 {
					found, from = append(found, word[from:i]), i+1
				}
			case '}':
				depth--
			}
			if depth == 0 {
				found = append(found, word[from:i])
				if len(found) > 1 || strings.Contains(found[0], "..") {
					return word[:start], found, word[i+1:]
				}
				break
			}
		}
		start++
	}
}
