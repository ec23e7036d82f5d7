//go:build unix

package live

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// nonBlock keeps an open from waiting for the other end of a named pipe.
const nonBlock = syscall.O_NONBLOCK

// CheckOwner refuses a file that somebody else could change: it and its folders must belong to root or the running user
// and not be writable by others; a sticky folder passes. Links are followed and both ends tested.
func CheckOwner(path string) error {
	abs, err := filepath.Abs(path)
	if err != nil {
		return err
	}
	return checkWay(abs, maxLinks)
}

// checkWay walks a path from the root. Each folder is tested before what it holds is looked at, and a link sends the
// walk along its own way, because whoever can change a folder on it decides where it leads.
func checkWay(path string, links int) error {
	at := "/"
	if err := checkOne(at); err != nil {
		return err
	}
	parts := strings.Split(strings.Trim(filepath.Clean(path), "/"), "/")
	for i, part := range parts {
		next := filepath.Join(at, part)
		info, err := os.Lstat(next)
		if err != nil {
			return err
		}
		if info.Mode()&fs.ModeSymlink != 0 {
			if links == 0 {
				return fmt.Errorf("%s: too many links", path)
			}
			to, err := os.Readlink(next)
			if err != nil {
				return err
			}
			if !filepath.IsAbs(to) {
				to = filepath.Join(at, to)
			}
			return checkWay(filepath.Join(append([]string{to}, parts[i+1:]...)...), links-1)
		}
		if err := checkOne(next); err != nil {
			return err
		}
		at = next
	}
	return nil
}

func checkOne(p string) error {
	info, err := os.Stat(p)
	if err != nil {
		return err
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return fmt.Errorf("%s: the owner cannot be told", p)
	}
	if uid := int(stat.Uid); uid != 0 && uid != os.Getuid() {
		return fmt.Errorf("%s: belongs to user %d, who could change it; it must belong to root or the running user", p, uid)
	}
	sticky := info.IsDir() && info.Mode()&fs.ModeSticky != 0
	if info.Mode().Perm()&0o022 != 0 && !sticky {
		return fmt.Errorf("%s: is writable by others (mode %04o)", p, info.Mode().Perm())
	}
	return nil
}
