//go:build unix

package live

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"dshproxy/netrule"
	"dshproxy/rules"
)

// fill repeats a text up to a size in bytes.
func fill(text string, size int) string { return strings.Repeat(text, max(1, size/len(text))) }

// jsonCall is a call with one string argument.
func jsonCall(tool, key, value string) rules.Call {
	b, err := json.Marshal(map[string]string{key: value})
	if err != nil {
		panic(err)
	}
	return rules.Call{Tool: tool, Args: b, Workspace: "/ws"}
}

// hostileShell are pieces of shell text that cost a parser, or what comes behind it, more than their size.
func hostileShell() map[string]string {
	return map[string]string{
		"words": "a ", "commands": "a\n", "semicolons": "a;", "pipes": "a|", "and lists": "a&&", "background": "a&", "substitutions": "$(a;b)",
		"substituted words": "$(a) ", "backquotes": "`a`", "backquoted words": "`a` ", "subshells": "(a);", "blocks": "{ a;};", "parameters": "$a", "parameter words": "${a} ", "defaults": "${a:-b}",
		"arithmetic": "$((1+1))", "arithmetic commands": "((a));", "quotes": `"a"`, "dollar quotes": `$'\x41'`, "quoted parameters": `"$a" `, "assignments": "a=b ", "assignment commands": "a=b;", "appends": "a+=b ",
		"redirects": ">a ", "redirect commands": ">a;", "here-docs": "cat <<E\nE\n", "here-doc shells": "sh <<E\na;b\nE\n", "open here-docs": "cat <<E\n", "here-strings": "sh <<<a;", "processes": "<(a) ",
		"shells": "sh -c a;", "quoted shells": "sh -c 'a;b';", "xargs": "xargs ", "xargs commands": "xargs a;", "env -S": "env -S a;", "env -S chain": "env -S ", "evals": "eval a;", "eval chain": "eval ",
		"sudo": "sudo ", "sudo commands": "sudo -x a b;", "find": "find . -exec a ; ", "finds": `find -exec a \; -exec b \;;`, "traps": "trap a b;", "parallel": "parallel a b;", "cases": "case a in a) b;; esac;", "ifs": "if a;then b;fi;",
		"loops": "for a in b;do c;done;", "functions": "a(){ b;};", "tests": "[[ a ]];", "negations": "! a;", "timed": "time a;", "coproc": "coproc a;", "declarations": "export a=b;", "declared words": "export ", "let": "let a=1;",
		"braces": "{a,b} ", "brace products": "{a,b}{c,d}{e,f}{g,h} ", "brace words": "{a,b,c,d,e,f,g,h,i} ", "arrays": "a=(b);", "array words": "a=(b ", "globs": "*?[a] ", "extended globs": "@(a|b) ", "comments": "#\n", "continued": "a\\\n", "escapes": `\a`, "returns": "a\r",
		"curl": "curl a.b;", "curl hosts": "curl a.b c.d ", "curl options": "curl -xa.b@c.d;", "ssh": "ssh a@b;", "git": "git clone a:b;", "scp": "scp a:b c.d:e ", "proxies": "a_proxy=b ", "URLs": "http://a ", "URLs glued": "http://a,", "hidden URLs": "http", "bracket URLs": "http://[", "opened": "(", "opened substitutions": "$(", "opened blocks": "{ ",
		"opened quotes": `"'`, "opened arithmetic": "$((", "closed": ")", "connect-to": "curl --x=a:b:c:d:e:f:g:h:i:j;", "wget list": "wget x://a@b:c:d,e:f:g ", "options": "a -b --c=d ", "policy files": ".dshx/a ", "policy writes": ">.d?x/a ", "policy braces": "rm .d{x,y}/a;", "assign names": "a1=a2=", "numbers": "1>a ", "null": "\x00", "unicode": "é ", "ands": "a&&b||", "stages of lists": "{ a;b;c;}|", "su": "su -c a;", "watch": "watch a b;", "flock": "flock a b -c c;",
		"long words": "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa ", "one word": "a", "paths": "a/", "path words": "./a ", "dotted": "../", "stars": "*", "cats": "cat a b;", "timeouts": "timeout 1 a;", "closing": "a) ", "keywords": "if ",
	}
}

// hostileCalls are calls made to be dear, by name.
func hostileCalls(size int) map[string]rules.Call {
	out := map[string]rules.Call{}
	for name, piece := range hostileShell() {
		out["shell "+name] = jsonCall("bash", "command", fill(piece, size))
	}
	nested := "rm x"
	for range 6 {
		nested = fill("su ", 180) + "-c " + strconv.Quote(nested)
	}
	out["nested su"] = jsonCall("bash", "command", nested)
	nested = "rm x"
	for range 12 {
		nested = "sh -c " + strconv.Quote(nested)
	}
	out["nested sh"] = jsonCall("bash", "command", nested)
	out["nested evals"] = jsonCall("bash", "command", fill(fill("eval ", 350)+"a;", size))
	return out
}

// hostileJSON are calls that are dear to read, or name very much.
func hostileJSON() map[string]rules.Call {
	call := func(tool, args string) rules.Call {
		return rules.Call{Tool: tool, Args: []byte(args), Workspace: "/ws"}
	}
	list := func(item string, n int) string { return strings.TrimSuffix(strings.Repeat(item+",", n), ",") }
	numbered := func(format string, n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, format, i)
		}
		return strings.TrimSuffix(b.String(), ",")
	}
	return map[string]rules.Call{
		"1 MiB command":      jsonCall("bash", "command", fill("a ", 1<<20)),
		"1 MiB content":      jsonCall("write", "content", fill("a line\n", 1<<20)),
		"1 MiB patch":        jsonCall("apply_patch", "input", fill("+++ a/b/c/d\n", 1<<20)),
		"1 MiB param":        jsonCall("x", "x", fill("a", 1<<20)),
		"1 MiB path":         jsonCall("write", "path", fill("a/", 1<<20)),
		"1 MiB dots":         jsonCall("write", "path", fill("../", 1<<20)),
		"1 MiB url":          jsonCall("web_fetch", "url", "http://a/"+fill("a", 1<<20)),
		"1 MiB host":         jsonCall("web_fetch", "url", "http://"+fill("a.", 1<<20)),
		"16 MiB string":      jsonCall("x", "x", fill("a", 15<<20)),
		"16 MiB escapes":     call("x", `{"x":"`+fill(`\u0041`, 15<<20)+`"}`),
		"16 MiB list":        call("x", `{"x":[`+fill("1,", 15<<20)+`1]}`),
		"16 MiB objects":     call("x", `{"x":[`+fill(`{"a":1},`, 15<<20)+`1]}`),
		"16 MiB keys":        call("x", `{`+numbered(`"url%d":"a",`, 1_000_000)+`}`),
		"16 MiB blanks":      call("x", `{`+fill(" ", 15<<20)+`}`),
		"16 MiB depth":       call("x", fill("[", 15<<20)),
		"4 MiB string":       jsonCall("x", "x", fill("a", 4<<20-64)),
		"4 MiB escapes":      call("x", `{"x":"`+fill(`\u0041`, 4<<20-64)+`"}`),
		"4 MiB list":         call("x", `{"x":[`+fill("1,", 4<<20-64)+`1]}`),
		"4 MiB objects":      call("x", `{"x":[`+fill(`{"a":1},`, 4<<20-64)+`1]}`),
		"4 MiB keys":         call("x", `{`+numbered(`"url%d":"a",`, 300_000)+`}`),
		"4 MiB blanks":       call("x", `{`+fill(" ", 4<<20-64)+`}`),
		"4 MiB depth":        call("x", fill("[", 4<<20-64)),
		"depth 10,000":       call("x", strings.Repeat(`{"command":`, 9_900)+"1"+strings.Repeat("}", 9_900)),
		"4 MiB key":          call("x", `{"`+fill("a", 4<<20-64)+`":1}`),
		"4 MiB escaped keys": call("x", `{"x":[`+fill(`{"\u0041":1},`, 4<<20-64)+`1]}`),
		"4 MiB strings":      call("x", `{"x":[`+list(`"`+fill("a", 60)+`"`, 65_000)+`]}`),
		"4 MiB numbers":      call("x", `{"x":[`+list(fill("1234567890", 60), 65_000)+`]}`),
		"4 MiB number":       call("x", `{"x":`+fill("1234567890", 4<<20-64)+`}`),
		"same keys":          call("x", `{`+list(`"x":1`, 65_000)+`}`),
		"long tool":          jsonCall(fill("a", 1<<20), "x", "y"),
		"long agent":         {Tool: "x", Args: []byte("{}"), Agents: []string{fill("a", 1<<20)}, Workspace: "/ws"},
		"long cwd":           {Tool: "write", Args: []byte(`{"path":["a","b"]}`), Cwd: fill("/a", 1<<20), Workspace: "/ws"},
		"mcp":                call("mcp", `{"server":"`+fill("a", 1<<20)+`","tool":"`+fill("a", 1<<20)+`"}`),
		"skill":              jsonCall("skill", "name", fill("a", 1<<20)),
		"URLs":               call("web_fetch", `{"url":[`+numbered(`"http://a%d.test/",`, 60_000)+`]}`),
		"5,000 URLs":         call("web_fetch", `{"url":[`+numbered(`"http://a%d.test/",`, 5_000)+`]}`),
		"same URLs":          call("web_fetch", `{"url":[`+list(`"http://a.test/"`, 60_000)+`]}`),
		"bad URLs":           call("web_fetch", `{"url":[`+list(`"http://[::1/"`, 60_000)+`]}`),
		"remotes":            call("x", `{"remote":[`+numbered(`"ssh://git@h%d.test/x",`, 60_000)+`]}`),
		"unicode hosts":      call("x", `{"url":[`+numbered(`"http://é%d.test/",`, 60_000)+`]}`),
		"url keys":           call("x", `{"a":[`+numbered(`{"url":"http://a%d.test"},`, 30_000)+`]}`),
		"paths":              call("write", `{"paths":[`+numbered(`"a/b/c/%d",`, 60_000)+`]}`),
		"climbing paths":     call("write", `{"paths":[`+list(`"`+fill("../", 200)+`a"`, 1_000)+`]}`),
		"deep paths":         call("write", `{"paths":[`+numbered(`"`+fill("a/", 2000)+`%d",`, 400)+`]}`),
		"path keys":          call("x", `{"a":[`+list(`{"path":"a/b"}`, 30_000)+`]}`),
		"commands":           call("bash", `{"a":[`+numbered(`{"command":"a%d b"},`, 30_000)+`]}`),
		"some commands":      call("bash", `{"a":[`+numbered(`{"command":"a%d b"},`, 8_000)+`]}`),
		"split commands":     call("bash", `{"command":[`+list(`"sudo"`, 60_000)+`]}`),
		"params":             call("x", `{"x":[`+numbered(`"aaaaaaa%d",`, 60_000)+`]}`),
		"param of commands":  call("x", `{"x":[`+list(`"`+fill("a", 250)+`"`, 4_000)+`]}`),
	}
}

// hostileSnapshot holds rules of every kind and dialect, n of each.
func hostileSnapshot(tb testing.TB, n int) *Snapshot {
	tb.Helper()
	dir := tb.TempDir()
	var own, claude, pi strings.Builder
	own.WriteString("rules:\n")
	var lists [3][]string
	for i := range n {
		action := []string{"deny", "ask", "allow"}[i%3]
		match := []string{
			fmt.Sprintf("{ argv: { command: [c%d, 'x*%d*'], anyArg: ['--x*%d*', -rf] } }", i, i, i),
			fmt.Sprintf("{ argv: { args: ['*a*a%d', '!*z*'] } }", i),
			fmt.Sprintf("{ argv: { pipeline: ['*a*|b%d'] } }", i),
			fmt.Sprintf("{ network: { domains: ['*a*%d.test', h%d.test] } }", i, i),
			fmt.Sprintf("{ paths: ['**/a*/%d', 'src/**'] }", i),
			fmt.Sprintf("{ params: { x: ['*a*b%d'] } }", i),
		}[i/3%6]
		fmt.Fprintf(&own, "- match: %s\n  action: %s\n  reason: r\n", match, action)
		lists[i%3] = append(lists[i%3], fmt.Sprintf("%q", []string{
			fmt.Sprintf("Bash(*a *a*%d)", i), fmt.Sprintf("Bash(c%d *)", i), fmt.Sprintf("Read(**/a*/%d)", i), fmt.Sprintf("Edit(src%d/**)", i),
			fmt.Sprintf("WebFetch(domain:*a%d.test)", i), fmt.Sprintf("x(x:*a*b%d)", i),
		}[i/3%6]))
		fmt.Fprintf(&pi, "%s%q: %q", map[bool]string{true: "", false: ", "}[i == 0], fmt.Sprintf("*a *a*%d", i), action)
	}
	fmt.Fprintf(&claude, `{"permissions": {"deny": [%s], "ask": [%s], "allow": [%s]}}`, strings.Join(lists[0], ","), strings.Join(lists[1], ","), strings.Join(lists[2], ","))
	write(tb, filepath.Join(dir, ".dsh/rules.yaml"), own.String())
	write(tb, filepath.Join(dir, ".claude/settings.json"), claude.String())
	write(tb, filepath.Join(dir, ".pi/extensions/pi-permission-system/config.json"), `{"permission": {"path": {`+pi.String()+`}, "external_directory": {`+pi.String()+`}, "bash": {`+pi.String()+`}}}`)
	r, err := New(Options{Workspace: dir, Dialects: Dialects(), Baseline: rules.Baseline(), Policy: netrule.Options{}})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(r.Close)
	if err := r.Load(); err != nil {
		tb.Fatal(err)
	}
	return r.Current()
}

// cpu is the processor time of this program so far.
func cpu(tb testing.TB) time.Duration {
	tb.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		tb.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
