package decisionlog

import (
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
