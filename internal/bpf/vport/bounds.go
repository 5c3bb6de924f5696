package vport

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
)

// MaxMACPairs is the largest bound of pairs of MAC addresses. The bucket holds four seconds of it.
const MaxMACPairs = 1_000_000

// Bounds are what an interface is held to for good, per second; 0 for any number.
type Bounds struct {
	Packets  uint64 // that it may send
	NewFlows uint64 // that it may begin
	Receive  uint64 // packets that it may be sent
	MACPairs uint64 // pairs of MAC addresses that it may begin, where Open vSwitch forwards in user space
	// Guarantee is what it may send in any case, in bytes: UDP beyond it is a sign of a
	// flood, and holds nothing back. 0 for unknown.
	Guarantee uint64
}

// SyncBounds holds attached interfaces to their bounds; those that want does not name keep
// theirs. However many ports there are, it takes a few system calls, and more for what has
// changed alone.
func (m *Manager) SyncBounds(want map[int]Bounds) error {
	places := make(map[uint32]vportPlace, len(want))
	if err := batch(m.objects.VportPlace, func(ifindex uint32, p *vportPlace) { places[ifindex] = *p }); err != nil {
		return fmt.Errorf("list slots: %w", err)
	}
	have := make(map[uint32]Bounds, len(places))
	if err := batch(m.objects.VportContract, func(slot uint32, c *vportContract) { have[slot] = boundsOf(c) }); err != nil {
		return fmt.Errorf("list contracts: %w", err)
	}
	var errs []error
	for ifindex, p := range places {
		if b, known := want[int(ifindex)]; known && b != have[p.Slot] {
			errs = append(errs, m.setContract(int(ifindex), p.Slot, b))
		}
	}
	return errors.Join(errs...)
}

// batch calls fn with every entry of a map whose keys are numbers.
func batch[V any](m *ebpf.Map, fn func(uint32, *V)) error {
	size := int(m.MaxEntries())
	keys, values := make([]uint32, size), make([]V, size)
	var cursor ebpf.MapBatchCursor
	for {
		n, err := m.BatchLookup(&cursor, keys, values, nil)
		for i := range n {
			fn(keys[i], &values[i])
		}
		if errors.Is(err, ebpf.ErrKeyNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (m *Manager) setContract(ifindex int, slot uint32, b Bounds) error {
	if max(b.Packets, b.NewFlows, b.Receive, b.Guarantee) > MaxRate || b.MACPairs > MaxMACPairs {
		return fmt.Errorf("contract of interface %d: %+v per second is out of range", ifindex, b)
	}
	return m.editContract(slot, func(c *vportContract) {
		c.Packets, c.NewFlows, c.ReceivePackets, c.Guarantee, c.MacPairs = b.Packets, b.NewFlows, b.Receive, b.Guarantee, b.MACPairs
	})
}

// Contract returns what the interface is held to.
func (m *Manager) Contract(ifindex int) (Bounds, error) {
	place, err := m.place(ifindex)
	if err != nil {
		return Bounds{}, err
	}
	var c vportContract
	if err := m.objects.VportContract.Lookup(place.Slot, &c); err != nil {
		return Bounds{}, fmt.Errorf("read contract: %w", err)
	}
	return boundsOf(&c), nil
}

func boundsOf(c *vportContract) Bounds {
	return Bounds{Packets: c.Packets, NewFlows: c.NewFlows, Receive: c.ReceivePackets, Guarantee: c.Guarantee, MACPairs: c.MacPairs}
}

func (m *Manager) editContract(slot uint32, edit func(*vportContract)) error {
	m.contractMu.Lock()
	defer m.contractMu.Unlock()
	var c vportContract
	if err := m.objects.VportContract.Lookup(slot, &c); err != nil {
		return fmt.Errorf("read contract: %w", err)
	}
	before := c
	if edit(&c); c == before {
		return nil
	}
	if err := m.objects.VportContract.Put(slot, c); err != nil {
		return fmt.Errorf("write contract: %w", err)
	}
	return nil
}
