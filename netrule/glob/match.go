package glob

import (
	"math"
	"unicode/utf8"
)

// Match reports whether the whole text matches. It takes time linear in the text times the pattern and does not
// allocate for plain globs, nor for segment globs of up to 64 tokens.
func (g *Glob) Match(text string) bool {
	matched, _ := g.MatchWithin(text, math.MaxInt)
	return matched
}

// Plain gives the only text that matches, if there is only one.
func (g *Glob) Plain() (text string, ok bool) { return g.plain, g.literal }

// MatchWithin is Match in so many steps at most, one for each token that is held against a rune. It also gives how many it
// took; more than most means that it gave up, and that nothing is known.
func (g *Glob) MatchWithin(text string, most int) (matched bool, steps int) {
	if g.literal {
		return text == g.plain, 1
	}
	if g.segments {
		return g.matchStates(text, most)
	}
	return g.matchGreedy(text, most)
}

// matchGreedy serves plain globs: all stars are alike, so only the last one seen ever has to give back.
func (g *Glob) matchGreedy(text string, most int) (matched bool, steps int) {
	at, next := 0, 0
	retryAt, retryToken := -1, 0
	for at < len(text) {
		if steps++; steps > most {
			return false, steps
		}
		r, size := rune(text[at]), 1
		if r >= utf8.RuneSelf {
			r, size = utf8.DecodeRuneInString(text[at:])
		}
		switch {
		case next < len(g.tokens) && g.tokens[next].isStar():
			next++
			retryAt, retryToken = at, next
		case next < len(g.tokens) && g.tokens[next].one(g, r):
			next++
			at += size
		case retryAt >= 0:
			_, step := utf8.DecodeRuneInString(text[retryAt:])
			retryAt += step
			at, next = retryAt, retryToken
		default:
			return false, steps
		}
	}
	for next < len(g.tokens) && g.tokens[next].isStar() {
		next++
	}
	return next == len(g.tokens), steps
}

// matchStates serves segment globs, whose two stars differ: it steps the set of all positions that the pattern may be
// in, one bit a token, over the text.
func (g *Glob) matchStates(text string, most int) (matched bool, steps int) {
	words := len(g.tokens)/64 + 1
	var fixed [2]uint64
	now, then := fixed[:1], fixed[1:]
	if words > 1 {
		both := make([]uint64, 2*words)
		now, then = both[:words], both[words:]
	}
	g.add(now, 0)
	for _, r := range text {
		// Each position is looked at, dead or alive; the dead ones cost little.
		if steps += 1 + len(g.tokens); steps > most {
			return false, steps
		}
		clear(then)
		alive := false
		for i := range g.tokens {
			if now[i/64]&(1<<(i%64)) == 0 {
				continue
			}
			t := &g.tokens[i]
			switch {
			case t.kind == deepStar, t.kind == star && r != '/':
				g.add(then, i)
				alive = true
			case !t.isStar() && t.one(g, r):
				g.add(then, i+1)
				alive = true
			}
		}
		if !alive {
			return false, steps
		}
		now, then = then, now
	}
	end := len(g.tokens)
	return now[end/64]&(1<<(end%64)) != 0, steps
}

// add marks a position and those reachable from it without taking a rune.
func (g *Glob) add(set []uint64, i int) {
	for {
		set[i/64] |= 1 << (i % 64)
		if i == len(g.tokens) || !g.tokens[i].isStar() {
			return
		}
		i++
	}
}
