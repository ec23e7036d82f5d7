package live

import (
	"errors"
	"fmt"
	"os"
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

// source is a file of another program that may hold rules. It need not exist.
type source struct {
	dialect Dialect
	origin  toolspec.Origin
	dir     string // the workspace for its files, which are held
	name    string // below dir, or absolute
}

func (s *source) path() string {
	if s.dir != "" {
		return filepath.Join(s.dir, s.name)
	}
	return s.name
}

// foreign gives the files of other programs, for each dialect that is asked for, the stronger scope of the settings first
// and the weaker permission file first.
func (r *Rules) foreign() []source {
	var out []source
	p, ws := &r.opts.Places, r.opts.Workspace
	add := func(d Dialect, o toolspec.Origin, dir, name string) {
		if name != "" {
			out = append(out, source{d, o, dir, name})
		}
	}
	below := func(dir, name string) string {
		if dir == "" {
			return ""
		}
		return filepath.Join(dir, name)
	}
	if slices.Contains(r.opts.Dialects, ClaudeSettings) {
		add(ClaudeSettings, toolspec.Managed, "", p.ClaudeManaged)
		add(ClaudeSettings, toolspec.Local, ws, ".claude/settings.local.json")
		add(ClaudeSettings, toolspec.Project, ws, ".claude/settings.json")
		add(ClaudeSettings, toolspec.User, "", below(p.ClaudeUser, "settings.json"))
	}
	if slices.Contains(r.opts.Dialects, PiPermission) {
		const config, old = "extensions/pi-permission-system/config.json", "pi-permissions.jsonc"
		add(PiPermission, toolspec.User, "", below(p.PiUser, old))
		add(PiPermission, toolspec.User, "", below(p.PiUser, config))
		add(PiPermission, toolspec.Project, ws, ".pi/agent/"+old)
		add(PiPermission, toolspec.Project, ws, ".pi/"+config)
	}
	return out
}

// readForeign reads those of them that exist. What holds everywhere must pass the test of ownership.
func (r *Rules) readForeign() ([]text, error) {
	var out []text
	for _, s := range r.foreign() {
		var b []byte
		var err error
		if s.dir != "" {
			b, err = r.readHeld(s.dir, s.name)
		} else if err = CheckOwner(s.name); err == nil {
			b, err = ReadNamed(s.name, r.opts.MaxBytes)
		}
		switch {
		case errors.Is(err, os.ErrNotExist):
			continue
		case err != nil && s.dir != "":
			return nil, fmt.Errorf("%s: %w", s.path(), bare(err))
		case err != nil:
			return nil, err
		}
		out = append(out, text{path: s.path(), dialect: s.dialect, origin: s.origin, discovered: s.dir != "", bytes: b})
	}
	return out, nil
}

// settingsDir is the folder that "/" in the paths of a settings file means.
func (r *Rules) settingsDir(t *text) string {
	if t.discovered {
		return r.opts.Workspace
	}
	return filepath.Dir(t.path)
}
