package realtime

import (
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"vigia/internal/testutil"
)

// slack returns the timer slack of a thread, nanoseconds.
func slack(t *testing.T, tid int) int {
	t.Helper()
	raw, err := os.ReadFile("/proc/" + strconv.Itoa(tid) + "/timerslack_ns")
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(raw)))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestTimersAreRelaxedButOfTheLockedThread(t *testing.T) {
	testutil.RequireRoot(t)
	// Not the process's first thread: it outlives a goroutine that ended under Lock on it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	ordinary := unix.Gettid()
	before := slack(t, ordinary)
	defer func() {
		if err := RelaxTimers(time.Duration(before)); err != nil {
			t.Error(err)
		}
	}()
	const relaxed = 3 * time.Millisecond
	if err := RelaxTimers(relaxed); err != nil {
		t.Fatal(err)
	}
	if got := slack(t, ordinary); got != int(relaxed) {
		t.Errorf("an ordinary thread has %d ns, want %d", got, relaxed)
	}
	locked := make(chan int)
	go func() { // the thread ends with it
		runtime.LockOSThread()
		_ = Lock() // whether it gets the priority or not
		locked <- slack(t, unix.Gettid())
	}()
	if got := <-locked; got > 50_000 {
		t.Errorf("the thread that must be on time has %d ns", got)
	}
}
