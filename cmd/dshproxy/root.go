package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"dshproxy/rules/tree"

	"github.com/spf13/cobra"
)

// stdio are the streams of a command.
type stdio struct {
	in       io.Reader
	out, err io.Writer
}

// The exit codes of every command.
const (
	exitOK      = 0
	exitFailure = 1
	exitUsage   = 2
	exitDeny    = 3
	exitAsk     = 4
)

// exitError ends a command with a code. Its message, if any, has been printed or is printed as an error line.
type exitError struct {
	code int
	err  error
	hint string
}

func (e *exitError) Error() string {
	if e.err == nil {
		return ""
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

func usageError(hint, format string, args ...any) error {
	return &exitError{exitUsage, fmt.Errorf(format, args...), hint}
}

// run is the program: it gives the exit code.
func run(ctx context.Context, args []string, io stdio) int {
	app := &app{io: io}
	root := app.rootCommand()
	root.SetArgs(args)
	root.SetIn(io.in)
	root.SetOut(io.out)
	root.SetErr(io.err)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitOK
	}
	code, hint := exitFailure, ""
	var ee *exitError
	var te *tree.Error
	switch {
	case errors.As(err, &ee):
		code, hint = ee.code, ee.hint
	case !app.started:
		code, hint = exitUsage, "dshproxy help lists the commands and their flags" // cobra's own complaint
	}
	if errors.As(err, &te) && hint == "" {
		hint = te.Hint
	}
	if text := err.Error(); text != "" {
		fmt.Fprintf(io.err, "dshproxy: error: %s\n", oneParagraph(text))
	}
	if hint != "" {
		fmt.Fprintf(io.err, "dshproxy: hint: %s\n", hint)
	}
	return code
}

func oneParagraph(s string) string {
	return strings.ReplaceAll(strings.TrimSpace(s), "\n", " ")
}

// app is what the subcommands share.
type app struct {
	io       stdio
	started  bool // a command's own code has begun: errors are not about usage any more
	settings settings
	config   string // --config
	flags    map[string]string
	work     string // --workspace
}

func (a *app) rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:               "dshproxy",
		Short:             "An egress proxy that enforces network rules, and says which rule when it refuses",
		Version:           version,
		SilenceErrors:     true,
		SilenceUsage:      true,
		CompletionOptions: cobra.CompletionOptions{HiddenDefaultCmd: false},
	}
	root.SetVersionTemplate(versionLine())
	root.PersistentFlags().StringVar(&a.config, "config", "", "settings file")
	root.PersistentFlags().StringVar(&a.work, "workspace", "", "folder whose rules apply (default: the current one)")
	var rulesFile string
	var managed []string
	root.PersistentFlags().StringVar(&rulesFile, "rules", "", "rule file")
	root.PersistentFlags().StringArrayVar(&managed, "managed", nil, "rule file that no workspace can open (repeatable)")
	root.PersistentPreRun = func(c *cobra.Command, _ []string) {
		a.started = true
		a.flags = map[string]string{}
		if c.Flags().Changed("rules") {
			a.flags["rulesFile"] = rulesFile
		}
		if c.Flags().Changed("managed") {
			a.flags["managedRules"] = strings.Join(managed, ",")
		}
	}
	root.AddCommand(a.serveCommand(), a.explainCommand(), a.lintCommand(), a.allowCommand(), a.trustCommand(), a.rulesCommand(),
		a.vectorsCommand(), a.checkCommand(), a.hookCommand(), a.matchRulesCommand(), a.evaluateCommand(), a.testCommand(), a.learnCommand(), a.diffCommand(),
		a.healthcheckCommand(), a.statusCommand(), a.stopCommand(), a.resumeCommand(), a.envCommand(), a.caCommand(), a.connectCommand(), a.configCommand(), a.schemaCommand(), a.versionCommand())
	return root
}

// workspace gives the absolute folder whose rules apply. It must exist: a mistyped one would judge by no rules.
func (a *app) workspace() (string, error) {
	if a.work == "" {
		return os.Getwd()
	}
	dir, err := absolute(a.work)
	if err != nil {
		return "", err
	}
	info, err := os.Stat(dir)
	if err != nil {
		return "", usageError("name an existing folder", "workspace: %w", err)
	}
	if !info.IsDir() {
		return "", usageError("name an existing folder", "workspace: %s is no folder", dir)
	}
	return dir, nil
}

// group is a command that only holds others: without one of them it is wrong usage, and never a success.
func group(use, short string, subcommands ...*cobra.Command) *cobra.Command {
	c := &cobra.Command{Use: use, Short: short, Args: cobra.ArbitraryArgs}
	c.RunE = func(_ *cobra.Command, args []string) error {
		hint := "see dshproxy " + use + " --help"
		if len(args) == 0 {
			return usageError(hint, "%s needs a subcommand", use)
		}
		return usageError(hint, "unknown command %q for %q", args[0], "dshproxy "+use)
	}
	c.AddCommand(subcommands...)
	return c
}

// refuseInside keeps the program that dshproxy governs from changing its own policy.
func refuseInside(command string) error {
	if os.Getenv("DSHPROXY_INSIDE") == "1" {
		return usageError("ask the person who started it", "%s is refused inside dshproxy run", command)
	}
	return nil
}
