package live

import (
	"errors"
	"fmt"
	"io"
	"os"
)

// readBelow reads a file relative to a held folder, following no link out of it.
func readBelow(root *os.Root, name string, limit int64) ([]byte, error) {
	f, err := root.OpenFile(name, os.O_RDONLY|nonBlock, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return readRegular(f, limit)
}

// ReadNamed reads a regular file that somebody named, wherever it is, up to a limit in bytes and without blocking.
func ReadNamed(path string, limit int64) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|nonBlock, 0)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, bare(err))
	}
	defer f.Close()
	b, err := readRegular(f, limit)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, bare(err))
	}
	return b, nil
}

// readRegular refuses devices, pipes and folders, which may block or never end, and files over the limit.
func readRegular(f *os.File, limit int64) ([]byte, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("not a regular file")
	}
	b, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(b)) > limit {
		return nil, fmt.Errorf("larger than %d bytes", limit)
	}
	return b, nil
}
