package rules

// Schema is the JSON Schema (draft 2020-12) of rule files. It is made of the table that Parse reads by. What a schema
// cannot say (the syntax of globs in params, hosts, addresses, the order of a range, the caps of the settings) is left to
// Parse: every file that loads is valid.
func Schema() map[string]any {
	s := document().schema()
	// An empty file holds no rules.
	s["type"] = []string{"object", "null"}
	s["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	s["$id"] = "dshproxy-rules/v1"
	s["title"] = "A rule file of dshproxy"
	return s
}

func (m *mapping) schema() map[string]any {
	properties := map[string]any{}
	var required []string
	var some []any
	for i := range m.fields {
		f := &m.fields[i]
		s := f.schema()
		s["description"] = f.doc
		properties[f.name] = s
		if f.required {
			required = append(required, f.name)
		}
		some = append(some, map[string]any{"required": []string{f.name}, "properties": map[string]any{f.name: map[string]any{"minItems": 1}}})
	}
	s := map[string]any{"type": "object", "additionalProperties": false, "properties": properties}
	if len(required) > 0 {
		s["required"] = required
	}
	if m.some {
		s["anyOf"] = some
	}
	return s
}

func (f *field) schema() map[string]any {
	switch f.shape {
	case shapeRules:
		return map[string]any{"type": "array", "items": f.sub.schema()}
	case shapeMapping:
		return f.sub.schema()
	case shapeText:
		return map[string]any{"type": "string", "pattern": `\S`}
	case shapeBool:
		return map[string]any{"type": "boolean", "default": true}
	case shapeWord:
		return map[string]any{"enum": f.words}
	case shapeStrings, shapePatterns:
		return f.list(0)
	case shapeKeyed:
		return map[string]any{
			"type": "object", "propertyNames": map[string]any{"minLength": 1}, "additionalProperties": f.list(1),
		}
	}
	panic("a key without a shape")
}

// list is one text, or a list of at least least of them.
func (f *field) list(least int) map[string]any {
	one, item := f.text(), f.text()
	if len(f.words) == 0 {
		// Only a pattern outside a list may be empty: it matches the empty value.
		item["minLength"] = 1
		if f.shape == shapeStrings {
			one["minLength"] = 1
		}
	}
	list := map[string]any{"type": "array", "items": item}
	if least > 0 {
		list["minItems"] = least
	}
	return map[string]any{"anyOf": []any{one, list}}
}

func (f *field) text() map[string]any {
	if len(f.words) > 0 {
		return map[string]any{"enum": f.words}
	}
	s := map[string]any{"type": "string"}
	if f.shape != shapeStrings {
		s["type"] = []string{"string", "number", "boolean"}
	}
	for k, v := range f.texts {
		s[k] = v
	}
	if f.negatable {
		s["not"] = map[string]any{"const": "!"}
	}
	return s
}
