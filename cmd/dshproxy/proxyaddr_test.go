package main

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
)

func TestParseProxyAddr(t *testing.T) {
	for text, want := range map[string]string{
		"http://127.0.0.1:3128":              "http://127.0.0.1:3128",
		"HTTP://Proxy.Test.:3128/":           "http://proxy.test:3128",
		"proxy.test:3128":                    "http://proxy.test:3128",
		"http://proxy.test":                  "http://proxy.test:80",
		"https://proxy.test":                 "https://proxy.test:443",
		"https://localhost:3129":             "https://localhost:3129", // as its certificate has it
		"http://[::1]:3128":                  "http://[::1]:3128",
		"http://0.0.0.0:3128":                "http://127.0.0.1:3128",
		"http://[::]:3128":                   "http://127.0.0.1:3128",
		"unix:/run/dshproxy.sock":            "unix:/run/dshproxy.sock",
		"http://ci:s%40c%3Aret@10.0.0.1:1":   "http://10.0.0.1:1",
		"":                                   "",
		"unix:":                              "",
		"socks5h://127.0.0.1:1080":           "",
		"http://":                            "",
		"http://proxy.test:0":                "",
		"http://proxy.test:3128/path":        "",
		"http://proxy.test:3128?x":           "",
		"http://a b:1":                       "",
		"http://$(id):1":                     "",
		"http://proxy.test:3128'; id #":      "",
		"http://proxy.test:3128\nid":         "",
		"http://fe80::1%25eth0:1":            "",
		"http://nobody@proxy.test:3128":      "",
		"http://a:%0d%0aX%3a%20y@proxy.test": "",
		"http://a:%zz@proxy.test":            "",
	} {
		p, err := parseProxyAddr(text)
		if (err == nil) != (want != "") || err == nil && p.url() != want {
			t.Errorf("%q: got %q, %v; want %q", text, p.url(), err, want)
		}
		if err != nil && strings.Contains(err.Error(), "%zz") {
			t.Errorf("%q: the error shows the token: %v", text, err)
		}
	}
	p, err := parseProxyAddr("http://ci:s%40c%3Aret@10.0.0.1:1")
	if err != nil || p.token == nil || *p.token != (proxyToken{"ci", "s@c:ret"}) {
		t.Errorf("token %+v, %v", p.token, err)
	}
}

func TestParseListener(t *testing.T) {
	for address, want := range map[string]string{
		"127.0.0.1:3128": "http://127.0.0.1:3128",
		"0.0.0.0:3128":   "http://127.0.0.1:3128",
		":3128":          "http://127.0.0.1:3128",
		"[::]:3128":      "http://127.0.0.1:3128", // what a listener on 0.0.0.0 calls itself
		"[::1]:3128":     "http://[::1]:3128",
		"localhost:3128": "http://127.0.0.1:3128",
		"proxy:3128":     "http://proxy:3128",
		"unix:/run/s":    "unix:/run/s",
		"127.0.0.1:0":    "",
		"127.0.0.1":      "",
		"a@b:1":          "",
		"http://a:1":     "",
	} {
		p, err := parseListener(address)
		if (err == nil) != (want != "") || err == nil && p.url() != want {
			t.Errorf("%q: got %q, %v; want %q", address, p.url(), err, want)
		}
	}
}

// FuzzParseProxyAddr: what is accepted reads back as the same, with a token too, and means nothing to a shell.
func FuzzParseProxyAddr(f *testing.F) {
	for _, s := range []string{"http://127.0.0.1:3128", "unix:/run/s", "a:b@c.test:1", "https://[::1]/", "http://a:%41%3a@[::]:9"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		p, err := parseProxyAddr(text)
		if err != nil || p.scheme == "unix" {
			return
		}
		url := p.withToken(p.token)
		if strings.ContainsAny(url, " \t\r\n\"'`$\\;&|<>(){}*?!#") {
			t.Errorf("%q gives %q", text, url)
		}
		again, err := parseProxyAddr(url)
		if err != nil || again.url() != p.url() || (again.token == nil) != (p.token == nil) || p.token != nil && *again.token != *p.token {
			t.Errorf("%q gives %q, which gives %+v, %v", text, url, again, err)
		}
	})
}

// found runs env as JSON and gives the proxy that it names, or what it prints about an error.
func found(t *testing.T, args ...string) (int, string) {
	t.Helper()
	var out, errs strings.Builder
	code := run(context.Background(), append([]string{"env"}, args...), stdio{strings.NewReader(""), &out, &errs})
	for line := range strings.Lines(out.String()) {
		if rest, ok := strings.CutPrefix(line, "export HTTPS_PROXY="); ok {
			return code, strings.TrimSpace(rest)
		}
	}
	return code, errs.String()
}

// TestWhereTheProxyIs: the flag, else the ready file, else the settings.
func TestWhereTheProxyIs(t *testing.T) {
	dir := t.TempDir()
	ready, null := filepath.Join(dir, "ready"), filepath.Join(dir, "null")
	placeFile(t, ready, `{"admin":"","metrics":"","proxy":"[::]:4001"}`)
	placeFile(t, null, `{"proxy":""}`)
	for _, c := range []struct {
		listen string
		args   []string
		code   int
		want   string
	}{
		{"", nil, 0, "http://127.0.0.1:3128"},
		{"0.0.0.0:4000", nil, 0, "http://127.0.0.1:4000"},
		{"127.0.0.1:4000,127.0.0.1:0", nil, 0, "http://127.0.0.1:4000"},
		{"127.0.0.1:4000", []string{"--ready-file", ready}, 0, "http://127.0.0.1:4001"},
		{"127.0.0.1:0", []string{"--proxy", "proxy.test:4002"}, 0, "http://proxy.test:4002"},
		{"nonsense", []string{"--proxy", "proxy.test:4002"}, 0, "http://proxy.test:4002"},
		{"127.0.0.1:0", nil, 2, "hint: start it with serve --ready-file FILE"},
		{"unix:/run/s", nil, 2, "hint: let it listen on a TCP port too; dshproxy connect takes --proxy unix:PATH"},
		{"", []string{"--ready-file", null}, 1, "has no address of a proxy"},
		{"", []string{"--ready-file", filepath.Join(dir, "none")}, 1, "hint: serve --ready-file FILE writes it"},
		{"", []string{"--proxy", "http://ci:secret@proxy.test:1"}, 2, "hint: every user can read the arguments"},
		{"", []string{"--proxy", "a:1", "--ready-file", ready}, 2, "both name a proxy"},
		{"", []string{"--shell", "csh"}, 2, `not "csh"`},
		{"", []string{"--for", "cobol"}, 2, `not "cobol"`},
	} {
		bareEnvironment(t)
		t.Setenv("DSHPROXY_IDENTITY_ALLOW_ANONYMOUS", "true")
		t.Setenv("DSHPROXY_LISTEN", c.listen)
		t.Setenv("HTTPS_PROXY", "http://other.test:1") // which env never asks
		code, got := found(t, c.args...)
		if code != c.code || !strings.Contains(got, c.want) || strings.Contains(got, "secret") {
			t.Errorf("listen=%s env %q: %d %s; want %d %s", c.listen, c.args, code, got, c.code, c.want)
		}
	}
}

// TestConnectAsksTheVariables: they come before a listener that nobody has set, and behind one that somebody has.
func TestConnectAsksTheVariables(t *testing.T) {
	for _, c := range []struct{ listen, variable, value, want string }{
		{"", "HTTPS_PROXY", "http://a.test:1", "http://a.test:1"},
		{"", "https_proxy", "https://a.test:1", "https://a.test:1"},
		{"", "ALL_PROXY", "unix:/run/s", "unix:/run/s"},
		{"", "http_proxy", "http://a.test:1", "http://127.0.0.1:3128"},
		{"127.0.0.1:4000", "HTTPS_PROXY", "http://a.test:1", "http://127.0.0.1:4000"},
		{"127.0.0.1:0", "HTTPS_PROXY", "http://a.test:1", "http://a.test:1"},
		{"127.0.0.1:0", "http_proxy", "http://a.test:1", ""},
		{"", "ALL_PROXY", "socks5h://a.test:1", ""},
	} {
		bareEnvironment(t)
		for _, name := range []string{"HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy", "http_proxy"} {
			t.Setenv(name, "")
		}
		t.Setenv("DSHPROXY_LISTEN", c.listen)
		t.Setenv(c.variable, c.value)
		p, err := (&proxyFlags{}).find(&app{}, true)
		if (err == nil) != (c.want != "") || err == nil && p.url() != c.want {
			t.Errorf("%+v: got %q, %v", c, p.url(), err)
		}
	}
}

func TestTokenFile(t *testing.T) {
	for _, c := range []struct {
		text, name string
		want       proxyToken
	}{
		{"ci:s3:cret\n", "", proxyToken{"ci", "s3:cret"}},
		{"ci:s3cret\r\n", "", proxyToken{"ci", "s3cret"}},
		{"s3:cret\n", "ci", proxyToken{"ci", "s3:cret"}},
		{"s3cret\n", "", proxyToken{}},
		{":s3cret\n", "", proxyToken{}},
		{"ci:\n", "", proxyToken{}},
		{"ci:s3cret\nX-Other: 1\n", "", proxyToken{}},
		{"s3cret", "c:i", proxyToken{}},
		{"ci:" + strings.Repeat("s3cret", 1000), "", proxyToken{}},
	} {
		path := filepath.Join(t.TempDir(), "token")
		placeFile(t, path, c.text)
		got, err := (&proxyFlags{tokenFile: path, tokenName: c.name}).token()
		if (err == nil) != (c.want != proxyToken{}) || err == nil && *got != c.want {
			t.Errorf("%.20q named %q: got %+v, %v", c.text, c.name, got, err)
		}
		if err != nil && strings.Contains(err.Error(), "s3cret") {
			t.Errorf("the error shows the token: %v", err)
		}
	}
	if _, err := (&proxyFlags{tokenName: "ci"}).token(); err == nil {
		t.Error("a name without a file passes")
	}
}
