package rules

// clientTools pairs the names that clients give to their tools with those that rules use.
func clientTools() [][2]string {
	return [][2]string{
		{"Bash", "bash"},
		{"WebFetch", "web_fetch"},
		{"WebSearch", "web_search"},
		{"Read", "read"},
		{"Edit", "edit"},
		{"MultiEdit", "edit"},
		{"NotebookEdit", "edit"},
		{"Write", "write"},
		{"Glob", "glob"},
		{"Grep", "grep"},
	}
}

// OwnTool gives the name that rules use for a client's tool.
func OwnTool(client string) (string, bool) {
	for _, p := range clientTools() {
		if p[0] == client {
			return p[1], true
		}
	}
	return "", false
}

// ClientTool gives the client's name of the call's tool: the one that it came under, else the usual one.
func (c *Call) ClientTool() string {
	if c.Alias != "" {
		return c.Alias
	}
	for _, p := range clientTools() {
		if p[1] == c.Tool {
			return p[0]
		}
	}
	return c.Tool
}
