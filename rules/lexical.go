package rules

import "strings"

// splitLexically is the original's decomposition of shell text: quotes, escapes, operators and redirects, nothing else.
// Keywords, substitutions and comments are ordinary words to it.
func splitLexically(text string) []simpleCommand {
	s := lexer{text: text}
	s.run()
	return s.out
}

type lexer struct {
	text     string
	at       int
	out      []simpleCommand
	current  simpleCommand
	begun    bool // the current command has a word of any kind
	named    bool // and a command word
	word     strings.Builder
	plain    string // the whole word, where it stands in the text as it is
	inWord   bool
	isTarget bool // the next word is a redirect target; the mark outlives an operator
}

func (s *lexer) run() {
	for s.at < len(s.text) {
		c := s.text[s.at]
		switch c {
		case ' ', '\t':
			s.endWord()
		case '\n', ';':
			s.endCommand()
		case '|':
			s.skipTwin('|')
			s.endCommand()
		case '&':
			if s.peek(1) == '>' {
				s.endWord()
				s.at++
				s.skipTwin('>')
				s.isTarget = true
				break
			}
			s.skipTwin('&')
			s.endCommand()
		case '>', '<':
			s.redirect(c)
		case '\\':
			s.inWord = true
			if s.at+1 < len(s.text) {
				s.at++
			}
			s.word.WriteByte(s.text[s.at])
		case '\'':
			s.quote('\'')
		case '"':
			s.quote('"')
		default:
			s.literal()
		}
		s.at++
	}
	s.endCommand()
}

// literal takes a run of characters that mean themselves. A word that is nothing else is not copied.
func (s *lexer) literal() {
	end := s.at + 1
	for end < len(s.text) && !isLexical(s.text[end]) {
		end++
	}
	run := s.text[s.at:end]
	if !s.inWord && (end == len(s.text) || strings.IndexByte("\\'\"", s.text[end]) < 0) {
		s.plain = run
	} else {
		s.word.WriteString(run)
	}
	s.inWord = true
	s.at = end - 1
}

// isLexical reports the characters that mean something.
func isLexical(c byte) bool {
	switch c {
	case ' ', '\t', '\n', ';', '|', '&', '>', '<', '\\', '\'', '"':
		return true
	default:
		return false
	}
}

// pending is the word as far as it goes.
func (s *lexer) pending() string {
	if s.plain != "" {
		return s.plain
	}
	return s.word.String()
}

// take gives the word and forgets it.
func (s *lexer) take() string {
	w := s.pending()
	s.plain, s.inWord = "", false
	s.word.Reset()
	return w
}

func (s *lexer) peek(n int) byte {
	if s.at+n < len(s.text) {
		return s.text[s.at+n]
	}
	return 0
}

// skipTwin takes a doubled operator as one.
func (s *lexer) skipTwin(c byte) {
	if s.peek(1) == c {
		s.at++
	}
}

// redirect starts a redirect; digits directly before it are a descriptor, not a word.
func (s *lexer) redirect(c byte) {
	if w := s.pending(); s.inWord && w != "" && strings.Trim(w, "0123456789") == "" {
		s.take()
	}
	s.endWord()
	for n := 1; n < 3 && s.peek(1) == c && (c == '<' || n < 2); n++ {
		s.at++
	}
	s.isTarget = true
}

func (s *lexer) quote(q byte) {
	s.inWord = true
	for s.at++; s.at < len(s.text) && s.text[s.at] != q; s.at++ {
		if c := s.text[s.at]; q == '"' && c == '\\' && s.at+1 < len(s.text) && strings.IndexByte("\"\\$`", s.text[s.at+1]) >= 0 {
			s.at++
		}
		s.word.WriteByte(s.text[s.at])
	}
}

func (s *lexer) endWord() {
	if !s.inWord {
		return
	}
	w := s.take()
	s.begun = true
	switch {
	case s.isTarget:
		s.current.redirects = append(s.current.redirects, w)
		s.isTarget = false
	case !s.named:
		s.current.word, s.named = w, true
	default:
		s.current.args = append(s.current.args, w)
	}
}

func (s *lexer) endCommand() {
	s.endWord()
	if s.begun {
		s.out = append(s.out, s.current)
	}
	s.current, s.begun, s.named = simpleCommand{}, false, false
}
