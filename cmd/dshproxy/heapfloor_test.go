package main

import (
	"runtime"
	"runtime/debug"
	"testing"
	"time"
)

// TestGCPercent: the heap may reach the floor, and what is larger is collected at Go's own pace.
func TestGCPercent(t *testing.T) {
	for live, want := range map[uint64]int{0: 400, 1 << 20: 400, heapFloor / 5: 400, heapFloor/5 + 1: 200, heapFloor / 3: 200, heapFloor/3 + 1: 100, heapFloor: 100, 1 << 40: 100} {
		if got := gcPercent(live); got != want {
			t.Errorf("%d bytes alive: %d %%, want %d", live, got, want)
		}
	}
}

// TestHeapFloor: the pace follows the heap up and down, and is Go's own again in the end.
func TestHeapFloor(t *testing.T) {
	t.Setenv("GOGC", "")
	stop := keepHeapFloor()
	defer debug.SetGCPercent(100)
	current := func() int {
		p := debug.SetGCPercent(100)
		debug.SetGCPercent(p)
		return p
	}
	await := func(what string, ok func(percent int) bool) {
		t.Helper()
		for deadline := time.Now().Add(10 * time.Second); !ok(current()); runtime.Gosched() {
			if time.Now().After(deadline) {
				t.Fatalf("%s, the pace is %d %%", what, current())
			}
			runtime.GC()
		}
	}
	if p := current(); p != 400 {
		t.Errorf("it begins with %d %%", p)
	}
	large := make([]byte, 2*heapFloor)
	await("with a large heap", func(percent int) bool { return percent == 100 })
	runtime.KeepAlive(large)
	await("with a small heap", func(percent int) bool { return percent > 100 })
	stop()
	if p := current(); p != 100 {
		t.Errorf("it ends with %d %%", p)
	}
}

// TestHeapFloorLeavesGOGC: who sets GOGC knows why.
func TestHeapFloorLeavesGOGC(t *testing.T) {
	t.Setenv("GOGC", "50")
	before := debug.SetGCPercent(50)
	defer debug.SetGCPercent(before)
	keepHeapFloor()()
	if p := debug.SetGCPercent(50); p != 50 {
		t.Errorf("the pace is %d %%", p)
	}
}
