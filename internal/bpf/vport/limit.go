package vport

import (
	"errors"
	"fmt"
	"time"
)

// MaxRate is the highest rate and burst that the policer can reckon with, in
// bytes per second and bytes.
const MaxRate = 18_000_000_000

// MaxTTL is for how long at most a limit stays in force unless somebody renews it,
// whoever asks: it is what a limit can outlive a dead isolation agent by.
const MaxTTL = time.Minute

// ErrNoLimit means that no limit is in force.
var ErrNoLimit = errors.New("no limit is in force")

// Limit is a limit in the kernel on a tenant's UDP, fragments included, or on
// everything that the port sends.
type Limit struct {
	ID         [16]byte // UUID of the action that it belongs to
	Everything bool     // not UDP alone
	Rate       uint64   // bytes per second; 0 = dropped
	Burst      uint64   // bytes
	Packets    uint64   // packets per second; 0 = any number
	NewFlows   uint64   // flows begun per second; 0 = any number
	Class      uint32   // HTB class that shapes in place of the policer; 0 = it polices
	Expires    time.Duration
	Age        time.Duration // since it was first set
	// Dropped since the limit was first set.
	PolicedBytes   uint64
	PolicedPackets uint64
}

// LimitRequest asks for a limit.
type LimitRequest struct {
	ID         [16]byte // UUID of the action
	Everything bool     // limit all that the port sends, not UDP alone
	Rate       uint64   // bytes per second; 0, with Burst 0, to drop
	Burst      uint64   // bytes
	Packets    uint64   // packets per second; 0 for any number
	NewFlows   uint64   // flows begun per second; 0 for any number
	Class      uint32   // HTB class that shapes in place of the policer; 0 to police
	TTL        time.Duration
}

// valid tells whether the policer can reckon with the request.
func (r *LimitRequest) valid() bool {
	return max(r.Rate, r.Burst, r.Packets, r.NewFlows) <= MaxRate && (r.Rate == 0) == (r.Burst == 0) && r.TTL > 0 && r.TTL <= MaxTTL
}

// SetLimit puts a limit on the interface that ends by itself after its time, or
// renews the one with the same ID.
func (m *Manager) SetLimit(ifindex int, r LimitRequest) error {
	if !r.valid() {
		return fmt.Errorf("limit of interface %d: rate %d, burst %d, packets %d, new flows %d or ttl %s is out of range",
			ifindex, r.Rate, r.Burst, r.Packets, r.NewFlows, r.TTL)
	}
	return m.locked(func() error {
		p, err := m.place(ifindex)
		if err != nil {
			return err
		}
		var old vportLimit
		if err := m.objects.VportLimit.Lookup(p.Slot, &old); err != nil {
			return fmt.Errorf("read limit: %w", err)
		}
		now := Monotonic()
		l := vportLimit{
			Rate: r.Rate, Burst: r.Burst, Packets: r.Packets, NewFlows: r.NewFlows, Class: r.Class, Everything: flag(r.Everything),
			ExpiresNs: now + uint64(r.TTL), SinceNs: now, Id: r.ID,
		}
		if old.Id == r.ID && old.ExpiresNs > now {
			l.SinceNs = old.SinceNs
			l.PolicedBytesBefore, l.PolicedPacketsBefore = old.PolicedBytesBefore, old.PolicedPacketsBefore
		} else {
			c, err := m.readSlot(p)
			if err != nil {
				return err
			}
			l.PolicedBytesBefore, l.PolicedPacketsBefore = c.PolicedBytes, c.PolicedPackets
		}
		if err := m.setShape(r.Class, r.Rate); err != nil {
			return err
		}
		return m.putLimit(p.Slot, &l)
	})
}

// putLimit writes a limit. While one is on everything, packets other than UDP are
// held against it, too.
func (m *Manager) putLimit(slot uint32, l *vportLimit) error {
	if err := m.objects.VportLimit.Put(slot, l); err != nil {
		return fmt.Errorf("write limit: %w", err)
	}
	return m.editContract(slot, func(c *vportContract) { c.Everything = l.Everything })
}

// shortenLimits has limits that a process before this one set for longer end in time.
func (m *Manager) shortenLimits() error {
	latest := Monotonic() + uint64(MaxTTL)
	long := make(map[uint32]vportLimit)
	if err := batch(m.objects.VportLimit, func(slot uint32, l *vportLimit) {
		if l.ExpiresNs > latest {
			long[slot] = *l
		}
	}); err != nil {
		return fmt.Errorf("list limits: %w", err)
	}
	for slot, l := range long {
		l.ExpiresNs = latest
		if err := m.objects.VportLimit.Put(slot, l); err != nil {
			return fmt.Errorf("shorten limit: %w", err)
		}
	}
	return nil
}

func flag(b bool) uint32 {
	if b {
		return 1
	}
	return 0
}

// Limit reads the limit in force back from the kernel. It returns ErrNoLimit if
// there is none or it has expired, and ErrNotAttached if nothing would apply it.
func (m *Manager) Limit(ifindex int) (Limit, error) {
	p, err := m.place(ifindex)
	if err != nil {
		return Limit{}, err
	}
	alive, err := m.linksAlive(ifindex, Hook(p.Hook))
	if err != nil {
		return Limit{}, fmt.Errorf("look at the programs of interface %d: %w", ifindex, err)
	}
	if !alive {
		return Limit{}, fmt.Errorf("interface %d: %w", ifindex, ErrNotAttached)
	}
	var l vportLimit
	if err := m.objects.VportLimit.Lookup(p.Slot, &l); err != nil {
		return Limit{}, fmt.Errorf("read limit: %w", err)
	}
	now := Monotonic()
	if l.ExpiresNs <= now {
		return Limit{}, ErrNoLimit
	}
	c, err := m.readSlot(p)
	if err != nil {
		return Limit{}, err
	}
	return Limit{
		ID: l.Id, Everything: l.Everything != 0, Rate: l.Rate, Burst: l.Burst, Packets: l.Packets, NewFlows: l.NewFlows, Class: l.Class,
		Expires: time.Duration(l.ExpiresNs - now), Age: time.Duration(now - min(now, l.SinceNs)),
		PolicedBytes:   c.PolicedBytes - l.PolicedBytesBefore,
		PolicedPackets: c.PolicedPackets - l.PolicedPacketsBefore,
	}, nil
}

// RemoveLimit ends the limit now. Without a limit it changes nothing.
func (m *Manager) RemoveLimit(ifindex int) error {
	return m.locked(func() error {
		p, err := m.place(ifindex)
		if err != nil {
			return err
		}
		return m.putLimit(p.Slot, &vportLimit{})
	})
}
