package config

import (
	"context"
	"time"
)

// How often a file is looked at: while the kernel cannot tell of its changes, or tells of them all the time, and in any case.
const (
	followInterval  = 200 * time.Millisecond
	besidesInterval = 2 * time.Second
)

// Follow calls look when the file that path names may have changed, until ctx ends: when the kernel tells so or wake has a
// value, but no more than five times a second, every 200 ms where the kernel cannot tell, and every 2 s in any case. look
// returns for how long it need not be called again, whatever happens.
func Follow(ctx context.Context, path func() string, wake <-chan struct{}, look func() time.Duration) {
	watch := NewWatch()
	defer watch.Close()
	again := time.NewTimer(0)
	defer again.Stop()
	var next time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-watch.Changes():
		case <-wake:
		case <-again.C:
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Until(next)):
		}
		interval := followInterval
		if p := path(); watch.On(p) || p == "" { // before it is read: what changes then is told
			interval = besidesInterval
		}
		next = time.Now().Add(followInterval)
		if pause := look(); pause > followInterval {
			next = time.Now().Add(pause)
		}
		again.Reset(max(interval, time.Until(next)))
	}
}
