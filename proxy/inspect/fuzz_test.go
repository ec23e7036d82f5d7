package inspect

import (
	"bufio"
	"bytes"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"dshproxy/netrule"
	"dshproxy/proxy"
)

// FuzzAdmit: whatever a client sends, what is admitted names the tunnel's host and port, and what goes to the origin
// names no other host in any form, and holds nothing hop-by-hop.
func FuzzAdmit(f *testing.F) {
	for _, seed := range []string{
		"GET / HTTP/1.1\r\nHost: api.test\r\n\r\n",
		"GET https://api.test HTTP/1.1\r\nHost: api.test\r\n\r\n",
		"GET HTTPS://api.test:443?q HTTP/1.1\r\nHost: x\r\n\r\n",
		"OPTIONS * HTTP/1.1\r\nHost: api.test:443\r\n\r\n",
		"GET //evil.test/x HTTP/1.1\r\nHost: API.test.\r\n\r\n",
		"GET //evil.test/|\xff HTTP/1.1\r\nHost: api.test\r\n\r\n",
		"GET /\xc3\xa9|^?a|b%zz HTTP/1.1\r\nHost: api.test\r\n\r\n",
		"GET /a#b HTTP/1.0\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: api.test\r\nConnection: x, Upgrade\r\nX: 1\r\nUpgrade: websocket\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: evil.test\r\nproxy_authorization: x\r\nVia: 1.1 dshproxy-0\r\n\r\n",
	} {
		f.Add([]byte(seed))
	}
	target, err := netrule.ParseConnect("api.test:443")
	if err != nil {
		f.Fatal(err)
	}
	allow := func(host string, port uint16) (netrule.Code, bool) {
		return netrule.CodeAllowedByRule, host == "api.test" && port == 443
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		in, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(text)))
		if err != nil || in.Method == http.MethodConnect {
			return
		}
		e := &Engine{limits: Limits{}.withDefaults(), log: slog.New(slog.DiscardHandler), pseudonym: "dshproxy-0"}
		told := 0
		x := &exchange{r: in, tunnel: &tunnel{engine: e, target: target, authority: "api.test", given: &proxy.InspectedTunnel{
			Judge: allow, Requested: func(proxy.InnerRequest) { told++ },
		}}}
		x.w = &answerWriter{ResponseWriter: httptest.NewRecorder(), x: x}
		out := in.WithContext(t.Context())
		if refused := x.admit(out); refused != nil {
			resp := x.refuse(refused)
			body, _ := io.ReadAll(resp.Body)
			for line := range strings.Lines(string(body)) {
				if !strings.HasPrefix(line, "# ") && resp.Header.Get("Content-Type") != "application/json" {
					t.Errorf("line %q would run in a shell", line)
				}
			}
			if resp.StatusCode < 400 || told != 1 || x.admitted {
				t.Errorf("refused with %d, told %d times", resp.StatusCode, told)
			}
			return
		}
		var sent bytes.Buffer
		out.Body = nil
		if err := out.Write(&sent); err != nil {
			return // the transport refuses it as well
		}
		got, err := http.ReadRequest(bufio.NewReader(&sent))
		if err != nil {
			t.Fatalf("what is sent is no request: %v", err)
		}
		if got.Host != "api.test" || out.URL.Host != "api.test" || out.URL.Scheme != "https" || got.URL.Host != "" {
			t.Errorf("it is sent to %q, %q", got.Host, got.URL)
		}
		if rest := got.RequestURI; rest != "*" && !strings.HasPrefix(rest, "/") {
			t.Errorf("the origin gets the target %q", rest)
		}
		for name := range got.Header {
			upgrade := x.upgrading() && (name == "Connection" || name == "Upgrade")
			if hopByHop(dashed(name)) && !upgrade {
				t.Errorf("the origin gets %s", name)
			}
		}
	})
}
