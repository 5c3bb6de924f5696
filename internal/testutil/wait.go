package testutil

import (
	"testing"
	"time"
)

const (
	// waitDeadline is generous: tests assert on states, never on speed.
	waitDeadline = 120 * time.Second
	// waitLook is what counts at most from one look to the next: the clock of a virtual machine that was stopped for a
	// while jumps, and nothing that is waited for had a processor meanwhile.
	waitLook = 10 * time.Second
)

// WaitFor polls until cond holds and fails the test if it never does.
func WaitFor(t testing.TB, what string, cond func() bool) {
	t.Helper()
	last := time.Now()
	for left := waitDeadline; left > 0; time.Sleep(10 * time.Millisecond) {
		if cond() {
			return
		}
		now := time.Now()
		left -= min(now.Sub(last), waitLook)
		last = now
	}
	if cond() { // the process may have had no processor until now
		return
	}
	t.Fatalf("waited in vain for %s", what)
}

// Attempts tries up to n times what a machine without a free processor may spoil, and fails with the last error.
func Attempts(t testing.TB, n int, try func() error) {
	t.Helper()
	var err error
	for range n {
		if err = try(); err == nil {
			return
		}
	}
	t.Errorf("%d times in a row, at last: %v", n, err)
}
