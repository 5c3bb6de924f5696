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

// MaxVLAN is the last VLAN that may be used (IEEE 802.1Q).
const MaxVLAN = 4094

// SetTunnels says between whom tunnels are the operator's: this node's end points and those
// of the other nodes, untagged, or in the VLAN of the underlay if that is not 0. What looks like
// a tunnel between others, a tenant wrote: it is of the network that it came in, whatever VNI or
// key it names. Without an end point of its own a node has no tunnels. Until it is called, all
// tunnels are the operator's that are untagged, not from or to an interface of a tenant, and not
// forwarded from another interface.
func (p *Programs) SetTunnels(own, others []netip.Addr, underlay uint16) error {
	if underlay > MaxVLAN {
		return fmt.Errorf("the underlay's VLAN is %d; it is 0, for untagged, to %d", underlay, MaxVLAN)
	}
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
	if err := p.objects.ClassTunnels.Put(uint32(0), classifyTunnels{Listed: 1, Vlan: underlay}); err != nil {
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
