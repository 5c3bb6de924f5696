package testutil

import (
	"testing"
	"time"
)

// waitDeadline is generous: tests assert on states, never on speed.
const waitDeadline = 30 * time.Second

// WaitFor polls until cond holds and fails the test if it never does.
func WaitFor(t testing.TB, what string, cond func() bool) {
	t.Helper()
	for deadline := time.Now().Add(waitDeadline); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if cond() {
			return
		}
	}
	t.Fatalf("waited in vain for %s", what)
}
