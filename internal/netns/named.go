package netns

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// Create makes a network namespace with a name, as ip-netns(8) does: other programs find it by that. The
// error is fs.ErrExist where there is one already.
func Create(name string) error {
	path, err := Path(name)
	if err != nil {
		return err
	}
	if err := shareDir(); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("make network namespace %q: %w", name, err)
	}
	done := make(chan error, 1)
	go func() { done <- mountNew(path) }()
	if err := errors.Join(f.Close(), <-done); err != nil {
		return errors.Join(fmt.Errorf("make network namespace %q (needs CAP_SYS_ADMIN): %w", name, err), os.Remove(path))
	}
	return nil
}

// mountNew puts a new namespace at a path. It leaves the thread where it was, or has it end.
func mountNew(path string) error {
	runtime.LockOSThread() // a thread that cannot be brought back ends with its goroutine
	home, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		runtime.UnlockOSThread()
		return err
	}
	defer home.Close()
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		runtime.UnlockOSThread()
		return err
	}
	err = unix.Mount("/proc/thread-self/ns/net", path, "none", unix.MS_BIND, "")
	if back := unix.Setns(int(home.Fd()), unix.CLONE_NEWNET); back == nil {
		runtime.UnlockOSThread()
	}
	return err
}

// shareDir has mounts in Dir be seen by processes with mounts of their own, such as services.
func shareDir() error {
	if err := os.MkdirAll(Dir, 0o755); err != nil {
		return err
	}
	err := unix.Mount("", Dir, "none", unix.MS_SHARED|unix.MS_REC, "")
	if errors.Is(err, unix.EINVAL) { // it is no mount yet
		err = unix.Mount(Dir, Dir, "none", unix.MS_BIND|unix.MS_REC, "")
		if err == nil {
			err = unix.Mount("", Dir, "none", unix.MS_SHARED|unix.MS_REC, "")
		}
	}
	if err != nil {
		return fmt.Errorf("share the mounts in %s (needs CAP_SYS_ADMIN): %w", Dir, err)
	}
	return nil
}

// Delete removes a namespace's name, also one of which only the file was made. The namespace itself goes with
// the last process, socket or device in it.
func Delete(name string) error {
	path, err := Path(name)
	if err != nil {
		return err
	}
	err = unix.Unmount(path, unix.MNT_DETACH)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT) {
		err = nil
	}
	if gone := os.Remove(path); err == nil && !errors.Is(gone, fs.ErrNotExist) {
		err = gone
	}
	if err != nil {
		return fmt.Errorf("remove network namespace %q: %w", name, err)
	}
	return nil
}
