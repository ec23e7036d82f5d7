package decisionlog

import (
	"strconv"
	"testing"
	"time"
)

// TestAppendTime: the same as the layout of the standard library.
func TestAppendTime(t *testing.T) {
	zone := time.FixedZone("", 3*3600)
	for _, at := range []time.Time{
		time.Unix(0, 0), time.Unix(1, 999_999_999), time.Date(2024, 2, 29, 23, 59, 59, 1000, time.UTC), time.Date(2026, 11, 30, 1, 2, 3, 45_678_900, zone),
		time.Date(9999, 12, 31, 23, 59, 59, 999_999_000, time.UTC), time.Date(1, 1, 1, 0, 0, 0, 0, time.UTC),
	} {
		if got, want := string(appendTime(nil, at)), at.UTC().Format("2006-01-02T15:04:05.000000Z07:00"); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// TestAppendMillis: milliseconds look as the shortest decimal does.
func TestAppendMillis(t *testing.T) {
	for _, d := range []time.Duration{0, 999, time.Microsecond, 10 * time.Microsecond, 999 * time.Microsecond, time.Millisecond, 1500 * time.Microsecond, 1010 * time.Microsecond, time.Second, 90*time.Minute + 7*time.Microsecond, 1<<62 + 1} {
		want := `,"x":` + strconv.FormatFloat(float64(d.Microseconds())/1000, 'f', -1, 64)
		if got := string(appendMillis(nil, "x", d)); got != want {
			t.Errorf("%d: got %s, want %s", d, got, want)
		}
	}
	if got := string(appendMillis(nil, "x", -time.Second)); got != `,"x":0` {
		t.Errorf("negative: %s", got)
	}
}
