package decisionlog

import (
	"bytes"
	"testing"
	"time"

	"dshproxy/netrule"
)

// TestRecorder: the log and the ring are told the same, and a missing log is no trouble.
func TestRecorder(t *testing.T) {
	var sink bytes.Buffer
	r := Recorder{Ring: NewRing(8), Log: NewLog(NewWriter(&sink))}
	target, err := netrule.ParseConnect("a.test:443")
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		d := Decision{Time: time.Unix(int64(i), 0), ID: string(rune('a' + i)), Protocol: "connect", Target: target, Outcome: "ok"}
		r.Decided(&d)
		Recorder{Ring: NewRing(1)}.Decided(&d)
	}
	r.Closed(&Close{Time: time.Unix(9, 0), ID: "a", Why: "eof"})
	r.Reloaded(&Reload{Time: time.Unix(9, 0), OK: true})
	Recorder{Ring: NewRing(1)}.Closed(&Close{})
	Recorder{Ring: NewRing(1)}.Reloaded(&Reload{})
	r.Log.Close()
	lines := bytes.Split(bytes.TrimSpace(sink.Bytes()), []byte("\n"))
	kept := r.Ring.Recent(RingQuery{})
	if len(lines) != 5 || len(kept) != 3 {
		t.Fatalf("%d lines, %d kept", len(lines), len(kept))
	}
	for i := range kept {
		if got, want := kept[len(kept)-1-i], lines[i]; !bytes.Equal(got, want) {
			t.Errorf("kept %s, written %s", got, want)
		}
	}
	if !bytes.Contains(lines[3], []byte(`"msg":"close"`)) || !bytes.Contains(lines[4], []byte(`"msg":"reload"`)) {
		t.Errorf("%s", lines[3:])
	}
}
