package identity

import (
	"encoding/base64"
	"net/http"
	"strings"
	"testing"
)

func TestParseAuthorization(t *testing.T) {
	tests := []struct {
		value string
		want  Credential
	}{
		{"Basic Y2k6c2VjcmV0", Credential{Name: "ci", Token: "secret"}},
		{"basic Y2k6c2VjcmV0", Credential{Name: "ci", Token: "secret"}},
		{"BASIC Y2k6c2VjcmV0", Credential{Name: "ci", Token: "secret"}},
		{"Basic Y2k6YTpiOg==", Credential{Name: "ci", Token: "a:b:"}},
		{"Basic Y2k6", Credential{Name: "ci"}},
		{"Basic OnNlY3JldA==", Credential{Token: "secret"}},
		{"Basic Og==", Credential{}},
		{"Basic w7xuOsO2", Credential{Name: "ün", Token: "ö"}},
		{"Bearer abc.DEF-_~+/0==", Credential{Token: "abc.DEF-_~+/0==", Bearer: true}},
		{"bEARER a", Credential{Token: "a", Bearer: true}},
		{"Bearer " + strings.Repeat("x", maxAuthorization-len("Bearer ")), Credential{Token: strings.Repeat("x", maxAuthorization-len("Bearer ")), Bearer: true}},
	}
	for _, tt := range tests {
		got, err := ParseAuthorization([]byte(tt.value))
		if err != nil || got != tt.want {
			t.Errorf("%.60q: %+v, %v, want %+v", tt.value, got, err, tt.want)
		}
	}
}

func TestParseAuthorizationRefuses(t *testing.T) {
	const (
		bare    = "credentials without a scheme or with nothing behind it"
		shape   = "credentials that are no token68"
		base    = "basic credentials that are no base64"
		control = "basic credentials with control characters"
		scheme  = "a scheme other than Basic and Bearer"
	)
	for value, want := range map[string]string{
		"":                               bare,
		"Basic":                          bare,
		"Basic ":                         bare,
		"Bearer ":                        bare,
		"Basic  Y2k6c2VjcmV0":            shape,
		" Basic Y2k6c2VjcmV0":            shape,
		"Basic\tY2k6c2VjcmV0":            bare,
		"Basic Y2k6c2VjcmV0 ":            shape,
		"Basic Y2k6c2VjcmV0, Basic Og==": shape,
		"Basic Y2k6\r\nc2VjcmV0":         shape,
		"Basic Y2k6\nc2VjcmV0":           shape,
		"Basic Y2k6=c2VjcmV0":            shape,
		"Basic ====":                     shape,
		"Basic Y2k6c2VjcmV":              base, // a byte short
		"Basic Og":                       base, // without its padding
		"Basic Oh==":                     base, // with bits behind the last byte
		"Basic Og===":                    base,
		"Basic w7xuOsO2-_":               base, // of the other alphabet
		"Basic Y2k=":                     "basic credentials without a colon",
		"Basic Y2k6AHg=":                 control,
		"Basic Y2k6c2VjcmV0Cg==":         control,
		"Basic Y2l/OnNlY3JldA==":         control,
		"Bearer a b":                     shape,
		"Bearer a\x00":                   shape,
		"Bearer \xff":                    shape,
		"Bearer a,b":                     shape,
		"Digest abc":                     scheme,
		"Digest username=\"ci\"":         shape,
		"Negotiate YII=":                 scheme,
		"Basic: Y2k6c2VjcmV0":            scheme,
		"Basic\x00 Y2k6c2VjcmV0":         scheme,
		"Bearer " + strings.Repeat("x", maxAuthorization): "credentials of more than 8 KiB",
	} {
		if got, err := ParseAuthorization([]byte(value)); err == nil || err.Error() != want || got != (Credential{}) {
			t.Errorf("%.60q: %+v, %v, want %s", value, got, err, want)
		}
	}
}

// FuzzParseAuthorization: what is taken is what net/http takes, and survives being written again.
func FuzzParseAuthorization(f *testing.F) {
	for _, seed := range []string{"Basic Y2k6c2VjcmV0", "Bearer abc.DEF==", "basic Og==", "Basic Y2k6\nc2VjcmV0", "Digest x", ""} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, value []byte) {
		c, err := ParseAuthorization(value)
		if err != nil {
			if c != (Credential{}) {
				t.Fatalf("%+v with error %v", c, err)
			}
			return
		}
		if c.Bearer {
			if again, err := ParseAuthorization([]byte("Bearer " + c.Token)); err != nil || again != c || c.Name != "" {
				t.Fatalf("%+v is read again as %+v, %v", c, again, err)
			}
			return
		}
		r := http.Request{Header: http.Header{"Authorization": {string(value)}}}
		if user, password, ok := r.BasicAuth(); !ok || user != c.Name || password != c.Token {
			t.Fatalf("%q is %+v here, %q %q %v to net/http", value, c, user, password, ok)
		}
		text := "Basic " + base64.StdEncoding.EncodeToString([]byte(c.Name+":"+c.Token))
		if !strings.EqualFold(text[:6], string(value[:6])) || text[6:] != string(value[6:]) {
			t.Fatalf("%q is written again as %q", value, text)
		}
	})
}
