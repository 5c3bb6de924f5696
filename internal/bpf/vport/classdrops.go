package vport

import (
	"errors"
	"fmt"
	"strings"

	"github.com/cilium/ebpf"
)

// Shaped returns which interface each class shapes a limit of, by major:minor. A class
// stays with the last interface that had it until another one gets it.
func (m *Manager) Shaped() (map[uint32]int, error) {
	places := make(map[uint32]int)
	if err := batch(m.objects.VportPlace, func(ifindex uint32, p *vportPlace) { places[p.Slot] = int(ifindex) }); err != nil {
		return nil, fmt.Errorf("list slots: %w", err)
	}
	out, until := make(map[uint32]int), make(map[uint32]uint64)
	found := func(slot, class uint32, expires uint64) {
		if ifindex, ok := places[slot]; ok && class != 0 && expires >= until[class] {
			out[class], until[class] = ifindex, expires
		}
	}
	if err := batch(m.objects.VportLimit, func(slot uint32, l *vportLimit) { found(slot, l.Class, l.ExpiresNs) }); err != nil {
		return nil, fmt.Errorf("list limits: %w", err)
	}
	err := m.eachPairs(func(slot uint32, all *vportPairs) error {
		for i := range all.To {
			found(slot, all.To[i].Class, all.To[i].ExpiresNs)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// UplinkClass is a class of an uplink's scheduler.
type UplinkClass struct {
	Link  uint32 // interface
	Class uint32 // major:minor
}

// ClassCount is what a class had counted when it was last looked at. Fewer bytes than
// before tell that it is another class.
type ClassCount struct {
	Bytes uint64
	Drops uint32 // as the kernel counts them
	_     uint32
}

// DropOwner is whom drops of classes are attributed to.
type DropOwner struct{ Port, Tenant, Direction, Reason string }

// ClassDrops remembers, over restarts of the exporter, what classes had dropped and whom
// it was attributed to: classes of limits come and go, and what they dropped stays. Its
// maps are pinned beside the programs' and go with them.
type ClassDrops struct {
	counted    *ebpf.Map // UplinkClass -> ClassCount
	attributed *ebpf.Map // ownerKey -> drops
}

// ownerKey is a DropOwner as the map has it.
type ownerKey struct {
	Port, Tenant      [tenantSize]byte
	Direction, Reason [reasonSize]byte
}

const (
	reasonSize  = 32      // bytes of a direction or a reason
	mostClasses = 1 << 17 // of all uplinks: a scheduler has 65536
)

func openClassDrops(dir string, ports uint32) (*ClassDrops, error) {
	c := &ClassDrops{}
	for _, m := range []struct {
		to                      **ebpf.Map
		name                    string
		kind                    ebpf.MapType
		key, value, size, flags uint32
	}{
		{&c.counted, "class_counted", ebpf.Hash, 8, 16, mostClasses, noPrealloc},
		// The oldest give way: of ports that are long gone.
		{&c.attributed, "class_drops", ebpf.LRUHash, 2*tenantSize + 2*reasonSize, 8, max(1024, incarnationsPerPort*ports), 0},
	} {
		opened, err := ebpf.NewMapWithOptions(&ebpf.MapSpec{
			Name: m.name, Type: m.kind, KeySize: m.key, ValueSize: m.value, MaxEntries: m.size, Flags: m.flags, Pinning: ebpf.PinByName,
		}, ebpf.MapOptions{PinPath: dir})
		if err != nil {
			return nil, errors.Join(fmt.Errorf("open map %s: %w", m.name, err), c.Close())
		}
		*m.to = opened
	}
	return c, nil
}

// Close lets go of the maps.
func (c *ClassDrops) Close() error {
	var errs []error
	for _, m := range []*ebpf.Map{c.counted, c.attributed} {
		if m != nil {
			errs = append(errs, m.Close())
		}
	}
	return errors.Join(errs...)
}

// Counted returns what the classes had counted.
func (c *ClassDrops) Counted() (map[UplinkClass]ClassCount, error) {
	out := make(map[UplinkClass]ClassCount)
	var class UplinkClass
	var count ClassCount
	it := c.counted.Iterate()
	for it.Next(&class, &count) {
		out[class] = count
	}
	if err := it.Err(); err != nil {
		return nil, fmt.Errorf("read what classes counted: %w", err)
	}
	return out, nil
}

// SetCounted writes what a class has counted.
func (c *ClassDrops) SetCounted(class UplinkClass, count ClassCount) error {
	if err := c.counted.Put(class, count); err != nil {
		return fmt.Errorf("write what class %x counted: %w", class.Class, err)
	}
	return nil
}

// Forget drops what is known of a class that is no more.
func (c *ClassDrops) Forget(class UplinkClass) error {
	if err := ignoreAbsent(c.counted.Delete(class)); err != nil {
		return fmt.Errorf("forget class %x: %w", class.Class, err)
	}
	return nil
}

// Attributed returns the drops of every owner.
func (c *ClassDrops) Attributed() (map[DropOwner]uint64, error) {
	out := make(map[DropOwner]uint64)
	var key ownerKey
	var drops uint64
	text := func(b []byte) string { return strings.TrimRight(string(b), "\x00") }
	it := c.attributed.Iterate()
	for it.Next(&key, &drops) {
		out[DropOwner{text(key.Port[:]), text(key.Tenant[:]), text(key.Direction[:]), text(key.Reason[:])}] = drops
	}
	if err := it.Err(); err != nil {
		return nil, fmt.Errorf("read drops of classes: %w", err)
	}
	return out, nil
}

// SetAttributed writes the drops of an owner.
func (c *ClassDrops) SetAttributed(o DropOwner, drops uint64) error {
	key := ownerKey{Port: pad(o.Port), Tenant: pad(o.Tenant)}
	copy(key.Direction[:], o.Direction)
	copy(key.Reason[:], o.Reason)
	if err := c.attributed.Put(key, drops); err != nil {
		return fmt.Errorf("write drops of port %s: %w", o.Port, err)
	}
	return nil
}

// ClassDrops returns what outlives restarts of what classes dropped.
func (m *Manager) ClassDrops() *ClassDrops { return m.classDrops }
