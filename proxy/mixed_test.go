package proxy

import (
	"bufio"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

// mixed is what one client of TestMixed does: its requests carry a tag of their own, and every answer must be that of its
// request and nobody else's.
type mixed struct {
	*world
	random *rand.Rand
	tag    string
	ids    *sync.Map // of all refusals
	web    string    // authority of an origin that answers with what it was sent
	echo   string    // authority of an origin that sends back what it gets
}

// say sends a request on a connection of its own and gives the answer with its body.
func (m *mixed) say(c net.Conn, r *bufio.Reader, method, text string) (*http.Response, string, error) {
	if _, err := io.WriteString(c, text); err != nil {
		return nil, "", err
	}
	resp, err := http.ReadResponse(r, &http.Request{Method: method})
	if err != nil || method == http.MethodConnect && resp.StatusCode == http.StatusOK {
		return resp, "", err
	}
	body, err := io.ReadAll(resp.Body)
	return resp, string(body), err
}

// refused checks a refusal: its code, its own target, its own id.
func (m *mixed) refused(resp *http.Response, body, code, host string, json bool) error {
	id := resp.Header.Get("X-Dshproxy-Id")
	if _, again := m.ids.LoadOrStore(id, true); again || id == "" {
		return fmt.Errorf("the id %q was given before", id)
	}
	if got := resp.Header.Get("X-Dshproxy-Code"); got != code || !strings.Contains(body, host) || !strings.Contains(body, id) {
		return fmt.Errorf("code %q, want %q; host %s, id %s in %q", got, code, host, id, body)
	}
	if isJSON := resp.Header.Get("Content-Type") == "application/json"; isJSON != json {
		return fmt.Errorf("JSON %v, want %v", isJSON, json)
	}
	return nil
}

// kept sends some requests over one connection: allowed ones with and without a body, and in the end perhaps a denied one.
func (m *mixed) kept(c net.Conn, r *bufio.Reader) error {
	for i := range 1 + m.random.IntN(4) {
		want := fmt.Sprintf("%s-%d", m.tag, i)
		body := strings.Repeat(want, m.random.IntN(3)*m.random.IntN(500))
		text := fmt.Sprintf("POST http://%s/%s HTTP/1.1\r\nHost: x\r\nX-Tag: %[2]s\r\nContent-Length: %d\r\n\r\n%s", m.web, want, len(body), body)
		if body == "" {
			text = fmt.Sprintf("GET http://%s/%s HTTP/1.1\r\nHost: x\r\nX-Tag: %[2]s\r\n\r\n", m.web, want)
		}
		resp, got, err := m.say(c, r, "POST", text)
		if err != nil {
			return err
		}
		if resp.StatusCode != http.StatusOK || got != "/"+want+" "+want+" "+body {
			return fmt.Errorf("%s: %s %q", want, resp.Status, got)
		}
	}
	if m.random.IntN(2) == 0 {
		return nil
	}
	return m.denied(c, r)
}

// denied asks for what no rule allows, at times with bytes behind it, at times for JSON.
func (m *mixed) denied(c net.Conn, r *bufio.Reader) error {
	host := m.tag + ".denied.test"
	json := m.random.IntN(2) == 0
	accept := ""
	if json {
		accept = "Accept: application/json\r\n"
	}
	method, text := "GET", fmt.Sprintf("GET http://%s/ HTTP/1.1\r\nHost: x\r\n%s\r\n", host, accept)
	if m.random.IntN(2) == 0 {
		method, text = "CONNECT", fmt.Sprintf("CONNECT %s:443 HTTP/1.1\r\nHost: %[1]s:443\r\n%s\r\n", host, accept)
	}
	resp, body, err := m.say(c, r, method, text+strings.Repeat("x", m.random.IntN(2)*m.random.IntN(5000)))
	if err != nil {
		return err
	}
	return m.refused(resp, body, "not_allowed", host, json)
}

// tunnelled sends bytes through a tunnel, some of them behind the head, and reads them back to the end.
func (m *mixed) tunnelled(c net.Conn, r *bufio.Reader) error {
	text := "\x80" + strings.Repeat(m.tag, 1+m.random.IntN(2000))
	early := m.random.IntN(len(text))
	resp, _, err := m.say(c, r, "CONNECT", fmt.Sprintf("CONNECT %s HTTP/1.1\r\nHost: %[1]s\r\n\r\n%s", m.echo, text[:early]))
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("tunnel: %s", resp.Status)
	}
	if _, err := io.WriteString(c, text[early:]); err != nil {
		return err
	}
	if err := c.(*net.TCPConn).CloseWrite(); err != nil {
		return err
	}
	if got, err := io.ReadAll(r); err != nil || string(got) != text {
		return fmt.Errorf("tunnel: %d bytes of %d, %w", len(got), len(text), err)
	}
	return nil
}

// malformed sends what is no request.
func (m *mixed) malformed(c net.Conn, r *bufio.Reader) error {
	resp, _, err := m.say(c, r, "GET", "GET http://"+m.web+"/ HTTP/1.1\r\nHost : "+m.tag+"\r\n\r\n")
	if err == nil && resp.StatusCode != http.StatusBadRequest {
		err = fmt.Errorf("malformed: %s", resp.Status)
	}
	return err
}

// rude leaves in the middle of something, by a reset.
func (m *mixed) rude(c net.Conn, _ *bufio.Reader) error {
	text := fmt.Sprintf("POST http://%s/%s HTTP/1.1\r\nHost: x\r\nX-Rude: %[2]s\r\nContent-Length: 1000\r\n\r\n%[2]s", m.web, m.tag)
	_, _ = io.WriteString(c, text[:1+m.random.IntN(len(text)-1)]) // it may be gone before
	return c.(*net.TCPConn).SetLinger(0)
}

// TestMixed: connections of all kinds at once, which hand their scratch on to each other, each get what is theirs.
func TestMixed(t *testing.T) {
	w := newWorld(t, allowNames)
	w.name("allowed.test", "127.0.0.1")
	web := newOrigin(t, func(c *net.TCPConn, r *bufio.Reader) {
		for {
			req, err := http.ReadRequest(r)
			if err != nil {
				return
			}
			body, err := io.ReadAll(req.Body)
			if err != nil {
				return
			}
			text := req.URL.Path + " " + req.Header.Get("X-Tag") + " " + string(body)
			fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(text), text)
		}
	})
	bytes := echo(t)
	kinds := []func(*mixed, net.Conn, *bufio.Reader) error{(*mixed).kept, (*mixed).kept, (*mixed).denied, (*mixed).tunnelled, (*mixed).malformed, (*mixed).rude}
	ids := &sync.Map{}
	seed := rand.Uint64()
	var all sync.WaitGroup
	for client := range 16 {
		all.Go(func() {
			m := &mixed{world: w, random: rand.New(rand.NewPCG(seed, uint64(client))), ids: ids, web: fmt.Sprintf("allowed.test:%d", web.port), echo: fmt.Sprintf("allowed.test:%d", bytes.port)}
			for i := range 40 {
				m.tag = fmt.Sprintf("c%d-%d", client, i)
				c, err := net.Dial("tcp", w.addr)
				if err != nil {
					t.Error(err)
					return
				}
				_ = c.SetDeadline(time.Now().Add(20 * time.Second)) // of a connection just made
				kind := m.random.IntN(len(kinds))
				if err := kinds[kind](m, c, bufio.NewReader(c)); err != nil {
					t.Errorf("seed %d, %s, kind %d: %v", seed, m.tag, kind, err)
				}
				c.Close()
			}
		})
	}
	all.Wait()
}
