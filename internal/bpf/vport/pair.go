package vport

import (
	"encoding/binary"
	"fmt"
	"time"
)

// Destination is what limits tell destinations apart by: an IPv4 address, or an
// IPv6 address folded to 32 bits by exclusive or. Everything is the zero value.
type Destination [4]byte

// Everything stands for whatever a vport sends.
var Everything Destination

// DestinationLimits is how many limits to single destinations an interface can have at once.
const DestinationLimits = len(vportPairs{}.Destination)

// ErrTooManyPairs means that an interface has limits to as many single destinations as it
// can have. One on everything has a place of its own.
var ErrTooManyPairs = fmt.Errorf("the interface has limits to %d single destinations already; set one on everything that it sends", DestinationLimits)

// Pair is a limit on all that a vport sends to one destination.
type Pair struct {
	Rate    uint64 // bytes per second
	Burst   uint64 // bytes
	Start   uint64 // bytes that pass at once when the limit is new; 0 = Burst
	Packets uint64 // packets per second; 0 = any number
	Class   uint32 // HTB class that shapes in place of the policer; 0 = it polices
	TTL     time.Duration
}

// PairState is a limit as the kernel has it.
type PairState struct {
	Pair           // TTL is what remains
	Index          int
	Destination    Destination
	Age            time.Duration // since it was first set
	OfferedBytes   uint64        // since then
	DroppedBytes   uint64
	DroppedPackets uint64
}

// The place of the limit on everything, behind those to single destinations.
const everythingPlace = DestinationLimits

// of returns what the limit of a place has let pass; nothing if the programs have not seen it.
func (s *vportPairsSpent) of(place int, limit *vportPair) vportSpent {
	if s.To[place].SinceNs != limit.SinceNs {
		return vportSpent{}
	}
	return s.To[place]
}

// find returns the place of a limit that is in force.
func (p *vportPairs) find(d Destination, now uint64) (place int, ok bool) {
	if d == Everything {
		return everythingPlace, p.To[everythingPlace].ExpiresNs > now
	}
	for i := range p.Places {
		if p.To[i].ExpiresNs > now && p.Destination[i] == binary.LittleEndian.Uint32(d[:]) {
			return int(i), true
		}
	}
	return 0, false
}

// claim returns the place for a limit to d: the one that it has, or the first without any.
func (p *vportPairs) claim(d Destination, now uint64) (place int, ok bool) {
	if place, ok := p.find(d, now); ok || d == Everything {
		return place, true
	}
	for i := range p.Destination {
		if p.To[i].ExpiresNs <= now {
			p.Destination[i] = binary.LittleEndian.Uint32(d[:])
			return i, true
		}
	}
	return 0, false
}

// sweep forgets limits that have expired, and tells whether any is left.
func (p *vportPairs) sweep(now uint64) (left bool) {
	p.Places = 0
	for place := range p.To {
		if p.To[place].ExpiresNs <= now {
			p.To[place] = vportPair{}
			continue
		}
		left = true
		if place != everythingPlace {
			p.Places = uint32(place) + 1
		}
	}
	return left
}

// SetPair puts or renews a limit on what the interface sends to d.
func (m *Manager) SetPair(ifindex int, d Destination, p Pair) error {
	if p.Rate == 0 || p.Rate > MaxRate || p.Burst == 0 || p.Burst > MaxRate || p.Packets > MaxRate || p.TTL <= 0 || p.TTL > MaxTTL {
		return fmt.Errorf("limit of interface %d to %v: %+v is out of range", ifindex, d, p)
	}
	if p.Start == 0 || p.Start > p.Burst {
		p.Start = p.Burst
	}
	m.pairs.Lock()
	defer m.pairs.Unlock()
	place, err := m.place(ifindex)
	if err != nil {
		return err
	}
	m.swept = false
	err = m.editPairs(place.Slot, func(all *vportPairs) error {
		now := Monotonic()
		at, ok := all.claim(d, now)
		if !ok {
			return ErrTooManyPairs
		}
		if err := m.setShape(p.Class, p.Rate); err != nil {
			return err
		}
		limit := &all.To[at]
		since := now
		if limit.ExpiresNs > now { // what is in the buckets stays there
			since = limit.SinceNs
		}
		*limit = vportPair{
			Rate: p.Rate, Burst: p.Burst, Start: p.Start, Packets: p.Packets, ExpiresNs: now + uint64(p.TTL), SinceNs: since, Class: p.Class,
		}
		if at != everythingPlace {
			all.Places = max(all.Places, uint32(at)+1)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("limit of interface %d to %v: %w", ifindex, d, err)
	}
	return m.editContract(place.Slot, func(c *vportContract) { c.Pairs = 1 })
}

// RemovePair ends a limit now. Without one it changes nothing.
func (m *Manager) RemovePair(ifindex int, d Destination) error {
	m.pairs.Lock()
	defer m.pairs.Unlock()
	place, err := m.place(ifindex)
	if err != nil {
		return err
	}
	err = m.editPairs(place.Slot, func(all *vportPairs) error {
		now := Monotonic()
		if at, ok := all.find(d, now); ok {
			all.To[at].ExpiresNs = 0
		}
		all.sweep(now)
		return nil
	})
	if err != nil {
		return fmt.Errorf("remove limit of interface %d to %v: %w", ifindex, d, err)
	}
	return nil
}

// editPairs changes the limits of a slot; with an error of edit it changes nothing. The
// programs read while it is written: a place gets a new destination while its limit is still
// an expired one, so that no other destination is ever held to it.
func (m *Manager) editPairs(slot uint32, edit func(*vportPairs) error) error {
	all, before := &m.pairsNow, &m.pairsBefore
	if err := m.readPairs(slot, all); err != nil {
		return err
	}
	*before = *all
	if err := edit(all); err != nil || *all == *before {
		return err
	}
	if all.Destination != before.Destination {
		before.Destination = all.Destination
		if err := m.objects.VportPairs.Put(slot, before); err != nil {
			return fmt.Errorf("write destinations: %w", err)
		}
	}
	if err := m.objects.VportPairs.Put(slot, all); err != nil {
		return fmt.Errorf("write limits to destinations: %w", err)
	}
	return nil
}

func (m *Manager) readPairs(slot uint32, to *vportPairs) error {
	if err := m.objects.VportPairs.Lookup(slot, to); err != nil {
		return fmt.Errorf("read limits to destinations: %w", err)
	}
	return nil
}

// clearPairs ends all limits to destinations of a slot. It takes no lock that the fast loop might wait for: what is
// set for the interface that had the slot meanwhile ends by itself.
func (m *Manager) clearPairs(slot uint32) error {
	if err := m.objects.VportPairs.Put(slot, &vportPairs{}); err != nil {
		return fmt.Errorf("clear limits to destinations: %w", err)
	}
	return nil
}

// PairOffered returns the bytes that the vport has offered to a limit to d, whether they passed
// or not, since it was first set; none without one.
func (m *Manager) PairOffered(ifindex int, d Destination) (uint64, error) {
	place, err := m.place(ifindex)
	if err != nil {
		return 0, err
	}
	m.pairs.Lock()
	defer m.pairs.Unlock()
	if err := m.readPairs(place.Slot, &m.pairsNow); err != nil {
		return 0, fmt.Errorf("interface %d: %w", ifindex, err)
	}
	at, ok := m.pairsNow.find(d, Monotonic())
	if !ok {
		return 0, nil
	}
	if err := m.readSpent(place.Slot, &m.pairsSpent); err != nil {
		return 0, fmt.Errorf("interface %d: %w", ifindex, err)
	}
	return m.pairsSpent.of(at, &m.pairsNow.To[at]).OfferedBytes, nil
}

func (m *Manager) readSpent(slot uint32, to *vportPairsSpent) error {
	if err := m.objects.VportPairsSpent.Lookup(slot, to); err != nil {
		return fmt.Errorf("read what limits to destinations let pass: %w", err)
	}
	return nil
}

// Pairs lists the limits in force to single destinations.
func (m *Manager) Pairs() ([]PairState, error) {
	byIndex := make(map[uint32]int)
	if err := batch(m.objects.VportPlace, func(ifindex uint32, p *vportPlace) { byIndex[p.Slot] = int(ifindex) }); err != nil {
		return nil, fmt.Errorf("list slots: %w", err)
	}
	var out []PairState
	var spent vportPairsSpent
	now := Monotonic()
	err := m.eachPairs(func(slot uint32, all *vportPairs) error {
		index, known := byIndex[slot]
		if !known {
			return nil
		}
		if err := m.readSpent(slot, &spent); err != nil {
			return err
		}
		for place := range all.To {
			if all.To[place].ExpiresNs > now {
				out = append(out, pairState(index, all, place, now, spent.of(place, &all.To[place])))
			}
		}
		return nil
	})
	return out, err
}

func pairState(index int, all *vportPairs, place int, now uint64, spent vportSpent) PairState {
	v := &all.To[place]
	s := PairState{
		Pair: Pair{
			Rate: v.Rate, Burst: v.Burst, Start: v.Start, Packets: v.Packets, Class: v.Class, TTL: time.Duration(v.ExpiresNs - now),
		},
		Index: index, Age: time.Duration(now - min(now, v.SinceNs)),
		OfferedBytes: spent.OfferedBytes, DroppedBytes: spent.DroppedBytes, DroppedPackets: spent.DroppedPackets,
	}
	if place != everythingPlace {
		binary.LittleEndian.PutUint32(s.Destination[:], all.Destination[place])
	}
	return s
}

// eachPairs calls fn with the limits of every slot that may have some.
func (m *Manager) eachPairs(fn func(slot uint32, all *vportPairs) error) error {
	var slots []uint32
	err := batch(m.objects.VportContract, func(slot uint32, c *vportContract) {
		if c.Pairs != 0 {
			slots = append(slots, slot)
		}
	})
	if err != nil {
		return fmt.Errorf("list contracts: %w", err)
	}
	var all vportPairs
	for _, slot := range slots {
		if err := m.readPairs(slot, &all); err != nil {
			return err
		}
		if err := fn(slot, &all); err != nil {
			return err
		}
	}
	return nil
}

// SweepPairs removes what has expired, and lets vports without any limit of the
// kind off the look-up.
func (m *Manager) SweepPairs() error {
	m.pairs.Lock() // what is set meanwhile must not lose its vport's look-up
	defer m.pairs.Unlock()
	if m.swept {
		return nil // nothing was set since the last sweep found nothing
	}
	inForce := false
	err := m.eachPairs(func(slot uint32, _ *vportPairs) error {
		left := false
		err := m.editPairs(slot, func(all *vportPairs) error {
			left = all.sweep(Monotonic())
			return nil
		})
		inForce = inForce || left
		if err != nil || left {
			return err
		}
		return m.editContract(slot, func(c *vportContract) { c.Pairs = 0 })
	})
	m.swept = !inForce && err == nil
	return err
}
