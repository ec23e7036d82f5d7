package main

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"dshproxy/netrule"
	"dshproxy/rules"
	"dshproxy/rules/live"
	"dshproxy/rules/tree"

	"github.com/spf13/cobra"
	"gopkg.in/yaml.v3"
)

func (a *app) testCommand() *cobra.Command {
	format := "text"
	c := &cobra.Command{
		Use:   "test [FILE...]",
		Short: "Run the tests of a policy",
		Long: "Runs the cases of the given files, or of every *_test.yaml beside the rule files, against the effective rules:\n\n" +
			"  cases:\n" +
			"    - name: the registry is open\n" +
			"      target: https://registry.npmjs.org/\n" +
			"      resolve: [104.16.0.1]    # the answer of DNS; optional\n" +
			"      expect: allow\n" +
			"    - call: { tool: bash, args: { command: rm -rf / } }\n" +
			"      agents: [ci]\n" +
			"      expect: deny\n" +
			"      code: denied_by_rule     # optional\n" +
			"      rule: 1                  # optional; as dshproxy rules counts\n\n" +
			"It names the rules that no case hits, and ends with 1 when a case fails.",
		RunE: func(_ *cobra.Command, args []string) error {
			if format != "text" && format != "junit" {
				return usageError("text or junit", "unknown format %q", format)
			}
			return a.test(args, format)
		},
	}
	c.Flags().StringVar(&format, "format", format, "text or junit")
	return c
}

// testFile is a file of cases, and policyCase one of them. The schema is made of these types and their tags.
type testFile struct {
	Cases casesList `yaml:"cases" need:"yes" doc:"The cases, each a target or a call with the verdict that it must get."`
}

type casesList []policyCase

func (casesList) schema() map[string]any {
	return map[string]any{"type": "array", "minItems": 1, "items": typeSchema(reflect.TypeFor[policyCase]())}
}

type policyCase struct {
	Name     string            `yaml:"name" doc:"What the report calls the case."`
	Target   string            `yaml:"target" doc:"Where a connection goes: a URL, host or host:port."`
	Call     *toolCall         `yaml:"call" doc:"A tool call."`
	Resolve  []string          `yaml:"resolve" doc:"The answer of DNS about the target."`
	Agents   []string          `yaml:"agents" doc:"Who calls."`
	Env      map[string]string `yaml:"env" doc:"Variables of the machine that judges a call."`
	Platform platformWord      `yaml:"platform" doc:"Operating system of the machine that judges a call."`
	Expect   verdictWord       `yaml:"expect" need:"yes" doc:"The verdict."`
	Code     codeWord          `yaml:"code" doc:"The code of the verdict."`
	Rule     ruleNumber        `yaml:"rule" doc:"The number of the rule that decides, as dshproxy rules counts."`
}

// constrain: a case has either a target or a call.
func (policyCase) constrain(schema map[string]any) {
	schema["oneOf"] = []any{map[string]any{"required": []string{"target"}}, map[string]any{"required": []string{"call"}}}
}

type toolCall struct {
	Tool string         `yaml:"tool" need:"yes" doc:"The name of the tool."`
	Args map[string]any `yaml:"args" doc:"Its arguments."`
	Cwd  string         `yaml:"cwd" doc:"The absolute folder that relative paths start from."`
}

type platformWord string

func (platformWord) schema() map[string]any { return map[string]any{"enum": rules.Platforms()} }

type verdictWord string

func verdictWords() []verdictWord { return []verdictWord{"allow", "deny", "ask", "passthrough"} }

func (verdictWord) schema() map[string]any { return map[string]any{"enum": verdictWords()} }

type codeWord string

func (codeWord) schema() map[string]any {
	return map[string]any{"type": "string", "pattern": "^[a-z_]+$"}
}

type ruleNumber int // 1-based

func (ruleNumber) schema() map[string]any { return map[string]any{"type": "integer", "minimum": 1} }

// caseResult is what became of a case. failure is empty when it passed.
type caseResult struct{ file, name, failure string }

func (a *app) test(files []string, format string) error {
	loaded, workspace, err := a.loadRules()
	if err != nil {
		return err
	}
	s := loaded.Current()
	if len(files) == 0 {
		if files, err = testFiles(s); err != nil {
			return err
		}
		if len(files) == 0 {
			return &exitError{exitFailure, errors.New("no *_test.yaml beside the rule files"), "dshproxy test --help shows the format"}
		}
	}
	var results []caseResult
	hit := map[netrule.RuleRef]bool{}
	for _, file := range files {
		cases, err := readCases(file)
		if err != nil {
			return err
		}
		for i, c := range cases {
			r := caseResult{file: relative(workspace, file), name: c.Name}
			if r.name == "" {
				r.name = fmt.Sprintf("case %d", i+1)
			}
			v, err := a.decideCase(s, c, workspace)
			if err != nil {
				return fmt.Errorf("%s: %s: %w", r.file, r.name, err)
			}
			hit[v.Rule] = true
			r.failure = c.differs(&v)
			results = append(results, r)
		}
	}
	failed := 0
	for _, r := range results {
		if r.failure != "" {
			failed++
		}
	}
	if format == "junit" {
		err = printJUnit(a.io.out, results, failed)
	} else {
		printResults(a.io.out, results, failed, unhit(s, hit, workspace))
	}
	if err == nil && failed > 0 {
		err = &exitError{code: exitFailure}
	}
	return err
}

// testFiles finds the tests beside the rule files.
func testFiles(s *live.Snapshot) ([]string, error) {
	var out []string
	for i := range s.Files {
		found, err := filepath.Glob(filepath.Join(filepath.Dir(s.Files[i].Path), "*_test.yaml"))
		if err != nil {
			return nil, err
		}
		for _, f := range found {
			if !slices.Contains(out, f) {
				out = append(out, f)
			}
		}
	}
	return out, nil
}

const maxTestBytes = 16 << 20

func readCases(file string) ([]policyCase, error) {
	text, err := live.ReadNamed(file, maxTestBytes)
	if err != nil {
		return nil, err
	}
	// The strict reading refuses what the library lets through, such as keys that stand twice.
	if _, err := tree.Parse(file, text, 1_000_000); err != nil {
		return nil, err
	}
	var doc testFile
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	if err := d.Decode(&doc); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if len(doc.Cases) == 0 {
		return nil, fmt.Errorf("%s: no cases", file)
	}
	return doc.Cases, nil
}

// decideCase gives the verdict of a case, as check and explain do.
func (a *app) decideCase(s *live.Snapshot, c policyCase, workspace string) (live.Verdict, error) {
	if !slices.Contains(verdictWords(), c.Expect) {
		return live.Verdict{}, fmt.Errorf("expect is allow, deny, ask or passthrough, not %q", c.Expect)
	}
	if (c.Call == nil) == (c.Target == "") {
		return live.Verdict{}, errors.New("want a target or a call")
	}
	if c.Call != nil {
		if c.Call.Args == nil {
			c.Call.Args = map[string]any{}
		}
		args, err := json.Marshal(c.Call.Args)
		if err != nil {
			return live.Verdict{}, fmt.Errorf("args: %w", err)
		}
		f := checkFlags{tool: c.Call.Tool, args: string(args), cwd: c.Call.Cwd, platform: string(c.Platform), agents: c.Agents}
		for k, v := range c.Env {
			f.env = append(f.env, k+"="+v)
		}
		call, err := a.call(&f)
		if err != nil {
			return live.Verdict{}, err
		}
		call.Workspace = workspace
		return a.settings.judge(s, &call)
	}
	target, err := netrule.ParseURL(c.Target)
	if err != nil {
		return live.Verdict{}, err
	}
	if target.Scheme == netrule.SchemeUnknown {
		target.Scheme = netrule.SchemeHTTPS
	}
	q := netrule.Query{Target: target, Agents: c.Agents}
	d := s.Policy.DecideOffline(q)
	if d.Action == netrule.Allow && len(c.Resolve) > 0 {
		var addrs []netip.Addr
		for _, text := range c.Resolve {
			addr, err := netip.ParseAddr(text)
			if err != nil {
				return live.Verdict{}, fmt.Errorf("resolve: %w", err)
			}
			addrs = append(addrs, addr)
		}
		d = s.Policy.DecideAddrs(q, addrs, nil)
	}
	return live.Verdict{Action: d.Action, Code: d.Code, Rule: d.Rule, Reason: d.Rule.Reason, Network: true}, nil
}

// differs says how a verdict is not what the case expects, or is empty.
func (c *policyCase) differs(v *live.Verdict) string {
	got := verdictOf(v)
	var out []string
	if got.Action != string(c.Expect) {
		out = append(out, fmt.Sprintf("want %s, got %s", c.Expect, got.Action))
	}
	if c.Code != "" && got.Code != string(c.Code) {
		out = append(out, fmt.Sprintf("want code %s, got %s", c.Code, got.Code))
	}
	if c.Rule != 0 && (!v.Rule.Valid() || v.Rule.Index+1 != int(c.Rule)) {
		out = append(out, fmt.Sprintf("want rule %d", c.Rule))
	}
	if len(out) == 0 {
		return ""
	}
	by := "no rule"
	if v.Rule.Valid() {
		by = fmt.Sprintf("rule %d, %s:%d", v.Rule.Index+1, v.Rule.File, v.Rule.Line)
	}
	return fmt.Sprintf("%s (%s, %s)", strings.Join(out, "; "), got.Code, by)
}

// unhit names the rules that no case was decided by.
func unhit(s *live.Snapshot, hit map[netrule.RuleRef]bool, workspace string) []string {
	var out []string
	for _, l := range []struct {
		name  string
		rules []rules.Rule
	}{{"managed", s.Managed}, {"workspace", s.Chain}} {
		for i := range l.rules {
			r := &l.rules[i]
			if r.Enabled && !hit[netrule.RuleRef{File: r.File, Line: r.Line, Index: i, Reason: r.Reason, Layer: l.name}] {
				out = append(out, fmt.Sprintf("%s %d %s:%d", l.name, i+1, relative(workspace, r.File), r.Line))
			}
		}
	}
	return out
}

func printResults(w io.Writer, results []caseResult, failed int, unhit []string) {
	for _, r := range results {
		if r.failure == "" {
			fmt.Fprintf(w, "ok    %s: %s\n", r.file, r.name)
		} else {
			fmt.Fprintf(w, "FAIL  %s: %s: %s\n", r.file, r.name, r.failure)
		}
	}
	for _, u := range unhit {
		fmt.Fprintln(w, "no case hits "+u)
	}
	fmt.Fprintf(w, "%d passed, %d failed\n", len(results)-failed, failed)
}

func printJUnit(w io.Writer, results []caseResult, failed int) error {
	type failure struct {
		Message string `xml:"message,attr"`
	}
	type testcase struct {
		Class   string   `xml:"classname,attr"`
		Name    string   `xml:"name,attr"`
		Failure *failure `xml:"failure"`
	}
	suite := struct {
		XMLName  xml.Name   `xml:"testsuite"`
		Name     string     `xml:"name,attr"`
		Tests    int        `xml:"tests,attr"`
		Failures int        `xml:"failures,attr"`
		Cases    []testcase `xml:"testcase"`
	}{Name: "dshproxy", Tests: len(results), Failures: failed}
	for _, r := range results {
		c := testcase{Class: r.file, Name: r.name}
		if r.failure != "" {
			c.Failure = &failure{r.failure}
		}
		suite.Cases = append(suite.Cases, c)
	}
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	enc := xml.NewEncoder(w)
	enc.Indent("", "  ")
	if err := enc.Encode(suite); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n")
	return err
}
