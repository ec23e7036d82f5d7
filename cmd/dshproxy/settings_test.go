package main

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"

	"dshproxy/netrule"
	"dshproxy/rules/tree"
)

// settingsFile writes a settings file that passes the test of ownership.
func settingsFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "proxy.yaml")
	placeFile(t, path, text)
	return path
}

func placeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// bareEnvironment keeps the tester's own settings out. An empty variable counts as none.
func bareEnvironment(t *testing.T) {
	t.Helper()
	for _, pair := range os.Environ() {
		if name, _, _ := strings.Cut(pair, "="); strings.HasPrefix(name, "DSHPROXY_") {
			t.Setenv(name, "")
		}
	}
	t.Setenv("HOME", t.TempDir())
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
}

// loadSettings loads a settings file of this text, alone.
func loadSettings(t *testing.T, text string) (*settings, error) {
	t.Helper()
	bareEnvironment(t)
	var s settings
	return &s, s.load(settingsFile(t, text), nil)
}

// shown is the printed value of a key.
func shown(s *settings, path string) string {
	for _, k := range s.table() {
		if k.path == path {
			return k.value.String()
		}
	}
	return "no such key"
}

// wantDefaults are those of operations.md §2, as config show prints them.
var wantDefaults = map[string]string{
	"rulesFile": ".dsh/rules.yaml", "searchUp": "false", "fallbackPath": "", "managedRules": "[]", "dialects": "[dsh]", "workspaceRules": "full", "maxCachedWorkspaces": "512", "badFilePolicy": "fail", "maxRules": "256",
	"maxRuleBytes": "16MiB", "maxGlobStars": "2", "patternMode": "glob", "watch": "true", "watchStabilityThresholdMs": "200", "enforce": "true", "audit": "all", "builtin.enabled": "true", "builtin.path": "", "selfProtect": "on", "explain": "auto",
	"network.mode": "whitelist", "network.sandbox": "", "network.autoFallback": "deny-all", "network.unlisted": "deny", "network.loopback": "policy",
	"network.defaultPorts": "any", "network.guard": "filter", "network.privateAllowed": "[]", "network.internal": "[]", "network.nat64Prefixes": "[]",
	"network.proxyBind": "127.0.0.1", "network.proxyPort": "3128", "network.allowHostAction": "true", "listen": "[]", "metrics.listen": "127.0.0.1:9128",
	"dns.servers": "[system]", "dns.search": "[]", "dns.timeout": "2s",
	"limits.connections": "0", "limits.perClient": "0", "limits.headBytes": "64KiB", "limits.headFields": "200", "limits.headTimeout": "10s", "limits.keepAliveIdle": "1m30s",
	"limits.answer": "4.5s", "limits.idle": "1h0m0s", "limits.halfClose": "10m0s", "limits.lifetime": "0s", "limits.tunnelBytes": "0", "limits.lookups": "512", "limits.responseHead": "0s",
	"network.upstreamProxy": "off", "network.upstreamRoutes": "[]", "network.upstreamBypass": "[]", "network.upstreamResolve": "upstream", "network.upstreamOnly": "false",
	"network.upstreamCredentialsFile": "", "network.upstreamCAFile": "", "network.sni": "enforce", "network.proxyMaxRecent": "100", "admin.listen": "auto", "admin.hosts": "[]",
	"inspect.domains": "[]", "inspect.caFile": "", "inspect.keyFile": "", "limits.dials": "256",
	"identity.allowAnonymous": "false", "identity.tokens": "[]", "identity.peers": "[]", "identity.certificates": "[]", "identity.sources": "[]", "identity.listeners": "[]", "log.format": "text", "log.level": "info", "log.decisions": "off", "log.maxSize": "1GiB", "deny.message": "", "drain.delay": "0s", "drain.timeout": "20s",
}

func TestSettingsDefaults(t *testing.T) {
	for _, text := range []string{"", "# nothing set\n", "~\n", "---\n", "{}\n"} {
		s, err := loadSettings(t, text)
		if err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		for _, k := range s.table() {
			want, known := wantDefaults[k.path]
			if k.path == "caseInsensitivePaths" {
				want, known = map[bool]string{true: "true", false: "false"}[runtime.GOOS == "windows"], true
			}
			if got := k.value.String(); !known || got != want || s.origins[k.path] != "default" {
				t.Errorf("%q: %s is %q of origin %q, want %q (known %v)", text, k.path, got, s.origins[k.path], want, known)
			}
		}
		if got, want := s.listeners(), []listenAddr{{name: "proxy", address: "127.0.0.1:3128", mode: 0o600}}; !reflect.DeepEqual(got, want) {
			t.Errorf("listeners %v, want %v", got, want)
		}
	}
}

// TestSettingsPrecedence: flag over environment over file over default, and the origin says which.
func TestSettingsPrecedence(t *testing.T) {
	bareEnvironment(t)
	path := settingsFile(t, "maxRules: 10\nmaxGlobStars: 10\nnetwork:\n  mode: deny-all\n  guard: refuse\n  unlisted: ask\nlimits:\n\n  lookups: 10\n")
	t.Setenv("DSHPROXY_MAX_GLOB_STARS", "20")
	t.Setenv("DSHPROXY_NETWORK_MODE", "allow-all")
	t.Setenv("DSHPROXY_LIMITS_HEAD_FIELDS", "20")
	t.Setenv("DSHPROXY_NETWORK_GUARD", "") // empty is not set
	flags := map[string]string{"network.mode": "auto", "limits.lookups": "30", "log.level": "debug"}
	var s settings
	if err := s.load(path, flags); err != nil {
		t.Fatal(err)
	}
	tests := []struct{ key, value, origin string }{
		{"maxRules", "10", path + ":1"},
		{"maxGlobStars", "20", "DSHPROXY_MAX_GLOB_STARS"},
		{"network.mode", "auto", "flag"},
		{"network.guard", "refuse", path + ":5"},
		{"network.unlisted", "ask", path + ":6"},
		{"limits.lookups", "30", "flag"},
		{"limits.headFields", "20", "DSHPROXY_LIMITS_HEAD_FIELDS"},
		{"log.level", "debug", "flag"},
		{"log.format", "text", "default"},
	}
	for _, tt := range tests {
		if got := shown(&s, tt.key); got != tt.value || s.origins[tt.key] != tt.origin {
			t.Errorf("%s is %s of %s, want %s of %s", tt.key, got, s.origins[tt.key], tt.value, tt.origin)
		}
	}
}

func TestSettingsEnvNames(t *testing.T) {
	for path, want := range map[string]string{
		"rulesFile": "DSHPROXY_RULES_FILE", "watchStabilityThresholdMs": "DSHPROXY_WATCH_STABILITY_THRESHOLD_MS", "network.nat64Prefixes": "DSHPROXY_NETWORK_NAT64_PREFIXES",
		"network.defaultPorts": "DSHPROXY_NETWORK_DEFAULT_PORTS", "listen": "DSHPROXY_LISTEN", "dns.servers": "DSHPROXY_DNS_SERVERS", "limits.keepAliveIdle": "DSHPROXY_LIMITS_KEEP_ALIVE_IDLE",
	} {
		if got := envName(path); got != want {
			t.Errorf("envName(%q) = %s, want %s", path, got, want)
		}
	}
	var s settings
	seen := map[string]string{}
	for _, k := range s.table() {
		name := envName(k.path)
		if other := seen[name]; other != "" {
			t.Errorf("%s and %s share %s", k.path, other, name)
		}
		seen[name] = k.path
	}
}

// TestSettingsFromEnv has one variable of each kind of value; lists are separated by commas.
func TestSettingsFromEnv(t *testing.T) {
	bareEnvironment(t)
	for name, text := range map[string]string{
		"DSHPROXY_RULES_FILE": "/r.yaml", "DSHPROXY_WATCH": "false", "DSHPROXY_LIMITS_CONNECTIONS": "7", "DSHPROXY_LIMITS_HEAD_BYTES": "1KiB", "DSHPROXY_LIMITS_IDLE": "90s", "DSHPROXY_LOG_FORMAT": "json",
		"DSHPROXY_MANAGED_RULES": "/a,/b", "DSHPROXY_NETWORK_PRIVATE_ALLOWED": "10.0.0.0/8,fd00::/8", "DSHPROXY_NETWORK_DEFAULT_PORTS": "80,8000-9000", "DSHPROXY_LISTEN": "127.0.0.1:1,unix:/s",
	} {
		t.Setenv(name, text)
	}
	var s settings
	if err := s.load("", nil); err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]string{
		"rulesFile": "/r.yaml", "watch": "false", "limits.connections": "7", "limits.headBytes": "1KiB", "limits.idle": "1m30s", "log.format": "json",
		"managedRules": "[/a, /b]", "network.privateAllowed": "[10.0.0.0/8, fd00::/8]", "network.defaultPorts": "[80, 8000-9000]", "listen": "[proxy=127.0.0.1:1, proxy2=unix:/s]",
	} {
		if got := shown(&s, key); got != want {
			t.Errorf("%s is %s, want %s", key, got, want)
		}
	}
	t.Setenv("DSHPROXY_MAX_RULES", "none")
	err := s.load("", nil)
	var ee *exitError
	if !errors.As(err, &ee) || ee.code != exitUsage || err.Error() != "DSHPROXY_MAX_RULES: want a number of 1 or more" {
		t.Errorf("a bad variable: %#v %v", err, err)
	}
	t.Setenv("DSHPROXY_MAX_RULES", "")
	err = s.load("", map[string]string{"maxRules": "none"})
	if !errors.As(err, &ee) || ee.code != exitUsage || err.Error() != "flag for maxRules: want a number of 1 or more" {
		t.Errorf("a bad flag: %#v %v", err, err)
	}
}

// TestSettingsRefuse has what stops the start: position, words and hint.
func TestSettingsRefuse(t *testing.T) {
	const noSuch = "remove the key; it would do nothing"
	tests := []struct{ name, text, want, hint string }{
		{"unknown key", "maxRulez: 1\n", `1:1: unknown key "maxRulez"`, `did you mean "maxRules"?`},
		{"unknown key below", "network:\n  # c\n  moed: auto\n", `3:3: unknown key "network.moed"`, `did you mean "network.mode"?`},
		{"a typo is no later version", "identity:\n  allowAnonymus: true\n", `2:3: unknown key "identity.allowAnonymus"`, `did you mean "identity.allowAnonymous"?`},
		{"a group for a value", "maxRules: {a: 1}\n", "1:11: maxRules: a mapping where a value is wanted", "rules in a chain"},
		{"a value for a group", "network: auto\n", "1:10: the settings must be a mapping", ""},
		{"a list for a group", "network: [auto]\n", "1:10: the settings must be a mapping", ""},
		{"null for a group", "network:\n", "1:9: the settings must be a mapping", ""},
		{"null for a value", "maxRules:\n", "1:10: maxRules: null where a value is wanted", "rules in a chain"},
		{"a list for one value", "rulesFile: [a]\n", "1:12: rulesFile: a list where one value is wanted", "rule file, relative to the workspace or absolute"},
		{"no mapping", "- a\n", "1:1: the settings must be a mapping", ""},
		{"duplicate key", "watch: true\nwatch: false\n", `2:1: duplicate key "watch"`, ""},
		{"CFG-06 second document", "watch: true\n---\nwatch: false\n", "2:1: invalid YAML: a second document", "a rule file is one document; remove the ---"},
		{"CFG-10 a word for a boolean", "watch: off\n", "1:8: watch: want true or false, unquoted", "reload changed rule files"},
		{"a quoted boolean", "watch: 'false'\n", "1:8: watch: want true or false, unquoted", "reload changed rule files"},
		{"a number for a boolean", "watch: 0\n", "1:8: watch: want true or false", "reload changed rule files"},
		{"a boolean for text", "rulesFile: true\n", "1:12: rulesFile: a boolean where a value is wanted; quote it if it is text", "rule file, relative to the workspace or absolute"},
		{"a boolean for a number", "maxRules: true\n", "1:11: maxRules: a boolean where a value is wanted; quote it if it is text", "rules in a chain"},
		{"a boolean in a list", "managedRules: [/a, true]\n", "1:15: managedRules: a list item that is no text", "rule files that no workspace can open"},
		{"an empty text in a list", "managedRules: [/a, '']\n", "1:15: managedRules: a list item that is no text", "rule files that no workspace can open"},
		{"null in a list", "dns: {search: [~]}\n", "1:15: dns.search: a list item that is no text", "suffixes for names without a dot"},
		{"no such word", "network: {mode: allow}\n", "1:17: network.mode: want one of deny-all, whitelist, allow-all, auto, not \"allow\"", "what happens to targets that no rule decides"},
		{"case counts", "log: {level: INFO}\n", "1:14: log.level: want one of debug, info, warn, error, not \"INFO\"", "of the operator's log"},
		{"a count of none", "maxRules: 0\n", "1:11: maxRules: want a number of 1 or more", "rules in a chain"},
		{"a fraction", "maxRules: 1.5\n", "1:11: maxRules: want a number of 1 or more", "rules in a chain"},
		{"a negative number", "limits: {connections: -1}\n", "1:23: limits.connections: want a number of 0 or more", "client connections in all; 0 derives it from the descriptor limit"},
		{"a duration without a unit", "limits: {idle: 5}\n", "1:16: limits.idle: want a duration such as 4.5s or 10m", "of a tunnel or stream"},
		{"a negative duration", "limits: {idle: -5s}\n", "1:16: limits.idle: want a duration such as 4.5s or 10m", "of a tunnel or stream"},
		{"a size in another unit", "maxRuleBytes: 64KB\n", "1:15: maxRuleBytes: want a size such as 64KiB or 1GiB", "size of a rule file"},
		{"no network", "network: {internal: [10.0.0.0]}\n", `1:21: network.internal: want a network such as 10.0.0.0/8, not "10.0.0.0"`, "public-looking networks that are private here"},
		{"bits below the length", "network: {internal: [10.0.0.1/8]}\n", "1:21: network.internal: 10.0.0.1/8 has bits below its length; write 10.0.0.0/8", "public-looking networks that are private here"},
		{"CFG-32 reversed ports", "network: {defaultPorts: [443-80]}\n", "1:25: network.defaultPorts: a port range needs low <= high", "ports of allow rules that name none: any, or a list"},
		{"CFG-13 tag", "rulesFile: !secret x\n", "1:12: unknown YAML tag", `quote patterns that start with !, as in "!git*"`},

		{"later: a key", "network:\n  noProxy: clear\n", "2:3: network.noProxy is not supported by this version", noSuch},
		{"later: a group", "ask:\n  hold: true\n", "1:1: ask is not supported by this version", noSuch},
		{"later: beside one that is known", "network:\n  mode: auto\n  noProxy: clear\n", "3:3: network.noProxy is not supported by this version", noSuch},

		{"listen is no list", "listen: 127.0.0.1:1\n", "1:9: listen: want a list, not a string", listenHint},
		{"listen on a number", "listen: [3128]\n", "1:10: listen[0]: want an address or a mapping with name and address", listenHint},
		{"listen without a port", "listen: [127.0.0.1]\n", `1:10: listen[0]: "127.0.0.1": want host:port or unix:PATH`, listenHint},
		{"listen on a large port", "listen: ['127.0.0.1:1', '127.0.0.1:65536']\n", `1:25: listen[1]: "127.0.0.1:65536": want a port from 0 to 65535`, listenHint},
		{"listen with a leading zero", "listen: ['127.0.0.1:080']\n", `1:10: listen[0]: "127.0.0.1:080": want a port from 0 to 65535`, listenHint},
		{"listen on no path", "listen: ['unix:']\n", "1:10: listen[0]: unix: needs a path", listenHint},
		{"listen without an address", "listen: [{name: a}]\n", "1:10: listen[0]: needs an address", listenHint},
		{"listen on an empty address", "listen: [{address: ''}]\n", `1:20: listen[0].address: "": want host:port or unix:PATH`, listenHint},
		{"listen without a name", "listen: [{address: '127.0.0.1:1', name: ''}]\n", "1:41: listen[0].name: want a name", "of the listener, in records and metrics"},
		{"listen with a number for a name", "listen: [{address: '127.0.0.1:1', name: 1.10}]\n", "1:41: listen[0].name: a number where text is wanted; quote it", "of the listener, in records and metrics"},
		{"listen with an unknown key", "listen: [{adress: '127.0.0.1:1'}]\n", `1:11: unknown key "listen[0].adress"`, `did you mean "address"?`},
		{"listen with a wide mode", "listen: [{address: 'unix:/s', mode: '1777'}]\n", `1:37: listen[0].mode: want permissions such as "0660"`, "permissions of a unix socket"},
		{"listen with a mode in words", "listen: [{address: 'unix:/s', mode: rw}]\n", `1:37: listen[0].mode: want permissions such as "0660"`, "permissions of a unix socket"},
		{"listen with the mode of a port", "listen: [{address: '127.0.0.1:1', mode: '0660'}]\n", "1:10: listen[0]: mode and group are of no use on 127.0.0.1:1", "only a unix socket has permissions"},
		{"listen with the group of a port", "listen: [{address: '127.0.0.1:1', group: agents}]\n", "1:10: listen[0]: mode and group are of no use on 127.0.0.1:1", "only a unix socket has permissions"},
		{"listen with no group", "listen: [{address: 'unix:/s', group: ''}]\n", "1:38: listen[0].group: want the name or the number of a group", "group of a unix socket, a name or a number"},
		{"listen with a broken group", "listen: [{address: 'unix:/s', group: -1}]\n", "1:38: listen[0].group: want the name or the number of a group", "group of a unix socket, a name or a number"},
		{"listen with an unknown protocol", "listen: [{address: '127.0.0.1:1', protocols: [http, socks4]}]\n", `1:46: listen[0].protocols: want some of http, socks5, not "socks4"`, "what is spoken: http, socks5, or both"},
		{"listen with a protocol twice", "listen: [{address: '127.0.0.1:1', protocols: [http, http]}]\n", "1:46: listen[0].protocols: http stands there twice", "what is spoken: http, socks5, or both"},
		{"listen without a protocol", "listen: [{address: '127.0.0.1:1', protocols: []}]\n", "1:46: listen[0].protocols: an empty list; leave the key out for http and socks5", "what is spoken: http, socks5, or both"},
		{"listen with TLS without files", "listen: [{address: '127.0.0.1:1', tls: {}}]\n", "1:40: listen[0].tls: needs cert and key", "name both files"},
		{"listen with TLS without a key", "listen: [{address: '127.0.0.1:1', tls: {cert: c}}]\n", "1:40: listen[0].tls: needs cert and key", "name both files"},
		{"listen with TLS of no file", "listen: [{address: '127.0.0.1:1', tls: {cert: '', key: k}}]\n", "1:47: listen[0].tls.cert: want a path", "PEM file of the listener's certificate and those that it is signed by"},
		{"listen with TLS and a typo", "listen: [{address: '127.0.0.1:1', tls: {cert: c, key: k, clientCa: a}}]\n", `1:58: unknown key "listen[0].tls.clientCa"`, `did you mean "clientCA"?`},
		{"listen with TLS on", "listen: [{address: '127.0.0.1:1', tls: true}]\n", "1:40: listen[0].tls: want a mapping, not a boolean", "it has the keys cert, key, clientCA"},
		{"listen with the balancers of a socket", "listen: [{address: 'unix:/s', proxyProtocol: [10.0.0.0/8]}]\n", "1:10: listen[0]: proxyProtocol is of no use on a unix socket", "list the networks of your load balancers on a TCP listener"},
		{"listen with balancers in words", "listen: [{address: '127.0.0.1:1', proxyProtocol: [lb]}]\n", `1:50: listen[0].proxyProtocol: want a network such as 10.0.0.0/8, not "lb"`, "load balancers that say by the PROXY protocol who their clients are"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := loadSettings(t, tt.text)
			var te *tree.Error
			if !errors.As(err, &te) {
				t.Fatalf("%q: error %T %v, want one with a position", tt.text, err, err)
			}
			_, got, _ := strings.Cut(err.Error(), "proxy.yaml:")
			if got != tt.want || te.Hint != tt.hint {
				t.Errorf("%q\ngot:  %s (hint %q)\nwant: %s (hint %q)", tt.text, got, te.Hint, tt.want, tt.hint)
			}
		})
	}
}

// A number where text is wanted would change the text (1.10 becomes 1.1), and a text where a number is wanted is no
// number: both are wrong types.
func TestSettingsWrongTypes(t *testing.T) {
	for _, text := range []string{"rulesFile: 1.10\n", "deny: {message: 012}\n", "network: {proxyBind: 1}\n", "dns: {search: [1.10]}\n", "maxRules: '256'\n", "limits: {connections: '5'}\n"} {
		if _, err := loadSettings(t, text); err == nil {
			t.Errorf("%q loads", text)
		}
	}
}

// What is out of range is told with its position too, whenever it is found out.
func TestSettingsRangeHasPosition(t *testing.T) {
	for text, want := range map[string]string{
		"# c\nnetwork:\n  proxyPort: 70000\n":                 "proxy.yaml:3",
		"network:\n  nat64Prefixes: ['64:ff9b::/33']\n":       "proxy.yaml:2",
		"dns:\n  servers: [dns.example]\n":                    "proxy.yaml:2",
		"dns:\n  timeout: 1s\n  servers: [system, 1.1.1.1]\n": "proxy.yaml:3",
		"limits:\n  headTimeout: -1s\n":                       "proxy.yaml:2",
	} {
		if _, err := loadSettings(t, text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want one at %s", text, err, want)
		}
	}
}

// Two spellings of one key would let the second undo the first without a duplicate being seen.
func TestSettingsDottedKeys(t *testing.T) {
	for _, text := range []string{"network: {mode: deny-all}\nnetwork.mode: allow-all\n", "identity.allowAnonymous: true\nidentity: {allowAnonymous: false}\n"} {
		if s, err := loadSettings(t, text); err == nil {
			t.Errorf("%q loads, mode %s, allowAnonymous %v", text, s.mode, s.allowAnonymous)
		}
	}
}

// TestSettingsCrossChecks has what one key alone does not show.
func TestSettingsCrossChecks(t *testing.T) {
	tests := []struct{ text, want, hint string }{
		{"searchUp: true\nrulesFile: /r.yaml\n", "searchUp needs a relative rulesFile", ""},
		{"listen: [{name: a, address: '127.0.0.1:1'}, {name: a, address: '127.0.0.1:2'}]\n", `listen: two listeners are called "a"`, "give each listener a name of its own"},
		{"listen: [{name: proxy2, address: '127.0.0.1:1'}, '127.0.0.1:2']\n", `listen: two listeners are called "proxy2"`, "give each listener a name of its own"},
	}
	for _, tt := range tests {
		_, err := loadSettings(t, tt.text)
		var ee *exitError
		if !errors.As(err, &ee) || !strings.HasSuffix(err.Error(), tt.want) || ee.hint != tt.hint || ee.code != exitFailure {
			t.Errorf("%q: error %v, want %s", tt.text, err, tt.want)
		}
	}
}

// TestSettingsListenBeyondLoopback: a proxy that anybody reaches is started only when that is said in so many words.
func TestSettingsListenBeyondLoopback(t *testing.T) {
	local := []string{"127.0.0.1:3128", "127.8.8.8:0", "[::1]:3128", "localhost:3128", "unix:/run/dshproxy.sock"}
	beyond := []string{"0.0.0.0:3128", "[::]:3128", ":3128", "192.0.2.1:3128", "proxy.example:3128", "[::ffff:10.0.0.1]:3128"}
	for _, address := range slices.Concat(local, beyond) {
		refused := slices.Contains(beyond, address)
		for how, load := range map[string]func() error{
			"file": func() error { _, err := loadSettings(t, "listen: ['"+address+"']\n"); return err },
			"second": func() error {
				_, err := loadSettings(t, "listen: ['127.0.0.1:1', {name: b, address: '"+address+"'}]\n")
				return err
			},
			"flag": func() error {
				bareEnvironment(t)
				var s settings
				return s.load("", map[string]string{"listen": address})
			},
		} {
			err := load()
			var ee *exitError
			if refused && (!errors.As(err, &ee) || ee.hint != "add identity.tokens, or set identity.allowAnonymous: true if everybody who reaches it may use it") || !refused && err != nil {
				t.Errorf("%s by %s: error %v, want refused %v", address, how, err, refused)
			}
		}
		if _, err := loadSettings(t, "listen: ['"+address+"']\nidentity: {allowAnonymous: true}\n"); err != nil {
			t.Errorf("%s with allowAnonymous: %v", address, err)
		}
	}
	if _, err := loadSettings(t, "network: {proxyBind: 0.0.0.0}\n"); err == nil {
		t.Error("proxyBind goes beyond loopback unasked")
	}
}

func TestSettingsListen(t *testing.T) {
	tests := []struct {
		text string
		want []listenAddr
	}{
		{"listen: ['127.0.0.1:0']\n", []listenAddr{{name: "proxy", address: "127.0.0.1:0", mode: 0o600}}},
		{"listen: ['127.0.0.1:1', 'unix:/s']\n", []listenAddr{{name: "proxy", address: "127.0.0.1:1", mode: 0o600}, {name: "proxy2", address: "unix:/s", mode: 0o600}}},
		{"listen: [{address: '127.0.0.1:1'}, {name: agents, address: 'unix:/s', mode: '0660'}]\n", []listenAddr{{name: "proxy", address: "127.0.0.1:1", mode: 0o600}, {name: "agents", address: "unix:/s", mode: 0o660}}},
		{"listen: [{address: 'unix:/s', mode: 0660}]\n", []listenAddr{{name: "proxy", address: "unix:/s", mode: 0o660}}},
		{"listen: [{address: 'unix:/s', mode: 0o660}]\n", []listenAddr{{name: "proxy", address: "unix:/s", mode: 0o660}}},
		{"listen: []\n", []listenAddr{{name: "proxy", address: "127.0.0.1:3128", mode: 0o600}}},
		{"network: {proxyBind: '::1', proxyPort: 8080}\n", []listenAddr{{name: "proxy", address: "[::1]:8080", mode: 0o600}}},
		{"listen: ['127.0.0.1:1']\nnetwork: {proxyPort: 8080}\n", []listenAddr{{name: "proxy", address: "127.0.0.1:1", mode: 0o600}}},
	}
	for _, tt := range tests {
		s, err := loadSettings(t, tt.text)
		if err != nil {
			t.Errorf("%q: %v", tt.text, err)
		} else if got := s.listeners(); !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%q: listeners %v, want %v", tt.text, got, tt.want)
		}
	}
}

// TestSettingsLaterKeys: every key of operations.md §2 is either known or refused by name; none is ignored.
func TestSettingsLaterKeys(t *testing.T) {
	for _, path := range strings.Fields(`workspaceRules maxCachedWorkspaces audit dialects
		network.sni network.proxyMaxRecent network.noProxy network.upstreamProxy network.upstreamResolve network.upstreamOnly network.upstreamBypass
		admin.listen admin.page admin.hosts dns.cache dns.stale limits.dials
		identity.tokens identity.peers identity.certificates identity.sources identity.listeners
		ask.hold ask.maxPending ask.timeout ask.command ask.webhook inspect.domains inspect.caFile inspect.keyFile log.onDrop`) {
		text := path + ": x\n"
		if group, key, ok := strings.Cut(path, "."); ok {
			text = group + ":\n  " + key + ": x\n"
		}
		_, err := loadSettings(t, text)
		if err == nil || !strings.Contains(err.Error(), "is not supported by this version") {
			if s := new(settings); shown(s, path) == "no such key" {
				t.Errorf("%s: error %v, want it refused by name or known", path, err)
			}
		}
	}
}

func TestSettingsSizes(t *testing.T) {
	for text, want := range map[string]int64{"0": 0, "1": 1, "10B": 10, "64KiB": 64 << 10, "1 MiB": 1 << 20, "3GiB": 3 << 30, "1TiB": 1 << 40, "4194304TiB": 1 << 62} {
		var v sizeValue
		if err := v.set(text); err != nil || int64(v) != want {
			t.Errorf("size %q = %d, %v, want %d", text, v, err, want)
		}
	}
	for _, text := range []string{"", "KiB", "-1", "-1KiB", "1.5MiB", "1KB", "1kib", "1M", "4194305TiB", "99999999999999999999", "0x10", "1e3", "++1"} {
		v := sizeValue(7)
		if err := v.set(text); err == nil || v != 7 {
			t.Errorf("size %q = %d, %v, want an error and no change", text, v, err)
		}
	}
}

func TestSettingsDurations(t *testing.T) {
	for text, want := range map[string]string{"0": "0s", "4.5s": "4.5s", "1h30m": "1h30m0s", "200ms": "200ms", "0s": "0s"} {
		var v durationValue
		if err := v.set(text); err != nil || v.String() != want {
			t.Errorf("duration %q = %s, %v, want %s", text, v.String(), err, want)
		}
	}
	for _, text := range []string{"", "5", "-1s", "1d", "1 h", "s", "9999999h9999999h"} {
		v := durationValue(7)
		if err := v.set(text); err == nil || v != 7 {
			t.Errorf("duration %q = %s, %v, want an error and no change", text, v.String(), err)
		}
	}
}

// TestSettingsOwnership: CFG-19, whoever can change the settings can open the proxy.
func TestSettingsOwnership(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("mode bits tell nothing here")
	}
	tests := []struct {
		name        string
		file, dir   os.FileMode
		uid         int
		wantRefused bool
	}{
		{"private", 0o600, 0o700, 0, false},
		{"readable by all", 0o644, 0o755, 0, false},
		{"writable by the group", 0o620, 0o755, 0, true},
		{"writable by all", 0o602, 0o755, 0, true},
		{"folder writable by all", 0o600, 0o777, 0, true},
		{"sticky folder", 0o600, 0o777 | os.ModeSticky, 0, false},
		{"another user's", 0o600, 0o755, 12345, true},
	}
	for _, tt := range tests {
		t.Run("CFG-19 "+tt.name, func(t *testing.T) {
			if tt.uid != 0 && os.Getuid() != 0 {
				t.Skip("only root can give files away")
			}
			bareEnvironment(t)
			path := settingsFile(t, "maxRules: 7\n")
			for p, mode := range map[string]os.FileMode{path: tt.file, filepath.Dir(path): tt.dir} {
				if err := os.Chmod(p, mode); err != nil {
					t.Fatal(err)
				}
			}
			if tt.uid != 0 {
				if err := os.Chown(path, tt.uid, -1); err != nil {
					t.Fatal(err)
				}
			}
			var s settings
			err := s.load(path, nil)
			var ee *exitError
			if tt.wantRefused && (!errors.As(err, &ee) || ee.code != exitFailure || !strings.HasPrefix(err.Error(), "settings: "+filepath.Dir(path))) || !tt.wantRefused && err != nil {
				t.Errorf("error %v, want refused %v", err, tt.wantRefused)
			}
		})
	}
}

// TestSettingsPlaces: --config, else DSHPROXY_CONFIG, else the user's folder; never the workspace.
func TestSettingsPlaces(t *testing.T) {
	bareEnvironment(t)
	work := t.TempDir()
	for _, name := range []string{"proxy.yaml", "dshproxy.yaml", ".dshproxy.yaml", ".dsh/proxy.yaml", ".config/dshproxy/proxy.yaml", "dshproxy/proxy.yaml"} {
		placeFile(t, filepath.Join(work, name), "maxRules: 666\n")
	}
	t.Chdir(work)
	expect := func(what, flag, want string) {
		t.Helper()
		var s settings
		if err := s.load(flag, nil); err != nil {
			t.Errorf("%s: %v", what, err)
		} else if got := shown(&s, "maxRules"); got != want {
			t.Errorf("%s: maxRules %s, want %s", what, got, want)
		}
	}
	expect("nothing but the workspace", "", "256")
	config, err := os.UserConfigDir()
	if err != nil {
		t.Fatal(err)
	}
	placeFile(t, filepath.Join(config, "dshproxy/proxy.yaml"), "maxRules: 1\n")
	expect("the user's folder", "", "1")
	t.Setenv("DSHPROXY_CONFIG", settingsFile(t, "maxRules: 2\n"))
	expect("the variable", "", "2")
	named := settingsFile(t, "maxRules: 3\n")
	expect("the flag", named, "3")
	t.Chdir(filepath.Dir(named))
	expect("a relative flag", "proxy.yaml", "3")
}

// A file that is named must be there and must be read whole.
func TestSettingsFileMissingOrLarge(t *testing.T) {
	bareEnvironment(t)
	var s settings
	if err := s.load(filepath.Join(t.TempDir(), "none.yaml"), nil); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
	if err := s.load(t.TempDir(), nil); err == nil {
		t.Error("a folder loads")
	}
	path := settingsFile(t, "maxRules: 7\n#"+strings.Repeat("x", maxSettingsBytes))
	if err := s.load(path, nil); err == nil || err.Error() != path+": larger than 1048576 bytes" {
		t.Errorf("a large file: %v", err)
	}
}

// changed has a value for every key that is not its default.
var changed = map[string]string{
	"rulesFile": "policy/r.yaml", "searchUp": "true", "fallbackPath": "/fallback.yaml", "managedRules": "[/a.yaml, /b.yaml]", "dialects": "[claude-settings, dsh]", "workspaceRules": "narrow", "maxCachedWorkspaces": "3", "badFilePolicy": "ignore-with-warning", "maxRules": "7",
	"maxRuleBytes": "3KiB", "maxGlobStars": "5", "patternMode": "regex", "caseInsensitivePaths": "true", "watch": "false", "watchStabilityThresholdMs": "0", "enforce": "false", "audit": "hits", "builtin.enabled": "false", "builtin.path": "/baseline.yaml", "selfProtect": "'off'", "explain": "code",
	"network.mode": "auto", "network.sandbox": "read-only", "network.autoFallback": "allow-all", "network.unlisted": "ask", "network.loopback": "allow",
	"network.defaultPorts": "[80, 443, 8000-9000]", "network.guard": "refuse", "network.privateAllowed": "[10.0.0.0/8, 'fd00::/8']", "network.internal": "[198.18.0.0/15]", "network.nat64Prefixes": "['64:ff9b:1::/48']",
	"network.proxyBind": "'::1'", "network.proxyPort": "0", "network.allowHostAction": "false", "listen": "['127.0.0.1:1']", "metrics.listen": "off",
	"dns.servers": "[1.1.1.1, 'tls://9.9.9.9']", "dns.search": "[corp.test]", "dns.timeout": "1.5s",
	"limits.connections": "9", "limits.perClient": "3", "limits.headBytes": "1000", "limits.headFields": "9", "limits.headTimeout": "1m30s", "limits.keepAliveIdle": "1s",
	"limits.answer": "3s", "limits.idle": "2h", "limits.halfClose": "1m", "limits.lifetime": "24h", "limits.tunnelBytes": "2GiB", "limits.lookups": "1", "limits.responseHead": "5s",
	"network.upstreamProxy": "'http://proxy.corp.test:3128'", "network.upstreamRoutes": "[{domains: [a.test, '*.b.test'], proxy: 'socks5://s.test:1080'}, {domains: '*', proxy: 'off'}]",
	"network.upstreamBypass": "[.corp.test, 10.0.0.0/8]", "network.upstreamResolve": "local", "network.upstreamOnly": "true", "network.upstreamCredentialsFile": "/secret", "network.upstreamCAFile": "/ca.pem",
	"network.sni": "observe", "network.proxyMaxRecent": "7", "admin.listen": "'127.0.0.1:9129'", "admin.hosts": "[admin.corp.test]",
	"inspect.domains": "[api.test]", "inspect.caFile": "/ca.pem", "inspect.keyFile": "/ca-key.pem", "limits.dials": "9",
	"identity.allowAnonymous": "true", "identity.tokens": "[{name: ci, token: 0123456789abcdefg}]", "identity.peers": "[{uid: 7}]", "identity.certificates": "[{cn: a}]",
	"identity.sources": "[{prefix: 10.0.0.0/8}]", "identity.listeners": "[{listener: proxy}]", "log.format": "json", "log.level": "warn", "log.decisions": "'-'", "log.maxSize": "5MiB", "deny.message": "'ask: the #team'", "drain.delay": "1s", "drain.timeout": "0s",
}

// TestSettingsRoundTrip: what config show prints is what the file takes. Lists of mappings print what matters of them.
func TestSettingsRoundTrip(t *testing.T) {
	decode := func(v value, text string) error {
		n, err := tree.Parse("f.yaml", []byte(text+"\n"), 1000)
		if err != nil {
			return err
		}
		return decoder{"f.yaml"}.setting(setting{value: v}, "k", n)
	}
	var first, second settings
	first.setDefaults()
	second.setDefaults()
	again := second.table()
	for i, k := range first.table() {
		before := k.value.String()
		if err := decode(k.value, changed[k.path]); err != nil {
			t.Errorf("%s: %s: %v", k.path, changed[k.path], err)
			continue
		}
		printed := k.value.String()
		if printed == before {
			t.Errorf("%s: %s is the default", k.path, printed)
		}
		if _, isNode := k.value.(nodeValue); isNode {
			continue
		}
		text := printed
		if _, isText := k.value.(*stringValue); isText {
			text = "'" + printed + "'" // as it has to be quoted anywhere
		}
		if err := decode(again[i].value, text); err != nil || again[i].value.String() != printed {
			t.Errorf("%s: printed as %s, read as %s, %v", k.path, printed, again[i].value.String(), err)
		}
		if _, isList := k.value.(lister); !isList {
			if err := again[i].value.set(printed); err != nil || again[i].value.String() != printed {
				t.Errorf("%s: printed as %s, a variable gives %s, %v", k.path, printed, again[i].value.String(), err)
			}
		}
	}
	first.listen, first.identity, first.upstream = nil, identitySettings{}, second.upstream
	first.inspectDomains, first.inspectCA, first.inspectKey = nil, "", "" // of the file alone, so not printed for it
	if !reflect.DeepEqual(first, second) {
		t.Errorf("the settings differ after a round trip:\n%+v\n%+v", first, second)
	}
}

// Every default can be written into a file, too.
func TestSettingsDefaultsRoundTrip(t *testing.T) {
	var s settings
	s.setDefaults()
	text := ""
	groups := map[string]string{}
	for _, k := range s.table() {
		printed := k.value.String()
		if printed == "" {
			printed = "''"
		}
		if group, key, ok := strings.Cut(k.path, "."); ok {
			groups[group] += "  " + key + ": " + printed + "\n"
		} else {
			text += k.path + ": " + printed + "\n"
		}
	}
	for group, body := range groups {
		text += group + ":\n" + body
	}
	loaded, err := loadSettings(t, text)
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	for i, k := range loaded.table() {
		if got, want := k.value.String(), s.table()[i].value.String(); got != want || !strings.Contains(loaded.origins[k.path], "proxy.yaml:") {
			t.Errorf("%s is %s of %s, want %s", k.path, got, loaded.origins[k.path], want)
		}
	}
}

func TestSettingsPolicyOptions(t *testing.T) {
	tests := []struct {
		text string
		want netrule.Options
	}{
		{"", netrule.Options{Mode: netrule.Whitelist}},
		{"network: {mode: deny-all, unlisted: ask}\nenforce: false\n", netrule.Options{Mode: netrule.DenyAll, Unlisted: netrule.Ask, DryRun: true}},
		{"network: {mode: allow-all, loopback: allow, guard: refuse}\n", netrule.Options{Mode: netrule.AllowAll, Loopback: true, Guard: netrule.GuardRefuse}},
		{"network: {mode: auto}\n", netrule.Options{Mode: netrule.DenyAll}},
		{"network: {mode: auto, autoFallback: whitelist, sandbox: unheard-of}\n", netrule.Options{Mode: netrule.Whitelist}},
		{"network: {mode: auto, autoFallback: allow-all, sandbox: read-only}\n", netrule.Options{Mode: netrule.DenyAll}},
		{"network: {mode: auto, sandbox: workspace-write}\n", netrule.Options{Mode: netrule.Whitelist}},
		{"network: {mode: auto, sandbox: danger-full-access}\n", netrule.Options{Mode: netrule.AllowAll}},
		{"network: {mode: deny-all, sandbox: danger-full-access}\n", netrule.Options{Mode: netrule.DenyAll}},
	}
	for _, tt := range tests {
		s, err := loadSettings(t, tt.text)
		if err != nil {
			t.Errorf("%q: %v", tt.text, err)
			continue
		}
		tt.want.DefaultPorts = []netrule.PortRange{{Lo: 1, Hi: 65535}}
		if got := s.policyOptions(); !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%q: %+v, want %+v", tt.text, got, tt.want)
		}
	}
}
