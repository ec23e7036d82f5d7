//go:build !linux

package main

import "runtime"

func goVersion() string { return runtime.Version() }

// fileLimit assumes a common limit where it is not asked for.
func fileLimit() int { return 10240 }

// limitMemory does nothing: there is no cgroup here.
func limitMemory() {}
