//go:build unix

package live

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
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
		"globbed files": "cat *a*?[b]*/**/c;", "globbed words": "cat *a*?[b]*/**/c*d ", "deep globs": "*a*?[b]*/", "braced files": "cat {a,{b,c},d{e..f}}x;", "folders": "cd a;cat b;", "folder": "cd /a;cat b c;", "redirected files": "<a >b;", "options of files": "tee --a=b/c;", "wrapped": "sudo env a nice time nohup b;",
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
		"2 MiB string":       jsonCall("x", "x", fill("a", 2<<20-64)),
		"2 MiB escapes":      call("x", `{"x":"`+fill(`\u0041`, 2<<20-64)+`"}`),
		"2 MiB list":         call("x", `{"x":[`+fill("1,", 2<<20-64)+`1]}`),
		"2 MiB objects":      call("x", `{"x":[`+fill(`{"a":1},`, 2<<20-64)+`1]}`),
		"2 MiB keys":         call("x", `{`+numbered(`"url%d":"a",`, 300_000)+`}`),
		"2 MiB blanks":       call("x", `{`+fill(" ", 2<<20-64)+`}`),
		"2 MiB depth":        call("x", fill("[", 2<<20-64)),
		"depth 10,000":       call("x", strings.Repeat(`{"command":`, 9_900)+"1"+strings.Repeat("}", 9_900)),
		"2 MiB key":          call("x", `{"`+fill("a", 2<<20-64)+`":1}`),
		"2 MiB escaped keys": call("x", `{"x":[`+fill(`{"\u0041":1},`, 2<<20-64)+`1]}`),
		"2 MiB strings":      call("x", `{"x":[`+list(`"`+fill("a", 60)+`"`, 65_000)+`]}`),
		"2 MiB numbers":      call("x", `{"x":[`+list(fill("1234567890", 60), 65_000)+`]}`),
		"2 MiB number":       call("x", `{"x":`+fill("1234567890", 2<<20-64)+`}`),
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

// hostileSnapshot holds rules of every kind and dialect, n of each, which are dear to match.
func hostileSnapshot(tb testing.TB, n int) *Snapshot {
	return snapshotOf(tb, n, []string{
		"{ argv: { command: [c%d, 'x*%d*'], anyArg: ['--x*%d*', -rf] } }", "{ argv: { args: ['*a*a%d', '!*z*'] } }", "{ argv: { pipeline: ['*a*|b%d'] } }",
		"{ network: { domains: ['*a*%d.test', h%d.test] } }", "{ paths: ['**/a*/%d', 'src/**'] }", "{ params: { x: ['*a*b%d'] } }",
	}, []string{"Bash(*a *a*%d)", "Bash(c%d *)", "Read(**/a*/%d)", "Edit(src%d/**)", "WebFetch(domain:*a%d.test)", "x(x:*a*b%d)"}, "*a *a*%d")
}

// snapshotOf makes n rules of each dialect; %d in a pattern becomes the rule's number.
func snapshotOf(tb testing.TB, n int, matches, tools []string, pattern string) *Snapshot {
	tb.Helper()
	var own strings.Builder
	var pi []string
	var lists [3][]string
	actions := []string{"deny", "ask", "allow"}
	for i := range n {
		numbered := func(patterns ...string) string {
			return strings.ReplaceAll(patterns[i/3%len(patterns)], "%d", strconv.Itoa(i))
		}
		fmt.Fprintf(&own, "- match: %s\n  action: %s\n  reason: r\n", numbered(matches...), actions[i%3])
		lists[i%3] = append(lists[i%3], strconv.Quote(numbered(tools...)))
		pi = append(pi, fmt.Sprintf("%q: %q", numbered(pattern), actions[i%3]))
	}
	surface := "{" + strings.Join(pi, ", ") + "}"
	dir := tb.TempDir()
	write(tb, filepath.Join(dir, ".dsh/rules.yaml"), "rules:\n"+own.String())
	write(tb, filepath.Join(dir, ".claude/settings.json"), fmt.Sprintf(`{"permissions": {"deny": [%s], "ask": [%s], "allow": [%s]}}`,
		strings.Join(lists[0], ","), strings.Join(lists[1], ","), strings.Join(lists[2], ",")))
	write(tb, filepath.Join(dir, ".pi/extensions/pi-permission-system/config.json"),
		fmt.Sprintf(`{"permission": {"path": %s, "external_directory": %s, "bash": %s}}`, surface, surface, surface))
	r := newRules(tb, Options{Workspace: dir, Dialects: Dialects(), Baseline: rules.Baseline()})
	must(tb, r.Load())
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

// TestHostileCallsEnd: what was made to be dear is refused or judged, and soon. The bound is far above what a calm machine
// needs, for the race detector; the benchmark has the numbers.
func TestHostileCallsEnd(t *testing.T) {
	s := hostileSnapshot(t, 256)
	calls := hostileCalls(128<<10 - 64)
	for name, c := range hostileJSON() {
		calls[name] = c
	}
	for _, name := range []string{
		"1 MiB path", "1 MiB dots", "1 MiB param", "16 MiB string", "2 MiB escapes", "2 MiB numbers", "same keys", "depth 10,000", "paths", "URLs", "unicode hosts",
		"shell pipes", "shell extended globs", "shell path words", "shell keywords", "shell env -S chain", "shell eval chain", "nested su", "nested evals",
	} {
		c, ok := calls[name]
		if !ok {
			t.Fatalf("no call %q", name)
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		start := cpu(t)
		v, err := s.Judge(c, true)
		took := cpu(t) - start
		runtime.ReadMemStats(&after)
		if err != nil || v.Action == netrule.Allow && !v.Passthrough {
			t.Errorf("%s: %v, %v", name, v.Action, err)
		}
		if most := 2 * time.Second; took > most {
			t.Errorf("%s took %v", name, took)
		}
		if allocated := after.TotalAlloc - before.TotalAlloc; allocated > 200<<20 {
			t.Errorf("%s allocated %d MiB", name, allocated>>20)
		}
	}
}

// TestOrdinaryCallsAreJudged whole, with as many rules as a file may hold, and with those of every dialect.
func TestOrdinaryCallsAreJudged(t *testing.T) {
	s := ordinarySnapshot(t, 256)
	for name, c := range ordinaryCalls(t) {
		if v, err := s.Judge(c, true); err != nil || v.Code != netrule.CodeNeedsApproval {
			t.Errorf("%s: %v %v %q, %v", name, v.Action, v.Code, v.Reason, err)
		}
	}
}

// ordinarySnapshot holds rules of every kind and dialect, n of each, of which none is about ordinary calls.
func ordinarySnapshot(tb testing.TB, n int) *Snapshot {
	return snapshotOf(tb, n, []string{
		"{ tools: [bash], argv: { command: [tool%d], anyArg: ['--force*', -rf] } }", "{ tools: [bash], argv: { command: [git], args: [push, 'branch%d'] } }",
		"{ network: { domains: [host%d.test, '*.h%d.test'] } }", "{ paths: ['secrets%d/**'] }", "{ params: { command: '*secret%d*' } }", "{ argv: { pipeline: ['curl|tool%d'] } }",
	}, []string{"Bash(tool%d *)", "Bash(git push * branch%d)", "Read(secrets%d/**)", "WebFetch(domain:host%d.test)"}, "tool%d *")
}

func ordinaryCalls(tb testing.TB) map[string]rules.Call {
	tb.Helper()
	const size = 32 << 10
	text, err := os.ReadFile("judge.go")
	if err != nil {
		tb.Fatal(err)
	}
	source := strings.ReplaceAll(fill(string(text), 2*size)[:size-200], "'", "`")
	script := "if [ -f \"$HOME/src/$name.go\" ]; then\n  go test -race ./a/... | tee out.txt | grep -v 'no test files' || exit 1\n" +
		"  git -C /a/b add -A && git commit -m \"a message that says why\"\nfi\ncurl -fsSL https://a.test/b | tar xz -C /tmp/x\n"
	return map[string]rules.Call{
		"short":         jsonCall("bash", "command", "go test ./... && git commit -m x"),
		"here-document": jsonCall("bash", "command", "cat > x.go <<'EOF'\n"+source+"\nEOF\ngo build ./..."),
		"script":        jsonCall("bash", "command", fill(script, size)),
		"quoted":        jsonCall("bash", "command", "python3 -c '"+source+"'"),
		"list of files": jsonCall("bash", "command", "gofmt -l "+fill("a/package/some_file.go ", size-20)),
		"1 MiB content": jsonCall("write", "content", fill(string(text), 1<<20)),
	}
}

// BenchmarkOrdinary are the calls that must be judged whole, for comparison with hostile ones.
func BenchmarkOrdinary(b *testing.B) {
	s := ordinarySnapshot(b, 256)
	for name, c := range ordinaryCalls(b) {
		b.Run(name, func(b *testing.B) { benchmark(b, s, c) })
	}
}

// BenchmarkHostile gives the processor time of one call that was made to be dear, for each that was thought of.
func BenchmarkHostile(b *testing.B) {
	s := hostileSnapshot(b, 256)
	for _, size := range []int{32 << 10, 128<<10 - 64} {
		for name, c := range hostileCalls(size) {
			b.Run(fmt.Sprintf("%s %d KiB", name, (size+64)>>10), func(b *testing.B) { benchmark(b, s, c) })
		}
	}
	for name, c := range hostileJSON() {
		b.Run(name, func(b *testing.B) { benchmark(b, s, c) })
	}
}

func benchmark(b *testing.B, s *Snapshot, c rules.Call) {
	b.Helper()
	b.ReportAllocs()
	start := cpu(b)
	for b.Loop() {
		if _, err := s.Judge(c, true); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64((cpu(b)-start).Microseconds())/1000/float64(b.N), "cpu-ms/op")
}
