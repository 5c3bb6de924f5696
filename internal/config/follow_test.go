package config

import (
	"context"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"vigia/internal/testutil"
)

// following follows a file until the test ends, and counts looks; pause is how long each wants to be the last.
func following(t *testing.T, path string, pause time.Duration) (looks *atomic.Int64, wake chan struct{}) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	looks, wake = new(atomic.Int64), make(chan struct{}, 1)
	go func() {
		defer close(done)
		Follow(ctx, func() string { return path }, wake, func() time.Duration {
			looks.Add(1)
			return pause
		})
	}()
	t.Cleanup(func() { cancel(); <-done })
	testutil.WaitFor(t, "the first look", func() bool { return looks.Load() > 0 })
	return looks, wake
}

func grows(t *testing.T, what string, looks *atomic.Int64) {
	t.Helper()
	before := looks.Load()
	testutil.WaitFor(t, what, func() bool { return looks.Load() > before })
}

// TestWhatIsFollowedIsLookedAt when it changes, when somebody says so, and now and then.
func TestWhatIsFollowedIsLookedAt(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	looks, wake := following(t, path, 0)
	write(t, path)
	grows(t, "a look at what has changed", looks)
	wake <- struct{}{}
	grows(t, "a look when woken", looks)
	grows(t, "one besides", looks)
}

// TestALinkIsLookedAtAgainAndAgain since the kernel does not tell of what it leads to.
func TestALinkIsLookedAtAgainAndAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	if err := os.Symlink("elsewhere", path); err != nil {
		t.Fatal(err)
	}
	looks, _ := following(t, path, 0)
	for range 3 {
		grows(t, "another look", looks)
	}
}

// TestALookThatCostsMuchIsSeldom whatever happens meanwhile.
func TestALookThatCostsMuchIsSeldom(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	looks, wake := following(t, path, time.Hour)
	for range 20 {
		write(t, path)
		select {
		case wake <- struct{}{}:
		default:
		}
		time.Sleep(50 * time.Millisecond)
	}
	if n := looks.Load(); n != 1 {
		t.Errorf("%d looks in an hour", n)
	}
}
