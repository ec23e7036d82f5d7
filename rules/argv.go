package rules

import (
	"slices"
	"strings"

	"dshproxy/netrule"
	"dshproxy/netrule/glob"
	"dshproxy/rules/work"
)

const commandKeys = " command cmd script command_line commandLine "

// commandText is what stands under a command key: shell text, or words that are split already.
type commandText struct {
	text  string
	words []string
}

// commandTexts finds them, in the order of the call.
func (f *facts) commandTexts() []commandText {
	if f.commandsDone {
		return f.commands
	}
	f.commandsDone = true
	if f.args.kind != argObject {
		return nil
	}
	f.args.walkKeys(0, func(key string, v *arg) {
		switch {
		case !isOneOf(key, commandKeys):
		case v.kind == argString:
			f.commands = append(f.commands, commandText{text: v.text})
		case v.allStrings():
			f.commands = append(f.commands, commandText{words: v.strings()})
		}
	})
	for _, c := range f.commands {
		// It is split at once, and again for the URLs in it.
		f.work.Spend(perCommand + 20*len(c.text) + perWord*len(c.words))
		f.tooMuch = f.tooMuch || len(c.text) > maxShellText
		for _, w := range c.words {
			f.work.Spend(4 * len(w))
		}
	}
	if f.tooMuch || f.work.Over() || len(f.commands) > maxViews {
		f.tooMuch, f.commands = true, nil
	}
	var all []simpleCommand
	for _, c := range f.commands {
		if c.words == nil {
			all = append(all, splitLexically(c.text)...)
		}
	}
	f.lexical = pool(all)
	return f.commands
}

// simpleCommand is a command word with its arguments and redirect targets.
type simpleCommand struct {
	word      string
	args      []string
	redirects []string
	writes    []string // the redirects that write, as far as the view knows
	doc       bool     // it stands in a here-document
	stdin     []string // literal texts that it is given to read
}

func (c *simpleCommand) tokens() []string { return append(slices.Clip(c.args), c.redirects...) }

// pooled is the original's view: all words, one signature and all tokens of all commands together.
type pooled struct {
	words     []string
	signature string
	tokens    []string
}

func pool(commands []simpleCommand) pooled {
	p := pooled{}
	for i := range commands {
		p.words = append(p.words, commands[i].word)
		p.tokens = append(p.tokens, commands[i].tokens()...)
	}
	p.signature = strings.Join(p.words, "|")
	return p
}

// holds tests the view of the original, for every action, and for deny and ask the shell's own views too: an allow must
// not be widened by them.
func (a *Argv) holds(f *facts, action netrule.Action) bool {
	f.commandTexts()
	if !a.eachCommand && a.holdsPooled(&f.lexical, f.work) {
		return true
	}
	return action != netrule.Allow && a.holdsViews(f.shellViews(), f.work)
}

func (a *Argv) holdsPooled(p *pooled, left *work.Budget) bool {
	switch {
	case len(p.words) == 0:
		return false
	case len(a.Command) > 0 && !anyNamed(a.Command, p.words, left):
		return false
	case len(a.Pipeline) > 0 && !anyGlob(a.Pipeline, p.signature, left):
		return false
	default:
		return argsHold(a.Args, p.tokens, left) && anyArgHolds(a.AnyArg, p.tokens, left)
	}
}

// anyNamed reports whether some name matches some glob.
func anyNamed(globs []*glob.Glob, names []string, left *work.Budget) bool {
	for _, n := range names {
		if anyGlob(globs, n, left) {
			return true
		}
	}
	return false
}

// argsHold: every positive pattern matches some token, no negative one matches any.
func argsHold(patterns []Pattern, tokens []string, left *work.Budget) bool {
	for i := range patterns {
		if matchesToken(&patterns[i], tokens, left) == patterns[i].Negate {
			return false
		}
	}
	return true
}

// anyArgHolds: some positive pattern matches some token, if there are any; no negative one does.
func anyArgHolds(patterns []Pattern, tokens []string, left *work.Budget) bool {
	positive, hit := false, false
	for i := range patterns {
		matched := matchesToken(&patterns[i], tokens, left)
		if patterns[i].Negate {
			if matched {
				return false
			}
			continue
		}
		positive, hit = true, hit || matched
	}
	return hit || !positive
}

func matchesToken(p *Pattern, tokens []string, left *work.Budget) bool {
	for _, t := range tokens {
		if p.within(t, left) {
			return true
		}
	}
	return false
}

// holdsViews: command, args and anyArg hold for one simple command of the shell's views; pipeline for a real pipeline
// or a part of one.
func (a *Argv) holdsViews(v *shellViews, left *work.Budget) bool {
	if len(a.Pipeline) > 0 && !anyNamed(a.Pipeline, v.pipelines, left) {
		return false
	}
	if len(a.Command) == 0 && len(a.Args) == 0 && len(a.AnyArg) == 0 {
		return len(a.Pipeline) > 0
	}
	for i := range v.commands {
		c := &v.commands[i]
		if !left.Spend(2) {
			return false
		}
		if len(a.Command) > 0 && !anyGlob(a.Command, c.word, left) {
			continue
		}
		tokens := c.tokens()
		if flagsHold(a.Args, tokens, left) && anyFlagHolds(a.AnyArg, tokens, left) {
			return true
		}
	}
	return false
}

// flagsHold is argsHold where a pattern such as -rf is also met by its letters in any order and split.
func flagsHold(patterns []Pattern, tokens []string, left *work.Budget) bool {
	for i := range patterns {
		if (matchesToken(&patterns[i], tokens, left) || lettersHold(&patterns[i], tokens, left)) == patterns[i].Negate {
			return false
		}
	}
	return true
}

func anyFlagHolds(patterns []Pattern, tokens []string, left *work.Budget) bool {
	if anyArgHolds(patterns, tokens, left) {
		return true
	}
	for i := range patterns {
		if patterns[i].Negate && matchesToken(&patterns[i], tokens, left) {
			return false
		}
	}
	return slices.ContainsFunc(patterns, func(p Pattern) bool { return !p.Negate && lettersHold(&p, tokens, left) })
}

// lettersHold reports whether the letters of a literal pattern of short options are all among those of the command.
func lettersHold(p *Pattern, tokens []string, left *work.Budget) bool {
	if p.regex != nil || !isShortOptions(p.Text) || len(p.Text) < 3 {
		return false
	}
	var have [128]bool
	for _, t := range tokens {
		if !left.Spend(2) {
			return false
		}
		if isShortOptions(t) {
			left.Spend(2 * len(t))
			for i := 1; i < len(t); i++ {
				have[t[i]] = true
			}
		}
	}
	for i := 1; i < len(p.Text); i++ {
		if !have[p.Text[i]] {
			return false
		}
	}
	return true
}

// isShortOptions tells -a, -rf and the like.
func isShortOptions(t string) bool {
	if len(t) < 2 || t[0] != '-' {
		return false
	}
	for i := 1; i < len(t); i++ {
		if !isLetter(t[i]) {
			return false
		}
	}
	return true
}
