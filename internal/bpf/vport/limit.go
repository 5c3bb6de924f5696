package vport

import (
	"errors"
	"fmt"
	"time"
)

// MaxRate is the highest rate and burst that the policer can reckon with, in
// bytes per second and bytes.
const MaxRate = 18_000_000_000

// ErrNoLimit means that no limit is in force.
var ErrNoLimit = errors.New("no limit is in force")

// Limit is a limit on a tenant's UDP, fragments included, in the kernel.
type Limit struct {
	ID      [16]byte // UUID of the action that it belongs to
	Rate    uint64   // bytes per second
	Burst   uint64   // bytes
	Expires time.Duration
	// Dropped since the limit was first set.
	PolicedBytes   uint64
	PolicedPackets uint64
}

// SetLimit puts a limit on the interface that ends by itself after ttl, or
// renews the one with the same ID.
func (m *Manager) SetLimit(ifindex int, id [16]byte, rate, burst uint64, ttl time.Duration) error {
	if rate == 0 || rate > MaxRate || burst == 0 || burst > MaxRate || ttl <= 0 {
		return fmt.Errorf("limit of interface %d: rate %d, burst %d or ttl %s is out of range", ifindex, rate, burst, ttl)
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
		l := vportLimit{Rate: rate, Burst: burst, ExpiresNs: now + uint64(ttl), SinceNs: now, Id: id}
		if old.Id == id && old.ExpiresNs > now {
			l.SinceNs = old.SinceNs
			l.PolicedBytesBefore, l.PolicedPacketsBefore = old.PolicedBytesBefore, old.PolicedPacketsBefore
		} else {
			c, err := m.readSlot(p)
			if err != nil {
				return err
			}
			l.PolicedBytesBefore, l.PolicedPacketsBefore = c.PolicedBytes, c.PolicedPackets
		}
		if err := m.objects.VportLimit.Put(p.Slot, l); err != nil {
			return fmt.Errorf("write limit: %w", err)
		}
		return nil
	})
}

// Limit reads the limit in force back from the kernel. It returns ErrNoLimit if
// there is none or it has expired, and ErrNotAttached if nothing would apply it.
func (m *Manager) Limit(ifindex int) (Limit, error) {
	p, err := m.place(ifindex)
	if err != nil {
		return Limit{}, err
	}
	if !m.linksAlive(ifindex, Hook(p.Hook)) {
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
		ID: l.Id, Rate: l.Rate, Burst: l.Burst, Expires: time.Duration(l.ExpiresNs - now),
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
		if err := m.objects.VportLimit.Put(p.Slot, vportLimit{}); err != nil {
			return fmt.Errorf("clear limit: %w", err)
		}
		return nil
	})
}
