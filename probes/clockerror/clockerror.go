// Package clockerror finds out how far this host's clock may be from true time, from
// whoever keeps it: chronyd, ptp4l, or the kernel on behalf of another daemon.
package clockerror

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"vigia/probes/timestamping"
)

// Source is who says so.
type Source string

// The sources.
const (
	SourceChrony     Source = "chrony"
	SourcePTP        Source = "ptp4l"
	SourceKernel     Source = "kernel"     // adjtimex(2)
	SourceConfigured Source = "configured" // the operator
)

// Reading is the error of the clock at a time.
type Reading struct {
	Bound        time.Duration
	Synchronized bool // with an external source
	Source       Source
}

// unknown is from where on an error bound means nothing (NTP_PHASE_LIMIT).
const unknown = 16 * time.Second

// Config says whom to ask. The zero value asks everybody at the usual places.
type Config struct {
	Source  Source        // chrony, ptp4l or kernel alone; empty: whoever answers and is synchronised
	Stated  time.Duration // by the operator, who knows better; 0: ask
	Chrony  string        // IP:port or path of a unix socket; empty: DefaultChrony
	PTPPath string        // empty: DefaultPTP
}

// CheckAddress says what is wrong with where a daemon is to be asked; empty when nothing is.
func CheckAddress(s string) string {
	if s == "" || isAddress(s) {
		return ""
	}
	return "is neither IP:port nor the absolute path of a unix socket"
}

const (
	// interval is how often the daemons are asked, patience how long an answer may
	// take, and keep how long a reading is good for.
	interval = 10 * time.Second
	patience = time.Second
	maxAge   = 3 * interval
	// drift is how fast a clock may run away from a reading, in parts per million:
	// what the kernel assumes (MAXFREQ).
	drift = 500
)

// Watch keeps the error of the clock current. It is safe for concurrent use.
type Watch struct {
	config  atomic.Pointer[Config]
	last    atomic.Pointer[sample]
	changed chan struct{}
	kernel  func() Reading
	now     func() time.Time
}

type sample struct {
	Reading
	at  time.Time
	err error
}

// New returns a watch that asks everybody at the usual places, once Run.
func New() *Watch {
	w := &Watch{changed: make(chan struct{}, 1), kernel: readKernel, now: time.Now}
	w.config.Store(&Config{})
	return w
}

func readKernel() Reading {
	bound, synchronized := timestamping.ErrorBound()
	return Reading{Bound: bound, Synchronized: synchronized, Source: SourceKernel}
}

// Set says whom to ask from now on.
func (w *Watch) Set(c Config) {
	w.config.Store(&c)
	w.last.Store(nil)
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

// Run asks until ctx ends.
func (w *Watch) Run(ctx context.Context) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		w.Ask(ctx)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		case <-w.changed:
		}
	}
}

// Ask asks the daemons now, and returns why none of those configured answered.
func (w *Watch) Ask(ctx context.Context) error {
	c := w.config.Load()
	s := w.ask(ctx, c)
	if s != nil && w.config.Load() == c {
		w.last.Store(s)
		return s.err
	}
	return nil
}

func (w *Watch) ask(ctx context.Context, c *Config) *sample {
	if c.Stated > 0 || c.Source == SourceKernel {
		return nil
	}
	best := &sample{}
	for _, daemon := range []struct {
		source Source
		ask    func(context.Context) (Reading, error)
	}{
		{SourceChrony, func(ctx context.Context) (Reading, error) { return Chrony(ctx, or(c.Chrony, DefaultChrony)) }},
		{SourcePTP, func(ctx context.Context) (Reading, error) { return w.askPTP(ctx, c.PTPPath) }},
	} {
		if c.Source != "" && c.Source != daemon.source {
			continue
		}
		asked, cancel := context.WithTimeout(ctx, patience)
		r, err := daemon.ask(asked)
		cancel()
		switch {
		case err != nil:
			best.err = errors.Join(best.err, err)
		case !best.Synchronized:
			best.Reading, best.at = r, w.now()
		}
	}
	return best
}

// askPTP asks ptp4l at a path, or at the usual ones.
func (w *Watch) askPTP(ctx context.Context, path string) (Reading, error) {
	if path != "" {
		return PTP(ctx, path, w.kernel)
	}
	if r, err := PTP(ctx, ReadOnlyPTP, w.kernel); err == nil {
		return r, nil
	}
	return PTP(ctx, DefaultPTP, w.kernel)
}

func or(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

// Read returns the error of the clock now: what the operator stated, or what a daemon
// said not long ago, grown by what the clock may have drifted since, or else what the
// kernel knows. It never waits.
func (w *Watch) Read() Reading {
	c := w.config.Load()
	if c.Stated > 0 {
		return Reading{Bound: c.Stated, Synchronized: true, Source: SourceConfigured}
	}
	if s := w.last.Load(); s != nil && s.Source != "" {
		if age := w.now().Sub(s.at); age >= 0 && age <= maxAge && (s.Synchronized || c.Source != "") {
			r := s.Reading
			r.Bound += age * drift / 1_000_000
			return r
		}
	}
	if c.Source != "" && c.Source != SourceKernel {
		return Reading{Bound: unknown, Source: c.Source}
	}
	return w.kernel()
}

// Bound is Read for those who do not care who says so.
func (w *Watch) Bound() (bound time.Duration, synchronized bool) {
	r := w.Read()
	return r.Bound, r.Synchronized
}

// Err returns why the daemon that the operator named does not tell the error, or nil.
func (w *Watch) Err() error {
	c, s := w.config.Load(), w.last.Load()
	if c.Source == "" || s == nil || s.err == nil {
		return nil
	}
	return fmt.Errorf("clock.source: %w", s.err)
}
