package main

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
)

// heapFloor is the size up to which the heap may grow before it is collected, in bytes. What a proxy keeps alive is a
// megabyte or two, so that the collector would run some thirty times a second under load, each time with the costs that
// do not depend on the size of the heap.
const heapFloor = 16 << 20

// keepHeapFloor holds the collector to heapFloor from now on, until stop. A GOGC in the environment is left alone.
func keepHeapFloor() (stop func()) {
	if os.Getenv("GOGC") != "" {
		return func() {}
	}
	k := &floorKeeper{percent: 100}
	k.adjust(0)
	k.await()
	return k.stop
}

// floorKeeper sets the pace of the collector anew after each of its turns.
type floorKeeper struct {
	mu      sync.Mutex
	percent int
	over    bool
}

// await has adjust called after the next turn of the collector, which finds the object that nobody holds.
func (k *floorKeeper) await() {
	runtime.AddCleanup(&struct{ of *floorKeeper }{k}, func(k *floorKeeper) {
		live := [1]metrics.Sample{{Name: "/gc/heap/live:bytes"}}
		metrics.Read(live[:])
		if live[0].Value.Kind() == metrics.KindUint64 && k.adjust(live[0].Value.Uint64()) {
			k.await()
		}
	}, k)
}

// adjust sets the pace for what has been found alive, in bytes, and reports whether it goes on.
func (k *floorKeeper) adjust(live uint64) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if percent := gcPercent(live); !k.over && percent != k.percent {
		k.percent = percent
		debug.SetGCPercent(percent)
	}
	return !k.over
}

func (k *floorKeeper) stop() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.over = true
	debug.SetGCPercent(100)
}

// gcPercent gives how much the heap may grow, in per cent of what is alive. There are only three answers, for each change
// stops the world for a moment.
func gcPercent(live uint64) int {
	for percent := 400; percent > 100; percent /= 2 {
		if live*uint64(100+percent) <= heapFloor*100 {
			return percent
		}
	}
	return 100
}
