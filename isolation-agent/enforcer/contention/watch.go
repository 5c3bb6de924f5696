package contention

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"golang.org/x/sys/unix"

	"vigia/internal/tc"
	"vigia/isolation-agent/enforcer/scheduling"
)

// Interval is how often a link's root class is read: one question to the kernel for each
// direction. All classes are read only while the link is full, and less often when it stays so.
const Interval = 250 * time.Millisecond

// Watch reads the links' classes into a book.
type Watch struct {
	*Book
	conn    *tc.Conn
	desired func() *scheduling.Desired
	logger  *slog.Logger
	seen    *scheduling.Desired // when it was last looked
	tenants map[string]bool     // of its contracts
	names   map[string]bool     // of the devices, in one look
	classes []tc.Class
	usages  []scheduling.Usage
	failing bool
}

// NewWatch opens a connection in the network namespace of the uplinks.
func NewWatch(netns string, desired func() *scheduling.Desired, logger *slog.Logger) (*Watch, error) {
	conn, err := tc.Dial(netns)
	if err != nil {
		return nil, fmt.Errorf("watch links: %w", err)
	}
	return &Watch{Book: NewBook(), conn: conn, desired: desired, logger: logger, names: make(map[string]bool)}, nil
}

// Close closes the connection.
func (w *Watch) Close() error { return w.conn.Close() }

// Run reads until ctx ends.
func (w *Watch) Run(ctx context.Context) {
	tick := time.NewTicker(Interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		err := w.Look(time.Now())
		if err != nil && !w.failing {
			w.logger.Warn("cannot read who waits on the links", "err", err)
		}
		w.failing = err != nil
	}
}

// Look reads every link once.
func (w *Watch) Look(now time.Time) error {
	desired := w.desired()
	if desired != w.seen {
		w.seen, w.tenants = desired, make(map[string]bool)
		list := desired.Contracts.All()
		for i := range list {
			w.tenants[list[i].Tenant] = true
		}
	}
	var errs []error
	clear(w.names)
	for i := range desired.Links {
		l := &desired.Links[i]
		uplink, err := w.conn.LinkIndex(l.Device)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		ifb := scheduling.IFBName(uplink)
		w.names[l.Device], w.names[ifb] = true, true
		errs = append(errs, w.look(now, desired, l, l.Device, uplink, false))
		index, err := w.conn.LinkIndex(ifb)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		errs = append(errs, w.look(now, desired, l, ifb, index, true))
	}
	w.Keep(w.names, w.tenants)
	return errors.Join(errs...)
}

func (w *Watch) look(now time.Time, desired *scheduling.Desired, l *scheduling.Link, name string, index int, received bool) error {
	root, err := w.conn.Class(index, scheduling.RootClass)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EINVAL) {
		return nil // its scheduler is not made yet
	}
	if err != nil {
		return err
	}
	if !w.Filled(now, name, root.Stats.Bytes, l.Limit()) {
		return nil
	}
	if w.classes, err = w.conn.Classes(index, w.classes[:0]); err != nil {
		return err
	}
	w.usages = desired.Usages(w.classes, received, w.usages[:0])
	w.Add(now, name, received, w.usages)
	return nil
}
