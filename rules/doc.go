// Package rules reads rule files of the dsh format: a strict parse with positions and hints, the compiled rules, lint,
// and the runner of test vectors.
//
// It takes bytes and gives values. It does not open files (package rules/live does), does not decide connections
// (package netrule does) and does no IO.
package rules
