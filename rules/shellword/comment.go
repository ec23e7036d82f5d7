package shellword

import "strings"

// EndComments puts a blank in place of a backslash at the end of a line that may be a comment. A comment ends with its
// line; the parser takes the backslash for a continued line. Where the line was no comment the text reads differently, so
// whoever judges it looks at both.
func EndComments(text string) string {
	if !strings.Contains(text, "\\\n") || strings.IndexByte(text, '#') < 0 {
		return text
	}
	var b []byte
	start, comment := 0, false
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '#':
			comment = comment || i == start || strings.IndexByte(" \t;&|()<>`\"'{}", text[i-1]) >= 0
		case '\n':
			if comment && i > start && text[i-1] == '\\' {
				if b == nil {
					b = []byte(text)
				}
				b[i-1] = ' '
			}
			start, comment = i+1, false
		}
	}
	if b == nil {
		return text
	}
	return string(b)
}
