package admin

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

const (
	tokenBytes = 32   // of randomness
	minToken   = 22   // characters; 128 bits in base64
	maxToken   = 1024 // characters
)

// LoadOrCreateToken reads the token of the API from a file, or makes a new one of 256 random bits and writes it there.
// A new file has mode 0600, a new folder 0700, and whoever starts second takes what the first one wrote. Files that
// others can read, links, whatever is no regular file, folders that others can write to, and texts that are short or no
// token (RFC 6750 section 2.1) are errors, which never hold the text. On Windows the folder alone protects the file.
func LoadOrCreateToken(path string) (string, error) {
	token, err := loadOrCreate(filepath.Dir(path), filepath.Base(path))
	var pe *fs.PathError
	if errors.As(err, &pe) {
		err = pe.Err // it names the file in parts
	}
	if err != nil {
		return "", fmt.Errorf("token file %s: %w", path, err)
	}
	return token, nil
}

func loadOrCreate(dir, name string) (string, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return "", err
	}
	defer root.Close()
	info, err := root.Stat(".")
	if err != nil {
		return "", err
	}
	if err := checkFolder(info); err != nil {
		return "", err
	}
	token, err := readToken(root, name)
	if !errors.Is(err, fs.ErrNotExist) {
		return token, err
	}
	if err := createToken(root, name); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", err
	}
	return readToken(root, name)
}

func readToken(root *os.Root, name string) (string, error) {
	seen, err := root.Lstat(name)
	if err != nil {
		return "", err
	}
	if !seen.Mode().IsRegular() {
		return "", errors.New("not a regular file")
	}
	f, err := root.OpenFile(name, os.O_RDONLY|nonBlock, 0)
	if err != nil {
		return "", err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return "", err
	}
	if !os.SameFile(seen, info) {
		return "", errors.New("it was replaced while it was opened")
	}
	if err := checkPrivate(info); err != nil {
		return "", err
	}
	text, err := io.ReadAll(io.LimitReader(f, maxToken+3))
	if err != nil {
		return "", err
	}
	return parseToken(string(text))
}

// parseToken takes a token and at most one end of line.
func parseToken(text string) (string, error) {
	text = strings.TrimSuffix(strings.TrimSuffix(text, "\n"), "\r")
	const allowed = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~+/"
	switch body := strings.TrimRight(text, "="); {
	case len(body) < minToken:
		return "", fmt.Errorf("the token is shorter than %d characters; remove the file to get a new one", minToken)
	case len(text) > maxToken:
		return "", fmt.Errorf("the token is longer than %d characters", maxToken)
	case strings.ContainsFunc(body, func(r rune) bool { return !strings.ContainsRune(allowed, r) }):
		return "", errors.New("the token has white space or other characters that no token has")
	}
	return text, nil
}

// createToken writes a file of its own and then gives it its name, which fails where there is one: nobody ever reads
// half a token, and a start that was cut short leaves none.
func createToken(root *os.Root, name string) error {
	random := make([]byte, tokenBytes)
	_, _ = rand.Read(random) // never fails
	temporary := name + "." + rand.Text() + ".tmp"
	f, err := root.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = root.Remove(temporary) }() // a leftover is of no use to anybody
	_, err = f.WriteString(hex.EncodeToString(random) + "\n")
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return root.Link(temporary, name)
}
