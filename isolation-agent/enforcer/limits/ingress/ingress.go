// Package ingress is the limit mechanism for ports that have no device in the kernel:
// vhost-user ports of Open vSwitch with DPDK. No BPF program can be at them; the switch
// itself polices what their tenant sends (ingress_policing_rate in ovs-vswitchd.conf.db(5)).
//
// The switch knows no protocols, so a limit of UDP holds everything that the port sends,
// which is never below the guarantee either; and it counts bytes without Ethernet headers.
// A limit does not end by itself: Limits ends it, or the next process, which reads from the
// database until when it holds. What somebody else has set on the port, as Neutron does for
// a policy, is never loosened, and comes back when the limit ends.
package ingress

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"vigia/internal/ports"
	"vigia/isolation-agent/enforcer/limits"
)

const (
	// fresh is how old what was read of the database may be for a port to be seen by it.
	fresh = 500 * time.Millisecond
	// patience bounds reading and changing: the database is on this machine, and other ports wait meanwhile.
	patience = 2 * time.Second
	// pause is for how long a database that did not answer is not asked again.
	pause = 5 * time.Second
	// attempts is how often a change is tried while somebody else changes the same port.
	attempts = 3
)

// errBusy says that somebody else changed the port meanwhile.
var errBusy = errors.New("somebody else keeps changing the port's policing in Open vSwitch's database")

// Mechanism has Open vSwitch police.
type Mechanism struct {
	database database
	now      func() time.Time

	mu   sync.Mutex
	read time.Time // when what follows was read
	seen map[string]policing
	err  error // why the database did not answer
}

// New returns the mechanism. remote is the address of Open vSwitch's database,
// unix:PATH.
func New(remote string) *Mechanism { return &Mechanism{database: database{remote}, now: time.Now} }

// Apply has the switch police the port.
func (m *Mechanism) Apply(t limits.Target, l limits.Limit, ttl time.Duration) error {
	if !suits(&t.Port, l) {
		return limits.ErrUnsuited
	}
	return m.change(t.Port.Device, func(p *policing) bool {
		now := m.now()
		r := record{
			ID: l.ID, Protocol: l.Protocol, BytesPerSecond: l.BytesPerSecond, BurstBytes: l.BurstBytes,
			Since: now.UnixMilli(), Until: now.Add(ttl).UnixMilli(), Before: p.settings,
		}
		if old := p.record; old != nil && p.inForce() {
			r.Before = old.Before
			if old.ID == l.ID {
				r.Since = old.Since
			}
		}
		r.Ours = strictest(settingsOf(l), r.Before)
		p.settings, p.record = r.Ours, &r
		return true
	})
}

// Read returns the limit that the switch has of this program on the port. What a database that is away says is
// not known, so nothing is said to hold.
func (m *Mechanism) Read(port *ports.Port) (limits.State, error) {
	if port.Index != 0 {
		return limits.State{}, limits.ErrNone
	}
	p, there, err := m.look(port.Device)
	switch {
	case err != nil:
		return limits.State{}, fmt.Errorf("%w: %w", limits.ErrNotAttached, err)
	case !there:
		return limits.State{}, limits.ErrNotAttached
	case !p.inForce():
		return limits.State{}, limits.ErrNone
	}
	r, now := p.record, m.now()
	return limits.State{
		Limit:     limits.Limit{ID: r.ID, Protocol: r.Protocol, BytesPerSecond: r.BytesPerSecond, BurstBytes: r.BurstBytes},
		ExpiresIn: min(max(0, time.UnixMilli(r.Until).Sub(now)), limits.MaxTTL),
		Age:       max(0, now.Sub(time.UnixMilli(r.Since))),
		WholePort: true,
	}, nil
}

// Remove has the switch do what it did before the limit, unless somebody has set something else since.
func (m *Mechanism) Remove(port *ports.Port) error {
	if port.Index != 0 || port.Device == "" {
		return nil
	}
	err := m.change(port.Device, func(p *policing) bool {
		if p.record == nil {
			return false
		}
		if p.inForce() {
			p.settings = p.record.Before
		}
		p.record = nil
		return true
	})
	if errors.Is(err, limits.ErrNotAttached) {
		return nil // the port is gone, and its policing with it
	}
	return err
}

// Expires is false: the switch polices until it is told otherwise.
func (m *Mechanism) Expires() bool { return false }

// change reads a port's policing and writes what alter makes of it, unless alter returns false.
func (m *Mechanism) change(device string, alter func(*policing) bool) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.pausing() {
		return fmt.Errorf("set policing of interface %s: %w", device, m.err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	done, err := m.tryChange(ctx, device, alter)
	switch {
	case errors.Is(err, limits.ErrNotAttached):
		return err
	case err != nil:
		m.seen, m.err, m.read = nil, err, m.now()
	case done:
		m.read = time.Time{}
		return nil
	default:
		err = errBusy
	}
	return fmt.Errorf("set policing of interface %s: %w", device, err)
}

// tryChange tries to change a port's policing; it tells whether that is done.
func (m *Mechanism) tryChange(ctx context.Context, device string, alter func(*policing) bool) (bool, error) {
	for range attempts {
		p, err := m.database.one(ctx, device)
		if err != nil {
			return false, err
		}
		before := *p
		if !alter(p) {
			return true, nil
		}
		if done, err := m.database.write(ctx, device, &before, p); err != nil || done {
			return done, err
		}
	}
	return false, nil
}

// pausing tells whether the database did not answer a moment ago.
func (m *Mechanism) pausing() bool { return m.err != nil && m.within(pause) }

// within tells whether what is known is no older; a clock that was set back says nothing.
func (m *Mechanism) within(age time.Duration) bool {
	passed := m.now().Sub(m.read)
	return !m.read.IsZero() && passed >= 0 && passed < age
}

// look returns a port's policing as it was a moment ago: all ports are read at once.
func (m *Mechanism) look(device string) (p policing, there bool, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.pausing() && (m.err != nil || !m.within(fresh)) {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		m.seen, m.err = m.database.all(ctx)
		m.read = m.now()
	}
	p, there = m.seen[device]
	return p, there, m.err
}

// suits tells whether the switch can hold a port to a limit.
func suits(port *ports.Port, l limits.Limit) bool {
	return port.Index == 0 && l.PacketsPerSecond == 0 && l.NewFlowsPerSecond == 0 && l.BytesPerSecond > 0 && l.BytesPerSecond <= mostBytes && l.BurstBytes <= mostBytes
}

// mostBytes is the most that the columns hold, in bytes.
const mostBytes = math.MaxUint32 / 8 * 1000

// settingsOf returns a limit in the units of the database, never below it.
func settingsOf(l limits.Limit) settings {
	return settings{Rate: kilobits(l.BytesPerSecond), Burst: kilobits(l.BurstBytes)}
}

// kilobits rounds up, so that nothing goes below a guarantee.
func kilobits(bytes uint64) int64 { return int64((bytes*8 + 999) / 1000) }

// strictest returns the lower of two rates with its burst; a rate of 0 is none.
func strictest(a, b settings) settings {
	if b.Rate > 0 && b.Rate < a.Rate {
		return b
	}
	return a
}
