package main

import (
	"errors"
	"time"

	"dshproxy/proxy/admin"
	"dshproxy/proxy/decisionlog"
)

// loaded tells everybody about the policy in force.
func (v *service) loaded() {
	s := v.rules.Current()
	count := len(s.Chain) + len(s.Managed)
	v.metrics.PolicyLoaded(s.Hash, count, s.Changed, v.settings.enforce, s.Loaded)
	v.recordReload(&decisionlog.Reload{Time: time.Now(), OK: true, Rules: count, Policy: s.Hash})
	for _, w := range s.Warnings {
		v.log.Warn(w)
	}
}

// recordReload writes what came of a load where it is looked for.
func (v *service) recordReload(r *decisionlog.Reload) {
	v.lastReload.Store(&admin.LastReload{Time: r.Time, OK: r.OK, Error: r.Error})
	v.recorder().Reloaded(r)
}

// reload reads rules, identities and what else may change now.
func (v *service) reload() (changed bool, err error) {
	changed, err = v.rules.Reload()
	v.reloaded(changed, err)
	other, otherErr := v.workspaces.Reload()
	v.workspaceReloaded(other, otherErr)
	book, bookErr := v.reloadBook()
	v.server.PolicyChanged() // whatever has changed, or has expired: what is in flight is judged by it
	return changed || other || book, errors.Join(err, otherErr, bookErr)
}

// workspaceReloaded tells what came of a reload of the workspaces of identities.
func (v *service) workspaceReloaded(changed bool, err error) {
	if err != nil {
		v.log.Error("reload of a workspace failed; its old rules stay", "err", err)
	}
	if changed {
		v.log.Info("the rules of a workspace were reloaded")
		v.server.PolicyChanged()
	}
}

// reloaded tells everybody what came of a reload. A file may have failed while others were taken.
func (v *service) reloaded(changed bool, err error) {
	if changed {
		v.loaded()
		v.server.PolicyChanged()
		s := v.rules.Current()
		v.log.Info("rules reloaded", "rules", len(s.Chain)+len(s.Managed), "policy", s.Hash)
	}
	if err != nil {
		v.stale.Store(true)
		v.metrics.ReloadFailed()
		v.log.Error("reload failed; the old rules of that file stay", "err", err)
		s := v.rules.Current()
		v.recordReload(&decisionlog.Reload{Time: time.Now(), Rules: len(s.Chain) + len(s.Managed), Policy: s.Hash, Error: err.Error()})
		return
	}
	if !changed {
		v.metrics.ReloadUnchanged()
		if v.stale.Load() {
			v.log.Info("the rule files are whole again, and as they were")
		}
	}
	v.stale.Store(false)
}
