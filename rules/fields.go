package rules

import "strings"

// shape is what may stand under a key.
type shape uint8

const (
	shapeRules    shape = iota // a list of rules
	shapeMapping               // a mapping with keys of its own
	shapeText                  // a string that is not blank
	shapeBool                  // true or false
	shapeWord                  // one of words
	shapeStrings               // a string, or a list of strings
	shapePatterns              // a string, number or boolean, or a list of them
	shapeKeyed                 // a mapping of free keys to pattern lists, none of them empty
)

// field is one key of a mapping of the format. The parser reads by it, and the schema is made of it.
type field struct {
	name  string
	shape shape
	doc   string
	// required is true for keys that must be there.
	required bool
	// words are the only texts that the value, or an item of it, may have; empty for any.
	words []string
	// negatable says that a leading "!" negates a pattern.
	negatable bool
	// texts describes each text to editors, as far as a schema can: the parser has compilers for what it says.
	texts map[string]any
	// hint is said with an error about the value.
	hint string
	// sub is the mapping below the key, or that of each rule.
	sub *mapping
}

// mapping is one mapping of the format: its keys in the order in which they are read.
type mapping struct {
	fields []field
	// some says that at least one key must hold something.
	some bool
}

func (m *mapping) names() []string {
	out := make([]string, len(m.fields))
	for i := range m.fields {
		out[i] = m.fields[i].name
	}
	return out
}

// wants says what a scalar must be, for errors.
func (f *field) wants() string {
	if f.shape == shapeWord {
		return "must be one of " + strings.Join(f.words, ", ")
	}
	return "must be a non-empty string"
}

// The texts of globs and network patterns. They say less than the compilers do, and nothing that those do not.
const (
	globText   = `^([^\[\]\\]|\\[\s\S]|\[([!^][^\]]+|[^\]!^][^\]]*)\])*$`
	domainText = `^=?\.*([^\s/#@%.=:][^\s/#@%:]*|[0-9A-Fa-f.*?\[\]!^\\-]*:[0-9A-Fa-f:.*?\[\]!^\\-]*)$`
	ipText     = `^\s*[0-9A-Fa-f:.*?\[\]!^\\/-]+\s*$`
	portText   = `^(\*|[0-9]+(-[0-9]+)?)$`
)

// document is the root of a rule file, with everything below it.
func document() *mapping {
	return &mapping{fields: []field{
		{name: "rules", shape: shapeRules, sub: ruleFields(), doc: "The rules. The first one that matches decides."},
	}}
}

func ruleFields() *mapping {
	return &mapping{fields: []field{
		{name: "action", shape: shapeWord, required: true, words: []string{"allow", "deny", "ask"}, doc: "What happens when the rule matches."},
		{
			name: "reason", shape: shapeText, required: true, doc: "Why, in a sentence: the person or model that is refused reads it.",
			hint: "say in a sentence why; the person or model that is refused reads it",
		},
		{name: "enabled", shape: shapeBool, doc: "false takes the rule out; it must still be valid."},
		{name: "description", shape: shapeText, doc: "A note for people."},
		{name: "match", shape: shapeMapping, sub: matchFields(), doc: "What the rule is about: every key must hold. Left out, the rule matches everything."},
		{name: "tags", shape: shapeStrings, doc: "Words for people."},
	}}
}

func matchFields() *mapping {
	glob := map[string]any{"pattern": globText}
	return &mapping{fields: []field{
		{name: "tools", shape: shapeStrings, texts: glob, doc: "Globs of tool names."},
		{name: "agents", shape: shapeStrings, texts: glob, doc: "Globs of who calls. An unknown caller matches none."},
		{name: "params", shape: shapeKeyed, negatable: true, doc: "Top-level arguments of the call, each with patterns of the scalars in it; a leading ! negates."},
		{name: "paths", shape: shapeStrings, doc: "Globs of paths, relative to the workspace: * stays in a folder, ** does not."},
		{name: "absent", shape: shapeStrings, doc: "Top-level arguments that the call must not have."},
		{name: "when", shape: shapeMapping, sub: whenFields(), doc: "The machine that judges."},
		{name: "argv", shape: shapeMapping, sub: argvFields(), doc: "The words of a shell command."},
		{name: "network", shape: shapeMapping, sub: networkFields(), doc: "Where a connection goes. Only rules with it judge connections."},
	}}
}

func whenFields() *mapping {
	return &mapping{fields: []field{
		{name: "env", shape: shapeKeyed, doc: "Variables that must be set, each with patterns of its value."},
		{name: "platform", shape: shapeStrings, words: Platforms(), doc: "Operating systems."},
	}}
}

func argvFields() *mapping {
	glob := map[string]any{"pattern": globText}
	return &mapping{some: true, fields: []field{
		{name: "command", shape: shapeStrings, texts: glob, doc: "Globs of the name of a command."},
		{name: "args", shape: shapePatterns, negatable: true, doc: "Patterns that must all be found among the arguments; a leading ! negates."},
		{name: "anyArg", shape: shapePatterns, negatable: true, doc: "Patterns of which one must be found among the arguments; a leading ! negates."},
		{name: "pipeline", shape: shapeStrings, texts: glob, doc: "Globs of the names of the commands of a pipeline, joined with |."},
	}}
}

func networkFields() *mapping {
	return &mapping{some: true, fields: []field{
		{name: "domains", shape: shapePatterns, texts: map[string]any{"pattern": domainText, "minLength": 1}, doc: "Hosts: example.com with all below it, =example.com alone, *.example.com only what is below it."},
		{name: "ips", shape: shapePatterns, texts: map[string]any{"type": "string", "pattern": ipText}, doc: "Addresses, prefixes or globs of addresses. Special-use addresses open only by them."},
		{
			name: "ports", shape: shapePatterns, texts: map[string]any{"type": []string{"integer", "string"}, "minimum": 1, "maximum": 65535, "pattern": portText},
			doc: "Ports, ranges such as 8000-9000, or * for every port.",
		},
		{name: "schemes", shape: shapePatterns, words: []string{"http", "https"}, doc: "http or https; a CONNECT counts as https."},
	}}
}
