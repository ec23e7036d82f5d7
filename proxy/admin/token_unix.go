//go:build unix

package admin

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// nonBlock keeps an open from waiting for the other end of a named pipe.
const nonBlock = syscall.O_NONBLOCK

// checkFolder refuses a folder in which somebody else could put another file in the token's place.
func checkFolder(info fs.FileInfo) error {
	if info.Mode().Perm()&0o022 != 0 && info.Mode()&fs.ModeSticky == 0 {
		return fmt.Errorf("its folder is writable by others (mode %04o)", info.Mode().Perm())
	}
	if !isOurs(info) {
		return errors.New("its folder belongs to another user")
	}
	return nil
}

// checkPrivate refuses a file that somebody else could read or has written.
func checkPrivate(info fs.FileInfo) error {
	if info.Mode().Perm()&0o077 != 0 {
		return fmt.Errorf("it is open to others (mode %04o); change the mode to 0600, or remove it to get a new token", info.Mode().Perm())
	}
	if !isOurs(info) {
		return errors.New("it belongs to another user")
	}
	return nil
}

func isOurs(info fs.FileInfo) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && (stat.Uid == 0 || int(stat.Uid) == os.Geteuid())
}
