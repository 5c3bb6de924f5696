package realtime

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// RelaxTimers lets the process's threads, and those that they start, wake up to d later
// than they ask for (proc_pid_timerslack_ns(5)), which needs CAP_SYS_NICE. Threads of a
// real-time priority, or under Lock, are never late by it. Go's runtime has a thread that
// watches the others: for a millisecond after each return from a system call of 10 ms it
// wakes every 70 us, which costs more than a loop that sleeps for so long does.
func RelaxTimers(d time.Duration) error {
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return fmt.Errorf("list threads: %w", err)
	}
	for _, t := range threads {
		err := os.WriteFile(filepath.Join("/proc", t.Name(), "timerslack_ns"), strconv.AppendInt(nil, d.Nanoseconds(), 10), 0)
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // it has ended
			return fmt.Errorf("relax timers: %w", err)
		}
	}
	return nil
}
