package realtime

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
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

// A process may not be allowed to; it then goes on as it is.
func TestRefusedLock(t *testing.T) {
	const key = "VIGIA_TEST_REFUSED"
	if os.Getenv(key) != "" {
		locked(func(err error) {
			if !errors.Is(err, unix.EPERM) || !strings.Contains(err.Error(), "RLIMIT_RTPRIO") {
				t.Errorf("%v, want a refusal that says what is missing", err)
			}
			if attr := attributes(t); attr.Policy != unix.SCHED_NORMAL {
				t.Errorf("policy %d after a refusal", attr.Policy)
			}
		})
		return
	}
	againUnprivileged(t, key, 0)
}

// The limit that a unit sets (LimitRTPRIO=1) is enough without a capability.
func TestLimitInPlaceOfCapability(t *testing.T) {
	const key = "VIGIA_TEST_LIMIT"
	if os.Getenv(key) != "" {
		locked(func(err error) {
			if err != nil {
				t.Error(err)
			}
			if attr := attributes(t); attr.Policy != unix.SCHED_FIFO {
				t.Errorf("policy %d, want SCHED_FIFO", attr.Policy)
			}
		})
		return
	}
	againUnprivileged(t, key, 1)
}

// againUnprivileged runs the test in a process that has key in its environment, may use
// priorities up to limit and has no capability for more.
func againUnprivileged(t *testing.T, key string, limit int) {
	t.Helper()
	testutil.RequireRoot(t)
	rtprio := fmt.Sprintf("--rtprio=%d", limit)
	if out, err := exec.Command("prlimit", rtprio, "true").CombinedOutput(); err != nil {
		t.Skipf("CAP_SYS_RESOURCE, which raises RLIMIT_RTPRIO, is missing here: %s", out)
	}
	cmd := exec.Command("prlimit", rtprio, "--", "setpriv", "--inh-caps=-sys_nice", "--bounding-set=-sys_nice",
		os.Args[0], "-test.run", "^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), key+"=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
