package rules

import (
	_ "embed"
	"sync"
)

//go:embed baseline.yaml
var baselineText []byte

// BaselineFile is the file that rules of the built-in baseline name.
const BaselineFile = "builtin"

// Baseline gives the built-in rules about high-risk tool calls, to be walked behind a workspace's own. The caller must not
// change them. They look at every command of a shell text by itself, not at all of its words together.
var Baseline = sync.OnceValue(func() []Rule {
	doc, err := Parse(BaselineFile, baselineText, Options{})
	if err != nil {
		panic(err) // it is part of the binary, and a test parses it
	}
	for i := range doc.Rules {
		if a := doc.Rules[i].Match.Argv; a != nil {
			a.eachCommand = true
		}
	}
	return doc.Rules
})
