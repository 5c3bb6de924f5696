package classify

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/cilium/ebpf"
)

// SetTunnels says between whom tunnels are the operator's: this node's end point and those
// of the other nodes. What looks like a tunnel between others, a tenant wrote: it is of the
// network that it came in, whatever VNI or key it names. Without an end point of its own a
// node has no tunnels. Until it is called, all tunnels are the operator's.
func (p *Programs) SetTunnels(own netip.Addr, others []netip.Addr) error {
	t := classifyTunnels{Listed: 1}
	if own.IsValid() {
		t.Own = endpoint(own)
	} else {
		others = nil
	}
	want := make(map[classifyEndpoint]bool, len(others))
	for _, a := range others {
		want[endpoint(a)] = true
	}
	var stale []classifyEndpoint
	var key classifyEndpoint
	var value uint8
	it := p.objects.ClassEndpoint.Iterate()
	for it.Next(&key, &value) {
		if !want[key] {
			stale = append(stale, key)
		}
		delete(want, key)
	}
	if err := it.Err(); err != nil {
		return fmt.Errorf("list tunnel end points: %w", err)
	}
	for key := range want { // new ones first: a node that changes its address is never without
		if err := p.objects.ClassEndpoint.Put(key, uint8(1)); err != nil {
			return fmt.Errorf("write tunnel end point: %w", err)
		}
	}
	if err := p.objects.ClassTunnels.Put(uint32(0), t); err != nil {
		return fmt.Errorf("write own tunnel end point: %w", err)
	}
	for _, key := range stale {
		if err := p.objects.ClassEndpoint.Delete(key); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("remove tunnel end point: %w", err)
		}
	}
	return nil
}

func endpoint(a netip.Addr) (e classifyEndpoint) {
	b := a.As16()
	for i := range e.Address {
		for j := range 4 {
			e.Address[i] |= uint32(b[4*i+j]) << (8 * j) // the programs are built for little endian
		}
	}
	return e
}
