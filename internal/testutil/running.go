package testutil

import (
	"context"
	"testing"
	"time"
)

// Runner runs until its context ends, and is freed after that.
type Runner interface {
	Run(ctx context.Context) error
	Close()
}

// patience is how long something may take to stop on a busy machine.
const patience = 2 * time.Minute

// Running runs something until the test ends, and then frees it. An error of the run, or a run that
// does not end, fails the test.
func Running(t testing.TB, r Runner) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(patience):
			t.Errorf("%T does not stop", r)
		}
		r.Close()
	})
}
