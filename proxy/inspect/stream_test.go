package inspect

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"dshproxy/netrule"
)

func TestBulk(t *testing.T) {
	versions(t, func(t *testing.T, version int, origin worldOption) {
		w := newWorld(t, func(rw http.ResponseWriter, r *http.Request) {
			_ = http.NewResponseController(rw).EnableFullDuplex()
			_, _ = io.Copy(rw, r.Body)
		}, origin)
		c := w.client(version)
		w.get(c, "/") // opens the tunnel that HTTP/2 shares
		data := bytes.Repeat([]byte("0123456789abcdef"), 32<<10)
		var group sync.WaitGroup
		for range 8 {
			group.Go(func() {
				if _, body := w.do(c, "PUT", "/", bytes.NewReader(data)); body != string(data) {
					t.Errorf("%d bytes came back, want %d", len(body), len(data))
				}
			})
		}
		group.Wait()
		if version == 2 && w.opened.Load() != 1 {
			t.Errorf("%d tunnels, want 1", w.opened.Load())
		}
	})
}

func TestGzip(t *testing.T) {
	versions(t, func(t *testing.T, version int, origin worldOption) {
		var packed bytes.Buffer
		z := gzip.NewWriter(&packed)
		_, _ = z.Write([]byte("text"))
		z.Close()
		w := newWorld(t, func(rw http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Accept-Encoding") == "gzip" {
				rw.Header().Set("Content-Encoding", "gzip")
				_, _ = rw.Write(packed.Bytes())
			}
		}, origin)
		c := w.client(version)
		resp, body := w.get(c, "/", "Accept-Encoding: gzip")
		if resp.Header.Get("Content-Encoding") != "gzip" || body != packed.String() {
			t.Errorf("got %v %q", resp.Header, body)
		}
		if resp, body := w.get(c, "/"); resp.Header.Get("Content-Encoding") != "" || body != "" {
			t.Errorf("without the field: %v %q", resp.Header, body)
		}
	})
}

func TestStreaming(t *testing.T) {
	for _, kind := range []string{"text/event-stream", "application/x-ndjson"} {
		t.Run(strings.ReplaceAll(kind, "/", " "), func(t *testing.T) {
			versions(t, func(t *testing.T, version int, origin worldOption) {
				next := make(chan struct{})
				w := newWorld(t, func(rw http.ResponseWriter, _ *http.Request) {
					rw.Header().Set("Content-Type", kind)
					rw.(http.Flusher).Flush()
					for i := range 2 {
						<-next
						_, _ = fmt.Fprintf(rw, "data: %d\n", i)
						rw.(http.Flusher).Flush()
					}
					<-next
				}, origin)
				r, err := http.NewRequestWithContext(t.Context(), "GET", "https://api.test/", nil)
				if err != nil {
					t.Fatal(err)
				}
				resp, err := w.client(version).Do(r) // the head is here before any event
				if err != nil {
					t.Fatal(err)
				}
				defer resp.Body.Close()
				lines := bufio.NewReader(resp.Body)
				for i := range 2 {
					next <- struct{}{}
					if line, err := lines.ReadString('\n'); err != nil || line != fmt.Sprintf("data: %d\n", i) {
						t.Fatalf("got %q, %v", line, err)
					}
				}
				next <- struct{}{}
				if rest, err := io.ReadAll(lines); err != nil || len(rest) != 0 {
					t.Errorf("the end is %q, %v", rest, err)
				}
			})
		})
	}
}

func TestTrailers(t *testing.T) {
	versions(t, func(t *testing.T, version int, origin worldOption) {
		w := newWorld(t, func(rw http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			rw.Header().Set("Trailer", "X-Sum")
			_, _ = io.WriteString(rw, r.Trailer.Get("X-Mine")+r.Trailer.Get("X-Forwarded-Host"))
			rw.Header().Set("X-Sum", "7")
			rw.Header().Set(http.TrailerPrefix+"Set-Cookie", "a=b")
			rw.Header().Set(http.TrailerPrefix+"X-Late", "8")
		}, origin)
		r, err := http.NewRequestWithContext(t.Context(), "POST", "https://api.test/", io.NopCloser(strings.NewReader("x")))
		if err != nil {
			t.Fatal(err)
		}
		r.Trailer = http.Header{"X-Mine": {"mine"}, "X-Forwarded-Host": {"evil.test"}}
		resp, err := w.client(version).Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if body, err := io.ReadAll(resp.Body); err != nil || string(body) != "mine" {
			t.Errorf("the origin saw %q, %v", body, err)
		}
		sameHeader(t, "trailer", resp.Trailer, http.Header{"X-Sum": {"7"}, "X-Late": {"8"}})
	})
}

func TestInterim(t *testing.T) {
	w := newWorld(t, func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("Link", "</a.css>")
		rw.WriteHeader(http.StatusEarlyHints)
		rw.Header().Del("Link")
		body, _ := io.ReadAll(r.Body)
		_, _ = rw.Write(body)
	}, onlyHTTP1)
	c := w.secure("http/1.1")
	in := bufio.NewReader(c)
	_, _ = io.WriteString(c, "POST / HTTP/1.1\r\nHost: api.test\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n")
	var codes []int
	for {
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatal(err)
		}
		codes = append(codes, resp.StatusCode)
		if resp.StatusCode == 100 {
			_, _ = io.WriteString(c, "ok")
		}
		if resp.StatusCode >= 200 {
			body, _ := io.ReadAll(resp.Body)
			if string(body) != "ok" || resp.Header.Get("Link") != "" {
				t.Errorf("got %q %v", body, resp.Header)
			}
			break
		}
	}
	if fmt.Sprint(codes) != "[103 100 200]" {
		t.Errorf("the answers are %v", codes)
	}
}

func webSocket(rw http.ResponseWriter, r *http.Request) {
	c, buf, err := rw.(http.Hijacker).Hijack()
	if err != nil {
		return
	}
	defer c.Close()
	_, _ = fmt.Fprintf(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-Websocket-Accept: %s\r\n\r\n", r.Header.Get("Sec-Websocket-Key"))
	for {
		line, err := buf.ReadString('\n')
		if err != nil {
			return
		}
		_, _ = io.WriteString(c, strings.ToUpper(line))
	}
}

func TestWebSocket(t *testing.T) {
	for name, origin := range map[string]worldOption{"1": onlyHTTP1, "2": func(*Options, *tls.Config) {}} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, webSocket, origin)
			raw, over := w.tunnelWith(t.Context())
			c := tls.Client(raw, w.trust("http/1.1"))
			_, err := io.WriteString(c, "GET /ws HTTP/1.1\r\nHost: api.test\r\nConnection: keep-alive, Upgrade\r\nUpgrade: WebSocket\r\nSec-WebSocket-Key: abc\r\n\r\nearly\n")
			if err != nil {
				t.Fatal(err)
			}
			in := bufio.NewReader(c)
			resp, err := http.ReadResponse(in, nil)
			if err != nil {
				t.Fatal(err)
			}
			if resp.StatusCode != 101 || resp.Header.Get("Sec-Websocket-Accept") != "abc" || resp.Header.Get("Upgrade") != "websocket" || resp.Header.Get("Connection") != "Upgrade" {
				t.Errorf("got %d %v", resp.StatusCode, resp.Header)
			}
			for _, word := range []string{"EARLY\n", "LATER\n"} {
				if line, err := in.ReadString('\n'); err != nil || line != word {
					t.Fatalf("got %q, %v, want %q", line, err, word)
				}
				_, _ = io.WriteString(c, "later\n")
			}
			if got := w.one(); got.Status != 101 || got.Path != "/ws" || got.Code != netrule.CodeAllowedByRule {
				t.Errorf("told of %v", got)
			}
			c.Close()
			<-over
		})
	}
}

func TestUnaskedUpgrade(t *testing.T) {
	answer := func(text string) http.HandlerFunc {
		return func(rw http.ResponseWriter, _ *http.Request) {
			c, _, err := rw.(http.Hijacker).Hijack()
			if err == nil {
				_, _ = io.WriteString(c, text)
				c.Close()
			}
		}
	}
	const head = "GET / HTTP/1.1\r\nHost: api.test\r\n"
	for _, test := range []struct{ name, request, response string }{
		{"unasked", head + "\r\n", "HTTP/1.1 101 X\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nbytes"},
		{"other", head + "Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n", "HTTP/1.1 101 X\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\nbytes"},
		{"h2c asked", head + "Connection: Upgrade\r\nUpgrade: h2c\r\n\r\n", "HTTP/1.1 101 X\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\nbytes"},
		{"status 000", head + "\r\n", "HTTP/1.1 000 X\r\nContent-Length: 0\r\n\r\n"},
		{"garbage", head + "\r\n", "garbage\r\n\r\n"},
		{"two lengths", head + "\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxx"},
		{"huge head", head + "\r\n", "HTTP/1.1 200 OK\r\nX: " + strings.Repeat("y", 70<<10) + "\r\n\r\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t, answer(test.response), onlyHTTP1)
			resp, body, _ := w.raw(test.request)
			if resp.StatusCode != 502 || resp.Header.Get("X-Dshproxy-Code") != "bad_response" {
				t.Errorf("got %d %v", resp.StatusCode, resp.Header)
			}
			inert(t, body, "# [network: error] the target sent a malformed response\n")
		})
	}
	t.Run("upgrade fields in 200", func(t *testing.T) {
		w := newWorld(t, answer("HTTP/1.1 200 OK\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nContent-Length: 2\r\n\r\nok"), onlyHTTP1)
		resp, body, _ := w.raw(head + "Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		if resp.StatusCode != 200 || resp.Header.Get("Upgrade") != "" || body != "ok" {
			t.Errorf("got %d %v %q", resp.StatusCode, resp.Header, body)
		}
	})
}

func TestCutAnswer(t *testing.T) {
	versions(t, func(t *testing.T, version int, origin worldOption) {
		w := newWorld(t, func(rw http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(rw, "begun")
			rw.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		}, origin)
		r, err := http.NewRequestWithContext(t.Context(), "GET", "https://api.test/", nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := w.client(version).Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if body, err := io.ReadAll(resp.Body); err == nil || string(body) != "begun" {
			t.Errorf("got %q, %v, want an error behind what was sent", body, err)
		}
	})
}

func TestEarlyAnswer(t *testing.T) {
	w := newWorld(t, func(rw http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(rw).EnableFullDuplex()
		in := bufio.NewReader(r.Body)
		for {
			line, err := in.ReadString('\n')
			if err != nil {
				return
			}
			_, _ = io.WriteString(rw, line)
			rw.(http.Flusher).Flush()
		}
	}, onlyHTTP1)
	c := w.secure("http/1.1")
	_, _ = io.WriteString(c, "POST / HTTP/1.1\r\nHost: api.test\r\nTransfer-Encoding: chunked\r\n\r\n4\r\none\n\r\n")
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(resp.Body)
	for _, want := range []string{"one\n", "two\n"} {
		if line, err := lines.ReadString('\n'); err != nil || line != want {
			t.Fatalf("got %q, %v, want %q", line, err, want)
		}
		_, _ = io.WriteString(c, "4\r\ntwo\n\r\n")
	}
}

func TestBodyCut(t *testing.T) {
	whole := make(chan error, 1)
	w := newWorld(t, func(_ http.ResponseWriter, r *http.Request) {
		_, err := io.ReadAll(r.Body)
		whole <- err
	}, onlyHTTP1)
	resp, _, _ := w.raw("POST / HTTP/1.1\r\nHost: api.test\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\nzz\r\n")
	if resp.StatusCode != 400 || resp.Header.Get("X-Dshproxy-Code") != "bad_request" {
		t.Errorf("got %d %v", resp.StatusCode, resp.Header)
	}
	if err := <-whole; err == nil {
		t.Error("the origin saw a whole body")
	}
}
