package admin

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"unicode/utf8"
)

const (
	maxBody     = 1 << 20
	maxCallBody = 16 << 20 // of requests that carry a tool call
	maxDepth    = 512      // of nested JSON
)

// readBody reads the JSON object of a request into a struct. An empty body is an empty object.
func readBody(w http.ResponseWriter, r *http.Request, limit int64, into any) error {
	if r.ContentLength == 0 && len(r.Header.Values("Content-Type")) == 0 {
		return nil
	}
	if !isJSON(r.Header) {
		return &Error{http.StatusUnsupportedMediaType, "unsupported_media_type", "the body must be JSON", "send Content-Type: application/json"}
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		e := badRequest("the body is larger than %d bytes", limit)
		e.Status, e.Code = http.StatusRequestEntityTooLarge, "too_large"
		return e
	case err != nil:
		return badRequest("the body ended early")
	}
	return decode(body, into)
}

// isJSON tests the one Content-Type: application/json, in UTF-8, not compressed.
func isJSON(h http.Header) bool {
	types := h.Values("Content-Type")
	if len(types) != 1 || len(h.Values("Content-Encoding")) > 0 {
		return false
	}
	media, params, err := mime.ParseMediaType(types[0])
	if err != nil || media != "application/json" {
		return false
	}
	charset, named := params["charset"]
	return !named && len(params) == 0 || len(params) == 1 && strings.EqualFold(charset, "utf-8")
}

// decode reads a JSON object into a struct. It is stricter than encoding/json: names count with their case, none may be
// unknown or stand twice, and text must be UTF-8, because two readers of one body must not see two requests.
func decode(body []byte, into any) error {
	if len(bytes.TrimSpace(body)) == 0 {
		return nil
	}
	if !utf8.Valid(body) {
		return badRequest("the body is no UTF-8")
	}
	w := walker{d: json.NewDecoder(bytes.NewReader(body)), known: fieldNames(into)}
	if err := w.walk(); err != nil {
		return err
	}
	err := json.Unmarshal(body, into)
	var wrong *json.UnmarshalTypeError
	switch {
	case errors.As(err, &wrong):
		return badRequest("%q: a value of the wrong type or out of range: %s", wrong.Field, wrong.Value)
	case err != nil:
		return badRequest("the body is no JSON: %v", err)
	}
	return nil
}

// fieldNames gives the names of a struct's fields in JSON.
func fieldNames(v any) []string {
	var names []string
	for t, i := reflect.TypeOf(v).Elem(), 0; i < t.NumField(); i++ {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		names = append(names, name)
	}
	return names
}

// walker looks at every key of a JSON object.
type walker struct {
	d     *json.Decoder
	known []string
	open  []level
}

// level is an object or array that is not closed yet.
type level struct {
	object bool
	key    bool // a key comes next
	keys   map[string]struct{}
}

func (w *walker) walk() error {
	for {
		t, err := w.d.Token()
		if errors.Is(err, io.EOF) && len(w.open) > 0 {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return badRequest("the body is no JSON: %v", err)
		}
		if len(w.open) == 0 && t != json.Delim('{') {
			return badRequest("the body must be a JSON object")
		}
		if err := w.see(t); err != nil {
			return err
		}
		if len(w.open) == 0 {
			break
		}
	}
	if _, err := w.d.Token(); !errors.Is(err, io.EOF) {
		return badRequest("something follows the JSON object")
	}
	return nil
}

// see takes the next token.
func (w *walker) see(t json.Token) error {
	if delim, ok := t.(json.Delim); ok && (delim == '}' || delim == ']') {
		w.open = w.open[:len(w.open)-1]
		return nil
	}
	if n := len(w.open); n > 0 && w.open[n-1].object {
		top := &w.open[n-1]
		if top.key {
			top.key = false
			return w.name(top, t.(string)) // the decoder gives nothing else here
		}
		top.key = true
	}
	switch t {
	case json.Delim('{'):
		w.open = append(w.open, level{object: true, key: true})
	case json.Delim('['):
		w.open = append(w.open, level{})
	}
	if len(w.open) > maxDepth {
		return badRequest("the body is nested more than %d deep", maxDepth)
	}
	return nil
}

// name takes a key. In the body itself and in what stands directly below it, two keys that differ in case only are
// twins too: some readers take them for one.
func (w *walker) name(l *level, key string) error {
	depth := len(w.open)
	if depth == 1 && !slices.Contains(w.known, key) {
		return badRequest("unknown key %q", key).hint("known: " + strings.Join(w.known, ", "))
	}
	if depth <= 2 {
		key = strings.ToLower(key)
	}
	if _, twin := l.keys[key]; twin {
		return badRequest("the key %q stands twice", key)
	}
	if l.keys == nil {
		l.keys = map[string]struct{}{}
	}
	l.keys[key] = struct{}{}
	return nil
}
