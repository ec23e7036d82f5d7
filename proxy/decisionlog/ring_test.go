package decisionlog

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"dshproxy/netrule"
)

func numbered(i int, outcome string) *Decision {
	d := denial(time.Unix(int64(i), 0), "c", fmt.Sprintf("h%d.test", i))
	d.ID, d.Outcome = fmt.Sprint(i), outcome
	if outcome != "refused" {
		d.Decision.Action = netrule.Allow
	}
	return d
}

// ids gives the ids of lines, each checked against the schema.
func ids(t *testing.T, lines []json.RawMessage) string {
	t.Helper()
	s := schema(t)
	var out []string
	for _, l := range lines {
		out = append(out, validLine(t, s, l)["id"].(string))
	}
	return strings.Join(out, " ")
}

func TestRing(t *testing.T) {
	r := NewRing(3)
	r.Decided(numbered(1, "refused"))
	r.Decided(numbered(2, "failed"))
	for i := 3; i < 100; i++ {
		r.Decided(numbered(i, "ok"))
	}
	unjudged := numbered(100, "refused")
	unjudged.Judged, unjudged.Target.Host, unjudged.RawTarget = false, "", "\xff"+strings.Repeat("x", 9000)
	r.Decided(unjudged)
	tests := []struct {
		q    RingQuery
		want string
	}{
		{RingQuery{}, "100 99 98 97 2 1"},
		{RingQuery{Limit: 2}, "100 99"},
		{RingQuery{Verdict: "deny"}, "1"},
		{RingQuery{Verdict: "allow"}, "99 98 97 2"},
		{RingQuery{Verdict: "allow", Limit: 1}, "99"},
		{RingQuery{Verdict: "none"}, ""},
		{RingQuery{ID: "98"}, "98"},
		{RingQuery{ID: "50"}, ""},
		{RingQuery{Host: "h1.test"}, "1"},
		{RingQuery{Host: "h1.test", Verdict: "allow"}, ""},
	}
	for _, tt := range tests {
		if got := ids(t, r.Recent(tt.q)); got != tt.want {
			t.Errorf("%+v: %q, want %q", tt.q, got, tt.want)
		}
	}
	for i := 101; i < 104; i++ {
		r.Decided(numbered(i, "refused"))
	}
	if got := ids(t, r.Recent(RingQuery{Verdict: "deny"})); got != "103 102 101" {
		t.Errorf("after refusals: %q", got)
	}
}

// TestRingCopies: what a ring keeps and gives belongs to nobody else.
func TestRingCopies(t *testing.T) {
	r := NewRing(1)
	sub, err := r.Subscribe()
	if err != nil {
		t.Fatal(err)
	}
	defer sub.Close()
	d := fullDecision()
	r.Decided(&d)
	first := r.Recent(RingQuery{})
	want := string(first[0])
	d.Decision.Addrs[0].Why, d.ID = "changed", "other"
	r.Decided(&d)
	if got := string(first[0]); got != want {
		t.Errorf("a line that was given away changed:\n%s\n%s", got, want)
	}
	if got := (<-sub.C).Line; string(got) != want {
		t.Errorf("an event that waited changed:\n%s\n%s", got, want)
	}
	if got := r.Recent(RingQuery{ID: "other"}); len(got) != 1 || string(got[0]) == want {
		t.Errorf("the newer one: %s", got)
	}
}

// TestRingBounded: neither its size nor long records make a ring grow without end.
func TestRingBounded(t *testing.T) {
	for size, want := range map[int]int{-1: 0, 0: 0, 5: 5, 1 << 40: maxRing} {
		if got := NewRing(size).kinds[0].size; got != want {
			t.Errorf("NewRing(%d) keeps %d, want %d", size, got, want)
		}
	}
	r := NewRing(1)
	long := numbered(1, "ok")
	long.Decision.Rule = netrule.RuleRef{File: "/r", Line: 1, Reason: strings.Repeat("\xff", 1<<20)}
	r.Decided(long)
	if got := cap(r.kinds[ringOK].slots[0].line); got > 32<<10 {
		t.Errorf("a long record holds %d bytes", got)
	}
	r.Decided(numbered(2, "ok"))
	if got := cap(r.kinds[ringOK].slots[0].line); got > 2<<10 {
		t.Errorf("a short record after a long one holds %d bytes", got)
	}
	short := numbered(3, "ok")
	if n := testing.AllocsPerRun(100, func() { r.Decided(short) }); n != 0 {
		t.Errorf("%v allocations for each decision", n)
	}
	var zero Ring
	zero.Decided(short)
	if got := zero.Recent(RingQuery{}); len(got) != 0 {
		t.Errorf("the zero ring keeps %s", got)
	}
}

func TestSubscribe(t *testing.T) {
	r := NewRing(2)
	r.Decided(numbered(0, "ok")) // before
	sub, err := r.Subscribe()
	if err != nil {
		t.Fatal(err)
	}
	r.Decided(numbered(1, "refused"))
	r.Closed(&Close{ID: "1", ClosedBy: "client", Why: "eof"})
	r.Reloaded(&Reload{OK: true})
	s := schema(t)
	for _, kind := range []string{"decision", "close", "reload"} {
		e := <-sub.C
		if m := validLine(t, s, e.Line); e.Kind != kind || m["msg"] != kind {
			t.Errorf("got %s %s, want %s", e.Kind, e.Line, kind)
		}
	}
	for i := range eventQueue + 7 {
		r.Decided(numbered(i, "ok"))
	}
	if a, b := sub.TakeDropped(), sub.TakeDropped(); a != 7 || b != 0 {
		t.Errorf("dropped %d, then %d", a, b)
	}
	var more []*Subscription
	for range maxSubscribers - 1 {
		m, err := r.Subscribe()
		if err != nil {
			t.Fatal(err)
		}
		more = append(more, m)
	}
	if _, err := r.Subscribe(); !errors.Is(err, ErrTooManySubscribers) {
		t.Errorf("one too many: %v", err)
	}
	sub.Close()
	sub.Close()
	if m, err := r.Subscribe(); err != nil {
		t.Errorf("after one has left: %v", err)
	} else {
		more = append(more, m)
	}
	r.Closed(&Close{})
	if len(sub.C) != eventQueue {
		t.Errorf("%d events wait for one who has left", len(sub.C))
	}
	for _, m := range more {
		m.Close()
	}
}

func TestRingConcurrent(t *testing.T) {
	r := NewRing(10)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for j := range 200 {
				r.Decided(numbered(i*1000+j, []string{"ok", "refused"}[j%2]))
				r.Closed(&Close{ID: "x"})
				if sub, err := r.Subscribe(); err == nil {
					sub.Close()
				}
				for _, l := range r.Recent(RingQuery{Limit: 3}) {
					if !json.Valid(l) {
						t.Errorf("no JSON: %s", l)
					}
				}
			}
		})
	}
	wg.Wait()
	if got := len(r.Recent(RingQuery{})); got != 20 {
		t.Errorf("%d kept, want 20", got)
	}
}

func BenchmarkRing(b *testing.B) {
	r := NewRing(100)
	d := fullDecision()
	b.ReportAllocs()
	for b.Loop() {
		r.Decided(&d)
	}
}
