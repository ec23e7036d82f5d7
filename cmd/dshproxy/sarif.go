package main

import (
	"encoding/json"
	"io"
	"path/filepath"

	"dshproxy/rules"
)

// The parts of SARIF 2.1.0 that lint needs.
type (
	sarifLog struct {
		Schema  string     `json:"$schema"`
		Version string     `json:"version"`
		Runs    []sarifRun `json:"runs"`
	}
	sarifRun struct {
		Tool    sarifTool     `json:"tool"`
		Results []sarifResult `json:"results"`
	}
	sarifTool struct {
		Driver sarifDriver `json:"driver"`
	}
	sarifDriver struct {
		Name  string      `json:"name"`
		Rules []sarifRule `json:"rules"`
	}
	sarifRule struct {
		ID string `json:"id"`
	}
	sarifResult struct {
		RuleID    string          `json:"ruleId"`
		Level     string          `json:"level"`
		Message   sarifText       `json:"message"`
		Locations []sarifLocation `json:"locations"`
	}
	sarifText struct {
		Text string `json:"text"`
	}
	sarifLocation struct {
		Physical sarifPhysical `json:"physicalLocation"`
	}
	sarifPhysical struct {
		Artifact sarifArtifact `json:"artifactLocation"`
		Region   sarifRegion   `json:"region"`
	}
	sarifArtifact struct {
		URI string `json:"uri"`
	}
	sarifRegion struct {
		Line   int `json:"startLine"`
		Column int `json:"startColumn,omitempty"`
	}
)

// printSARIF writes findings as code scanners read them; paths are relative to the workspace where they lie in it.
func printSARIF(w io.Writer, findings []rules.Finding, workspace string) error {
	run := sarifRun{Tool: sarifTool{sarifDriver{Name: "dshproxy"}}, Results: []sarifResult{}}
	for _, code := range rules.LintCodes() {
		run.Tool.Driver.Rules = append(run.Tool.Driver.Rules, sarifRule{code})
	}
	for _, f := range findings {
		text := f.Message
		if f.Hint != "" {
			text += " (" + f.Hint + ")"
		}
		run.Results = append(run.Results, sarifResult{
			RuleID: f.Code, Level: string(f.Severity), Message: sarifText{text},
			Locations: []sarifLocation{{sarifPhysical{sarifArtifact{filepath.ToSlash(relative(workspace, f.File))}, sarifRegion{max(f.Line, 1), max(f.Col, 0)}}}},
		})
	}
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(sarifLog{"https://json.schemastore.org/sarif-2.1.0.json", "2.1.0", []sarifRun{run}})
}
