#!/usr/bin/env bash
# Shows dshproxy at work on this machine alone: a loopback origin, the proxy, an allowed and a denied request through
# real curl, the rule that mends it, the explanation and the decision record. Usage: demo.sh PATH-TO-DSHPROXY
set -euo pipefail
[ -x "${1:-}" ] || { echo "usage: demo.sh PATH-TO-DSHPROXY" >&2; exit 2; }
dshproxy=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")
command -v curl >/dev/null || { echo "demo: curl is missing" >&2; exit 1; }
work=$(mktemp -d)
pids=()
cleanup() {
  for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
  wait 2>/dev/null || true
  rm -rf "$work"
}
trap cleanup EXIT
mkdir -p "$work/.dsh"
cd "$work"

# The origin is a second dshproxy's health page: nothing but the binary and curl is needed.
"$dshproxy" serve --listen 127.0.0.1:0 --metrics 127.0.0.1:0 --ready-file origin.json --workspace "$work" >/dev/null 2>origin.log &
pids+=($!)
until [ -s origin.json ]; do kill -0 "${pids[0]}" || { cat origin.log >&2; exit 1; }; sleep 0.05; done
origin=$(sed 's/.*"metrics":"\([^"]*\)".*/\1/' origin.json)
port=${origin##*:}

cat >.dsh/rules.yaml <<END
rules:
  - match: { network: { domains: ["=app.localhost"], ports: [$port], ips: ["127.0.0.1"] } }
    action: allow
    reason: "the demo's own origin"
END
"$dshproxy" serve --listen 127.0.0.1:0 --metrics off --ready-file proxy.json --decisions decisions.log 2>proxy.log &
pids+=($!)
until [ -s proxy.json ]; do kill -0 "${pids[1]}" || { cat proxy.log >&2; exit 1; }; sleep 0.05; done
proxy=$(sed 's/.*"proxy":"\([^"]*\)".*/\1/' proxy.json)
export http_proxy=http://$proxy https_proxy=http://$proxy no_proxy=

show() { printf '\n$ %s\n' "$*"; }
run() { show "$@"; "$@"; }
echo "dshproxy listens on $proxy and enforces:"
cat .dsh/rules.yaml

run curl -sS "http://app.localhost:$port/healthz"
run curl -sS "http://db.localhost:$port/healthz"
show dshproxy allow --private "db.localhost:$port"
"$dshproxy" allow --private "db.localhost:$port"
for _ in $(seq 100); do curl -fs "http://db.localhost:$port/healthz" >/dev/null && break; sleep 0.1; done
run curl -sS "http://db.localhost:$port/healthz"

show curl -sSI https://api.example.com/
curl -sSI https://api.example.com/ 2>&1 | tr -d '\r' | sed -n '1,4p' || true
show dshproxy explain api.example.com:443
"$dshproxy" explain api.example.com:443 || true

kill "${pids[1]}" && wait "${pids[1]}" 2>/dev/null || true
show "grep -m 1 '\"verdict\":\"deny\"' decisions.log"
grep -m 1 '"verdict":"deny"' decisions.log
