package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"dshproxy/rules/jsonc"
	"dshproxy/rules/live"
	"dshproxy/rules/shellword"

	"github.com/tailscale/hujson"
	"mvdan.cc/sh/v3/syntax"
)

// hookEntry is the entry that makes the client ask this program before every tool call.
func hookEntry() (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	command, err := json.Marshal(quoteShell(self) + " hook claude-code")
	return fmt.Sprintf("{\n        \"matcher\": \"*\",\n        \"hooks\": [\n          {\n            \"type\": \"command\",\n            \"command\": %s\n          }\n        ]\n      }", command), err
}

// quoteShell quotes a word for a POSIX shell.
func quoteShell(word string) string { return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'" }

// clientSettings gives the settings file of a scope.
func (a *app) clientSettings(scope string) (string, error) {
	if scope == "user" {
		dir := places().ClaudeUser
		if dir == "" {
			return "", &exitError{exitFailure, errors.New("the home folder is not known"), "set HOME or CLAUDE_CONFIG_DIR"}
		}
		return filepath.Join(dir, "settings.json"), nil
	}
	workspace, err := a.workspace()
	if err != nil {
		return "", err
	}
	switch scope {
	case "project":
		return filepath.Join(workspace, ".claude", "settings.json"), nil
	case "local":
		return filepath.Join(workspace, ".claude", "settings.local.json"), nil
	default:
		return "", usageError("one of user, project, local", "unknown scope %q", scope)
	}
}

// installHook writes the entry into the client's settings, or takes it out. Every other byte stays.
func (a *app) installHook(scope string, remove bool) error {
	if err := refuseInside("hook"); err != nil {
		return err
	}
	path, err := a.clientSettings(scope)
	if err != nil {
		return err
	}
	old, mode, err := readSettingsOf(path)
	if err != nil {
		return err
	}
	edited, err := editHook(path, old, remove)
	if err != nil {
		return err
	}
	if remove {
		a.tellLeft(path, old)
	}
	if edited == nil {
		fmt.Fprintf(a.io.out, "nothing to do: %s\n", path)
		return nil
	}
	if err := replaceFile(path, edited, mode); err != nil {
		return err
	}
	fmt.Fprintf(a.io.out, "wrote %s\n", path)
	return nil
}

// tellLeft names the commands that run this program and are not taken out, because there is more in them.
func (a *app) tellLeft(path string, text []byte) {
	tree, err := jsonc.Parse(path, text)
	if err != nil || tree == nil {
		return
	}
	events := tree.Get("hooks").Get("PreToolUse")
	for _, p := range ourHooks(events) {
		if !p.exact {
			c := events.Items[p.entry].Get("hooks").Items[p.command]
			fmt.Fprintf(a.io.err, "dshproxy: warning: %s:%d: left: this command does more than run the hook\n", path, c.Line)
		}
	}
}

// readSettingsOf reads a client's settings, which may be missing. A link is refused: a rename would replace it, and what a
// folder that is a link leads to is not what was named.
func readSettingsOf(path string) ([]byte, fs.FileMode, error) {
	if dir, err := os.Lstat(filepath.Dir(path)); err == nil && !dir.IsDir() {
		return nil, 0, &exitError{exitFailure, fmt.Errorf("%s: is a link or no folder", filepath.Dir(path)), "use --print-settings and edit what it points to"}
	}
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return []byte("{}\n"), 0o600, nil
	case err != nil:
		return nil, 0, err
	case !info.Mode().IsRegular():
		return nil, 0, &exitError{exitFailure, fmt.Errorf("%s: is a link or no regular file", path), "use --print-settings and edit what it points to"}
	}
	text, err := live.ReadNamed(path, maxSettingsBytes)
	return text, info.Mode().Perm(), err
}

// byteOrderMark is what some editors begin a file with.
const byteOrderMark = "\ufeff"

// editHook gives the edited settings, or nil when they are as wanted.
func editHook(path string, old []byte, remove bool) ([]byte, error) {
	tree, err := jsonc.Parse(path, old) // for errors with a place, and for keys that stand twice
	if err != nil {
		return nil, err
	}
	if tree == nil {
		old = []byte("{}\n")
		if tree, err = jsonc.Parse(path, old); err != nil {
			return nil, err
		}
	}
	if tree.Kind != jsonc.Map {
		return nil, tree.Errorf("", "the settings must be a mapping")
	}
	ops, err := hookOps(tree, remove)
	if err != nil || len(ops) == 0 {
		return nil, err
	}
	text, marked := bytes.CutPrefix(old, []byte(byteOrderMark))
	v, err := hujson.Parse(append(slices.Clip(text), '\n')) // a comment may end without one
	if err != nil {
		return nil, err
	}
	if err := v.Patch([]byte("[" + strings.Join(ops, ",") + "]")); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	edited := bytes.TrimSuffix(v.Pack(), []byte("\n"))
	if marked {
		edited = append([]byte(byteOrderMark), edited...)
	}
	return edited, nil
}

// hookPlace is a command of this program in an entry of the client's.
type hookPlace struct {
	entry, command int
	exact          bool // nothing else is in the command
	alone          bool // nothing else is in the entry
	all            bool // the entry is for every tool
}

// hookOps gives the JSON patch (RFC 6902) that is needed.
func hookOps(settings *jsonc.Value, remove bool) ([]string, error) {
	hooks := settings.Get("hooks")
	events := hooks.Get("PreToolUse")
	switch {
	case hooks != nil && hooks.Kind != jsonc.Map:
		return nil, hooks.Errorf("", "hooks must be a mapping, and is %s", hooks.Kind)
	case events != nil && events.Kind != jsonc.List:
		return nil, events.Errorf("", "hooks.PreToolUse must be a list, and is %s", events.Kind)
	}
	places := ourHooks(events)
	if remove {
		return removeOps(places), nil
	}
	if slices.ContainsFunc(places, func(p hookPlace) bool { return p.all }) {
		return nil, nil
	}
	for _, p := range places {
		if p.alone && p.exact {
			return []string{fmt.Sprintf(`{"op": "add", "path": "/hooks/PreToolUse/%d/matcher", "value": "*"}`, p.entry)}, nil
		}
	}
	entry, err := hookEntry()
	if err != nil {
		return nil, err
	}
	add := func(path, value string) []string {
		return []string{fmt.Sprintf(`{"op": "add", "path": %q, "value": %s}`, path, value)}
	}
	switch {
	case hooks == nil:
		return add("/hooks", "{\n    \"PreToolUse\": [\n      "+entry+"\n    ]\n  }"), nil
	case events == nil:
		return add("/hooks/PreToolUse", "[\n      "+entry+"\n    ]"), nil
	default:
		return add("/hooks/PreToolUse/-", entry), nil
	}
}

// removeOps takes our commands out, from the last on, and the entries that hold nothing else.
func removeOps(places []hookPlace) []string {
	var ops []string
	for _, p := range slices.Backward(places) {
		switch {
		case !p.exact: // somebody made it more than ours
		case p.alone:
			ops = append(ops, fmt.Sprintf(`{"op": "remove", "path": "/hooks/PreToolUse/%d"}`, p.entry))
		default:
			ops = append(ops, fmt.Sprintf(`{"op": "remove", "path": "/hooks/PreToolUse/%d/hooks/%d"}`, p.entry, p.command))
		}
	}
	return ops
}

// ourHooks finds the commands that run this program as the client's hook.
func ourHooks(events *jsonc.Value) []hookPlace {
	if events == nil {
		return nil
	}
	var out []hookPlace
	for i := range events.Items {
		entry := &events.Items[i]
		commands, matcher := entry.Get("hooks"), entry.Get("matcher")
		if commands == nil || commands.Kind != jsonc.List {
			continue
		}
		all := matcher == nil || matcher.Kind == jsonc.String && slices.Contains([]string{"", "*", ".*"}, matcher.Text)
		for j := range commands.Items {
			kind, c := commands.Items[j].Get("type"), commands.Items[j].Get("command")
			if c == nil || c.Kind != jsonc.String || kind != nil && kind.Text != "command" {
				continue
			}
			if ours, exact := isOurHook(c.Text); ours {
				out = append(out, hookPlace{i, j, exact, len(commands.Items) == 1, all})
			}
		}
	}
	return out
}

// isOurHook reports whether a command runs a dshproxy as the client's hook, and whether that is all it does. What else is
// in it, redirections and other commands, is its author's.
func isOurHook(command string) (ours, exact bool) {
	file, err := syntax.NewParser(syntax.Variant(syntax.LangBash)).Parse(strings.NewReader(command), "")
	if err != nil {
		return false, false
	}
	syntax.Walk(file, func(n syntax.Node) bool {
		if call, ok := n.(*syntax.CallExpr); ok {
			var words []string
			for _, w := range call.Args {
				words = append(words, shellword.Text(w, command))
			}
			ours = ours || runsHook(words)
		}
		return true
	})
	if !ours || len(file.Stmts) != 1 {
		return ours, false
	}
	stmt := file.Stmts[0]
	call, plain := stmt.Cmd.(*syntax.CallExpr)
	return true, plain && len(call.Assigns)+len(stmt.Redirs) == 0 && !stmt.Background && !stmt.Negated
}

// runsHook reports the words of a dshproxy that judges the client's calls: with the flags that may stand there, and none
// that makes it do something else.
func runsHook(words []string) bool {
	if len(words) == 0 {
		return false
	}
	self, err := os.Executable() // whatever it is called
	if named := strings.TrimSuffix(filepath.Base(words[0]), ".exe") == "dshproxy"; !named && (err != nil || words[0] != self) {
		return false
	}
	var names []string
	for i := 1; i < len(words); i++ {
		name, _, hasValue := strings.Cut(words[i], "=")
		switch name {
		case "--approve":
		case "--config", "--workspace":
			if !hasValue {
				i++
			}
		default:
			names = append(names, words[i])
		}
	}
	return slices.Equal(names, []string{"hook", "claude-code"})
}

// replaceFile writes a file by a rename, and makes its folder when that is missing.
func replaceFile(path string, text []byte, mode fs.FileMode) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	temporary, err := os.CreateTemp(filepath.Dir(path), ".dshproxy-*")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(temporary.Name()) }() // gone already when all went well
	_, err = temporary.Write(text)
	if err == nil {
		err = temporary.Chmod(mode)
	}
	if closeErr := temporary.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return err
	}
	return os.Rename(temporary.Name(), path)
}
