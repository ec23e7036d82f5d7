package rules

import (
	"slices"
	"strings"
)

// lastNames are the names of the commands that the wrappers may end at, the likely one first.
func lastNames(words []string) []string {
	const most = 4
	out := []string{lastName(words)}
	for words = skipAssignments(words); len(words) > 0 && len(out) < most; {
		inner, others := unwrap(baseName(words[0]), words[1:])
		for _, other := range others {
			if name := lastName(other); !slices.Contains(out, name) {
				out = append(out, name)
			}
		}
		words = skipAssignments(inner)
	}
	return out
}

// lastName is the name of the command that the wrappers end at.
func lastName(words []string) string {
	name := ""
	for words = skipAssignments(words); len(words) > 0; {
		name = baseName(words[0])
		words, _ = unwrap(name, words[1:])
		words = skipAssignments(words)
	}
	return name
}

func baseName(word string) string {
	word = strings.TrimRight(word, "/")
	word = word[strings.LastIndexAny(word, `/\`)+1:]
	return strings.TrimSuffix(word, ".exe")
}

func skipAssignments(words []string) []string {
	for len(words) > 0 && isAssignment(words[0]) {
		words = words[1:]
	}
	return words
}

func isAssignment(w string) bool {
	eq := strings.IndexByte(w, '=')
	if eq <= 0 || '0' <= w[0] && w[0] <= '9' {
		return false
	}
	name := strings.TrimSuffix(w[:eq], "+")
	return strings.Trim(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") == "" && name != ""
}

// wrappers run another command. The value lists their options that take a word of their own.
var wrappers = map[string]string{
	"sudo": " -u -g -h -p -C -r -t -T -U -D -R --user --group --host --prompt --chdir --role --type --other-user --chroot ", "doas": " -u -C ", "env": " -u -C -S --unset --chdir ",
	"timeout": " -s -k --signal --kill-after ", "time": " -f -o --format --output ", "nice": " -n --adjustment ", "ionice": " -c -n -p --class --classdata ",
	"nohup": "", "stdbuf": " -i -o -e --input --output --error ", "command": "", "builtin": "", "exec": " -a ", "noglob": "", "nocorrect": "", "setsid": "", "chroot": " --userspec --groups ",
	"xargs": " -I -i -n -L -P -s -d -E -a --arg-file --max-args --max-procs --delimiter --max-lines --max-chars ", "watch": " -n --interval ", "flock": " -w -E --timeout ", "busybox": "",
	"unshare": "", "strace": " -e -o -p -s ", "ltrace": " -e -o ", "taskset": "", "chrt": "", "script": " -c ", "su": " -s -g ", "runuser": " -u -g ", "pkexec": " --user ", "systemd-run": " -u -p --unit ", "parallel": " -j ", "coproc": "", "setarch": "", "gosu": "", "fakeroot": "", "caffeinate": "", "prlimit": "",
}

// unwrap gives the words that a wrapper runs, or nil when the command is no wrapper. others are further readings: an
// option that is not known may take a word of its own, or may not.
func unwrap(name string, args []string) (inner []string, others [][]string) {
	if name == "find" || name == "fd" {
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
	withValue, ok := wrappers[name]
	if !ok {
		return nil, nil
	}
	doubt := false
	for len(args) > 0 {
		a := args[0]
		switch {
		case a == "--":
			args = args[1:]
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
		case isAssignment(a):
			args = args[1:]
			continue
		}
		break
	}
	// A duration, a root or a lock stands before the command of these.
	if len(args) > 0 && isOneOf(name, " timeout chroot flock taskset chrt setarch prlimit gosu ") {
		others = append(others, args)
		args = args[1:]
	}
	if doubt && len(args) > 1 {
		others = append(others, args[1:])
	}
	if len(others) > maxWrappers {
		others = others[:maxWrappers]
	}
	if len(args) == 0 {
		return nil, others
	}
	return args, others
}

const shells = " sh bash zsh dash ksh ash fish mksh rbash "

// innerText gives the text that a shell is told to run.
func innerText(name string, args []string) (string, bool) {
	if isOneOf(name, shells) || isOneOf(name, " su script runuser flock ") {
		return optionText(args, 'c', "--command")
	}
	switch name {
	case "eval":
		for len(args) > 0 && strings.HasPrefix(args[0], "-") {
			args = args[1:]
		}
		return strings.Join(args, " "), len(args) > 0
	case "watch":
		args, _ = unwrap(name, args)
		return strings.Join(args, " "), len(args) > 0
	case "trap":
		if len(args) > 0 && args[0] == "--" {
			args = args[1:]
		}
		return strings.Join(args[:min(1, len(args))], " "), len(args) > 0
	case "parallel":
		if i := slices.Index(args, ":::"); i >= 0 {
			args = args[:i]
		}
		return strings.Join(args, " "), len(args) > 0
	case "env":
		return optionText(args, 'S', "--split-string")
	default:
		return "", false
	}
}

// optionText gives the text of an option that takes shell text. It may be bundled, as in -lc, and other options may stand
// between it and the text.
func optionText(args []string, letter byte, long string) (string, bool) {
	for i, a := range args {
		if text, ok := strings.CutPrefix(a, long+"="); ok {
			return text, true
		}
		bundled := len(a) > 1 && a[0] == '-' && a[1] != '-' && strings.IndexByte(a, letter) > 0
		if !bundled && a != long {
			continue
		}
		if rest := a[strings.IndexByte(a, letter)+1:]; letter == 'S' && bundled && rest != "" {
			return strings.Join(append([]string{rest}, args[i+1:]...), " "), true
		}
		for _, text := range args[i+1:] {
			if text == "" || text[0] != '-' && text[0] != '+' {
				return text, true
			}
		}
	}
	return "", false
}
