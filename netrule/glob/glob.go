// Package glob compiles and matches the glob dialect of rule files: "*", "**", "?", classes and backslash escapes.
//
// It comes in two flavours. A plain glob runs over a whole text, and its star crosses every character. A segment glob
// runs over a path: "*" and "?" stay inside one segment, "**" crosses segments. Matching is linear in the text for any
// pattern, so a hostile text cannot stall it. The package is pure: it does no IO.
package glob

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// DefaultMaxStars is the number of star runs that a pattern may hold unless Options says otherwise.
const DefaultMaxStars = 2

// MaxPattern is the longest pattern accepted, in bytes.
const MaxPattern = 4096

// Options chooses a flavour. The zero value is a plain, case-sensitive glob with DefaultMaxStars.
type Options struct {
	// Segments makes "/" a boundary that only "**" crosses.
	Segments bool
	// Fold ignores case by Unicode simple folding.
	Fold bool
	// MaxStars caps the star runs outside classes; 0 means DefaultMaxStars, a negative number means no cap.
	MaxStars int
}

// Error is a pattern that does not compile. At is a byte offset into Pattern.
type Error struct {
	Pattern string
	At      int
	Why     string
}

func (e *Error) Error() string { return fmt.Sprintf("glob %q %s", e.Pattern, e.Why) }

type kind uint8

const (
	literal  kind = iota
	anyOne        // "?"
	class         // "[…]"
	star          // "*"
	deepStar      // "**"
)

type token struct {
	kind   kind
	r      rune // literal
	negate bool // class
	ranges []runeRange
}

type runeRange struct{ lo, hi rune }

// Glob is a compiled pattern, safe for concurrent use. The zero Glob matches only the empty text.
type Glob struct {
	pattern  string
	tokens   []token
	segments bool
	fold     bool
	// literal says that the text must be plain: the pattern without its escapes, which match needs not walk.
	literal bool
	plain   string
}

// Compile parses a pattern. Errors are of type *Error.
func Compile(pattern string, opts Options) (*Glob, error) {
	if len(pattern) > MaxPattern {
		return nil, &Error{pattern[:32], MaxPattern, fmt.Sprintf("is longer than %d bytes", MaxPattern)}
	}
	p := parser{pattern: pattern, g: &Glob{pattern: pattern, segments: opts.Segments, fold: opts.Fold}}
	if err := p.parse(); err != nil {
		return nil, err
	}
	limit := opts.MaxStars
	if limit == 0 {
		limit = DefaultMaxStars
	}
	if limit > 0 && p.stars > limit {
		return nil, &Error{pattern, 0, fmt.Sprintf("has %d unbounded star quantifiers (max %d)", p.stars, limit)}
	}
	p.g.setLiteral()
	return p.g, nil
}

// setLiteral finds out whether only one text matches. U+FFFD is no such text: every broken byte reads as it.
func (g *Glob) setLiteral() {
	if g.fold {
		return
	}
	var b strings.Builder
	for i := range g.tokens {
		if t := &g.tokens[i]; t.kind != literal || t.r == utf8.RuneError {
			return
		}
		b.WriteRune(g.tokens[i].r)
	}
	g.literal, g.plain = true, b.String()
}

// String returns the pattern as written.
func (g *Glob) String() string { return g.pattern }

// HasMeta reports whether text holds a character that means more than itself in a glob.
func HasMeta(text string) bool { return strings.ContainsAny(text, `*?[]\`) }

type parser struct {
	pattern string
	at      int
	stars   int
	g       *Glob
}

func (p *parser) fail(at int, format string, args ...any) error {
	return &Error{p.pattern, at, fmt.Sprintf(format, args...)}
}

func (p *parser) parse() error {
	for p.at < len(p.pattern) {
		r, size := utf8.DecodeRuneInString(p.pattern[p.at:])
		switch r {
		case '*':
			p.parseStar()
			continue
		case '?':
			p.g.tokens = append(p.g.tokens, token{kind: anyOne})
		case '[':
			if err := p.parseClass(); err != nil {
				return err
			}
			continue
		case ']':
			return p.fail(p.at, `has an unbalanced "]"`)
		case '\\':
			if p.at+1 == len(p.pattern) {
				return p.fail(p.at, "ends in a dangling escape")
			}
			p.at++
			r, size = utf8.DecodeRuneInString(p.pattern[p.at:])
			fallthrough
		default:
			p.g.tokens = append(p.g.tokens, token{r: p.g.foldRune(r)})
		}
		p.at += size
	}
	return nil
}

// parseStar takes a whole run of stars as one token. Two or more swallow one slash that follows.
func (p *parser) parseStar() {
	start := p.at
	for p.at < len(p.pattern) && p.pattern[p.at] == '*' {
		p.at++
	}
	p.stars++
	k := star
	if p.at-start > 1 {
		k = deepStar
		if p.at < len(p.pattern) && p.pattern[p.at] == '/' {
			p.at++
		}
	}
	p.g.tokens = append(p.g.tokens, token{kind: k})
}

// parseClass reads "[…]". There is no escaping inside, and the first "]" ends it.
func (p *parser) parseClass() error {
	start := p.at
	body := p.pattern[p.at+1:]
	end := strings.IndexByte(body, ']')
	if end < 0 {
		return p.fail(start, `has an unbalanced "["`)
	}
	body, p.at = body[:end], p.at+1+end+1
	t := token{kind: class}
	if body != "" && (body[0] == '!' || body[0] == '^') {
		t.negate, body = true, body[1:]
	}
	if body == "" {
		return p.fail(start, "has an empty character class")
	}
	runes := []rune(body)
	for i := 0; i < len(runes); i++ {
		lo, hi := runes[i], runes[i]
		if i+2 < len(runes) && runes[i+1] == '-' {
			hi = runes[i+2]
			i += 2
		}
		if lo > hi {
			return p.fail(start, "has a reversed range %c-%c in a character class", lo, hi)
		}
		t.ranges = append(t.ranges, runeRange{lo, hi})
	}
	p.g.tokens = append(p.g.tokens, t)
	return nil
}

// foldRune maps a rune to the smallest one of its simple-folding orbit.
func (g *Glob) foldRune(r rune) rune {
	if !g.fold {
		return r
	}
	if r < utf8.RuneSelf {
		if 'A' <= r && r <= 'Z' {
			return r + ('a' - 'A')
		}
		// The orbits of k and s hold letters beyond ASCII (KELVIN SIGN, LONG S), which fold to these.
		return r
	}
	least := r
	for f := unicode.SimpleFold(r); f != r; f = unicode.SimpleFold(f) {
		least = min(least, f)
	}
	if 'A' <= least && least <= 'Z' {
		least += 'a' - 'A'
	}
	return least
}

func (t *token) inClass(g *Glob, r rune) bool {
	hit := t.listed(r)
	if !hit && g.fold {
		for f := unicode.SimpleFold(r); f != r && !hit; f = unicode.SimpleFold(f) {
			hit = t.listed(f)
		}
	}
	// A negated class of a path never matches the separator, whatever it lists.
	if t.negate && g.segments && r == '/' {
		return false
	}
	return hit != t.negate
}

func (t *token) listed(r rune) bool {
	for _, rr := range t.ranges {
		if rr.lo <= r && r <= rr.hi {
			return true
		}
	}
	return false
}

// one reports whether a token that takes exactly one rune takes r.
func (t *token) one(g *Glob, r rune) bool {
	switch t.kind {
	case literal:
		return t.r == g.foldRune(r)
	case anyOne:
		return !g.segments || r != '/'
	case class:
		return t.inClass(g, r)
	default:
		return false
	}
}

func (t *token) isStar() bool { return t.kind == star || t.kind == deepStar }
