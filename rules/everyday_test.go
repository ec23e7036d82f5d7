package rules

import "testing"

// TestEveryday: ordinary commands, in ordinary spellings, pass the built-in rules and the floor.
func TestEveryday(t *testing.T) {
	s := NewRuleset(Baseline())
	for _, command := range []string{
		"go test ./... 2>&1 | tail -40", "cd /ws && go build -o bin/x ./cmd/x && ./bin/x --help | head -5", `for f in $(git ls-files '*.go'); do gofmt -l "$f"; done`, `find . -name "*.go" -not -path "./vendor/*" | xargs wc -l | sort -n | tail -20`, `git log --oneline -10 && git diff --stat HEAD~1`,
		"npm ci && npm run build -- --mode production", "docker compose up -d && docker compose logs -f --tail=50 web", `docker run --rm -it -v "$PWD":/src -w /src golang:1.26 go test ./...`, `python3 -c "import json,sys; print(json.load(sys.stdin)['a'])" < x.json`, `awk -F: '{ if ($3 > 1000) print $1 }' /etc/passwd`,
		`sed -i 's/foo/bar/g' src/*.go`, `curl -fsSL "https://api.example.com/v1/items?id=$ID" -H "Authorization: Bearer $TOKEN" | jq -r '.items[].name'`, "rm -rf node_modules dist && npm install", `rm -rf "$TMPDIR/build"`, `rm -rf "${BUILD_DIR:?}"/*`, "tmp=$(mktemp -d); cp -r x \"$tmp\"; rm -rf \"$tmp\"", "d=build; rm -rf $d/*",
		"git commit -m \"$(cat <<'EOF'\nfix: a thing\n\nIt was `broken`; see .dsh/rules.yaml\nEOF\n)\"", "cat > x.sh <<'EOF'\n#!/bin/bash\nset -e\nrm -rf \"$1\"/build\nEOF\nchmod +x x.sh", "tar -xzf a.tgz -C /tmp/x --strip-components=1", "ssh host 'systemctl status nginx'", "kubectl -n x exec -it deploy/web -- ls /app",
		"make -j$(nproc) CC=gcc", "FOO=bar BAZ=\"a b\" ./run.sh --flag", "time (make clean; make)", "while ! nc -z localhost 5432; do sleep 1; done", "until curl -sf http://localhost:8080/healthz; do sleep 1; done", "ps aux | grep -v grep | awk '/node/ {print $2}' | xargs -r kill", "export PATH=$PATH:$(go env GOPATH)/bin && golangci-lint run",
		"if [ -f .env.example ]; then cp .env.example x; fi", "[[ $x =~ ^[0-9]+$ ]] && echo ok", "echo $((1 + 2))", "printf '%s\\n' a b c | sort -u", "mkdir -p a/{b,c}/{d,e} && touch a/b/d/{1..20}.txt", "diff <(sort a) <(sort b)", `psql -h localhost -U app -c "select count(*) from t where a = 'x'"`, "openssl s_client -connect localhost:443 </dev/null | head",
		"git rebase -i HEAD~3", "git stash && git pull --rebase && git stash pop", "GOOS=linux GOARCH=amd64 go build -ldflags \"-X main.version=$(git describe --tags)\" ./...", "cp -r .claude/commands /tmp/x", "ls -la ~/.config ~/.claude 2>/dev/null", "grep -rn 'TODO' --include='*.ts' src | wc -l", "rg -l foo | xargs sed -i 's/foo/bar/g'",
		"mv src/a.go src/b.go", "mv build/* out/", "rm -f *.log .coverage", "rm -rf ./*/dist", "find . -name '*.orig' -delete", "find . -type d -name __pycache__ -exec rm -rf {} +", "perl -pi -e 's/a/b/' x.txt", "node -e 'console.log(require(\"./package.json\").version)'", "echo 'export A=1' >> ~/.bashrc", "source venv/bin/activate && pip install -r requirements.txt",
		"bash scripts/setup.sh", "eval \"$(ssh-agent -s)\"", "alias ll='ls -la'", "trap 'rm -f $tmp' EXIT", "set -euo pipefail; cd \"$(dirname \"$0\")\"; ./x", "jq '.a |= map(select(.b != \"c\"))' x.json > y.json", "gh pr create --title 'a: b' --body \"see .claude/settings.json\"", "cat <<EOF | kubectl apply -f -\nkind: Pod\nEOF",
	} {
		c := Call{Tool: "bash", Args: jsonOf("command", command), Workspace: "/ws", Cwd: "/ws", Protected: []string{"/ws/.dsh/rules.yaml", "/root/.config/dshproxy/proxy.yaml", "/root/.local/state/dshproxy"}}
		if v, err := s.Match(c); err != nil || v.Matched || v.Unparsed {
			t.Errorf("%q: matched %t, unparsed %t, %v", command, v.Matched, v.Unparsed, err)
			if v.Matched {
				t.Log(v.Rule.Reason)
			}
		}
		if reason, err := Floor(c); err != nil || reason != "" {
			t.Errorf("%q: %q, %v", command, reason, err)
		}
	}
}
