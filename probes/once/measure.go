package once

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"vigia/probes/delay"
	"vigia/probes/protocol"
	"vigia/probes/resolver"
	"vigia/probes/sender"
	"vigia/probes/tsinfo"
)

// collector keeps the records of a counted target. The sender's thread puts them
// in and never waits.
type collector struct {
	mu       sync.Mutex
	probes   []protocol.Probe
	more     chan struct{}
	finished chan struct{}
}

func newCollector() *collector {
	return &collector{more: make(chan struct{}, 1), finished: make(chan struct{})}
}

// Burst has no place in the report.
func (c *collector) Burst(uint64) {}

// Settled keeps the record.
func (c *collector) Settled(p *protocol.Probe) {
	c.mu.Lock()
	c.probes = append(c.probes, *p)
	c.mu.Unlock()
	select {
	case c.more <- struct{}{}:
	default:
	}
}

// Launched, Varied and Removed say nothing that Settled does not.
func (c *collector) Launched(int64)                    {}
func (c *collector) Varied([delay.NumDirections]int64) {}
func (c *collector) Removed()                          {}
func (c *collector) SourceChanged()                    {}

// Finished ends the measurement.
func (c *collector) Finished() { close(c.finished) }

// after returns the records from index on.
func (c *collector) after(index int) []protocol.Probe {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.probes[index:len(c.probes):len(c.probes)]
}

// measure probes the target and calls show for each probe that is settled. It
// returns the result also when nothing was answered, together with an error that
// says why; the result is nil when it could not even begin. When ctx ends early
// the result covers what was settled by then.
func measure(ctx context.Context, t sender.Target, lookup resolver.Lookup, stderr io.Writer, show func(p *protocol.Probe, address string)) (*result, error) {
	if err := resolve(ctx, &t, lookup); err != nil {
		return nil, err
	}
	c := newCollector()
	s, err := sender.New(sender.Options{
		Logger:      slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: slog.LevelError})),
		NewRecorder: func(sender.Target) sender.Recorder { return c },
	})
	if err != nil {
		return nil, err
	}
	s.SetHardware(tsinfo.Off) // a few probes are over before the source could be settled
	defer s.Close()
	if err := s.Apply([]sender.Target{t}); err != nil {
		return nil, err
	}
	if err := s.Err(); err != nil {
		return nil, err
	}
	status, totals, err := c.run(ctx, s, show)
	if err != nil {
		return nil, err
	}
	r := newResult(c.after(0), status, totals)
	if status.Counts.Received == 0 {
		r.Reason = reason(&status)
		return r, fmt.Errorf("no answer from %s: %s", addressText(status.Address), r.Reason)
	}
	return r, nil
}

// run lets the sender work until the target is done or ctx ends, and returns its
// last state.
func (c *collector) run(ctx context.Context, s *sender.Sender, show func(p *protocol.Probe, address string)) (sender.Status, sender.Totals, error) {
	runCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- s.Run(runCtx) }()

	address, shown := "", 0
	for running := true; running; {
		select {
		case <-c.more:
		case <-c.finished:
			running = false
		case <-ctx.Done():
			running = false
		case err := <-ended:
			return sender.Status{}, sender.Totals{}, errors.Join(errors.New("the sender ended early"), err)
		}
		if address == "" {
			status, _, err := s.Snapshot(nil)
			if err != nil || len(status) == 0 {
				continue
			}
			address = addressText(status[0].Address)
		}
		records := c.after(shown)
		for i := range records {
			show(&records[i], address)
		}
		shown += len(records)
	}
	status, totals, err := s.Snapshot(nil)
	cancel()
	if err := errors.Join(err, <-ended); err != nil {
		return sender.Status{}, totals, err
	}
	return status[0], totals, nil
}

// reason says in a word, and the kernel's words, why nothing was answered.
func reason(st *sender.Status) string {
	var errno syscall.Errno
	if !errors.As(st.LastError, &errno) {
		return "timeout"
	}
	switch errno {
	case unix.ECONNREFUSED:
		return "refused: nothing listens on that port"
	case unix.EHOSTUNREACH, unix.ENETUNREACH, unix.EHOSTDOWN, unix.ENONET:
		return "unreachable: " + errno.Error()
	case unix.EPERM:
		return "unreachable: the local firewall refuses to send (" + errno.Error() + ")"
	case unix.EMSGSIZE:
		return "unreachable: the probes are larger than the path allows (" + errno.Error() + ")"
	}
	return "timeout, after the error: " + errno.Error()
}
