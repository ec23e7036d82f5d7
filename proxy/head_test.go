package proxy

import (
	"bufio"
	"bytes"
	"errors"
	"net/http"
	"strings"
	"testing"
)

// scanAll runs the scanner and the parser over a whole head, as one read.
func scanAll(s string) (*requestHead, error) {
	var sc headScanner
	n, err := sc.scan([]byte(s))
	if err != nil {
		return nil, err
	}
	h := &requestHead{}
	return h, h.parse([]byte(s)[:n], 200, "dshproxy-00000000")
}

// TestHeadRefusals: each head has one reading here and another one somewhere else.
func TestHeadRefusals(t *testing.T) {
	const get = "GET http://a.test/ HTTP/1.1\r\nHost: a.test\r\n"
	tests := []struct {
		id, head string
		status   int
	}{
		{"FRM-01", get + "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n", 400},
		{"FRM-01 other order", get + "Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n", 400},
		{"FRM-02", "GET http://a.test/ HTTP/1.0\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n", 400},
		{"FRM-02 chunked alone", "GET http://a.test/ HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", 400},
		{"FRM-03", get + "Content-Length: 3\r\nContent-Length: 4\r\n\r\n", 400},
		{"FRM-04", get + "Content-Length: 3\r\nContent-Length: 3\r\n\r\n", 400},
		{"FRM-05", get + "Content-Length: 3, 3\r\n\r\n", 400},
		{"FRM-06 signed", get + "Content-Length: +3\r\n\r\n", 400},
		{"FRM-06 negative", get + "Content-Length: -3\r\n\r\n", 400},
		{"FRM-06 hex", get + "Content-Length: 0x3\r\n\r\n", 400},
		{"FRM-06 empty", get + "Content-Length:\r\n\r\n", 400},
		{"FRM-06 huge", get + "Content-Length: 99999999999999999999\r\n\r\n", 400},
		{"FRM-09", get + "Transfer-Encoding: xchunked\r\n\r\n", 501},
		{"FRM-09 cow", get + "Transfer-Encoding: cow\r\n\r\n", 501},
		{"FRM-10 chunked, identity", get + "Transfer-Encoding: chunked, identity\r\n\r\n", 501},
		{"FRM-10 gzip, chunked", get + "Transfer-Encoding: gzip, chunked\r\n\r\n", 501},
		{"FRM-10 identity", get + "Transfer-Encoding: identity\r\n\r\n", 501},
		{"FRM-11", get + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n", 400},
		{"FRM-14 VT", get + "Transfer-Encoding: \x0bchunked\r\n\r\n", 400},
		{"FRM-14 FF", get + "Transfer-Encoding: \x0cchunked\r\n\r\n", 400},
		{"FRM-14 NUL", get + "Transfer-Encoding: \x00chunked\r\n\r\n", 400},
		{"FRM-15 parameter", get + "Transfer-Encoding: chunked;q=1\r\n\r\n", 501},
		{"FRM-15 empty element", get + "Transfer-Encoding: ,chunked\r\n\r\n", 501},
		{"FRM-16", get + "Transfer-Encoding:\r\n chunked\r\n\r\n", 501},
		{"FRM-17", get + "Transfer-Encoding : chunked\r\n\r\n", 400},
		{"FRM-32", get + "Expect: y 100-continue\r\n\r\n", 417},
		{"FRM-62 HTTP/1.10", "GET http://a.test/ HTTP/1.10\r\n\r\n", 400},
		{"FRM-62 lower case", "GET http://a.test/ http/1.1\r\n\r\n", 400},
		{"FRM-62 none", "GET http://a.test/\r\n\r\n", 400},
		{"FRM-62 HTTP/0.9", "GET http://a.test/ HTTP/0.9\r\n\r\n", 505},
		{"FRM-63", "GET http://a.test/ HTTP/1.1\nHost: a.test\n\n", 400},
		{"FRM-63 one line", get + "X: y\n\r\n", 400},
		{"FRM-64", "\r\n" + get + "\r\n", 400},
		{"FRM-65 PRI", "PRI * HTTP/2.0\r\n\r\n", 505},
		{"HDR-03", get + "Host: a.test\r\n\r\n", 400},
		{"HDR-03 different", get + "Host: b.test\r\n\r\n", 400},
		{"HDR-30", get + "X : v\r\n\r\n", 400},
		{"HDR-32", get + "X: a\r\n b\r\n\r\n", 400},
		{"HDR-34 CR", get + "X: a\rb\r\n\r\n", 400},
		{"HDR-34 NUL", get + "X: a\x00b\r\n\r\n", 400},
		{"HDR-36 empty name", get + ": v\r\n\r\n", 400},
		{"HDR-36 no colon", get + "X\r\n\r\n", 400},
		{"HDR-36 separators", get + "X(Y): v\r\n\r\n", 400},
		{"HDR-37", "GET http://a.test/ HTTP/1.1\r\n Host: a.test\r\n\r\n", 400},
		{"HDR-39", get + strings.Repeat("a:\r\n", 300) + "\r\n", 431},
		{"HDR-42", get + "Expect: 200-ok\r\n\r\n", 417},
		{"TGT-44", strings.Repeat("A", 33) + " http://a.test/ HTTP/1.1\r\n\r\n", 501},
		{"TGT-44 no token", "G(T http://a.test/ HTTP/1.1\r\n\r\n", 400},
		{"two spaces", "GET  http://a.test/ HTTP/1.1\r\n\r\n", 400},
		{"TAB", "GET\thttp://a.test/ HTTP/1.1\r\n\r\n", 400},
		{"trailing space", "GET http://a.test/ HTTP/1.1 \r\n\r\n", 400},
		{"HST-07 NUL", "CONNECT a.test\x00.b.test:443 HTTP/1.1\r\n\r\n", 400},
		{"HST-08 TAB", "CONNECT a\t.test:443 HTTP/1.1\r\n\r\n", 400},
	}
	for _, tt := range tests {
		t.Run(tt.id, func(t *testing.T) {
			_, err := scanAll(tt.head)
			var he *headError
			if !errors.As(err, &he) || he.status != tt.status {
				t.Errorf("error %v, want status %d", err, tt.status)
			}
		})
	}
}

func TestHeadAccepts(t *testing.T) {
	tests := []struct {
		name, head string
		check      func(h *requestHead) bool
	}{
		{"FRM-12 chunked in capitals", "POST http://a/ HTTP/1.1\r\nTransfer-Encoding: CHUNKED\r\n\r\n", func(h *requestHead) bool { return h.framing == byChunks }},
		{"FRM-07 leading zeros", "POST http://a/ HTTP/1.1\r\nContent-Length: 0003\r\n\r\n", func(h *requestHead) bool { return h.framing == byLength && h.length == 3 }},
		{"FRM-61", "GET http://a/ HTTP/1.2\r\n\r\n", func(h *requestHead) bool { return h.minor == 2 && !h.close }},
		{"HTTP/1.0 closes", "GET http://a/ HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", func(h *requestHead) bool { return h.close }},
		{"HDR-15", "GET http://a/ HTTP/1.1\r\nConnection: a ,  X-Drop\r\nconnection: close\r\n\r\n", func(h *requestHead) bool { return h.nominates("x-drop") && h.close }},
		{"upgrade that Connection does not name", "GET http://a/ HTTP/1.1\r\nUpgrade: websocket\r\n\r\n", func(h *requestHead) bool { return h.upgrade == nil }},
		{"upgrade", "GET http://a/ HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n", func(h *requestHead) bool { return string(h.upgrade) == "websocket" }},
		{"obs-text in a value", "GET http://a/ HTTP/1.1\r\nX: \xe9\r\n\r\n", func(h *requestHead) bool { return string(h.fields[0].value) == "\xe9" }},
		{"bytes over 0x7f in the target", "GET http://a/\xff HTTP/1.1\r\n\r\n", func(h *requestHead) bool { return bytes.HasSuffix(h.target, []byte("\xff")) }},
		{"our own Via", "GET http://a/ HTTP/1.1\r\nVia: 1.1 x, 1.1 dshproxy-00000000\r\n\r\n", func(h *requestHead) bool { return h.ownVia && h.viaEntries == 2 }},
	}
	for _, tt := range tests {
		h, err := scanAll(tt.head)
		if err != nil || !tt.check(h) {
			t.Errorf("%s: %+v, %v", tt.name, h, err)
		}
	}
}

// TestHeadArrivesInPieces: the scanner gives the same answer however the bytes are cut.
func TestHeadArrivesInPieces(t *testing.T) {
	head := "GET http://a.test/ HTTP/1.1\r\nHost: a.test\r\nX: y\r\n\r\nbody"
	want := strings.Index(head, "\r\n\r\n") + 4
	for step := 1; step < len(head); step++ {
		var s headScanner
		got := 0
		for at := step; ; at += step {
			n, err := s.scan([]byte(head)[:min(at, len(head))])
			if err == nil {
				got = n
				break
			}
			if !errors.Is(err, errHeadMore) || at > len(head) {
				t.Fatalf("step %d: %v", step, err)
			}
		}
		if got != want {
			t.Errorf("step %d: head of %d bytes, want %d", step, got, want)
		}
	}
}

// FuzzRequestHead: where net/http accepts a head too, both read the same.
func FuzzRequestHead(f *testing.F) {
	for _, s := range []string{
		"GET http://a.test/ HTTP/1.1\r\nHost: a.test\r\n\r\n",
		"POST http://a.test/x HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc",
		"CONNECT a.test:443 HTTP/1.1\r\nHost: a\r\nConnection: close, x\r\n\r\n",
		"PUT http://a/ HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		h, err := scanAll(string(data))
		if err != nil {
			return
		}
		r, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(data)))
		if err != nil {
			return // net/http refuses more of what is harmless to forward
		}
		if r.Method != string(h.method) || r.RequestURI != string(h.target) {
			t.Fatalf("we read %q %q, net/http %q %q", h.method, h.target, r.Method, r.RequestURI)
		}
		wantChunked := len(r.TransferEncoding) > 0
		if wantChunked != (h.framing == byChunks) {
			t.Fatalf("we read framing %v, net/http %v", h.framing, r.TransferEncoding)
		}
		if h.framing == byLength && r.ContentLength != h.length {
			t.Fatalf("we read length %d, net/http %d", h.length, r.ContentLength)
		}
		for _, fl := range h.fields {
			name := http.CanonicalHeaderKey(string(fl.name))
			if name == "Host" || name == "Transfer-Encoding" || name == "Content-Length" || name == "Trailer" {
				continue
			}
			found := false
			for _, v := range r.Header[name] {
				found = found || v == string(fl.value)
			}
			if !found {
				t.Fatalf("field %s: %q is not among net/http's %q", name, fl.value, r.Header[name])
			}
		}
	})
}

// FuzzResponseHead: no panic; what is accepted has a status and a framing that can be relayed.
func FuzzResponseHead(f *testing.F) {
	for _, s := range []string{"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n", "HTTP/1.0 200\nX: a\n b\n\n", "HTTP/1.1 204 x\r\nTransfer-Encoding: chunked\r\n\r\n"} {
		f.Add([]byte(s), false)
	}
	f.Fuzz(func(t *testing.T, data []byte, toHead bool) {
		end, ok := scanResponse(data, 0)
		if !ok {
			return
		}
		var h responseHead
		if h.parse(data[:end], 200, toHead) != nil {
			return
		}
		if h.status < 100 || h.status > 999 || h.framing == byLength && h.length < 0 || h.framing == byClose && !h.close {
			t.Fatalf("%+v", h)
		}
		for _, fl := range h.fields {
			if bytes.ContainsAny(fl.value, "\r\n\x00") || bytes.ContainsAny(fl.name, "\r\n\x00: ") {
				t.Fatalf("field %q: %q", fl.name, fl.value)
			}
		}
	})
}

func TestResponseHeads(t *testing.T) {
	good := []struct {
		head    string
		toHead  bool
		framing framing
		close   bool
	}{
		{"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n", false, byLength, false},
		{"HTTP/1.1 200\r\nContent-Length: 3, 3\r\n\r\n", false, byLength, false},
		{"HTTP/1.1 200 OK\nContent-Length: 3\n\n", false, byLength, false},
		{"HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\nContent-Length: 3\r\n\r\n", false, byChunks, false},
		{"HTTP/1.0 200 OK\r\nContent-Length: 3\r\n\r\n", false, byLength, true},
		{"HTTP/1.1 200 OK\r\n\r\n", false, byClose, true},
		{"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n", true, noBody, false},
		{"HTTP/1.1 204 No\r\n\r\n", false, noBody, false},
		{"HTTP/1.1 304 No\r\nContent-Length: 3\r\n\r\n", false, noBody, false},
		{"HTTP/1.1 999 X\r\nContent-Length: 0\r\n\r\n", false, byLength, false},
		{"HTTP/1.1 200 OK\r\nX: a\r\n\tb\r\nContent-Length: 0\r\n\r\n", false, byLength, false},
	}
	for _, tt := range good {
		end, ok := scanResponse([]byte(tt.head), 0)
		var h responseHead
		if !ok || end != len(tt.head) {
			t.Errorf("%q: no end", tt.head)
			continue
		}
		if err := h.parse([]byte(tt.head), 200, tt.toHead); err != nil || h.framing != tt.framing || h.close != tt.close {
			t.Errorf("%q: framing %v close %v, %v", tt.head, h.framing, h.close, err)
		}
	}
	bad := map[string]string{
		"FRM-44":          "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
		"FRM-44 two":      "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
		"FRM-47 099":      "HTTP/1.1 099 OK\r\n\r\n",
		"FRM-47 000":      "HTTP/1.1 000 OK\r\n\r\n",
		"four digits":     "HTTP/1.1 2000 OK\r\n\r\n",
		"two digits":      "HTTP/1.1 20 OK\r\n\r\n",
		"HTTP/2":          "HTTP/2.0 200 OK\r\n\r\n",
		"two lengths":     "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\n",
		"bad length":      "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
		"space and colon": "HTTP/1.1 200 OK\r\nX : a\r\n\r\n",
		"NUL":             "HTTP/1.1 200 OK\r\nX: \x00\r\n\r\n",
		"bare CR":         "HTTP/1.1 200 OK\r\nX: a\rb\r\n\r\n",
		"CR in phrase":    "HTTP/1.1 200 O\rK\r\n\r\n",
		"fold first":      "HTTP/1.1 200 OK\r\n X: a\r\n\r\n",
		"chunks in 1.0":   "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
		"not HTTP":        "ICY 200 OK\r\n\r\n",
	}
	for name, head := range bad {
		var h responseHead
		if err := h.parse([]byte(head), 200, false); err == nil {
			t.Errorf("%s: accepted as %+v", name, h)
		}
	}
}

func TestChunkSizes(t *testing.T) {
	for line, want := range map[string]int64{"3": 3, "a": 10, "0": 0, "003": 3, "3;x=y": 3, "3 ;x": 3, "fffffffffffffff": 1<<60 - 1} {
		if got, ok := parseChunkSize([]byte(line)); !ok || got != want {
			t.Errorf("%q = %d, %v; want %d", line, got, ok, want)
		}
	}
	for id, line := range map[string]string{"FRM-18 0x": "0x3", "FRM-18 plus": "+3", "FRM-18 minus": "-3", "FRM-18 space": " 3", "FRM-18 under": "3_", "FRM-19": "7fffffffffffffff", "FRM-19 17 digits": "00000000000000003", "empty": "", "FRM-21 LF": "3;\n", "space only": "3 x"} {
		if got, ok := parseChunkSize([]byte(line)); ok {
			t.Errorf("%s: %q = %d", id, line, got)
		}
	}
}

func TestForeignStatus(t *testing.T) {
	tests := map[string]string{
		`dshproxy; error=x`:                             "",
		`cdn; error=x, dshproxy; error=y`:               "cdn; error=x",
		`"dshproxy"; e=x, cdn`:                          "cdn",
		`cdn; details="a, dshproxy; b", DSHPROXY;error`: `cdn; details="a, dshproxy; b"`,
		`other`:      "other",
		`dshproxy=1`: "", `(dshproxy); error=c`: "", `a; details="x`: "", `y", dshproxy; error=x`: "", `(a, dshproxy`: "",
		`https://cdn.test/; hit`: "https://cdn.test/; hit",
	}
	for in, want := range tests {
		if got := string(foreignStatus([]byte(in))); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
}
