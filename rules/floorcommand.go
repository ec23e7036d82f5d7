package rules

import (
	"path"
	"slices"
	"strings"
)

// readers leave the files alone that they are given.
const readers = " cat more head tail tac nl grep egrep fgrep rg ag ls ll exa eza stat file wc diff cmp md5sum sha256sum sha1sum sha512sum b2sum cksum sum od hexdump bat batcat jq test [ [[ realpath readlink basename dirname " +
	"echo printf true : source . export open code pytest go npm node make dshproxy cd pushd chdir cut column paste comm yamllint du gh glab man which whereis type shellcheck pre-commit join fold fmt rev strings less tree xxd zcat " +
	"declare local readonly typeset unset expr jsonlint ajv check-jsonschema for let cargo pnpm yarn docker podman kubectl "

// removers take a file away wherever it lies: a folder above it is as good.
const removers = " rm rmdir mv unlink shred trash rename srm "

// changes reports a command that names a policy file and is not known to leave it alone.
func (g *guard) changes(c *simpleCommand) bool {
	if g.patchesWith(c) || g.byScript(c) {
		return true
	}
	args := withoutExcluded(c)
	if isOneOf(c.word, removers) && slices.ContainsFunc(removed(c.word, args), g.holdsPolicy) {
		return true
	}
	if !isOneOf(c.word, readers) {
		args = append(slices.Clip(args), g.substituted(args)...)
	}
	if !g.anyPolicy(args) {
		return c.word == "find" && g.findRemoves(args)
	}
	has := func(options ...string) bool { return hasOption(args, options) }
	switch {
	case isOneOf(c.word, " less more "):
		return g.optionNames(args, "oO", "--log-file", "--LOG-FILE")
	case c.word == "tree":
		return g.optionNames(args, "o", "--output")
	case c.word == "xxd":
		operands := operandsOf(args, " -s -l -c -g -o -n ")
		return len(operands) > 1 && g.anyPolicy(operands[1:])
	case c.word == "diff":
		return g.optionNames(args, "", "--output")
	case isOneOf(c.word, readers):
		return false
	case isOneOf(c.word, " sed gsed perl yq prettier ruff black gofmt "):
		return has("-i", "--in-place", "--inplace", "--write") || isOneOf(c.word, " prettier gofmt ") && has("-w") || isOneOf(c.word, " black ") && !has("--check") || c.word == "perl" && has("-e") && g.byScript(c)
	case c.word == "awk" || c.word == "gawk" || c.word == "mawk":
		return has("-i")
	case c.word == "find":
		return g.findChanges(args)
	case c.word == "sort":
		return has("-o", "--output")
	case c.word == "git":
		return g.gitChanges(args)
	case isOneOf(c.word, " python python3 "):
		return !slices.Contains(args, "json.tool") || len(operandsOf(args, " -m ")) > 1
	case c.word == "zip" || c.word == "7z":
		operands := operandsOf(args, " -x -i -P ")
		return has("-m", "--move", "-d", "--delete") || len(operands) > 0 && g.isPolicy(operands[0])
	case isOneOf(c.word, " cp rsync scp install ln "):
		return g.copies(c.word, args)
	case c.word == "tar" || c.word == "bsdtar":
		return g.tarChanges(args)
	default:
		return true
	}
}

// substituted are the words of the substitutions in the arguments.
func (g *guard) substituted(args []string) []string {
	var out []string
	for _, a := range args {
		if g.unsure[a] != 0 && (strings.Contains(a, "$(") || strings.Contains(a, "`")) {
			out = append(out, strings.FieldsFunc(a, func(r rune) bool { return r <= ' ' || strings.ContainsRune("$()`'\";|&", r) })...)
		}
	}
	return out
}

// findRemoves reports a find that removes files of the name of a protected one, above where that lies.
func (g *guard) findRemoves(args []string) bool {
	if !slices.ContainsFunc(args, func(a string) bool { return isOneOf(a, " -delete -exec -execdir ") }) {
		return false
	}
	for i, a := range args {
		if i == 0 || !isOneOf(args[i-1], " -name -iname ") {
			continue
		}
		for _, p := range g.protected {
			if base := p[strings.LastIndexByte(p, '/')+1:]; strings.Trim(a, "*?") != "" && mayBe(strings.ToLower(a), base) && g.above(args, p) && g.acts(args) {
				return true
			}
		}
	}
	return false
}

// above reports whether some starting folder of find holds a path.
func (g *guard) above(args []string, p string) bool {
	starts := 0
	for _, a := range args {
		if a == "" || strings.ContainsRune("-(!", rune(a[0])) {
			break
		}
		starts++
		if name := folded(a); below(p, path.Clean(name)) || !isRooted(name) && below(p, path.Join(g.cwds[len(g.cwds)-1], name)) {
			return true
		}
	}
	return starts == 0 && below(p, g.cwds[len(g.cwds)-1])
}

// removed are the operands that a command takes away: all of them, but for where mv moves to.
func removed(word string, args []string) []string {
	operands := operandsOf(args, " -t --target-directory -S --suffix ")
	if word == "mv" && len(operands) > 0 && !hasOption(args, []string{"-t", "--target-directory"}) {
		return operands[:len(operands)-1]
	}
	return operands
}

// hasOption reports an option, also among bundled letters and with a value.
func hasOption(args, options []string) bool {
	return slices.ContainsFunc(args, func(a string) bool {
		return slices.ContainsFunc(options, func(o string) bool {
			return a == o || len(o) > 2 && strings.HasPrefix(a, o) || len(o) == 2 && len(a) > 2 && a[0] == '-' && a[1] != '-' && strings.IndexByte(a, o[1]) > 0
		})
	})
}

// optionNames reports an option of one of the letters or names whose value is a policy file.
func (g *guard) optionNames(args []string, letters string, long ...string) bool {
	for i, a := range args {
		short := len(a) > 1 && a[0] == '-' && a[1] != '-' && strings.ContainsAny(a, letters)
		named := slices.ContainsFunc(long, func(o string) bool { return a == o || strings.HasPrefix(a, o+"=") })
		if !short && !named {
			continue
		}
		if g.isPolicy(a) || i+1 < len(args) && g.isPolicy(args[i+1]) {
			return true
		}
		if at := strings.IndexAny(a, letters); short && at > 0 && at+1 < len(a) && g.isPolicy(a[at+1:]) {
			return true
		}
	}
	return false
}

// operandsOf gives the words that are no options, and no values of the options that are known to take one.
func operandsOf(args []string, withValue string) []string {
	var out []string
	for i := 0; i < len(args); i++ {
		switch a := args[i]; {
		case a == "--":
			return append(out, args[i+1:]...)
		case len(a) > 1 && a[0] == '-':
			if isOneOf(a, withValue) {
				i++
			}
		default:
			out = append(out, a)
		}
	}
	return out
}

// copies: the last operand is written, and so is what -t names. A link to a policy file is a second name of it.
func (g *guard) copies(word string, args []string) bool {
	values := map[string]string{
		"cp": " -S --suffix ", "install": " -g -m -o -S --group --mode --owner --suffix ", "ln": " -S --suffix ", "scp": " -c -F -i -J -l -o -P -S ",
		"rsync": " -e --rsh -f --filter --include --files-from --log-file --bwlimit --timeout --chmod --port ",
	}
	if hasOption(args, []string{"--delete", "--remove-source-files"}) && word == "rsync" || g.optionNames(args, "t", "--target-directory", "--log-file", "--backup-dir") {
		return true
	}
	operands := operandsOf(args, values[word])
	if word == "ln" || hasOption(args, []string{"-l", "--link", "-s", "--symbolic-link"}) && word == "cp" {
		return g.anyPolicy(operands)
	}
	if len(operands) == 0 {
		return true
	}
	all := operandsOf(args, "") // an option before the last word may take none
	return g.isPolicy(operands[len(operands)-1]) || g.isPolicy(all[len(all)-1]) || word == "install" && hasOption(args, []string{"-d"})
}

func (g *guard) tarChanges(args []string) bool {
	mode := ""
	for i, a := range args {
		if i == 0 && (a == "" || a[0] != '-') || len(a) > 1 && a[0] == '-' && a[1] != '-' {
			mode += strings.TrimLeft(a, "-")
			if i == 0 && a != "" && a[0] != '-' && strings.Contains(a, "f") && len(args) > 1 && g.isPolicy(args[1]) {
				return true
			}
			if i > 0 {
				continue
			}
		}
		switch a {
		case "--create", "--list", "--diff", "--compare":
			mode += "t"
		}
	}
	if strings.ContainsAny(mode, "xru") && !strings.HasPrefix(mode, "c") && !strings.HasPrefix(mode, "t") {
		return true
	}
	if hasOption(args, []string{"--remove-files", "--delete"}) || g.optionNames(args, "f", "--file") {
		return true
	}
	return !strings.ContainsAny(mode, "ctd")
}

// findChanges: what is looked for does not matter as long as nothing is done with it.
func (g *guard) findChanges(args []string) bool {
	if !g.acts(args) {
		return false
	}
	for i, a := range args {
		excluded := i > 0 && isOneOf(args[i-1], " -path -wholename -name -iname -ipath ") && (i > 1 && isOneOf(args[i-2], " -not ! ") || i+1 < len(args) && args[i+1] == "-prune")
		if !excluded && g.isPolicy(a) {
			return true
		}
	}
	return false
}

// acts reports a find that does something with what it finds.
func (g *guard) acts(args []string) bool {
	for i, a := range args {
		switch {
		case isOneOf(a, " -delete -fls -fprint -fprint0 -fprintf "):
			return true
		case isOneOf(a, " -exec -execdir -ok -okdir ") && i+1 < len(args) && !isOneOf(baseName(args[i+1]), readers):
			return true
		}
	}
	return false
}

// gitChanges looks at the subcommand: most of those that read a path leave it alone.
func (g *guard) gitChanges(args []string) bool {
	for len(args) > 0 && len(args[0]) > 1 && args[0][0] == '-' {
		if isOneOf(args[0], " -C -c --git-dir --work-tree --namespace --exec-path --super-prefix --config-env ") && len(args) > 1 {
			args = args[1:]
		}
		args = args[1:]
	}
	if len(args) == 0 {
		return false
	}
	if g.optionNames(args[1:], "o", "--output", "--output-directory") && args[0] != "grep" && args[0] != "ls-files" && args[0] != "commit" {
		return true
	}
	switch args[0] {
	case "config":
		return g.optionNames(args[1:], "f", "--file")
	default:
		return !isOneOf(args[0], " diff log show status grep blame add commit check-ignore check-attr ls-files ls-tree cat-file rev-parse rev-list shortlog describe annotate hash-object whatchanged branch tag push fetch stage ")
	}
}

// withoutExcluded takes off what an option says to leave out.
func withoutExcluded(c *simpleCommand) []string {
	if !slices.ContainsFunc(c.args, func(a string) bool { return strings.HasPrefix(a, "--exclude") || strings.HasPrefix(a, "--ignore") }) {
		return c.args
	}
	var out []string
	for i := 0; i < len(c.args); i++ {
		a := c.args[i]
		switch {
		case !strings.HasPrefix(a, "--exclude") && !strings.HasPrefix(a, "--ignore"):
			out = append(out, a)
		case !strings.Contains(a, "=") && isOneOf(c.word, " rsync tar grep rg du zip "):
			i++
		}
	}
	return out
}

// patchesWith reports a patch, in the text that a command reads or in its arguments, that names a policy file.
func (g *guard) patchesWith(c *simpleCommand) bool {
	switch {
	case isOneOf(c.word, " apply_patch applypatch patch gpatch "):
	case c.word == "git" && slices.ContainsFunc(c.args, func(a string) bool { return a == "apply" || a == "am" }):
	default:
		return false
	}
	for _, text := range slices.Concat(c.stdin, c.args) {
		if g.work.Spend(20*len(text)) && strings.Contains(text, "\n") && g.patches(text) {
			return true
		}
	}
	return false
}

// byScript reports a script among the arguments that writes a policy file.
func (g *guard) byScript(c *simpleCommand) bool {
	switch {
	case isOneOf(c.word, " sed gsed "):
		return slices.ContainsFunc(c.args, g.sedWrites)
	case isOneOf(c.word, " awk gawk mawk nawk perl python python3 ruby node nodejs php deno bun lua vim vi nvim ex emacs osascript "):
		return slices.ContainsFunc(c.args, func(a string) bool {
			return len(a) > 4 && strings.ContainsAny(a, `"'`) && g.work.Spend(40*len(a)) && g.writesInCode(a)
		}) || slices.ContainsFunc(c.stdin, func(a string) bool { return g.work.Spend(40*len(a)) && g.writesInCode(a) })
	default:
		return false
	}
}

// sedWrites reports w FILE in a script of sed.
func (g *guard) sedWrites(script string) bool {
	for at := 0; ; {
		i := strings.IndexAny(script[at:], "wW")
		if i < 0 {
			return false
		}
		at += i + 1
		name, _, _ := strings.Cut(strings.TrimLeft(script[at:], " \t"), "\n")
		if !g.work.Spend(2*len(name)+20) || g.mayName(name) && g.work.Spend(g.pathCost([]string{name})) && g.isPolicy(strings.TrimRight(name, " ;}")) {
			return true
		}
	}
}
