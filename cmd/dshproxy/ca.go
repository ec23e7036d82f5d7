package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"dshproxy/proxy/inspect"
	"dshproxy/rules/live"

	"github.com/spf13/cobra"
)

func (a *app) caCommand() *cobra.Command {
	var dir string
	var domains []string
	c := &cobra.Command{
		Use:   "init --domain NAME",
		Short: "Make the CA that TLS inspection signs with",
		Long: "Init makes a CA for the given domains and for no others, good for one year, and writes ca.pem and ca-key.pem.\n" +
			"Existing files stay as they are, and nothing is installed in a system store: it says how a client trusts the CA.",
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if err := refuseInside("ca init"); err != nil {
				return err
			}
			return a.initCA(dir, domains)
		},
	}
	c.Flags().StringVar(&dir, "dir", "", "folder for the two files, outside of every workspace (default: dshproxy in the user's config folder)")
	c.Flags().StringArrayVar(&domains, "domain", nil, "what is inspected: NAME with all under it, *.NAME, or =NAME alone (repeatable)")
	return group("ca", "The CA of TLS inspection", c)
}

const (
	caFile    = "ca.pem"
	caKeyFile = "ca-key.pem"
)

func (a *app) initCA(dir string, domains []string) error {
	if len(domains) == 0 {
		return usageError("name each host that is to be inspected, as in --domain api.example.com", "no --domain is given")
	}
	dir, err := a.caFolder(dir)
	if err != nil {
		return err
	}
	ca, err := inspect.NewCA(domains, time.Now())
	if err != nil {
		return usageError("--domain takes a NAME, *.NAME or =NAME", "%w", err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if err := live.CheckOwner(dir); err != nil {
		return &exitError{exitFailure, err, "whoever can change the folder could put another CA in place"}
	}
	cert, key := filepath.Join(dir, caFile), filepath.Join(dir, caKeyFile)
	if err := writeNew(key, ca.Key, 0o600); err != nil {
		return err
	}
	if err := writeNew(cert, ca.Cert, 0o644); err != nil {
		return errors.Join(err, os.Remove(key)) // it is ours, and of no use alone
	}
	a.describeCA(ca, cert, key, domains)
	return nil
}

// caFolder gives the folder for a CA. It must not be one that the program under the rules works in: whoever reads the
// key there can pose as every inspected host.
func (a *app) caFolder(dir string) (string, error) {
	if dir == "" {
		config, err := os.UserConfigDir()
		if err != nil {
			return "", usageError("name a folder with --dir", "no config folder: %w", err)
		}
		dir = filepath.Join(config, "dshproxy")
	}
	dir, err := absolute(dir)
	if err != nil {
		return "", err
	}
	workspace, err := a.workspace()
	if err != nil {
		return "", err
	}
	here, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for _, within := range []string{workspace, filepath.Join(here, ".dsh")} {
		inside, err := contains(within, dir)
		if err != nil {
			return "", err
		}
		if inside {
			return "", usageError("name a folder outside of it with --dir, or the workspace with --workspace",
				"%s lies in the workspace, where the program under the rules could read the key", dir)
		}
	}
	return dir, nil
}

// contains reports whether a path is a folder or lies in it, whichever way links lead.
func contains(folder, path string) (bool, error) {
	folder, err := realPath(folder)
	if err != nil {
		return false, err
	}
	if path, err = realPath(path); err != nil {
		return false, err
	}
	rel, err := filepath.Rel(folder, path)
	return err == nil && rel != ".." && !strings.HasPrefix(rel, ".."+string(filepath.Separator)), nil
}

// realPath follows links as far as the path exists.
func realPath(path string) (string, error) {
	rest := ""
	for {
		switch real, err := filepath.EvalSymlinks(path); {
		case err == nil:
			return filepath.Join(real, rest), nil
		case !errors.Is(err, fs.ErrNotExist):
			return "", err
		}
		if info, err := os.Lstat(path); err == nil && info.Mode()&fs.ModeSymlink != 0 {
			return "", fmt.Errorf("%s: a link that leads nowhere", path)
		}
		if path == filepath.Dir(path) {
			return filepath.Join(path, rest), nil
		}
		path, rest = filepath.Dir(path), filepath.Join(filepath.Base(path), rest)
	}
}

// writeNew writes a file that does not exist yet, or leaves nothing.
func writeNew(path string, text []byte, mode os.FileMode) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if errors.Is(err, fs.ErrExist) {
		return &exitError{exitFailure, fmt.Errorf("%s exists and is left as it is", path), "take another --dir, or move the old CA away"}
	}
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	err = errors.Join(err, f.Chmod(mode), f.Close()) // whatever the umask says
	if err != nil {
		return errors.Join(err, os.Remove(path))
	}
	return nil
}

func (a *app) describeCA(ca *inspect.CA, cert, key string, domains []string) {
	fmt.Fprintf(a.io.out, `wrote %s
wrote %s, readable by this user alone
SHA-256 fingerprint: %s
good until %s for servers in %s, and for nothing else

Nothing is installed in a system store. A client trusts it by a variable of its own:
  Node                 NODE_EXTRA_CA_CERTS=%[1]s
  Deno                 DENO_CERT=%[1]s
These replace the system's roots. Give them a file with the system's bundle and %[6]s behind it:
  OpenSSL, Go, Ruby    SSL_CERT_FILE
  Python requests      REQUESTS_CA_BUNDLE
  curl                 CURL_CA_BUNDLE
  git                  GIT_SSL_CAINFO
  cargo                CARGO_HTTP_CAINFO
  AWS                  AWS_CA_BUNDLE
`, cert, key, ca.Fingerprint, ca.NotAfter.UTC().Format(time.DateOnly), strings.Join(domains, ", "), caFile)
}
