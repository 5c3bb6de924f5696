package source

import (
	"context"
	"errors"
	"sync"
	"time"
)

// ErrNotYet means that a source has not finished its first read.
var ErrNotYet = errors.New("not read yet")

// ErrPartial marks the error of a read whose result is of use nevertheless: it is
// kept, and read again soon.
var ErrPartial = errors.New("not all could be read")

const (
	minReadTime = 5 * time.Second // the least that a read gets
	retryTime   = time.Second     // from a failure to the next read
)

// Poller reads something slow at an interval, one read at a time, and keeps the
// newest result, so that scrapes never wait for it.
type Poller[T any] struct {
	interval time.Duration
	read     func(ctx context.Context) (T, error)

	mu   sync.Mutex
	last T
	at   time.Time // of the newest success
	err  error     // of the newest read
	some bool
}

// NewPoller returns a poller of read. A read must end with its context.
func NewPoller[T any](interval time.Duration, read func(ctx context.Context) (T, error)) *Poller[T] {
	return &Poller[T]{interval: interval, read: read, err: ErrNotYet}
}

// Run reads until ctx ends, at once and then at the interval. After a failure it
// tries again soon, so that a daemon's restart is no gap of an interval.
func (p *Poller[T]) Run(ctx context.Context) {
	for {
		start := time.Now()
		wait := p.pause(p.once(ctx))
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait - min(wait, time.Since(start))):
		}
	}
}

// pause returns the time from the start of a read to the start of the next.
func (p *Poller[T]) pause(err error) time.Duration {
	if err != nil {
		return min(p.interval, retryTime)
	}
	return p.interval
}

// Refresh reads now, beside the interval.
func (p *Poller[T]) Refresh(ctx context.Context) error { return p.once(ctx) }

func (p *Poller[T]) once(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, max(p.interval, minReadTime))
	defer cancel()
	start := time.Now()
	v, err := p.read(ctx)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.err = err
	if errors.Is(err, ErrPartial) {
		p.err = nil
	}
	if p.err == nil {
		p.last, p.at, p.some = v, start, true
	}
	return err
}

// Latest returns the newest result if the newest read succeeded, or its error.
func (p *Poller[T]) Latest() (T, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil {
		var none T
		return none, p.err
	}
	return p.last, nil
}

// Age returns the age of the newest result; false while there is none.
func (p *Poller[T]) Age() (time.Duration, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return time.Since(p.at), p.some
}
