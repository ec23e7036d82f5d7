package admin

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
)

func TestClient(t *testing.T) {
	for _, network := range []string{"tcp", "unix"} {
		w := newWorld(t, network, nil)
		address := w.addr.String()
		if network == "unix" {
			address = "unix:" + address
		}
		c := Dial(address, testToken)
		defer c.Close()
		var status Status
		if err := c.Get(t.Context(), "/v1/status", &status); err != nil || status.Version != "v1" || !status.Enforce {
			t.Errorf("%s: %+v %v", network, status, err)
		}
		var verdict Verdict
		if err := c.Post(t.Context(), "/v1/check", Call{Tool: "bash", Agents: []string{"a"}}, &verdict); err != nil || verdict.Action != "deny" || verdict.Rule == nil || verdict.Rule.Line != 3 {
			t.Errorf("%s: %+v %v", network, verdict, err)
		}
		if err := c.Post(t.Context(), "/v1/stop", nil, nil); err != nil {
			t.Errorf("%s: stop: %v", network, err)
		}
		if got, want := w.backend.taken(), "status, check bash , stop, status"; got != want {
			t.Errorf("%s: %q, want %q", network, got, want)
		}
		w.backend.err = &Error{409, "reload_failed", "bad", "see lint"}
		var e *Error
		if err := c.Post(t.Context(), "/v1/reload", nil, nil); !errors.As(err, &e) || *e != (Error{409, "reload_failed", "bad", "see lint"}) {
			t.Errorf("%s: %v", network, err)
		}
		wrong := Dial(address, "wrong")
		defer wrong.Close()
		if err := wrong.Get(t.Context(), "/v1/status", &status); !errors.As(err, &e) || e.Status != 401 || e.Code != "unauthorized" {
			t.Errorf("%s: wrong token: %v", network, err)
		}
	}
}

// TestClientDirect: the way to the API leads through no proxy, whatever the environment says.
func TestClientDirect(t *testing.T) {
	c := Dial("192.0.2.1:9129", testToken)
	if c.http.Transport.(*http.Transport).Proxy != nil {
		t.Error("the client asks for a proxy")
	}
}

// TestClientEverywhere: a listener on every address is spoken to on loopback.
func TestClientEverywhere(t *testing.T) {
	for address, base := range map[string]string{
		"0.0.0.0:9129": "http://127.0.0.1:9129", "[::]:9129": "http://127.0.0.1:9129", "192.0.2.1:9129": "http://192.0.2.1:9129", "localhost:9129": "http://localhost:9129", "unix:/run/s": "http://localhost",
	} {
		if got := Dial(address, "").base; got != base {
			t.Errorf("%s: %s, want %s", address, got, base)
		}
	}
}

// TestClientElsewhere: what answers may be something else, and does not get the token passed on.
func TestClientElsewhere(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	answers := map[string]func(http.ResponseWriter){
		"/html":     func(w http.ResponseWriter) { w.WriteHeader(404); fmt.Fprint(w, "<html>") },
		"/empty":    func(w http.ResponseWriter) { w.WriteHeader(500); fmt.Fprint(w, `{"error":{}}`) },
		"/null":     func(w http.ResponseWriter) { w.WriteHeader(500); fmt.Fprint(w, `null`) },
		"/redirect": func(w http.ResponseWriter) { w.Header().Set("Location", "/followed"); w.WriteHeader(302) },
		"/followed": func(http.ResponseWriter) { t.Error("a redirect was followed") },
	}
	s := Server(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { answers[r.URL.Path](w) }))
	go s.Serve(l)
	defer s.Close()
	c := Dial(l.Addr().String(), testToken)
	defer c.Close()
	for path := range answers {
		if path == "/followed" {
			continue
		}
		var e *Error
		if err := c.Get(t.Context(), path, nil); !errors.As(err, &e) || e.Code != "unexpected_answer" || e.Status < 302 {
			t.Errorf("%s: %v", path, err)
		}
	}
	answers["/text"] = func(w http.ResponseWriter) { fmt.Fprint(w, "hello") }
	var out Status
	if err := c.Get(t.Context(), "/text", &out); err == nil || !strings.Contains(err.Error(), l.Addr().String()) {
		t.Errorf("text: %v", err)
	}
	if err := c.Post(t.Context(), "/text", func() {}, nil); err == nil {
		t.Error("a body that is no JSON was sent")
	}
	gone := Dial("127.0.0.1:1", testToken)
	if err := gone.Get(t.Context(), "/v1/status", nil); err == nil || strings.Contains(err.Error(), testToken) {
		t.Errorf("nobody there: %v", err)
	}
}
