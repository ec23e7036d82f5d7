package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// version is set by the linker in release builds.
var version = "dev"

// versionLine is what version prints, and --version.
func versionLine() string {
	v, revision, date := build()
	return fmt.Sprintf("dshproxy %s (%s, %s, %s %s/%s)\n", v, revision, date, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

// build tells what this binary is, as far as the Go tool has noted it.
func build() (v, revision, date string) {
	v = version
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v, "unknown", "unknown"
	}
	if v == "dev" && info.Main.Version != "" && info.Main.Version != "(devel)" {
		v = info.Main.Version
	}
	revision, date = "unknown", "unknown"
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			revision = s.Value[:min(12, len(s.Value))]
		case "vcs.time":
			date = s.Value
		}
	}
	return v, revision, date
}

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "The version of this binary",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			_, err := fmt.Fprint(a.io.out, versionLine())
			return err
		},
	}
}
