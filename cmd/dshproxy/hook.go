package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"dshproxy/netrule"
	"dshproxy/rules"
	"dshproxy/rules/live"

	"github.com/spf13/cobra"
)

func (a *app) hookCommand() *cobra.Command {
	var approve, printSettings bool
	var install, uninstall string
	claude := &cobra.Command{
		Use:   "claude-code",
		Short: "Judge a PreToolUse event on standard input",
		Long: "Prints the client's JSON for deny and ask. Allow and passthrough print nothing, so that the user is still asked, unless\n" +
			"--approve is given. A broken event or rule file denies. The rules are those of --workspace, else of\n" +
			"$CLAUDE_PROJECT_DIR, else of the current folder; the event's cwd only anchors relative paths.",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			switch {
			case printSettings:
				return a.printHookSettings()
			case c.Flags().Changed("install"):
				return a.installHook(install, false)
			case c.Flags().Changed("uninstall"):
				return a.installHook(uninstall, true)
			default:
				return a.hookClaude(approve)
			}
		},
	}
	claude.Flags().BoolVar(&approve, "approve", false, "let allowed calls run without the user's own prompt")
	claude.Flags().BoolVar(&printSettings, "print-settings", false, "print the entry for .claude/settings.json and do nothing else")
	claude.Flags().StringVar(&install, "install", "", "write the entry into the client's settings: user, project or local")
	claude.Flags().StringVar(&uninstall, "uninstall", "", "take the entry out of the client's settings: user, project or local")
	claude.MarkFlagsMutuallyExclusive("approve", "print-settings", "install", "uninstall")
	return group("hook", "Judge the tool calls of a client before they run", claude)
}

// printHookSettings prints the entry that makes the client ask this program.
func (a *app) printHookSettings() error {
	text, err := editHook("settings.json", []byte("{}\n"), false)
	if err == nil {
		_, err = a.io.out.Write(text)
	}
	return err
}

// hookClaude never fails but by denying: the client runs the call when the hook only breaks.
func (a *app) hookClaude(approve bool) error {
	v, err := a.judgeEvent()
	if err != nil {
		v = live.Verdict{Reason: "dshproxy cannot judge this call: " + oneParagraph(err.Error())}
	}
	var answer struct {
		Output struct {
			Event    string `json:"hookEventName"`
			Decision string `json:"permissionDecision"`
			Reason   string `json:"permissionDecisionReason"`
		} `json:"hookSpecificOutput"`
	}
	answer.Output.Event, answer.Output.Reason = "PreToolUse", reasonOf(&v)
	if v.Rule.Valid() {
		answer.Output.Reason += fmt.Sprintf(" (rule %d, %s:%d)", v.Rule.Index+1, v.Rule.File, v.Rule.Line)
	}
	answer.Output.Decision = v.Action.String()
	if v.Passthrough || v.Action == netrule.Allow && !approve {
		return nil
	}
	enc := json.NewEncoder(a.io.out)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(answer); err != nil {
		// The client refuses on exit code 2, with what stands on stderr, and runs the call on every other.
		return &exitError{exitUsage, fmt.Errorf("%s, and the answer cannot be written: %w", answer.Output.Reason, err), ""}
	}
	return nil
}

func (a *app) judgeEvent() (live.Verdict, error) {
	b, err := readInput(a.io.in)
	if err != nil {
		return live.Verdict{}, fmt.Errorf("the event: %w", err)
	}
	var event struct {
		Name  string          `json:"hook_event_name"`
		Tool  string          `json:"tool_name"`
		Input json.RawMessage `json:"tool_input"`
		Cwd   string          `json:"cwd"`
	}
	if err := uniqueKeys(b); err != nil {
		return live.Verdict{}, fmt.Errorf("the event: %w", err)
	}
	if err := json.Unmarshal(b, &event); err != nil {
		return live.Verdict{}, fmt.Errorf("the event: %w", err)
	}
	if event.Name != "PreToolUse" || event.Tool == "" {
		return live.Verdict{}, errors.New("the event is no PreToolUse of a tool")
	}
	if !isObject(event.Input) {
		return live.Verdict{}, errors.New("tool_input is no JSON object")
	}
	if a.work == "" {
		a.work = os.Getenv("CLAUDE_PROJECT_DIR")
	}
	loaded, workspace, err := a.loadRules()
	if err != nil {
		return live.Verdict{}, err
	}
	c := rules.Call{Tool: event.Tool, Args: event.Input, Workspace: workspace, Host: host()}
	if name, ok := rules.OwnTool(event.Tool); ok {
		c.Tool, c.Alias = name, event.Tool
	}
	if filepath.IsAbs(event.Cwd) {
		c.Cwd = event.Cwd
	}
	if event.Tool == "NotebookEdit" {
		if c.Args, err = notebookPath(event.Input); err != nil {
			return live.Verdict{}, err
		}
	}
	return a.settings.judgeRecorded(loaded.Current(), &c, "hook", a.unrecorded)
}

// notebookPath presents notebook_path as path; a path beside it is kept as target.
func notebookPath(input json.RawMessage) (json.RawMessage, error) {
	if err := uniqueKeys(input); err != nil {
		return nil, fmt.Errorf("tool_input: %w", err)
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(input, &fields); err != nil {
		return nil, fmt.Errorf("tool_input: %w", err)
	}
	if p, ok := fields["notebook_path"]; ok {
		if other := fields["path"]; other != nil {
			fields["target"] = other
		}
		fields["path"] = p
		delete(fields, "notebook_path")
	}
	return json.Marshal(fields)
}

// uniqueKeys refuses an object in which a key stands twice, in any case: readers differ on which of them counts.
func uniqueKeys(object []byte) error {
	d := json.NewDecoder(bytes.NewReader(object))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return errors.New("want a JSON object")
	}
	seen := map[string]bool{}
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return err
		}
		key := strings.ToLower(fmt.Sprint(t))
		if seen[key] {
			return fmt.Errorf("the key %q stands twice", key)
		}
		seen[key] = true
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return err
		}
	}
	return nil
}
