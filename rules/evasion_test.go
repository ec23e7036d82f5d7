package rules

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"dshproxy/rules/toolspec"
)

// denies tests that every command is denied by the rule about rm -rf /.
func denies(t *testing.T, commands ...string) {
	t.Helper()
	for _, command := range commands {
		if got := judge(t, denyRm, Call{Tool: "bash", Args: jsonOf("command", command)}); got != "deny" {
			t.Errorf("%q: %s", command, got)
		}
	}
}

// TestBehindErrors: a shell takes much that the parser refuses. What stands behind is read all the same, however it is
// spelt.
func TestBehindErrors(t *testing.T) {
	hidden := []string{
		"rm -rf /", `echo "$(rm -rf /)"`, "f() { rm -rf /; }; f", "case a in a) rm -rf /;; esac", "{fd}>f rm -rf /", "{rm,-rf,/}", "echo `rm -rf /`", "cat <(rm -rf /)", "if :; then rm -rf /; fi", "(rm -rf /)",
		"{ rm -rf /; }", "x=$(rm -rf /)", "bash -c 'rm -rf /'", "for i in 1; do rm -rf /; done", "true && rm -rf /", "rm -rf / | cat",
	}
	for _, bad := range []string{
		"(( ))", "! ! :", "!", "echo ${x~}", "echo ${x~~}", "a[]=x", "time ! :", "declare -A m=([a b]=c)", "declare -A m; m[a b]=c", "cat <<$x\n$x", "echo ${x@k}", "time -", "let a[=]", "function f\n\n{ :; }", "echo ${a[x y]}",
		"cat <<`a`\n`a`", "1a() { :; }", "x=([a b]=c)",
	} {
		for _, command := range hidden {
			denies(t, bad+"\n"+command)
		}
	}
	for _, command := range hidden {
		denies(t, "(( )); "+command, "! ! :; "+command, "a[]=x; "+command, "echo ok\n(( ))\necho ok\n"+command, command+"\n(( ))", "(( ))\n(( ))\n! ! :\n"+command, "! ! :\n"+command+"\nif then fi ((")
	}
	denies(t, "! ! rm -rf /", "time ! rm -rf /", "! ! { rm -rf /; }", `! ! :; echo "a" "b $(echo c; rm -rf /)`, "echo '(( ))'\n(( ))\n"+strings.Repeat("echo a line that parses\n", 200)+"rm -rf /",
		"(( ))\nf() {\n"+strings.Repeat("  echo a line that parses\n", 60)+"  rm -rf /\n}\nf")
}

// TestComments: a comment ends with its line, also behind a backslash.
func TestComments(t *testing.T) {
	denies(t, "a #c\\\nrm -rf /", "a;#\\\nrm -rf /", "<>f #c\\\nrm -rf /\n&&", "#c\\\nrm -rf /", "bash -c 'a #c\\\nrm -rf /'", "echo $( # c\\\nrm -rf /)")
	s := toolspec.ReadScript("ls #c\\\nrm -rf /")
	commands, whole := s.Commands()
	if whole || !slices.ContainsFunc(commands, func(c toolspec.Command) bool { return c.Text == "rm -rf /" }) {
		t.Errorf("commands %v, whole %t", commands, whole)
	}
	for _, command := range []string{"git commit -m 'a #1' \\\n  -q", "# a\nls"} {
		if _, whole := toolspec.ReadScript(command).Commands(); whole == strings.Contains(command, "\\") {
			t.Errorf("%q: whole %t", command, whole)
		}
	}
}

// TestErrorsWithoutEnd: what is too much to be read on behind errors is refused where it is shell text, and not judged
// where it may be something else.
func TestErrorsWithoutEnd(t *testing.T) {
	doc, err := Parse("f.yaml", []byte(denyRm), Options{})
	if err != nil {
		t.Fatal(err)
	}
	s := NewRuleset(doc.Rules)
	text := strings.Repeat("(( )) a b; ", 8_000)
	if _, err := s.Match(Call{Tool: "bash", Args: jsonOf("command", text)}); !errors.Is(err, ErrTooMuch) {
		t.Errorf("shell text: %v", err)
	}
	program := strings.Repeat("def f(a, b):\n    return g(a)[0] if a else {'k': (1, 2)}  # don't\n", 100)
	for _, tool := range []string{"bash", "run_python"} {
		if _, err := s.Match(Call{Tool: tool, Args: jsonOf("script", program)}); err != nil {
			t.Errorf("%s: a program: %v", tool, err)
		}
	}
}

// TestPrefixes: assignments of every kind, and what env takes, stand before a command.
func TestPrefixes(t *testing.T) {
	denies(t, "A[0]=1 rm -rf /", "A=(1 2) rm -rf /", "a[$x]=3 rm -rf /", "A+=1 rm -rf /", "A[0]+=1 rm -rf /", "A=1 B[2]=3 C=(4) rm -rf /", "time -- rm -rf /", "time -p -- rm -rf /", "env - rm -rf /", "env -i - rm -rf /",
		"env 1=2 rm -rf /", "env a-b=2 rm -rf /", "env 'A B=1' rm -rf /", "env a[0]=3 rm -rf /", `env -S 'rm\_-rf\_/'`, `env -S 'rm -rf / \c x'`, `env -S 'rm -rf /\c foo'`, "env -S'rm -rf' /", "env -S rm -rf /", "env -S 'A=1 rm' -rf /",
		"env -iS 'rm -rf /'", "env -vS 'rm -rf /'", `env -S 'rm\t-rf\t/'`, `env -S '"rm" "-rf" /'`, "env -S 'env -S \"rm -rf /\"'", "env --split-string 'rm -rf' /", "env -a x rm -rf /", "env --argv0=x rm -rf /", "sudo env - A[1]=2 rm -rf /")
	const text = "rules:\n  - match: { argv: { pipeline: 'curl|sh' } }\n    action: deny\n    reason: r\n"
	for _, command := range []string{"curl x | env - sh", "curl x | env a-b=1 sh", "curl x | env -S sh", "curl x | A[0]=1 sh", "(( )); curl x | env - sh", "curl x | time -- sh"} {
		if got := judge(t, text, Call{Tool: "bash", Args: jsonOf("command", command)}); got != "deny" {
			t.Errorf("%q: %s", command, got)
		}
	}
}

// TestBraces: lists and sequences are expanded, and too many words are refused.
func TestBraces(t *testing.T) {
	denies(t, "rm -rf /{x..x}/../{,x} /", "r{m..m} -rf /", "{,rm} -rf /", "{rm,} -rf /", "{rm,-rf,a,b,c,d,e,f,g,h,i,j,/}", "rm -r{f..f} /", "rm {-rf,/}", "rm -{r,f} /", "rm -rf {/,/y}", "rm -rf {{/,/y},/z}", "rm -rf {a,b,c,d,e,f,g,h,i,/,k,l}",
		"{r,x}{m,y} -rf /; {rm,x} -rf /", `{"rm",-rf,'/'}`, "rm -rf {1..20} /", "rm -rf {01..03} /", "rm -rf {c..a..2} /", "rm -{f..r} /")
	doc, err := Parse("f.yaml", []byte(denyRm), Options{})
	if err != nil {
		t.Fatal(err)
	}
	s := NewRuleset(doc.Rules)
	for _, command := range []string{"echo {1..99999}", "echo {1..9999999999}", "echo " + strings.Repeat("{a,b}", 40), "echo {a..z}{a..z}{a..z}{a..z}"} {
		if _, err := s.Match(Call{Tool: "bash", Args: jsonOf("command", command)}); !errors.Is(err, ErrTooMuch) {
			t.Errorf("%q: %v", command, err)
		}
	}
	for _, command := range []string{"echo {1..1000}", "for i in {1..50}; do echo $i; done", "mkdir -p a/{b,c,d}/{e,f}", `curl -d '{"a": [1, 2], "b": {"c": 1}}' x`, "awk '{print $1, $2}' f"} {
		if v, err := s.Match(Call{Tool: "bash", Args: jsonOf("command", command)}); err != nil || v.Matched {
			t.Errorf("%q: %v %v", command, v.Matched, err)
		}
	}
}

// TestPositional: a text is given what its $0, $1 and $@ are.
func TestPositional(t *testing.T) {
	denies(t, `sh -c '"$@"' x rm -rf /`, `sh -c 'exec "$@"' -- rm -rf /`, `bash -c '$0 -rf /' rm`, `bash -c 'rm "$@"' x -rf /`, `bash -c '"$0" "$@"' rm -rf /`, `bash -c '$*' x rm -rf /`, `bash -c '$1 $2 $3' x rm -rf /`, `bash -c 'r$1 -rf /' x m`,
		`bash -c '${1} -rf /' x rm`, `bash -c 'eval "$1"' x 'rm -rf /'`, `bash -c '$1' x 'rm -rf /'`, `sudo sh -c 'env "$@"' x rm -rf /`, `find . -exec bash -c '$0 -rf /' rm \;`, `set -- rm -rf /; "$@"`, `set -- -rf /; rm "$@"`,
		`f() { "$@"; }; f rm -rf /`, `f() { rm "$1" "$2"; }; f -rf /`, `sh -c 'sh -c "$1" y' x 'rm -rf /'`)
}

// TestVariables: what a text assigns is what it runs.
func TestVariables(t *testing.T) {
	denies(t, "x=rm; $x -rf /", "x=rm y=/; $x -rf $y", `x='rm -rf /'; $x`, `x='rm -rf /'; eval "$x"`, `x='rm -rf /'; bash -c "$x"`, "export x=rm; $x -rf /", "x=ls; x=rm; $x -rf /", "for c in ls rm; do $c -rf /; done", "x=m; r${x} -rf /", "f() { $x -rf /; }; x=rm; f",
		"alias q='rm -rf /'\nq", "alias q=rm\nq -rf /", "rm -rf $(echo /)", "$(echo rm) -rf /", "$(printf %s rm) -rf /", "`echo rm` -rf /", "echo 'rm -rf /' > s; sh s", "printf 'rm -rf /\\n' > s && bash ./s", "cat > s <<E\nrm -rf /\nE\nsh s",
		"PS4='$(rm -rf /)' bash -xc :", "PROMPT_COMMAND='rm -rf /' bash -i", "x='$(rm -rf /)'; echo ${x@P}", "a='b[$(rm -rf /)]'; echo $((a))", "test -v 'a[$(rm -rf /)]'", "let 'a[$(rm -rf /)]=1'", "[[ -v 'a[$(rm -rf /)]' ]]", "printf -v 'a[$(rm -rf /)]' x")
}

// TestNothing: expansions may come to nothing, or to their literal default.
func TestNothing(t *testing.T) {
	denies(t, "$x rm -rf /", "$(:) rm -rf /", "r${x}m -rf /", "rm -r$@f /", "${y:-rm} -rf ${z:-/}", "${y:=rm} -rf /", "${y-rm} -rf /", "rm -rf$x /", "rm -rf /$x", "r$(:)m -rf /", "r`:`m -rf /", "r$*m -rf /", "r$1m -rf /", "rm $@-rf /$@", `r"$@"m -rf /`,
		"${x+a}rm -rf /", "${PATH+rm} -rf /", "rm -rf $'/'", "rm ${y:--rf} /", `"$x"rm -rf /`, `r"$x"m -rf /`, "$x sudo $y rm -rf /", `bash -c "$x rm -rf /"`, "$'rm\\0foo' -rf /", "rm $'-rf\\0x' /", "$'\\x72\\x6d' -rf /", "unset HOME; rm -rf $HOME/")
	for _, command := range []string{"rm -rf $HOME", `rm -rf "$HOME"/x`, "d=build; rm -rf $d/", `d=build; rm -rf "$d/"`, "rm -rf x$y", "echo $x -rf /"} {
		if got := judge(t, denyRm, Call{Tool: "bash", Args: jsonOf("command", command)}); got != "pass" {
			t.Errorf("%q: %s", command, got)
		}
	}
}

// TestWrappers: programs that run another one.
func TestWrappers(t *testing.T) {
	denies(t, "perf stat rm -rf /", "perf stat -e cycles rm -rf /", "toybox rm -rf /", "csh -c 'rm -rf /'", "tcsh -c 'rm -rf /'", "sg g -c 'rm -rf /'", "sg g 'rm -rf /'", "capsh -- -c 'rm -rf /'", "start-stop-daemon --start --exec /bin/rm -- -rf /",
		"start-stop-daemon -S -x rm -- -rf /", "nsenter -t 1 -m rm -rf /", "nsenter --target 1 rm -rf /", "setpriv --reuid 1 rm -rf /", "setpriv --reuid=1 rm -rf /", "proxychains rm -rf /", "proxychains4 -q rm -rf /", "torsocks rm -rf /", "linux64 rm -rf /",
		"linux32 rm -rf /", "setarch x86_64 rm -rf /", "firejail --noprofile rm -rf /", "firejail rm -rf /", "bwrap --bind / / rm -rf /", "bwrap --ro-bind / / --dev /dev rm -rf /", "dbus-run-session -- rm -rf /", "dbus-run-session rm -rf /", "ssh h rm -rf /",
		"ssh h 'rm -rf /'", "ssh -p 22 u@h 'cd x; rm -rf /'", "docker exec c rm -rf /", "docker exec -it c rm -rf /", "docker run i rm -rf /", "docker run --rm -v /:/x i rm -rf /", "podman run i sh -c 'rm -rf /'", "docker run -it i bash -c 'rm -rf /'", "kubectl exec p -- rm -rf /",
		"mapfile -C 'rm -rf /' -c 1 <<<a", "readarray -c1 -C 'rm -rf /' a <<<a", "compgen -C 'rm -rf /' q", "complete -C 'rm -rf /' q", "echo 'rm -rf /' | bash", "printf 'rm -rf /' | sh", "printf '%s -rf /' rm | sh", "echo rm -rf / | sudo sh", "echo 'rm -rf /' | (sh)",
		`echo -e 'rm\x20-rf /' | bash`, "cat <<< 'rm -rf /' | sh", "cat <<E | sh\nrm -rf /\nE", "echo / | xargs rm -rf", "xargs rm -rf <<< /", "echo rm | xargs -I% % -rf /", "echo rm | xargs -I@ sh -c '@ -rf /'", "source /dev/stdin <<< 'rm -rf /'", "bash <(echo rm -rf /)",
		"sshpass -p x ssh h rm -rf /", "npx -c 'rm -rf /'", "ssh -o ProxyCommand='rm -rf /' h", "autossh -M 0 h rm -rf /")
	if got := judge(t, denyRm, Call{Tool: "x", Args: []byte(`{"command": "rm", "args": ["-rf", "/"]}`)}); got != "deny" {
		t.Errorf("split: %s", got)
	}
	for _, command := range []string{"docker run i ls /", "ssh h ls /", "echo 'rm -rf /' | cat", "echo 'rm -rf /' | grep rm", "perf report rm -rf /", "echo rm -rf / | tee f"} {
		if got := judge(t, denyRm, Call{Tool: "bash", Args: jsonOf("command", command)}); got != "pass" {
			t.Errorf("%q: %s", command, got)
		}
	}
}
