package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"dshproxy/rules/jsonc"
	"dshproxy/rules/live"

	"github.com/tailscale/hujson"
)

// hookEntry is the entry that makes the client ask this program before every tool call.
func hookEntry() (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	command, err := json.Marshal(fmt.Sprintf("%q%s", self, hookCommandTail))
	return fmt.Sprintf("{\n        \"matcher\": \"*\",\n        \"hooks\": [\n          {\n            \"type\": \"command\",\n            \"command\": %s\n          }\n        ]\n      }", command), err
}

// hookCommandTail is what tells our entry from others, wherever the program was.
const hookCommandTail = " hook claude-code"

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

// readSettingsOf reads a client's settings, which may be missing. A link is refused: a rename would replace it.
func readSettingsOf(path string) ([]byte, fs.FileMode, error) {
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
	v, err := hujson.Parse(old)
	if err != nil {
		return nil, err
	}
	if err := v.Patch([]byte("[" + strings.Join(ops, ",") + "]")); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return v.Pack(), nil
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
	var ours []int
	if events != nil {
		for i := range events.Items {
			if isOurHook(&events.Items[i]) {
				ours = append(ours, i)
			}
		}
	}
	if remove {
		var ops []string
		for i := len(ours) - 1; i >= 0; i-- {
			ops = append(ops, fmt.Sprintf(`{"op": "remove", "path": "/hooks/PreToolUse/%d"}`, ours[i]))
		}
		return ops, nil
	}
	entry, err := hookEntry()
	if err != nil || len(ours) > 0 {
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

func isOurHook(entry *jsonc.Value) bool {
	commands := entry.Get("hooks")
	if commands == nil {
		return false
	}
	for i := range commands.Items {
		if c := commands.Items[i].Get("command"); c != nil && strings.HasSuffix(c.Text, hookCommandTail) && strings.Contains(c.Text, "dshproxy") {
			return true
		}
	}
	return false
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
