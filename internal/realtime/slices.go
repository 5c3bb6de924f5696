package realtime

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// listings is how often threads are listed at most: one that a thread of long slices starts meanwhile is in the next listing.
const listings = 10

// shortSlice is the shortest slice that the kernel takes (kernel/sched/syscalls.c).
const shortSlice = 100 * time.Microsecond

// ShortenSlices asks for short slices for all threads of the process, and for those that they
// start: who asks for little at a time gets it sooner, and no larger share (Linux 6.12, EEVDF;
// before, the kernel takes the value and does nothing with it). Threads of another policy
// stay as they are.
func ShortenSlices() error {
	done := make(map[int]bool)
	for range listings {
		tasks, err := os.ReadDir("/proc/self/task")
		if err != nil {
			return fmt.Errorf("list the threads: %w", err)
		}
		before := len(done)
		for _, task := range tasks {
			tid, err := strconv.Atoi(task.Name())
			if err != nil {
				return fmt.Errorf("list the threads: %w", err)
			}
			if done[tid] {
				continue
			}
			if err := shorten(tid); err != nil && !errors.Is(err, unix.ESRCH) { // it has ended
				return fmt.Errorf("shorten the slices of thread %d: %w", tid, err)
			}
			done[tid] = true
		}
		if len(done) == before {
			break
		}
	}
	return nil
}

func shorten(tid int) error {
	a, err := unix.SchedGetAttr(tid, 0)
	if err != nil || a.Policy != unix.SCHED_NORMAL {
		return err
	}
	return unix.SchedSetAttr(tid, &unix.SchedAttr{
		Size: unix.SizeofSchedAttr, Policy: a.Policy, Nice: a.Nice, Flags: a.Flags & unix.SCHED_FLAG_RESET_ON_FORK, Runtime: uint64(shortSlice),
	}, 0)
}
