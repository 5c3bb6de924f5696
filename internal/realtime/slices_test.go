package realtime

import (
	"os"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
)

// TestSlicesAreShortOfAllThreads, also after a turn, and priorities stay.
func TestSlicesAreShortOfAllThreads(t *testing.T) {
	before := attributes(t)
	if err := ShortenSlices(); err != nil {
		t.Fatal(err)
	}
	if before.Runtime == 0 {
		t.Skip("the kernel has no slices of threads (EEVDF, Linux 6.12)")
	}
	check := func() {
		t.Helper()
		tasks, err := os.ReadDir("/proc/self/task")
		if err != nil {
			t.Fatal(err)
		}
		for _, task := range tasks {
			tid, err := strconv.Atoi(task.Name())
			if err != nil {
				t.Fatal(err)
			}
			a, err := unix.SchedGetAttr(tid, 0)
			if err != nil || a.Policy != unix.SCHED_NORMAL {
				continue // it has ended, or is of a test of real-time threads
			}
			if a.Runtime != uint64(shortSlice) || a.Nice != before.Nice {
				t.Errorf("thread %d of %d: slice %d, nice %d", tid, len(tasks), a.Runtime, a.Nice)
			}
		}
	}
	check()
	turns, err := NewTurns()
	if err != nil {
		t.Skip(err)
	}
	if err := turns.Take(); err != nil {
		t.Fatal(err)
	}
	if err := turns.Give(); err != nil {
		t.Fatal(err)
	}
	check()
}
