package classify

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/cilium/ebpf"
)

// Of which node a tunnel end point is.
const (
	here uint8 = 1 + iota
	elsewhere
)

// SetTunnels says between whom tunnels are the operator's: this node's end points and those
// of the other nodes. What looks like a tunnel between others, a tenant wrote: it is of the
// network that it came in, whatever VNI or key it names. Without an end point of its own a
// node has no tunnels. Until it is called, all tunnels are the operator's but those in a network
// that is a tenant's: one of its VLANs, or from or to one of its interfaces.
func (p *Programs) SetTunnels(own, others []netip.Addr) error {
	want := make(map[classifyEndpoint]uint8, len(own)+len(others))
	if len(own) > 0 {
		for _, a := range others {
			want[endpoint(a)] = elsewhere
		}
	}
	for _, a := range own {
		want[endpoint(a)] = here
	}
	var stale []classifyEndpoint
	var key classifyEndpoint
	var value uint8
	it := p.objects.ClassEndpoint.Iterate()
	for it.Next(&key, &value) {
		switch want[key] {
		case 0:
			stale = append(stale, key)
		case value:
			delete(want, key)
		}
	}
	if err := it.Err(); err != nil {
		return fmt.Errorf("list tunnel end points: %w", err)
	}
	for key, where := range want { // new ones first: a node that changes its address is never without
		if err := p.objects.ClassEndpoint.Put(key, where); err != nil {
			return fmt.Errorf("write tunnel end point: %w", err)
		}
	}
	if err := p.objects.ClassTunnels.Put(uint32(0), uint32(1)); err != nil {
		return fmt.Errorf("have tunnels between listed end points only: %w", err)
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
