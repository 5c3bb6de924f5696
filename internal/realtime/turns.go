package realtime

import (
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Turns make a goroutine's thread urgent for a while. A goroutine that keeps a thread for
// good, as Lock does, costs three threads' wake-ups in place of one each time that it waits in
// Go's scheduler: between Take and Give it should wait in system calls alone.
type Turns struct{ urgent, ordinary unix.SchedAttr }

// NewTurns finds out whether the system allows SCHED_FIFO (sched(7)), which needs
// CAP_SYS_NICE or RLIMIT_RTPRIO of at least 1.
func NewTurns() (*Turns, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	ordinary, err := unix.SchedGetAttr(0, 0)
	if err != nil {
		return nil, fmt.Errorf("read the thread's scheduling: %w", err)
	}
	t := &Turns{
		// Threads are not started from one that a goroutine has locked, so none inherits it.
		urgent:   unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Priority: priority},
		ordinary: unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: ordinary.Policy, Nice: ordinary.Nice, Runtime: ordinary.Runtime},
	}
	if err := t.set(&t.urgent); err != nil {
		return nil, fmt.Errorf("ask for real-time scheduling (needs CAP_SYS_NICE or RLIMIT_RTPRIO): %w", err)
	}
	return t, t.set(&t.ordinary)
}

// Take ties the calling goroutine to its thread and runs it before all ordinary ones. On error
// the goroutine is as it was.
func (t *Turns) Take() error {
	runtime.LockOSThread()
	if err := t.set(&t.urgent); err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("make a thread urgent: %w", err)
	}
	return nil
}

// Give ends what Take has begun. On error the goroutine keeps its thread, since others must
// not run on it.
func (t *Turns) Give() error {
	if err := t.set(&t.ordinary); err != nil {
		return fmt.Errorf("make a thread ordinary: %w", err)
	}
	runtime.UnlockOSThread()
	return nil
}

// set makes a raw call, since the runtime's monitor thread would wake up for another.
func (t *Turns) set(a *unix.SchedAttr) error {
	if _, _, errno := unix.RawSyscall(unix.SYS_SCHED_SETATTR, 0, uintptr(unsafe.Pointer(a)), 0); errno != 0 {
		return errno
	}
	return nil
}
