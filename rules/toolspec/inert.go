package toolspec

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"dshproxy/netrule"
	"dshproxy/rules/jsonc"
	"dshproxy/rules/tree"
)

// knownTools are the client's own. Names with "_" are those of servers, and unknown here.
var knownTools = []string{
	"Bash", "BashOutput", "KillShell", "KillBash", "PowerShell", "Monitor", "Read", "Edit", "Write", "MultiEdit", "NotebookEdit", "NotebookRead", "Glob", "Grep", "LS", "LSP",
	"WebFetch", "WebSearch", "Agent", "Task", "TaskCreate", "TaskGet", "TaskList", "TaskOutput", "TaskStop", "TaskUpdate", "TodoRead", "TodoWrite", "Skill", "SlashCommand", "ToolSearch",
	"AskUserQuestion", "EnterPlanMode", "ExitPlanMode", "EnterWorktree", "ExitWorktree", "ListMcpResourcesTool", "ReadMcpResourceTool", "CronCreate", "CronDelete", "CronList", "SendMessage",
}

// unknownTool says why a rule may be about no tool. An allow rule that is about none opens nothing, so only a slip of the
// pen is worth a word there.
func (r Rule) unknownTool(list netrule.Action) string {
	if slices.Contains(knownTools, r.Tool) || strings.ContainsAny(r.Tool, "_*") {
		return ""
	}
	for _, known := range knownTools {
		if strings.EqualFold(known, strings.TrimSpace(r.Tool)) {
			return fmt.Sprintf("no tool is called %q; did you mean %q?", r.Tool, known)
		}
	}
	if list == netrule.Allow {
		return ""
	}
	why := fmt.Sprintf("no tool of the client's is called %q", r.Tool)
	if near := tree.Nearest(r.Tool, knownTools); near != "" {
		why += fmt.Sprintf("; did you mean %q?", near)
	}
	return why
}

// badPattern says why a pattern for paths matches none.
func (r Rule) badPattern() string {
	if r.Bare || !isFileTool(r.Tool) {
		return ""
	}
	if tooLong(r.Spec) {
		return fmt.Sprintf("the pattern is longer than %d bytes or %d segments", maxPath, maxSegments)
	}
	for segment := range strings.SplitSeq(r.Spec, "/") {
		if _, err := path.Match(strings.ReplaceAll(segment, "[!", "[^"), "x"); err != nil {
			return fmt.Sprintf("%q: a class that does not end, or a \\ with nothing behind it", segment)
		}
	}
	return ""
}

// checkKeys warns of keys that are nearly those that are read: the client does not read them either.
func (s *Settings) checkKeys(v *jsonc.Value, known ...string) {
	if v == nil || v.Kind != jsonc.Map {
		return
	}
	for _, key := range v.Keys {
		for _, want := range known {
			if key.Name != want && strings.EqualFold(strings.TrimSpace(key.Name), want) {
				e := tree.Error{File: s.File, Line: key.Line, Col: key.Col, What: fmt.Sprintf("the key %q is not read; did you mean %q?", key.Name, want)}
				s.Warnings = append(s.Warnings, e.Error())
			}
		}
	}
}
