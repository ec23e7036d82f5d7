package rules

import (
	"slices"
	"strings"

	"dshproxy/rules/work"
)

// lastNames are the names of the commands that the wrappers may end at, the likely one first.
func lastNames(words []string, left *work.Budget) []string {
	const most = 4
	out := []string{lastName(words, left)}
	for words = skipAssignments(words); len(words) > 0 && len(out) < most; {
		name := baseName(words[0])
		if !spendUnwrap(name, words, left) {
			break
		}
		inner, others := unwrap(name, words[1:])
		for _, other := range others {
			if name := lastName(other, left); !slices.Contains(out, name) {
				out = append(out, name)
			}
		}
		words = skipAssignments(inner)
	}
	return out
}

// lastName is the name of the command that the wrappers end at.
func lastName(words []string, left *work.Budget) string {
	name := ""
	for words = skipAssignments(words); len(words) > 0; {
		name = baseName(words[0])
		if !spendUnwrap(name, words, left) {
			break
		}
		words, _ = unwrap(name, words[1:])
		words = skipAssignments(words)
	}
	return name
}

// spendUnwrap pays for the new words that env -S makes.
func spendUnwrap(name string, words []string, left *work.Budget) bool {
	return name != "env" || !slices.ContainsFunc(words, isSplitOption) || left.Spend(20*len(words))
}

func baseName(word string) string {
	word = strings.TrimRight(word, "/")
	word = word[strings.LastIndexAny(word, `/\`)+1:]
	return strings.TrimSuffix(word, ".exe")
}

// skipAssignments takes off what may stand before a command; the word time keeps its --.
func skipAssignments(words []string) []string {
	for len(words) > 0 && (words[0] == "--" || isAssignment(words[0])) {
		words = words[1:]
	}
	return words
}

// isAssignment reports NAME=value, NAME+=value and NAME[subscript]=value.
func isAssignment(w string) bool {
	eq := strings.IndexByte(w, '=')
	if open := strings.IndexByte(w, '['); open > 0 && open < eq {
		if end := strings.Index(w[open:], "]="); end > 0 {
			eq = open
		} else if end = strings.Index(w[open:], "]+="); end > 0 {
			eq = open
		}
	}
	if eq <= 0 || '0' <= w[0] && w[0] <= '9' {
		return false
	}
	name := strings.TrimSuffix(w[:eq], "+")
	return strings.Trim(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") == "" && name != ""
}

// wrappers run another command. The value lists their options that take a word of their own.
var wrappers = map[string]string{
	"sudo": " -u -g -h -p -C -r -t -T -U -D -R --user --group --host --prompt --chdir --role --type --other-user --chroot ", "doas": " -u -C ", "env": " -u -C -a --unset --chdir --argv0 ",
	"timeout": " -s -k --signal --kill-after ", "time": " -f -o --format --output ", "nice": " -n --adjustment ", "ionice": " -c -n -p --class --classdata ",
	"nohup": "", "stdbuf": " -i -o -e --input --output --error ", "command": "", "builtin": "", "exec": " -a ", "noglob": "", "nocorrect": "", "setsid": "", "chroot": " --userspec --groups ",
	"xargs": " -I -n -L -P -s -d -E -a --arg-file --max-args --max-procs --delimiter --max-chars --process-slot-var ", "watch": " -n --interval ", "flock": " -w -E --timeout ", "busybox": "",
	"unshare": "", "strace": " -e -o -p -s -E -u ", "ltrace": " -e -o ", "taskset": "", "chrt": "", "script": " -c ", "su": " -s -g ", "runuser": " -u -g ", "pkexec": " --user ", "systemd-run": " -u -p -H -M --unit --property --slice --uid --gid --setenv -E ",
	"parallel": " -j ", "coproc": "", "setarch": "", "gosu": "", "fakeroot": "", "caffeinate": "", "prlimit": "",
	"linux64": "", "linux32": "", "i386": "", "x86_64": "", "toybox": "", "nsenter": " -t --target -S -G --setuid --setgid ", "setpriv": " --reuid --regid --groups --inh-caps --ambient-caps --bounding-set --securebits --selinux-label --apparmor-profile ",
	"dbus-run-session": " --config-file --dbus-daemon ", "firejail": "", "bwrap": " --bind --ro-bind --dev-bind --symlink --setenv --unsetenv --chdir --dev --proc --tmpfs --dir --uid --gid --hostname --file --bind-data --ro-bind-data --seccomp --args --lock-file --sync-fd --cap-add --cap-drop ",
	"torsocks": " -a -P -u -p ", "torify": "", "tsocks": "", "proxychains": " -f ", "proxychains3": " -f ", "proxychains4": " -f ", "proxychains-ng": " -f ", "sshpass": " -p -f -d -P ", "catchsegv": "", "valgrind": "", "rlwrap": "", "unbuffer": "", "eatmydata": "",
	"su-exec": "", "runcon": " -t -u -r -l ", "chpst": " -u -U -b -e ", "softlimit": "", "setuidgid": "", "npx": " -p --package -c ", "bunx": "", "cpulimit": " -l -p ", "choom": " -n -p ", "uclampset": "", "numactl": "", "cgexec": " -g ", "ts": "", "autossh": " -M ",
}

// unwrap gives the words that a wrapper runs, or nil when the command is no wrapper. others are further readings: an
// option that is not known may take a word of its own, or may not.
func unwrap(name string, args []string) (inner []string, others [][]string) {
	switch name {
	case "find", "fd", "fdfind":
		return unwrapFind(args)
	case "perf":
		if i := slices.IndexFunc(args, func(a string) bool { return isOneOf(a, " stat record trace bench ") }); i >= 0 {
			return unwrapOptions(name, args[i+1:], " -e -o -p -r -C -F -g -I -a -x --event --output --repeat ")
		}
		return nil, nil
	case "start-stop-daemon":
		return unwrapDaemon(args)
	case "docker", "podman", "nerdctl", "kubectl", "oc", "lxc", "incus", "machinectl", "flatpak-spawn":
		return unwrapContainer(args)
	case "sg":
		return nil, nil // its text is looked at
	}
	withValue, ok := wrappers[name]
	if !ok {
		return nil, nil
	}
	return unwrapOptions(name, args, withValue)
}

func unwrapFind(args []string) (inner []string, others [][]string) {
	for i, a := range args {
		if !isOneOf(a, " -exec -execdir -ok -okdir -x -X --exec --exec-batch ") || i+1 == len(args) {
			continue
		}
		if inner == nil {
			inner = args[i+1:]
		} else if len(others) < maxWrappers {
			others = append(others, args[i+1:])
		}
	}
	return inner, others
}

// unwrapDaemon gives the program of start-stop-daemon with what stands behind --.
func unwrapDaemon(args []string) (inner []string, others [][]string) {
	rest := []string(nil)
	if i := slices.Index(args, "--"); i >= 0 {
		args, rest = args[:i], args[i+1:]
	}
	for i, a := range args {
		program := ""
		if isOneOf(a, " -x --exec -a --startas ") && i+1 < len(args) {
			program = args[i+1]
		} else if _, value, ok := strings.Cut(a, "="); ok && (strings.HasPrefix(a, "--exec=") || strings.HasPrefix(a, "--startas=")) {
			program = value
		}
		if program != "" {
			others = append(others, inner)
			inner = append([]string{program}, rest...)
		}
	}
	return inner, slices.DeleteFunc(others, func(w []string) bool { return len(w) == 0 })
}

// unwrapContainer gives the readings of what stands behind exec and run: any of the first words may be the command.
func unwrapContainer(args []string) (inner []string, others [][]string) {
	const most = 12
	at := slices.IndexFunc(args, func(a string) bool { return isOneOf(a, " exec run shell --host ") })
	if at < 0 {
		return nil, nil
	}
	args = args[at+1:]
	if i := slices.Index(args, "--"); i >= 0 && i < most && i+1 < len(args) {
		inner = args[i+1:]
	}
	for i := 0; i < len(args) && len(others) < most; i++ {
		if i > 0 && args[i] != "" && args[i][0] != '-' {
			others = append(others, args[i:])
		}
	}
	if inner == nil && len(others) > 0 {
		inner, others = others[0], others[1:]
	}
	return inner, others
}

func unwrapOptions(name string, args []string, withValue string) (inner []string, others [][]string) {
	doubt := false
	for len(args) > 0 {
		a := args[0]
		switch {
		case a == "--":
			args = args[1:]
		case name == "env" && isSplitOption(a):
			args = splitEnv(args)
			continue
		case len(a) > 1 && a[0] == '-' && isOneOf(a, withValue):
			args = args[1:]
			if len(args) > 0 {
				others = append(others, args)
				args = args[1:]
			}
			continue
		case len(a) > 1 && a[0] == '-':
			doubt = doubt || len(a) > 2 && a[1] != '-' || strings.HasPrefix(a, "--") && !strings.Contains(a, "=")
			args = args[1:]
			continue
		case a == "-" && isOneOf(name, " env su exec "):
			args = args[1:]
			continue
		case name == "env" && strings.Contains(a, "="), isAssignment(a):
			args = args[1:]
			continue
		}
		break
	}
	// A duration, a root or a lock stands before the command of these.
	if len(args) > 0 && isOneOf(name, " timeout chroot flock taskset chrt setarch prlimit gosu su-exec setuidgid ") {
		others = append(others, args)
		args = args[1:]
	}
	more := 0
	switch {
	case name == "bwrap":
		more = 8 // its options take up to two words
	case doubt:
		more = 1
	}
	for i := 1; i < len(args) && i <= more; i++ {
		others = append(others, args[i:])
	}
	if name == "time" || name == "exec" || name == "command" {
		args = skipAssignments(args)
	}
	if len(others) > maxWrappers {
		others = others[:maxWrappers]
	}
	if len(args) == 0 {
		return nil, others
	}
	return args, others
}

// isSplitOption reports env's -S, also bundled, and --split-string.
func isSplitOption(a string) bool {
	if strings.HasPrefix(a, "--sp") {
		return true
	}
	return len(a) > 1 && a[0] == '-' && a[1] != '-' && strings.Trim(a[1:strings.IndexByte(a+"S", 'S')], "iv0") == "" && strings.Contains(a, "S")
}

// splitEnv puts the words of env -S before those that follow it.
func splitEnv(args []string) []string {
	a := args[0]
	rest := args[1:]
	if isOneOf(a, " -S --split-string ") && len(rest) > 0 && !strings.ContainsAny(rest[0], " \t\n\v\f\r\\'\"#") && rest[0] != "" {
		return rest
	}
	var text string
	switch {
	case strings.HasPrefix(a, "--"):
		_, value, ok := strings.Cut(a, "=")
		if text = value; !ok && len(rest) > 0 {
			text, rest = rest[0], rest[1:]
		}
	default:
		if text = a[strings.IndexByte(a, 'S')+1:]; text == "" && len(rest) > 0 {
			text, rest = rest[0], rest[1:]
		}
	}
	return append(envWords(text), rest...)
}

// envWords splits text as env -S does.
func envWords(text string) []string {
	var out []string
	var word strings.Builder
	begun := false
	end := func() {
		if begun {
			out = append(out, word.String())
			word.Reset()
		}
		begun = false
	}
	quote := byte(0)
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '\\' && quote != '\'' && i+1 < len(text):
			i++
			switch text[i] {
			case 'c':
				end()
				return out
			case '_', 't', 'n', 'v', 'f', 'r':
				if quote == 0 {
					end()
				} else {
					word.WriteByte(' ')
				}
			default:
				begun = true
				word.WriteByte(text[i])
			}
		case quote != 0 && c == quote:
			quote = 0
		case quote == 0 && (c == '\'' || c == '"'):
			quote, begun = c, true
		case quote == 0 && strings.IndexByte(" \t\n\v\f\r", c) >= 0:
			end()
		case quote == 0 && c == '#' && !begun:
			return out
		default:
			begun = true
			word.WriteByte(c)
		}
	}
	end()
	return out
}

const shells = " sh bash zsh dash ksh ash fish mksh rbash csh tcsh pwsh yash rksh lksh posh "

// innerText is a text that a command is told to run, and what it has as $0, $1 and so on.
type innerText struct {
	text string
	args []string
}

// innerTexts gives them.
func innerTexts(name string, args []string) []innerText {
	if isOneOf(name, shells) || isOneOf(name, " su script runuser flock sg capsh npx ") {
		text, rest, ok := optionText(args, 'c', "--command")
		switch {
		case ok:
			return []innerText{{text, rest}}
		case name == "sg" && len(args) > 1:
			return []innerText{{text: strings.Join(args[1:], " ")}}
		}
		return nil
	}
	joined := func(words []string) []innerText {
		if len(words) == 0 {
			return nil
		}
		return []innerText{{text: strings.Join(words, " ")}}
	}
	switch name {
	case "eval":
		for len(args) > 0 && strings.HasPrefix(args[0], "-") {
			args = args[1:]
		}
		return joined(args)
	case "watch":
		args, _ = unwrap(name, args)
		return joined(args)
	case "trap":
		if len(args) > 0 && args[0] == "--" {
			args = args[1:]
		}
		return joined(args[:min(1, len(args))])
	case "alias":
		var out []innerText
		for _, a := range args[:min(len(args), 8)] {
			if _, text, ok := strings.Cut(a, "="); ok {
				out = append(out, innerText{text: text})
			}
		}
		return out
	case "parallel":
		if i := slices.Index(args, ":::"); i >= 0 {
			args = args[:i]
		}
		return joined(args)
	case "mapfile", "readarray", "compgen", "complete":
		if text, _, ok := optionText(args, 'C', "--command"); ok {
			return []innerText{{text: text}}
		}
	case "ssh", "autossh", "slogin", "rsh", "dbclient":
		out := joined(remoteCommand(args))
		for _, a := range args[:min(len(args), 32)] {
			a = strings.TrimPrefix(a, "-o")
			if len(a) > len("proxycommand") && strings.EqualFold(a[:len("proxycommand")], "proxycommand") {
				out = append(out, innerText{text: strings.TrimLeft(a[len("proxycommand"):], "= ")})
			}
		}
		return out
	}
	return nil
}

// remoteCommand gives the words behind the host of ssh.
func remoteCommand(args []string) []string {
	const withValue = "BbcDEeFIiJLlmMOoPpQRSWw"
	host := false
	for len(args) > 0 {
		a := args[0]
		switch {
		case host && a != "":
			return args
		case a == "--":
		case len(a) > 1 && a[0] == '-':
			if i := strings.IndexAny(a[1:], withValue); i >= 0 && i+2 == len(a) && len(args) > 1 {
				args = args[1:]
			}
		default:
			host = true
		}
		args = args[1:]
	}
	return nil
}

// optionText gives the text of an option that takes shell text, and what follows it. The option may be bundled, as in -lc,
// and other options may stand between it and the text.
func optionText(args []string, letter byte, long string) (text string, rest []string, ok bool) {
	for i, a := range args {
		if text, ok := strings.CutPrefix(a, long+"="); ok {
			return text, args[i+1:], true
		}
		bundled := len(a) > 1 && a[0] == '-' && a[1] != '-' && strings.IndexByte(a, letter) > 0
		if !bundled && a != long {
			continue
		}
		for j, text := range args[i+1:] {
			if text == "" || text[0] != '-' && text[0] != '+' {
				return text, args[i+1+j+1:], true
			}
		}
	}
	return "", nil, false
}
