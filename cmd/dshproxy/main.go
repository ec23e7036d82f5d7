// Dshproxy is an egress forward proxy that enforces network rules.
//
// This package is the only wiring: it reads flags and settings, builds the parts and connects them. Each subcommand has
// a file of its own.
package main

import (
	"context"
	"os"
)

func main() {
	os.Exit(run(context.Background(), os.Args[1:], stdio{os.Stdin, os.Stdout, os.Stderr}))
}
