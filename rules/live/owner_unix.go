//go:build unix

package live

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
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
	real, err := filepath.EvalSymlinks(abs)
	if err != nil {
		return err
	}
	if err := checkChain(real); err != nil {
		return err
	}
	if real != abs {
		return checkChain(filepath.Dir(abs))
	}
	return nil
}

func checkChain(path string) error {
	for p := path; ; p = filepath.Dir(p) {
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
		if p == filepath.Dir(p) {
			return nil
		}
	}
}
