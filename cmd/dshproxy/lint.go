package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"

	"dshproxy/rules"

	"github.com/spf13/cobra"
	"golang.org/x/net/publicsuffix"
)

func (a *app) lintCommand() *cobra.Command {
	var format string
	var strict bool
	c := &cobra.Command{
		Use:   "lint [FILE...]",
		Short: "Errors and warnings about rule files",
		Long:  "Lint reads the given files, or the chain of the workspace. It ends with 1 on errors, with --strict on warnings too.",
		RunE: func(_ *cobra.Command, args []string) error {
			if format != "text" && format != "json" && format != "sarif" {
				return usageError("", "--format: want text, json or sarif, not %q", format)
			}
			findings, err := a.lint(args)
			if err != nil {
				return err
			}
			return a.printFindings(findings, format, strict)
		},
	}
	c.Flags().StringVar(&format, "format", "text", "text, json or sarif")
	c.Flags().BoolVar(&strict, "strict", false, "warnings end with 1 too")
	return c
}

func (a *app) lint(files []string) ([]rules.Finding, error) {
	if err := a.settings.load(a.config, a.flags); err != nil {
		return nil, err
	}
	if len(files) == 0 {
		live, _, err := a.rules(false)
		if err != nil {
			return nil, err
		}
		var pe *rules.ParseError
		if err := live.Load(); errors.As(err, &pe) {
			return []rules.Finding{rules.ErrorFinding(pe.File, pe)}, nil
		} else if err != nil {
			return nil, loadError(err)
		}
		s := live.Current().Now() // what is written, accepted or not
		return append(rules.Lint(s.Managed, host(), isPublicSuffix), rules.Lint(s.Chain, host(), isPublicSuffix)...), nil
	}
	var out []rules.Finding
	for _, f := range files {
		path, err := absolute(f)
		if err != nil {
			return nil, err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		doc, err := rules.Parse(path, text, a.settings.parseOptions())
		var chain []rules.Rule
		if err == nil {
			chain, err = rules.ParseChain([]*rules.Document{doc}, a.settings.parseOptions())
		}
		var pe *rules.ParseError
		if errors.As(err, &pe) {
			out = append(out, rules.ErrorFinding(path, pe))
			continue
		} else if err != nil {
			return nil, err
		}
		out = append(out, rules.Lint(chain, host(), isPublicSuffix)...)
	}
	return out, nil
}

// isPublicSuffix reports whether anybody can register below a name.
func isPublicSuffix(name string) bool {
	suffix, icann := publicsuffix.PublicSuffix(name)
	// Without a dot and without ICANN it is only an unknown last label, such as localhost.
	return suffix == name && (icann || strings.Contains(name, "."))
}

func (a *app) printFindings(findings []rules.Finding, format string, strict bool) error {
	errorsFound, warnings := 0, 0
	for _, f := range findings {
		if f.Severity == rules.SeverityError {
			errorsFound++
		} else {
			warnings++
		}
	}
	workspace, err := a.workspace()
	if err != nil {
		return err
	}
	switch format {
	case "json":
		enc := json.NewEncoder(a.io.out)
		enc.SetIndent("", "  ")
		if findings == nil {
			findings = []rules.Finding{}
		}
		if err := enc.Encode(findings); err != nil {
			return err
		}
	case "sarif":
		if err := printSARIF(a.io.out, findings, workspace); err != nil {
			return err
		}
	default:
		for _, f := range findings {
			fmt.Fprintf(a.io.out, "%s:%d:%d: %s: %s [%s]\n", relative(workspace, f.File), f.Line, f.Col, f.Severity, f.Message, f.Code)
			if f.Hint != "" {
				fmt.Fprintf(a.io.out, "    hint: %s\n", f.Hint)
			}
		}
		fmt.Fprintf(a.io.out, "%s, %s\n", count(errorsFound, "error"), count(warnings, "warning"))
	}
	if errorsFound > 0 || strict && warnings > 0 {
		return &exitError{code: exitFailure}
	}
	return nil
}
