package vport

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
)

// Bounds are what an interface is held to for good, per second; 0 for any number.
type Bounds struct {
	Packets  uint64 // that it may send
	NewFlows uint64 // that it may begin
	Receive  uint64 // packets that it may be sent
}

// Observe holds attached interfaces to their bounds and returns those that have a
// limit in force. However many ports there are, it takes a few system calls, and
// more for what has changed alone.
func (m *Manager) Observe(want map[int]Bounds) (map[int]bool, error) {
	places := make(map[uint32]vportPlace, len(want))
	if err := batch(m.objects.VportPlace, func(ifindex uint32, p *vportPlace) { places[ifindex] = *p }); err != nil {
		return nil, fmt.Errorf("list slots: %w", err)
	}
	limited, now := make(map[uint32]bool), Monotonic()
	if err := batch(m.objects.VportLimit, func(slot uint32, l *vportLimit) {
		if l.ExpiresNs > now {
			limited[slot] = true
		}
	}); err != nil {
		return nil, fmt.Errorf("list limits: %w", err)
	}
	have := make(map[uint32]Bounds, len(places))
	if err := batch(m.objects.VportContract, func(slot uint32, c *vportContract) { have[slot] = Bounds{c.Packets, c.NewFlows, c.ReceivePackets} }); err != nil {
		return nil, fmt.Errorf("list contracts: %w", err)
	}
	out := make(map[int]bool, len(limited))
	var errs []error
	for ifindex, p := range places {
		out[int(ifindex)] = limited[p.Slot]
		if b, known := want[int(ifindex)]; known && b != have[p.Slot] {
			errs = append(errs, m.setContract(int(ifindex), p.Slot, b))
		}
	}
	return out, errors.Join(errs...)
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
