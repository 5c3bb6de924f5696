package vport

import (
	"errors"
	"fmt"
	"strings"

	"github.com/cilium/ebpf"
)

// Incarnation is one life of a port's counters: from an attachment to its end.
type Incarnation struct {
	Index   uint32 // of the interface
	_       uint32
	SinceNs uint64 // CLOCK_MONOTONIC of the attachment
}

// Traffic is what counters say that is summed by tenant, indexed as Counters is.
type Traffic struct {
	Bytes   [2][6]uint64
	Packets [2][6]uint64
	Sizes   [2][8]uint64
}

// Traffic returns what is summed by tenant.
func (c *Counters) Traffic() Traffic {
	return Traffic{Bytes: c.Bytes, Packets: c.Packets, Sizes: c.Sizes}
}

// Add adds o.
func (t *Traffic) Add(o *Traffic) { t.combine(o, func(x, y uint64) uint64 { return x + y }) }

// Sub subtracts o, modulo 2^64: traffic may be less than nothing for as long as
// what it is added to makes up for it.
func (t *Traffic) Sub(o *Traffic) { t.combine(o, func(x, y uint64) uint64 { return x - y }) }

func (t *Traffic) combine(o *Traffic, f func(x, y uint64) uint64) {
	for d := range t.Bytes {
		for i := range t.Bytes[d] {
			t.Bytes[d][i] = f(t.Bytes[d][i], o.Bytes[d][i])
			t.Packets[d][i] = f(t.Packets[d][i], o.Packets[d][i])
		}
		for i := range t.Sizes[d] {
			t.Sizes[d][i] = f(t.Sizes[d][i], o.Sizes[d][i])
		}
	}
}

// TenantTotals remembers, over restarts of every process, what sums by tenant need: the
// last word of counters whose port is gone, whose they were, and what tenants had
// from ports that are gone. Its maps are pinned beside the programs' and go with them.
type TenantTotals struct {
	final   *ebpf.Map // Incarnation -> Traffic, written at the end of an attachment
	owner   *ebpf.Map // Incarnation -> tenant
	settled *ebpf.Map // tenant -> Traffic
}

const (
	tenantSize          = 128 // bytes of a tenant's id
	mostTenants         = 1 << 14
	incarnationsPerPort = 4
)

type tenantName [tenantSize]byte

func openTenantTotals(dir string, ports uint32) (*TenantTotals, error) {
	t := &TenantTotals{}
	incarnations := max(1024, incarnationsPerPort*ports)
	for _, m := range []struct {
		to                      **ebpf.Map
		name                    string
		kind                    ebpf.MapType
		key, value, size, flags uint32
	}{
		// The oldest gives way while no exporter settles what is final.
		{&t.final, "vport_final", ebpf.LRUHash, 16, 8 * 40, incarnations, 0},
		{&t.owner, "vport_owner", ebpf.LRUHash, 16, tenantSize, incarnations, 0},
		{&t.settled, "vport_settled", ebpf.Hash, tenantSize, 8 * 40, mostTenants, noPrealloc},
	} {
		opened, err := ebpf.NewMapWithOptions(&ebpf.MapSpec{
			Name: m.name, Type: m.kind, KeySize: m.key, ValueSize: m.value, MaxEntries: m.size, Flags: m.flags, Pinning: ebpf.PinByName,
		}, ebpf.MapOptions{PinPath: dir})
		if err != nil {
			return nil, errors.Join(fmt.Errorf("open map %s: %w", m.name, err), t.Close())
		}
		*m.to = opened
	}
	return t, nil
}

const noPrealloc = 1 // BPF_F_NO_PREALLOC

// Close lets go of the maps.
func (t *TenantTotals) Close() error {
	var errs []error
	for _, m := range []*ebpf.Map{t.final, t.owner, t.settled} {
		if m != nil {
			errs = append(errs, m.Close())
		}
	}
	return errors.Join(errs...)
}

// Settled returns what tenants had from ports that are gone or changed hands.
func (t *TenantTotals) Settled() (map[string]Traffic, error) {
	out := make(map[string]Traffic)
	var name tenantName
	var a Traffic
	it := t.settled.Iterate()
	for it.Next(&name, &a) {
		out[strings.TrimRight(string(name[:]), "\x00")] = a
	}
	if err := it.Err(); err != nil {
		return nil, fmt.Errorf("read what is settled: %w", err)
	}
	return out, nil
}

// Settle writes what a tenant had in all.
func (t *TenantTotals) Settle(tenant string, a Traffic) error {
	if err := t.settled.Put(pad(tenant), a); err != nil {
		return fmt.Errorf("settle tenant %s: %w", tenant, err)
	}
	return nil
}

// Owners returns whose the incarnations are.
func (t *TenantTotals) Owners() (map[Incarnation]string, error) {
	out := make(map[Incarnation]string)
	var incarnation Incarnation
	var name tenantName
	it := t.owner.Iterate()
	for it.Next(&incarnation, &name) {
		out[incarnation] = strings.TrimRight(string(name[:]), "\x00")
	}
	if err := it.Err(); err != nil {
		return nil, fmt.Errorf("read owners: %w", err)
	}
	return out, nil
}

// SetOwner writes whose an incarnation is.
func (t *TenantTotals) SetOwner(of Incarnation, tenant string) error {
	if err := t.owner.Put(of, pad(tenant)); err != nil {
		return fmt.Errorf("write owner of interface %d: %w", of.Index, err)
	}
	return nil
}

// SetFinal writes the last word of an incarnation's counters.
func (t *TenantTotals) SetFinal(of Incarnation, a Traffic) error {
	if err := t.final.Put(of, a); err != nil {
		return fmt.Errorf("write the end of interface %d: %w", of.Index, err)
	}
	return nil
}

// Final returns the last word of an incarnation's counters; false if there is none.
func (t *TenantTotals) Final(of Incarnation) (Traffic, bool, error) {
	var a Traffic
	err := t.final.Lookup(of, &a)
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		return a, false, nil
	}
	if err != nil {
		return a, false, fmt.Errorf("read the end of interface %d: %w", of.Index, err)
	}
	return a, true, nil
}

// Forget drops what is known of an incarnation.
func (t *TenantTotals) Forget(of Incarnation) error {
	return errors.Join(ignoreAbsent(t.owner.Delete(of)), ignoreAbsent(t.final.Delete(of)))
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
	if err := m.tenantTotals.SetFinal(Incarnation{Index: uint32(ifindex), SinceNs: p.SinceNs}, c.Traffic()); err != nil {
		return err
	}
	return m.clearCounters(p.Slot, nobody)
}

// nobody is no interface's number.
const nobody = 0

// TenantTotals returns what sums by tenant need.
func (m *Manager) TenantTotals() *TenantTotals { return m.tenantTotals }
