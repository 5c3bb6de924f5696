package realtime

import (
	"errors"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"vigia/internal/testutil"
)

// attributes returns how the calling thread is scheduled.
func attributes(t *testing.T) *unix.SchedAttr {
	t.Helper()
	attr, err := unix.SchedGetAttr(0, 0)
	if err != nil {
		t.Fatal(err)
	}
	return attr
}

// locked runs f on a thread of its own after Lock.
func locked(f func(err error)) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f(Lock())
	}()
	<-done
}

func TestLockedThreadIsRealTimeAndOthersAreNot(t *testing.T) {
	testutil.RequireRoot(t)
	var attr *unix.SchedAttr
	var thread int
	locked(func(err error) {
		if err != nil {
			t.Error(err)
			return
		}
		thread, attr = unix.Gettid(), attributes(t)
	})
	if attr == nil {
		t.FailNow()
	}
	if attr.Policy != unix.SCHED_FIFO || attr.Priority != priority {
		t.Errorf("policy %d, priority %d, want SCHED_FIFO and %d", attr.Policy, attr.Priority, priority)
	}
	if attr.Flags&unix.SCHED_FLAG_RESET_ON_FORK == 0 {
		t.Error("children of the thread are real-time, too")
	}
	if unix.Gettid() == thread {
		t.Error("the thread outlived its goroutine")
	}
	if here := attributes(t); here.Policy != unix.SCHED_NORMAL {
		t.Errorf("this thread has policy %d", here.Policy)
	}
}

// policies returns the policies of this process's threads.
func policies(t *testing.T) map[int]uint32 {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	found := make(map[int]uint32)
	for _, e := range entries {
		id, err := strconv.Atoi(e.Name())
		if err != nil {
			t.Fatal(err)
		}
		if attr, err := unix.SchedGetAttr(id, 0); err == nil { // it may have ended
			found[id] = attr.Policy
		}
	}
	return found
}

// Wherever the goroutine goes, the priority goes with it, and nobody else has it.
func TestFollowerIsAloneInItsHurry(t *testing.T) {
	testutil.RequireRoot(t)
	before := policies(t) // Go never ends the main thread, which another test may have had
	var f Follower
	seen := make(map[int]bool)
	for range 50 {
		// Each goroutine here has a thread of its own: the follower moves.
		done := make(chan struct{})
		go func() {
			defer close(done)
			runtime.LockOSThread()
			for range 2 {
				if err := f.Follow(); err != nil {
					t.Error(err)
					return
				}
			}
			here := unix.Gettid()
			seen[here] = true
			for id, policy := range policies(t) {
				if want := id == here; before[id] != unix.SCHED_FIFO && (policy == unix.SCHED_FIFO) != want {
					t.Errorf("thread %d of %d has policy %d", id, here, policy)
				}
			}
		}()
		<-done
	}
	if len(seen) < 2 {
		t.Errorf("the goroutines had %d threads: the follower never moved", len(seen))
	}
	if err := f.Leave(); err != nil {
		t.Fatal(err)
	}
	if err := f.Leave(); err != nil {
		t.Errorf("again: %v", err)
	}
	for id, policy := range policies(t) {
		if policy != unix.SCHED_NORMAL && before[id] == unix.SCHED_NORMAL {
			t.Errorf("thread %d keeps policy %d", id, policy)
		}
	}
}

func TestFollowerLeavesTheThreadAsItWas(t *testing.T) {
	testutil.RequireRoot(t)
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		if err := unix.Setpriority(unix.PRIO_PROCESS, unix.Gettid(), 7); err != nil {
			t.Error(err)
			return
		}
		var f Follower
		if err := errors.Join(f.Follow(), f.Leave()); err != nil {
			t.Error(err)
		}
		if attr := attributes(t); attr.Policy != unix.SCHED_NORMAL || attr.Nice != 7 {
			t.Errorf("policy %d, nice %d, want 0 and 7", attr.Policy, attr.Nice)
		}
	}()
	<-done
}

// A process may not be allowed to; it then goes on as it is.
func TestRefusedLock(t *testing.T) {
	const key = "VIGIA_TEST_REFUSED"
	if os.Getenv(key) != "" {
		locked(func(err error) {
			if !errors.Is(err, unix.EPERM) || !strings.Contains(err.Error(), "RLIMIT_RTPRIO") {
				t.Errorf("%v, want a refusal that says what is missing", err)
			}
			var f Follower
			if err := f.Follow(); !errors.Is(err, unix.EPERM) {
				t.Errorf("following: %v, want a refusal", err)
			}
			if err := f.Leave(); err != nil {
				t.Errorf("leaving after a refusal: %v", err)
			}
			if attr := attributes(t); attr.Policy != unix.SCHED_NORMAL {
				t.Errorf("policy %d after a refusal", attr.Policy)
			}
		})
		return
	}
	testutil.RequireRoot(t)
	cmd := exec.Command("prlimit", "--rtprio=0", "--", "setpriv", "--inh-caps=-sys_nice", "--bounding-set=-sys_nice",
		os.Args[0], "-test.run", "^TestRefusedLock$")
	cmd.Env = append(os.Environ(), key+"=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
