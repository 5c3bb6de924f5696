package realtime

import (
	"errors"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"vigia/internal/testutil"
)

// TestTurnsAreUrgentAndEnd on the same thread, as often as they are taken.
func TestTurnsAreUrgentAndEnd(t *testing.T) {
	testutil.RequireRoot(t)
	turns, err := NewTurns()
	if err != nil {
		t.Fatal(err)
	}
	before := attributes(t)
	if before.Policy != unix.SCHED_NORMAL {
		t.Fatalf("the thread has policy %d already", before.Policy)
	}
	for range 3 {
		if err := turns.Take(); err != nil {
			t.Fatal(err)
		}
		thread := unix.Gettid()
		if a := attributes(t); a.Policy != unix.SCHED_FIFO || a.Priority != priority {
			t.Errorf("policy %d, priority %d, want SCHED_FIFO and %d", a.Policy, a.Priority, priority)
		}
		if unix.Gettid() != thread {
			t.Error("the goroutine moved to another thread")
		}
		if err := turns.Give(); err != nil {
			t.Fatal(err)
		}
		if after, err := unix.SchedGetAttr(thread, 0); err != nil || after.Policy != before.Policy || after.Nice != before.Nice {
			t.Errorf("%v, policy %d, nice %d, want %d and %d", err, after.Policy, after.Nice, before.Policy, before.Nice)
		}
	}
}

// A process may not be allowed to; it learns that at once.
func TestRefusedTurns(t *testing.T) {
	const key = "VIGIA_TEST_REFUSED_TURNS"
	if os.Getenv(key) != "" {
		if _, err := NewTurns(); !errors.Is(err, unix.EPERM) || !strings.Contains(err.Error(), "RLIMIT_RTPRIO") {
			t.Errorf("%v, want a refusal that says what is missing", err)
		}
		turns := &Turns{urgent: unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Priority: priority}}
		if err := turns.Take(); !errors.Is(err, unix.EPERM) {
			t.Errorf("%v, want a refusal", err)
		}
		if a := attributes(t); a.Policy != unix.SCHED_NORMAL {
			t.Errorf("policy %d after a refusal", a.Policy)
		}
		return
	}
	againUnprivileged(t, key, 0)
}

// The limit that a unit sets (LimitRTPRIO=1) is enough for turns, also to end them.
func TestTurnsByLimit(t *testing.T) {
	const key = "VIGIA_TEST_LIMIT_TURNS"
	if os.Getenv(key) != "" {
		turns, err := NewTurns()
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := errors.Join(turns.Take(), turns.Give()); err != nil {
				t.Error(err)
			}
		}
		return
	}
	againUnprivileged(t, key, 1)
}
