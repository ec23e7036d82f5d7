package main

import "strings"

// The schemas of the values of settings: what set and decodeValue take, as far as a schema can say it.

func (v *stringValue) schema() map[string]any { return map[string]any{"type": "string"} }

func (v *boolValue) schema() map[string]any { return map[string]any{"type": "boolean"} }

func (v *intValue) schema() map[string]any { return map[string]any{"type": "integer", "minimum": 0} }

func (v *countValue) schema() map[string]any { return map[string]any{"type": "integer", "minimum": 1} }

// schema of a duration: units may follow one another, as in 1h30m. Only zero goes without.
func (v *durationValue) schema() map[string]any {
	return map[string]any{"anyOf": []any{
		map[string]any{"type": "string", "pattern": `^(0|(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+)$`},
		map[string]any{"const": 0},
	}}
}

func (v *sizeValue) schema() map[string]any {
	return map[string]any{"anyOf": []any{
		map[string]any{"type": "string", "pattern": `^ *[0-9]+ *([KMGT]iB|B)?$`},
		map[string]any{"type": "integer", "minimum": 0},
	}}
}

func (v *enumValue) schema() map[string]any { return map[string]any{"enum": v.words} }

func (v *enumsValue) schema() map[string]any {
	word := "(" + strings.Join(v.allowed, "|") + ")"
	return map[string]any{"anyOf": []any{
		map[string]any{"type": "string", "pattern": "^" + word + "(," + word + ")*$"},
		map[string]any{"type": "array", "items": map[string]any{"enum": v.allowed}, "minItems": 1, "uniqueItems": true},
	}}
}

func (v *listValue) schema() map[string]any {
	return listSchema(map[string]any{"type": "string"}, map[string]any{"type": "string", "minLength": 1})
}

func (v *prefixesValue) schema() map[string]any {
	const prefix = `[0-9A-Fa-f:.]+/[0-9]+`
	return listSchema(
		map[string]any{"type": "string", "pattern": "^(" + prefix + "(," + prefix + ")*)?$"},
		map[string]any{"type": "string", "pattern": "^" + prefix + "$"})
}

func (v *portsValue) schema() map[string]any {
	const port = `(\*|[0-9]+(-[0-9]+)?)`
	number := map[string]any{"minimum": 1, "maximum": 65535}
	one := map[string]any{"type": []string{"integer", "string"}, "pattern": "^(any|" + port + "(," + port + ")*)$"}
	item := map[string]any{"type": []string{"integer", "string"}, "pattern": "^" + port + "$"}
	for k, n := range number {
		one[k], item[k] = n, n
	}
	return listSchema(one, item)
}

// listSchema is a value that may be written as one text, too.
func listSchema(one, item map[string]any) map[string]any {
	return map[string]any{"anyOf": []any{one, map[string]any{"type": "array", "items": item}}}
}

// listenText is the shape of an address to listen on.
const listenText = `^(unix:[\s\S]+|.*:[0-9]{1,5})$`

func (v *listenValue) schema() map[string]any {
	one := mappingSchema((&listenAddr{}).keys(), "address")
	return map[string]any{"type": "array", "items": map[string]any{"anyOf": []any{(*addressValue)(nil).schema(), one}}}
}

func (v *nameValue) schema() map[string]any { return map[string]any{"type": "string", "minLength": 1} }

func (v *addressValue) schema() map[string]any {
	return map[string]any{"type": "string", "pattern": listenText}
}

func (v *modeValue) schema() map[string]any {
	return map[string]any{"type": []string{"integer", "string"}, "pattern": "^(0o)?[0-7]{1,4}$"}
}

// mappingSchema is a mapping with these keys, as it stands below a key of the settings.
func mappingSchema(keys []setting, required ...string) map[string]any {
	s := objectSchema()
	for _, k := range keys {
		p := k.value.schema()
		p["description"] = k.doc
		s["properties"].(map[string]any)[k.path] = p
	}
	if len(required) > 0 {
		s["required"] = required
	}
	return s
}

func (v *groupValue) schema() map[string]any {
	return map[string]any{"anyOf": []any{map[string]any{"type": "string", "pattern": `^([0-9]+|[^0-9+.-].*)$`}, map[string]any{"type": "integer", "minimum": 0}}}
}

func (v *wordsValue) schema() map[string]any {
	return listSchema(map[string]any{"enum": v.words}, map[string]any{"enum": v.words})
}

func (v *tlsValue) schema() map[string]any {
	return mappingSchema((&listenTLS{}).keys(""), "cert", "key")
}

func (v *prefixValue) schema() map[string]any {
	return map[string]any{"type": "string", "pattern": `^[0-9A-Fa-f:.]+/[0-9]+$`}
}

func (v *timeValue) schema() map[string]any {
	return map[string]any{"type": "string", "pattern": `^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}([.,][0-9]+)?(Z|[+-][0-9]{2}:[0-9]{2})$`}
}

func (v *pathValue) schema() map[string]any { return map[string]any{"type": "string", "minLength": 1} }

func (v *namesValue) schema() map[string]any {
	s := (*listValue)(nil).schema()
	s["anyOf"].([]any)[1].(map[string]any)["minItems"] = 1
	return s
}

// eitherKey says that a mapping has just one of two keys.
func eitherKey(one, other string) []any {
	return []any{map[string]any{"required": []string{one}}, map[string]any{"required": []string{other}}}
}
