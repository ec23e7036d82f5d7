package main

import (
	"errors"
	"os"
	"path/filepath"

	"dshproxy/rules/live"
)

// systemBundles are where systems keep the authorities that programs trust.
var systemBundles = []string{
	"/etc/ssl/certs/ca-certificates.crt", // Debian, Alpine, Arch
	"/etc/pki/tls/certs/ca-bundle.crt",   // Fedora, RHEL
	"/etc/ssl/ca-bundle.pem",             // SUSE
	"/etc/ssl/cert.pem",                  // macOS, BSD
}

// caBundle gives a file with the system's authorities and the one that inspected hosts are signed by: most variables of
// clients replace what they trust, and hosts that are not inspected have certificates of the system's authorities.
func caBundle(ca string) (string, error) {
	own, err := live.ReadNamed(ca, maxPEM)
	if err != nil {
		return "", err
	}
	dir, err := stateDir()
	if err != nil {
		return "", err
	}
	for _, system := range systemBundles {
		text, err := live.ReadNamed(system, maxCAFile)
		switch {
		case errors.Is(err, os.ErrNotExist):
			continue
		case err != nil:
			return "", err
		}
		path := filepath.Join(dir, "ca-bundle.pem")
		return path, replaceFile(path, append(append(text, '\n'), own...), 0o644)
	}
	return ca, nil // a system without authorities has none to lose
}
