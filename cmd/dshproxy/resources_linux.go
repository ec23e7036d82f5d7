package main

import (
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

func goVersion() string { return runtime.Version() }

// fileLimit is the number of descriptors this process may hold; the runtime has raised it to the hard limit.
func fileLimit() int {
	var r unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &r) != nil || r.Cur > math.MaxInt32 {
		return math.MaxInt32
	}
	return int(r.Cur)
}

// limitMemory keeps the heap below 90 % of the container's limit, unless GOMEMLIMIT says otherwise.
func limitMemory() {
	if os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	for _, path := range []string{"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"} {
		text, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
		if err == nil && n > 0 && n < 1<<50 { // the kernel's "unlimited" is larger
			debug.SetMemoryLimit(n / 10 * 9)
		}
		return
	}
}
