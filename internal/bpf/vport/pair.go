package vport

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// Destination is what limits tell destinations apart by: an IPv4 address, or an
// IPv6 address folded to 32 bits by exclusive or. Everything is the zero value.
type Destination [4]byte

// Everything stands for whatever a vport sends.
var Everything Destination

// ErrTooManyPairs means that no more limits to single destinations fit.
var ErrTooManyPairs = errors.New("the table of limits to single destinations is full; raise bpf.max_ports")

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

func pairKey(slot uint32, d Destination) vportPairKey {
	return vportPairKey{Slot: slot, Destination: binary.LittleEndian.Uint32(d[:])}
}

// SetPair puts or renews a limit on what the interface sends to d.
func (m *Manager) SetPair(ifindex int, d Destination, p Pair) error {
	if p.Rate == 0 || p.Rate > MaxRate || p.Burst == 0 || p.Burst > MaxRate || p.Packets > MaxRate || p.TTL <= 0 || p.TTL > MaxTTL {
		return fmt.Errorf("limit of interface %d to %v: %+v is out of range", ifindex, d, p)
	}
	m.pairs.Lock()
	defer m.pairs.Unlock()
	place, err := m.place(ifindex)
	if err != nil {
		return err
	}
	if err := m.setShape(p.Class, p.Rate); err != nil {
		return err
	}
	m.swept = false
	if p.Start == 0 || p.Start > p.Burst {
		p.Start = p.Burst
	}
	key, now := pairKey(place.Slot, d), Monotonic()
	v := vportPair{
		Class: p.Class, Rate: p.Rate, Burst: p.Burst, Packets: p.Packets, ExpiresNs: now + uint64(p.TTL), SinceNs: now,
		Bytes: filled(p.Start, now), PacketBucket: filled(packetBurst(p.Packets), now),
	}
	var old vportPair
	err = m.objects.VportPair.LookupWithFlags(key, &old, ebpf.LookupLock)
	if err == nil && old.ExpiresNs > now { // what is in the buckets stays there
		v.SinceNs, v.Bytes, v.PacketBucket = old.SinceNs, carriedOver(old.Bytes, p.Burst), carriedOver(old.PacketBucket, packetBurst(p.Packets))
		v.OfferedBytes, v.DroppedBytes, v.DroppedPackets = old.OfferedBytes, old.DroppedBytes, old.DroppedPackets
	}
	if err == nil {
		err = m.objects.VportPair.Update(key, &v, ebpf.UpdateLock)
	} else if errors.Is(err, ebpf.ErrKeyNotExist) {
		err = m.objects.VportPair.Put(key, &v)
	}
	if err != nil {
		return fmt.Errorf("write limit of interface %d to %v: %w", ifindex, d, explainFull(err))
	}
	return m.editContract(place.Slot, func(c *vportContract) { c.Pairs = 1 })
}

func explainFull(err error) error {
	if errors.Is(err, unix.E2BIG) || errors.Is(err, unix.ENOMEM) {
		return ErrTooManyPairs
	}
	return err
}

// RemovePair ends a limit now. Without one it changes nothing.
func (m *Manager) RemovePair(ifindex int, d Destination) error {
	place, err := m.place(ifindex)
	if err != nil {
		return err
	}
	if err := ignoreAbsent(m.objects.VportPair.Delete(pairKey(place.Slot, d))); err != nil {
		return fmt.Errorf("remove limit of interface %d to %v: %w", ifindex, d, err)
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
	var v vportPair
	if err := ignoreAbsent(m.objects.VportPair.LookupWithFlags(pairKey(place.Slot, d), &v, ebpf.LookupLock)); err != nil {
		return 0, fmt.Errorf("read limit of interface %d to %v: %w", ifindex, d, err)
	}
	return v.OfferedBytes, nil
}

// Pairs lists the limits in force to single destinations.
func (m *Manager) Pairs() ([]PairState, error) {
	byIndex := make(map[uint32]int)
	var ifindex uint32
	var place vportPlace
	it := m.objects.VportPlace.Iterate()
	for it.Next(&ifindex, &place) {
		byIndex[place.Slot] = int(ifindex)
	}
	if err := it.Err(); err != nil {
		return nil, fmt.Errorf("list slots: %w", err)
	}
	var out []PairState
	now := Monotonic()
	err := m.eachPair(func(k vportPairKey, v *vportPair) {
		index, known := byIndex[k.Slot]
		if !known || v.ExpiresNs <= now {
			return
		}
		s := PairState{
			Pair:  Pair{Rate: v.Rate, Burst: v.Burst, Packets: v.Packets, Class: v.Class, TTL: time.Duration(v.ExpiresNs - now)},
			Index: index, Age: time.Duration(now - min(now, v.SinceNs)),
			OfferedBytes: v.OfferedBytes, DroppedBytes: v.DroppedBytes, DroppedPackets: v.DroppedPackets,
		}
		binary.LittleEndian.PutUint32(s.Destination[:], k.Destination)
		out = append(out, s)
	})
	return out, err
}

func (m *Manager) eachPair(fn func(vportPairKey, *vportPair)) error {
	var key vportPairKey
	var v vportPair
	it := m.objects.VportPair.Iterate()
	for it.Next(&key, &v) {
		fn(key, &v)
	}
	if err := it.Err(); err != nil {
		return fmt.Errorf("list limits to single destinations: %w", err)
	}
	return nil
}

func (m *Manager) removePairs(which func(vportPairKey, *vportPair) bool) error {
	var keys []vportPairKey
	if err := m.eachPair(func(k vportPairKey, v *vportPair) {
		if which(k, v) {
			keys = append(keys, k)
		}
	}); err != nil {
		return err
	}
	for _, k := range keys {
		if err := ignoreAbsent(m.objects.VportPair.Delete(k)); err != nil {
			return fmt.Errorf("remove limit to a single destination: %w", err)
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
	left, err := m.sweepPairs()
	m.swept = !left && err == nil
	return err
}

// sweepPairs tells whether limits are left.
func (m *Manager) sweepPairs() (left bool, err error) {
	now := Monotonic()
	if err := m.removePairs(func(_ vportPairKey, v *vportPair) bool { return v.ExpiresNs <= now }); err != nil {
		return true, err
	}
	used := make(map[uint32]bool)
	if err := m.eachPair(func(k vportPairKey, _ *vportPair) { used[k.Slot] = true }); err != nil {
		return true, err
	}
	var ifindex uint32
	var place vportPlace
	it := m.objects.VportPlace.Iterate()
	for it.Next(&ifindex, &place) {
		if used[place.Slot] {
			continue
		}
		if err := m.editContract(place.Slot, func(c *vportContract) { c.Pairs = 0 }); err != nil {
			return true, err
		}
	}
	if err := it.Err(); err != nil {
		return true, fmt.Errorf("list slots: %w", err)
	}
	return len(used) > 0, nil
}
