// Package realtime gives work that must not wait for its turn a thread that runs
// before all ordinary ones.
package realtime

import (
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"
)

// priority is the lowest of the real-time priorities: it is before every ordinary
// thread and behind what an operator has made more urgent.
const priority = 1

// Lock ties the calling goroutine to its thread for good and asks for SCHED_FIFO
// (sched(7)), which needs CAP_SYS_NICE or RLIMIT_RTPRIO of at least 1. On error the
// thread has its ordinary priority, and the goroutine has the thread all the same.
// The thread ends with the goroutine, and its scheduling with it.
func Lock() error {
	runtime.LockOSThread()
	// Whatever RelaxTimers says; with a real-time priority there is no slack anyway.
	if err := unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("ask for timers without slack: %w", err)
	}
	err := unix.SchedSetAttr(0, &unix.SchedAttr{
		Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Priority: priority, Flags: unix.SCHED_FLAG_RESET_ON_FORK,
	}, 0)
	if err != nil {
		return fmt.Errorf("ask for real-time scheduling (needs CAP_SYS_NICE or RLIMIT_RTPRIO): %w", err)
	}
	return nil
}
