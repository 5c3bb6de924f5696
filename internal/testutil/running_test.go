package testutil

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
)

// runner ends with what it is told to end with, and remembers in what order.
type runner struct {
	err    error
	began  chan struct{}
	ended  atomic.Bool
	closed atomic.Bool
}

func (r *runner) Run(ctx context.Context) error {
	close(r.began)
	<-ctx.Done()
	r.ended.Store(true)
	return r.err
}

func (r *runner) Close() {
	if r.ended.Load() {
		r.closed.Store(true)
	}
}

// scoped is a test of which the end is played, and its failures are counted.
type scoped struct {
	testing.TB
	cleanups []func()
	failed   int
}

func (s *scoped) Helper()               {}
func (s *scoped) Cleanup(f func())      { s.cleanups = append(s.cleanups, f) }
func (s *scoped) Error(...any)          { s.failed++ }
func (s *scoped) Errorf(string, ...any) { s.failed++ }

func (s *scoped) end() {
	for i := len(s.cleanups) - 1; i >= 0; i-- {
		s.cleanups[i]()
	}
}

func TestWhatRunsEndsWithTheTest(t *testing.T) {
	for _, c := range []struct {
		err    error
		failed int
	}{{nil, 0}, {errors.New("broken"), 1}} {
		s, r := &scoped{TB: t}, &runner{err: c.err, began: make(chan struct{})}
		Running(s, r)
		<-r.began
		if r.ended.Load() || r.closed.Load() {
			t.Fatal("it ended before the test did")
		}
		s.end()
		if !r.closed.Load() {
			t.Error("it was not freed, or before it had ended")
		}
		if s.failed != c.failed {
			t.Errorf("%v: the test failed %d times, want %d", c.err, s.failed, c.failed)
		}
	}
}
