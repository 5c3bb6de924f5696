// Package realtime gives work that must not wait for its turn a thread that runs
// before all ordinary ones.
package realtime

import (
	"errors"
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"
)

// priority is the lowest of the real-time priorities: it is before every ordinary
// thread and behind what an operator has made more urgent.
const priority = 1

// Lock is for a goroutine that waits in system calls of its own. It ties the calling goroutine to its thread for good and asks for SCHED_FIFO
// (sched(7)), which needs CAP_SYS_NICE or RLIMIT_RTPRIO of at least 1. On error the
// thread has its ordinary priority, and the goroutine has the thread all the same.
// The thread ends with the goroutine, and its scheduling with it.
func Lock() error {
	runtime.LockOSThread()
	return hurry(0)
}

// Follower gives its goroutine's thread the same priority, whichever that is just now.
// It is for a goroutine that Go's scheduler may interrupt: tied to a thread, it would
// have to wait for another, ordinary thread whenever it goes on. The zero value is
// ready for use; its methods are called by one goroutine only.
type Follower struct {
	thread int
	before *unix.SchedAttr // how it was scheduled
}

// Follow gives the calling thread the priority and takes it from the one before.
func (f *Follower) Follow() error {
	// It cannot block, so the runtime need not know of it.
	here, _, _ := unix.RawSyscall(unix.SYS_GETTID, 0, 0, 0)
	if f.thread == int(here) {
		return nil
	}
	if err := f.Leave(); err != nil {
		return err
	}
	before, err := unix.SchedGetAttr(int(here), 0)
	if err != nil {
		return fmt.Errorf("ask how a thread is scheduled: %w", err)
	}
	if err := hurry(int(here)); err != nil {
		return err
	}
	f.thread, f.before = int(here), before
	return nil
}

// Leave takes the priority away.
func (f *Follower) Leave() error {
	thread := f.thread
	f.thread = 0
	if thread == 0 {
		return nil
	}
	// The flag stays: taking it away needs CAP_SYS_NICE.
	err := unix.SchedSetAttr(thread, &unix.SchedAttr{
		Size: unix.SizeofSchedAttr, Policy: f.before.Policy, Nice: f.before.Nice, Flags: unix.SCHED_FLAG_RESET_ON_FORK,
	}, 0)
	if err != nil && !errors.Is(err, unix.ESRCH) { // threads may end
		return fmt.Errorf("go back to ordinary scheduling: %w", err)
	}
	return nil
}

// hurry gives a thread of this process the priority; 0 is the calling one.
func hurry(thread int) error {
	err := unix.SchedSetAttr(thread, &unix.SchedAttr{
		Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Priority: priority, Flags: unix.SCHED_FLAG_RESET_ON_FORK,
	}, 0)
	if err != nil {
		return fmt.Errorf("ask for real-time scheduling (needs CAP_SYS_NICE or RLIMIT_RTPRIO): %w", err)
	}
	return nil
}
