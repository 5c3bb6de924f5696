package realtime

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// ErrMayNotLock means that memory may not be locked without a bound, so that it is not.
var ErrMayNotLock = errors.New("memory stays swappable (needs CAP_IPC_LOCK, or RLIMIT_MEMLOCK of infinity)")

// LockMemory keeps the pages that the process uses from being swapped out or dropped,
// also those that it will touch later (mlockall(2), MCL_ONFAULT: nothing is brought in
// that is not used). Under a bound it does nothing: the allocation that met the bound
// would fail, and the process with it.
func LockMemory() error {
	if !mayLock() {
		return ErrMayNotLock
	}
	if err := unix.Mlockall(unix.MCL_CURRENT | unix.MCL_FUTURE | unix.MCL_ONFAULT); err != nil {
		return fmt.Errorf("lock memory: %w", err)
	}
	return nil
}

func mayLock() bool {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &limit); err == nil && limit.Cur == unix.RLIM_INFINITY {
		return true
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData // 64 bits of capabilities
	err := unix.Capget(&header, &data[0])
	return err == nil && data[0].Effective&(1<<unix.CAP_IPC_LOCK) != 0
}
