// Package netns runs code inside another network namespace.
//
// Only the network namespace is entered, never the mount namespace, so that
// bpffs, tracefs and files stay those of the process (setns(2)).
package netns

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// Dir is where ip-netns(8) keeps named network namespaces.
const Dir = "/run/netns"

// Path returns the file of a namespace given by name or by absolute path. The
// empty string stands for the namespace of the caller's thread, since the process's
// first thread may be elsewhere; neutron: and the id of a network for the one that
// Neutron has for that on this node.
func Path(nameOrPath string) (string, error) {
	switch {
	case nameOrPath == "":
		return "/proc/thread-self/ns/net", nil
	case strings.HasPrefix(nameOrPath, neutronPrefix):
		return neutronPath(nameOrPath)
	case filepath.IsAbs(nameOrPath):
		return filepath.Clean(nameOrPath), nil
	case strings.ContainsRune(nameOrPath, '/') || nameOrPath == "." || nameOrPath == "..":
		return "", fmt.Errorf("network namespace %q: write a name in %s or an absolute path", nameOrPath, Dir)
	}
	return filepath.Join(Dir, nameOrPath), nil
}

// Do runs fn in the network namespace given by name or path, on a locked
// operating system thread. Sockets that fn opens stay in that namespace. The
// empty string runs fn where it is.
func Do(nameOrPath string, fn func() error) error {
	if nameOrPath == "" {
		return fn()
	}
	target, err := Open(nameOrPath)
	if err != nil {
		return err
	}
	defer target.Close()
	return target.Do(fn)
}

// NS is an open network namespace. It stays reachable after its name is gone.
type NS struct {
	file *os.File
	name string
}

// Open opens a network namespace by name or path.
func Open(nameOrPath string) (*NS, error) {
	path, err := Path(nameOrPath)
	if err != nil {
		return nil, err
	}
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, missing(nameOrPath, path, err)
	}
	if err != nil {
		return nil, fmt.Errorf("open network namespace %q: %w", nameOrPath, err)
	}
	return &NS{file: f, name: nameOrPath}, nil
}

// FD returns the file descriptor of the namespace, valid until Close.
func (n *NS) FD() int { return int(n.file.Fd()) }

// Close closes the namespace's file.
func (n *NS) Close() error { return n.file.Close() }

// Inode returns the inode number that identifies the namespace in the kernel.
func (n *NS) Inode() (uint64, error) {
	var st unix.Stat_t
	if err := unix.Fstat(n.FD(), &st); err != nil {
		return 0, fmt.Errorf("stat network namespace %q: %w", n.name, err)
	}
	return st.Ino, nil
}

// Do runs fn inside the namespace on a locked operating system thread. The
// process's own needs no entering, and so no CAP_SYS_ADMIN.
func (n *NS) Do(fn func() error) error {
	if n.name == "" {
		return fn()
	}
	done := make(chan error, 1)
	// A thread that cannot be brought back must not be used again: the
	// goroutine ends while still locked to it, which ends the thread.
	go func() {
		runtime.LockOSThread()
		home, err := os.Open("/proc/thread-self/ns/net")
		if err != nil {
			runtime.UnlockOSThread()
			done <- fmt.Errorf("open own network namespace: %w", err)
			return
		}
		defer home.Close()
		if err := unix.Setns(n.FD(), unix.CLONE_NEWNET); err != nil {
			runtime.UnlockOSThread()
			done <- fmt.Errorf("enter network namespace %q (needs CAP_SYS_ADMIN): %w", n.name, err)
			return
		}
		result := fn()
		if err := unix.Setns(int(home.Fd()), unix.CLONE_NEWNET); err == nil {
			runtime.UnlockOSThread()
		}
		done <- result
	}()
	return <-done
}
