package rules

import (
	"path"
	"slices"
	"strings"
)

// The floor is below every rule file: a governed program may not change the rules that govern it. It sees only what a
// call says; a program of its own that runs as the same user needs an isolation that the file system enforces.

const floorPolicy = "the policy protects itself: rules and client settings are changed by the operator"

// Floor gives the reason why a call is denied whatever the rules say, or an empty text.
func Floor(c Call) (reason string, err error) {
	f, err := newFacts(&c)
	if err != nil {
		return "", err
	}
	if writes(c.Tool) || writes(c.Alias) {
		touched := false
		f.args.walkKeys(0, func(key string, v *arg) {
			if isOneOf(key, pathKeys) || key == "notebook_path" {
				touched = touched || slices.ContainsFunc(v.strings(), isPolicyFile)
			}
		})
		if touched {
			return floorPolicy, nil
		}
	}
	for _, cmd := range f.shellViews().commands {
		switch {
		case slices.ContainsFunc(cmd.redirects, isPolicyFile),
			slices.Contains(writingCommands, cmd.word) && slices.ContainsFunc(cmd.args, isPolicyFile):
			return floorPolicy, nil
		case strings.TrimSuffix(strings.ToLower(cmd.word), ".exe") == "dshproxy" && slices.ContainsFunc(cmd.args, isOperatorCommand):
			return "the policy protects itself: this command is for the operator", nil
		}
	}
	return "", nil
}

// writes guesses from a tool's name that it may change files.
func writes(tool string) bool {
	tool = strings.ToLower(tool)
	return slices.ContainsFunc([]string{"edit", "write", "patch", "create", "delete", "move", "rename", "replace", "save"},
		func(part string) bool { return strings.Contains(tool, part) })
}

// writingCommands change the files that they are given.
var writingCommands = []string{
	"chattr", "chmod", "chown", "cp", "dd", "ed", "ex", "git", "install", "ln", "mkdir", "mv", "patch", "perl", "python", "python3", "node",
	"rm", "rmdir", "rsync", "ruby", "scp", "sed", "setfacl", "tar", "tee", "touch", "truncate", "unlink", "unzip", "vi", "vim", "yq",
}

func isOperatorCommand(arg string) bool {
	switch arg {
	case "allow", "trust", "approvals", "serve":
		return true
	default:
		return false
	}
}

// isPolicyFile reports a path that names rules, settings of dshproxy or settings of the client, wherever it lies. Case
// does not count: some file systems fold it.
func isPolicyFile(name string) bool {
	name = strings.ToLower(strings.ReplaceAll(name, `\`, "/"))
	if _, value, ok := strings.Cut(name, "="); ok && !strings.Contains(value, "=") {
		name = value // of=FILE, --output=FILE
	}
	segments := strings.Split(path.Clean(name), "/")
	for i, s := range segments {
		last := i == len(segments)-1
		switch {
		case s == ".dsh":
			return true
		case s == ".claude" && (last || strings.HasPrefix(segments[i+1], "settings") && strings.HasSuffix(segments[i+1], ".json")):
			return true
		case s == "dshproxy" && !last && strings.HasSuffix(segments[len(segments)-1], ".yaml") && (i == 0 || segments[i-1] == "etc" || segments[i-1] == ".config"):
			return true
		}
	}
	return false
}
