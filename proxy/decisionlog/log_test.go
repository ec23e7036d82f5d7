package decisionlog

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"dshproxy/netrule"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func schema(t testing.TB) *jsonschema.Schema {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(Schema))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("schema.json", doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("schema.json")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func validLine(t testing.TB, s *jsonschema.Schema, line []byte) map[string]any {
	t.Helper()
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(line))
	if err != nil {
		t.Fatalf("no JSON: %s: %v", line, err)
	}
	if err := s.Validate(v); err != nil {
		t.Errorf("line %s: %v", line, err)
	}
	return v.(map[string]any)
}

func fullDecision() Decision {
	return Decision{
		Stage: "tunnel", Upstream: "http://proxy.test:3128", Delegated: true, SNI: "a.test", ECH: true, Request: &Request{"GET", "/p", 200},
		Time: time.Date(2026, 11, 29, 12, 0, 0, 123456789, time.UTC), ID: "01ID", Listener: "proxy", Client: "127.0.0.1", Identity: "ci", Protocol: "connect",
		Target: netrule.Target{Scheme: netrule.SchemeHTTPS, Host: "a.test", Port: 443}, Judged: true, Code: netrule.CodeAllowedByRule, Outcome: "ok",
		Decision: netrule.Decision{
			Action: netrule.Allow, Code: netrule.CodeAllowedByRule, Mode: netrule.Whitelist, Rule: netrule.RuleRef{File: "/r.yaml", Line: 3, Index: 1, Reason: "because", Layer: "workspace"},
			DryRun: true, Would: netrule.Ask, WouldCode: netrule.CodeNeedsApproval,
			Addrs: []netrule.AddrVerdict{{Addr: netip.MustParseAddr("192.0.2.1"), Class: netrule.ClassReserved, Kept: true}, {Addr: netip.MustParseAddr("::1"), Class: netrule.ClassLoopback, Why: "guard"}},
		},
		Dialed: netip.MustParseAddrPort("192.0.2.1:443"), LookedUp: true, DialTried: true, DNS: 1500 * time.Microsecond, Dial: 2 * time.Millisecond, Policy: "abc", Cause: "x", Repeated: 2,
	}
}

// TestSchema: every line matches the schema that is shipped, the fullest and the emptiest.
func TestSchema(t *testing.T) {
	s := schema(t)
	full, empty := fullDecision(), Decision{Outcome: "refused"}
	cl := Close{ID: "x", BytesIn: 1, BytesOut: 2, Duration: time.Second, ClosedBy: "client", Why: "eof"}
	good, bad := Reload{OK: true, Rules: 3, Policy: "x"}, Reload{Error: "y"}
	tool, through := Tool{Tool: "bash", Client: "check", Rule: full.Decision.Rule}, Tool{Tool: "x\x00\n", Passthrough: true}
	for _, add := range []func([]byte) []byte{tool.Append, through.Append, full.appendTo, empty.appendTo, cl.appendTo, good.appendTo, bad.appendTo} {
		validLine(t, s, add(nil))
	}
	got := string(full.appendTo(nil))
	want := `{"time":"2026-11-29T12:00:00.123456Z","msg":"decision","id":"01ID","listener":"proxy","client":"127.0.0.1","identity":"ci","scheme":"https","host":"a.test","port":443,"verdict":"allow","code":"allowed_by_rule","rule":{"file":"/r.yaml","line":3,"index":1,"reason":"because"},"mode":"whitelist","matched":true,"dry_run":true,"would":"ask","would_code":"needs_approval","addresses":[{"addr":"192.0.2.1","class":"reserved","kept":true},{"addr":"::1","class":"loopback","kept":false,"why":"guard"}],"dialed":"192.0.2.1:443","upstream":"http://proxy.test:3128","resolution":"delegated","stage":"tunnel","sni":"a.test","ech":true,"request":{"method":"GET","path":"/p","status":200},"outcome":"ok","dns_ms":1.5,"dial_ms":2,"policy":"abc","cause":"x","repeated":2}` + "\n"
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if m := validLine(t, s, empty.appendTo(nil)); m["verdict"] != nil || m["mode"] != nil {
		t.Errorf("a line without a policy has a verdict: %v", m)
	}
}

// TestEscaping: text from the wire cannot forge lines, hide, or look like other text (LOG-03, LOG-04, LOG-10).
func TestEscaping(t *testing.T) {
	s := schema(t)
	for _, raw := range []string{"a\nb", "\x1b[2J", "\u202eevil", "\xff\xfe.com", "\"},{\"msg\":\"decision\"", strings.Repeat("x", 9000), "a\x00b", "😀", "\u2028", "\x7f"} {
		d := Decision{RawTarget: raw, Outcome: "refused"}
		line := d.appendTo(nil)
		for _, c := range line[:len(line)-1] {
			if c < ' ' || c > '~' {
				t.Errorf("%q: byte %x in the line", raw, c)
			}
		}
		if bytes.Count(line, []byte("\n")) != 1 || len(line) > 1000 {
			t.Errorf("%q: %d bytes", raw, len(line))
		}
		validLine(t, s, line)
	}
	one, two := Decision{RawTarget: "\xff"}, Decision{RawTarget: "\xfe"}
	if bytes.Equal(one.appendTo(nil), two.appendTo(nil)) {
		t.Error("LOG-04: two different bytes look alike")
	}
}

func FuzzAppendString(f *testing.F) {
	f.Add("a\xffé😀\"\\\n")
	f.Fuzz(func(t *testing.T, s string) {
		var got string
		if err := json.Unmarshal(appendString(nil, s, 1<<20), &got); err != nil {
			t.Fatalf("%q: %v", s, err)
		}
	})
}

// sink collects lines.
type sink struct {
	mu    sync.Mutex
	buf   bytes.Buffer
	block chan struct{}
	err   error
}

func (s *sink) Write(p []byte) (int, error) {
	if s.block != nil {
		<-s.block
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return 0, s.err
	}
	return s.buf.Write(p)
}

func (s *sink) lines() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Split(strings.TrimSuffix(s.buf.String(), "\n"), "\n")
}

func denial(now time.Time, client, host string) *Decision {
	return &Decision{Time: now, Client: client, Target: netrule.Target{Host: host, Port: 443}, Judged: true, Code: netrule.CodeNotAllowed, Outcome: "refused"}
}

// TestFolding: the first refusal of a kind is written at once, its repeats become one line (LOG-10).
func TestFolding(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &sink{}
		l := NewLog(NewWriter(s))
		for range 50 {
			l.Decided(denial(time.Now(), "c", "a.test"))
			l.Decided(denial(time.Now(), "c", "b.test"))
			time.Sleep(10 * time.Millisecond)
		}
		synctest.Wait()
		if got := s.lines(); len(got) != 2 {
			t.Fatalf("%d lines at once, want 2: %v", len(got), got)
		}
		time.Sleep(2 * foldWindow)
		synctest.Wait()
		got := s.lines()
		if len(got) != 4 || !strings.Contains(got[2], `"repeated":49`) || !strings.Contains(got[3], `"repeated":49`) {
			t.Errorf("after the window: %v", got)
		}
		if l.Folded() != 98 {
			t.Errorf("%d folded", l.Folded())
		}
		l.Decided(denial(time.Now(), "c", "a.test"))
		l.Close()
		if got := s.lines(); len(got) != 5 {
			t.Errorf("a new window starts with a line: %d lines", len(got))
		}
	})
}

// TestBudget: a client that floods with ever new hosts is folded by code.
func TestBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &sink{}
		l := NewLog(NewWriter(s))
		for i := range 5000 {
			l.Decided(denial(time.Now(), "flood", fmt.Sprintf("h%d.test", i)))
		}
		l.Decided(denial(time.Now(), "quiet", "a.test"))
		l.Close()
		lines := s.lines()
		if len(lines) != clientBudget+2 {
			t.Errorf("%d lines, want %d of the flood, one that folds the rest and one of the quiet client", len(lines), clientBudget)
		}
		if !strings.Contains(strings.Join(lines, "\n"), fmt.Sprintf(`"repeated":%d`, 5000-clientBudget)) {
			t.Error("the rest is not counted")
		}
	})
}

// TestSlowSink: nobody waits for a sink; what does not fit is counted.
func TestSlowSink(t *testing.T) {
	s := &sink{block: make(chan struct{})}
	w := NewWriter(s)
	line := []byte(strings.Repeat("x", 1<<20))
	for range 30 {
		w.append(func(b []byte) []byte { return append(b, line...) })
	}
	if w.Dropped() == 0 {
		t.Error("nothing was dropped")
	}
	close(s.block)
	w.Close()
	w.append(func(b []byte) []byte { return append(b, 'x') })
	if got := w.Dropped(); got == 0 {
		t.Error("a line after the end is not counted")
	}
	failing := &sink{err: errors.New("disk full")}
	w = NewWriter(failing)
	w.append(func(b []byte) []byte { return append(b, "one\n"...) })
	w.Close()
	if w.Dropped() != 1 {
		t.Errorf("%d dropped by a failing sink", w.Dropped())
	}
}

// TestStuckSink: the end of the log does not wait for a reader that never reads.
func TestStuckSink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &sink{block: make(chan struct{})}
		w := NewWriter(s)
		w.append(func(b []byte) []byte { return append(b, "one\n"...) })
		synctest.Wait() // the writer is stuck with the first line
		w.append(func(b []byte) []byte { return append(b, "two\n"...) })
		start := time.Now()
		w.Close()
		if took := time.Since(start); took != closeWait || w.Dropped() != 1 {
			t.Errorf("Close took %v, %d lines dropped", took, w.Dropped())
		}
		close(s.block)
	})
}

func TestFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	f, err := OpenFile(path, 100)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 5 {
		fmt.Fprintf(f, "%d%s\n", i, strings.Repeat("x", 48))
	}
	f.Close()
	now, err1 := os.ReadFile(path)
	old, err2 := os.ReadFile(path + ".1")
	if err1 != nil || err2 != nil || len(now) != 50 || len(old) != 100 || old[0] != '2' {
		t.Errorf("%q %v, %q %v", now, err1, old, err2)
	}
	if info, _ := os.Stat(path); info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v", info.Mode())
	}
	if _, err := OpenFile(filepath.Join(t.TempDir(), "no", "log"), 0); err == nil {
		t.Error("a log in no folder opens")
	}
}

func TestConcurrentRecords(t *testing.T) {
	s := &sink{}
	l := NewLog(NewWriter(s))
	sch := schema(t)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for j := range 200 {
				d := fullDecision()
				d.Time, d.Outcome = time.Now(), []string{"ok", "refused"}[j%2]
				d.Client = fmt.Sprint(i)
				l.Decided(&d)
				l.Closed(&Close{Time: time.Now(), ID: "x", ClosedBy: "client", Why: "eof"})
			}
		})
	}
	wg.Wait()
	l.Close()
	for _, line := range s.lines() {
		validLine(t, sch, []byte(line))
	}
}

func BenchmarkDecided(b *testing.B) {
	s := &sink{}
	l := NewLog(NewWriter(discard{s}))
	defer l.Close()
	d := fullDecision()
	b.ReportAllocs()
	for b.Loop() {
		d.Time = d.Time.Add(time.Millisecond)
		l.Decided(&d)
	}
}

type discard struct{ *sink }

func (discard) Write(p []byte) (int, error) { return len(p), nil }
