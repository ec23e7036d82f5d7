package live

import (
	"path/filepath"
	"slices"

	"dshproxy/rules/toolspec"
)

// Dialect is a rule language that may be loaded. Each is walked in its own order, and their verdicts are combined: deny,
// then ask, then allow; who says nothing abstains.
type Dialect string

// The dialects.
const (
	DSH            Dialect = "dsh"             // .dsh/rules.yaml
	ClaudeSettings Dialect = "claude-settings" // permissions and sandbox.network of settings.json
	PiPermission   Dialect = "pi-permission"   // surfaces of a permission file
)

// Dialects lists them.
func Dialects() []Dialect { return []Dialect{DSH, ClaudeSettings, PiPermission} }

// Places are where programs keep the settings that hold in every workspace. Empty ones are not looked at.
type Places struct {
	Home          string // what "~" means in rules
	ClaudeManaged string // a settings file of the administrator's
	ClaudeUser    string // the folder of settings.json
	PiUser        string // the agent's folder
}

// foreign gives the places of other programs' files, for each dialect that is asked for, the stronger scope of the
// settings first and the weaker permission file first. What holds everywhere must pass the test of ownership.
func (r *Rules) foreign() []source {
	var out []source
	p := &r.opts.Places
	everywhere := func(d Dialect, o toolspec.Origin, dir, name string) {
		if dir != "" {
			out = append(out, source{path: filepath.Join(dir, name), part: namedPart, dialect: d, origin: o, optional: true, owned: true})
		}
	}
	inWorkspace := func(d Dialect, o toolspec.Origin, name string) {
		dir := r.opts.Workspace
		out = append(out, source{path: filepath.Join(dir, name), part: workspacePart, dialect: d, origin: o, dir: dir, name: name, optional: true})
	}
	if slices.Contains(r.opts.Dialects, ClaudeSettings) {
		everywhere(ClaudeSettings, toolspec.Managed, p.ClaudeManaged, "")
		inWorkspace(ClaudeSettings, toolspec.Local, ".claude/settings.local.json")
		inWorkspace(ClaudeSettings, toolspec.Project, ".claude/settings.json")
		everywhere(ClaudeSettings, toolspec.User, p.ClaudeUser, "settings.json")
	}
	if slices.Contains(r.opts.Dialects, PiPermission) {
		const config, old = "extensions/pi-permission-system/config.json", "pi-permissions.jsonc"
		everywhere(PiPermission, toolspec.User, p.PiUser, old)
		everywhere(PiPermission, toolspec.User, p.PiUser, config)
		inWorkspace(PiPermission, toolspec.Project, ".pi/agent/"+old)
		inWorkspace(PiPermission, toolspec.Project, ".pi/"+config)
	}
	return out
}

// settingsDir is the folder that "/" in the paths of a settings file means.
func (r *Rules) settingsDir(t *text) string {
	if t.origin == toolspec.Local || t.origin == toolspec.Project {
		return r.opts.Workspace
	}
	return filepath.Dir(t.path)
}
