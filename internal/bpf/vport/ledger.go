package vport

import (
	"errors"
	"fmt"
	"strings"

	"github.com/cilium/ebpf"
)

// Life is one life of a port's counters: from an attachment to its end.
type Life struct {
	Index   uint32
	_       uint32
	SinceNs uint64
}

// Amount is what counters say, without what is of no use to sums by tenant.
type Amount struct {
	Bytes   [2][6]uint64
	Packets [2][6]uint64
	Sizes   [2][8]uint64
}

// Amount returns the sums of the counters.
func (c *Counters) Amount() Amount { return Amount{Bytes: c.Bytes, Packets: c.Packets, Sizes: c.Sizes} }

// Add adds o.
func (a *Amount) Add(o *Amount) { a.combine(o, func(x, y uint64) uint64 { return x + y }) }

// Sub subtracts o, modulo 2^64: an amount may be less than nothing for as long as
// what it is added to makes up for it.
func (a *Amount) Sub(o *Amount) { a.combine(o, func(x, y uint64) uint64 { return x - y }) }

func (a *Amount) combine(o *Amount, f func(x, y uint64) uint64) {
	for d := range a.Bytes {
		for i := range a.Bytes[d] {
			a.Bytes[d][i] = f(a.Bytes[d][i], o.Bytes[d][i])
			a.Packets[d][i] = f(a.Packets[d][i], o.Packets[d][i])
		}
		for i := range a.Sizes[d] {
			a.Sizes[d][i] = f(a.Sizes[d][i], o.Sizes[d][i])
		}
	}
}

// Ledger remembers, over restarts of every process, what sums by tenant need: the
// last word of counters whose port is gone, whose they were, and what tenants had
// from ports that are gone. Its maps are pinned beside the programs' and go with them.
type Ledger struct {
	final   *ebpf.Map // Life -> Amount, written at the end of an attachment
	owner   *ebpf.Map // Life -> tenant
	settled *ebpf.Map // tenant -> Amount
}

const (
	tenantSize   = 128 // bytes of a tenant's id
	mostTenants  = 1 << 14
	livesPerPort = 4
)

type tenantName [tenantSize]byte

func openLedger(dir string, ports uint32) (*Ledger, error) {
	l := &Ledger{}
	lives := max(1024, livesPerPort*ports)
	for _, m := range []struct {
		to                      **ebpf.Map
		name                    string
		kind                    ebpf.MapType
		key, value, size, flags uint32
	}{
		// The oldest gives way while no exporter settles what is final.
		{&l.final, "vport_final", ebpf.LRUHash, 16, 8 * 40, lives, 0},
		{&l.owner, "vport_owner", ebpf.LRUHash, 16, tenantSize, lives, 0},
		{&l.settled, "vport_settled", ebpf.Hash, tenantSize, 8 * 40, mostTenants, noPrealloc},
	} {
		opened, err := ebpf.NewMapWithOptions(&ebpf.MapSpec{
			Name: m.name, Type: m.kind, KeySize: m.key, ValueSize: m.value, MaxEntries: m.size, Flags: m.flags, Pinning: ebpf.PinByName,
		}, ebpf.MapOptions{PinPath: dir})
		if err != nil {
			return nil, errors.Join(fmt.Errorf("open map %s: %w", m.name, err), l.Close())
		}
		*m.to = opened
	}
	return l, nil
}

const noPrealloc = 1 // BPF_F_NO_PREALLOC

// Close lets go of the maps.
func (l *Ledger) Close() error {
	var errs []error
	for _, m := range []*ebpf.Map{l.final, l.owner, l.settled} {
		if m != nil {
			errs = append(errs, m.Close())
		}
	}
	return errors.Join(errs...)
}

// Settled returns what tenants had from ports that are gone or changed hands.
func (l *Ledger) Settled() (map[string]Amount, error) {
	out := make(map[string]Amount)
	var name tenantName
	var a Amount
	it := l.settled.Iterate()
	for it.Next(&name, &a) {
		out[strings.TrimRight(string(name[:]), "\x00")] = a
	}
	if err := it.Err(); err != nil {
		return nil, fmt.Errorf("read what is settled: %w", err)
	}
	return out, nil
}

// Settle writes what a tenant had in all.
func (l *Ledger) Settle(tenant string, a Amount) error {
	if err := l.settled.Put(pad(tenant), a); err != nil {
		return fmt.Errorf("settle tenant %s: %w", tenant, err)
	}
	return nil
}

// Owners returns whose the lives are.
func (l *Ledger) Owners() (map[Life]string, error) {
	out := make(map[Life]string)
	var life Life
	var name tenantName
	it := l.owner.Iterate()
	for it.Next(&life, &name) {
		out[life] = strings.TrimRight(string(name[:]), "\x00")
	}
	if err := it.Err(); err != nil {
		return nil, fmt.Errorf("read owners: %w", err)
	}
	return out, nil
}

// Own writes whose a life is.
func (l *Ledger) Own(life Life, tenant string) error {
	if err := l.owner.Put(life, pad(tenant)); err != nil {
		return fmt.Errorf("write owner of interface %d: %w", life.Index, err)
	}
	return nil
}

// Finish writes the last word of a life's counters.
func (l *Ledger) Finish(life Life, a Amount) error {
	if err := l.final.Put(life, a); err != nil {
		return fmt.Errorf("write the end of interface %d: %w", life.Index, err)
	}
	return nil
}

// Final returns the last word of a life's counters; false if there is none.
func (l *Ledger) Final(life Life) (Amount, bool, error) {
	var a Amount
	err := l.final.Lookup(life, &a)
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		return a, false, nil
	}
	if err != nil {
		return a, false, fmt.Errorf("read the end of interface %d: %w", life.Index, err)
	}
	return a, true, nil
}

// Forget drops what is known of a life.
func (l *Ledger) Forget(life Life) error {
	return errors.Join(ignoreAbsent(l.owner.Delete(life)), ignoreAbsent(l.final.Delete(life)))
}

func pad(tenant string) (name tenantName) {
	copy(name[:], tenant)
	return name
}

// finish writes the last word of the counters of an attachment that ends, and makes
// them nobody's.
func (m *Manager) finish(ifindex int) error {
	p, err := m.place(ifindex)
	if errors.Is(err, ErrNotAttached) {
		return nil
	}
	if err != nil {
		return err
	}
	c, err := m.readSlot(p)
	if err != nil {
		return err
	}
	if err := m.ledger.Finish(Life{Index: uint32(ifindex), SinceNs: p.SinceNs}, c.Amount()); err != nil {
		return err
	}
	return m.clearCounters(p.Slot, nobody)
}

// nobody is no interface's number.
const nobody = 0

// Ledger returns what sums by tenant need.
func (m *Manager) Ledger() *Ledger { return m.ledger }

// Place is where the counters of an attached interface are.
type Place struct {
	Life Life
	slot uint32
}

// Snapshot is what all attached interfaces count. It may be filled again and again,
// which costs no memory once it is large enough.
type Snapshot struct {
	Places   []Place
	Counters []Counters // in the order of Places

	indices []uint32
	places  []vportPlace
	slots   []uint32
	perCPU  []vportCounters
	at      []int // where a slot's values are in perCPU
}

// sized returns s with n elements, of whatever value.
func sized[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	return s[:n]
}

// Places returns the attached interfaces, in one or few system calls.
func (m *Manager) Places() ([]Place, error) {
	var s Snapshot
	err := m.readPlaces(&s)
	return s.Places, err
}

func (m *Manager) readPlaces(s *Snapshot) error {
	most := int(m.objects.VportPlace.MaxEntries())
	s.indices, s.places = sized(s.indices, most), sized(s.places, most)
	var cursor ebpf.MapBatchCursor
	n, err := m.objects.VportPlace.BatchLookup(&cursor, s.indices, s.places, nil)
	if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) { // which says that this was all
		return fmt.Errorf("list attached interfaces: %w", err)
	}
	s.Places = s.Places[:0]
	for i := range n {
		s.Places = append(s.Places, Place{Life{Index: s.indices[i], SinceNs: s.places[i].SinceNs}, s.places[i].Slot})
	}
	return nil
}

// Snapshot reads the counters of all attached interfaces, in few system calls.
func (m *Manager) Snapshot(s *Snapshot) error {
	if err := m.readPlaces(s); err != nil {
		return err
	}
	s.Counters = s.Counters[:0]
	slots := uint32(0)
	for _, p := range s.Places {
		slots = max(slots, p.slot+1)
	}
	if slots == 0 {
		return nil
	}
	cpus := ebpf.MustPossibleCPU()
	s.slots, s.perCPU, s.at = sized(s.slots, int(slots)), sized(s.perCPU, int(slots)*cpus), sized(s.at, int(slots))
	var cursor ebpf.MapBatchCursor
	n, err := m.objects.VportCount.BatchLookup(&cursor, s.slots, s.perCPU, nil)
	if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return fmt.Errorf("read counters: %w", err)
	}
	for i, slot := range s.slots[:n] {
		s.at[slot] = i * cpus
	}
	for _, p := range s.Places {
		at := s.at[p.slot]
		s.Counters = append(s.Counters, sumCPUs(s.perCPU[at:at+cpus], p.Life.SinceNs))
	}
	return nil
}

// SignalsPlace returns the flood signals of an attached interface.
func (m *Manager) SignalsPlace(p Place) (Signals, error) {
	return m.signalsSlot(p.slot)
}
