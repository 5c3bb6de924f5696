package fastloop

import (
	"net"
	"net/netip"

	"vigia/internal/bpf/classify"
	"vigia/isolation-agent/enforcer/fastloop/control"
	"vigia/isolation-agent/enforcer/notice"
)

// node is another node, ready for use.
type node struct {
	name    string
	id      uint64
	address netip.AddrPort
	keys    map[uint16][]byte
}

// guest is a vport of the site, ready for use.
type guest struct {
	SitePort
	mac  control.MAC
	addr control.Address
}

// directory answers who is who on the site, without allocation.
type directory struct {
	self    string
	selfID  uint64
	sendKey uint16
	nodes   map[string]*node
	byID    map[uint64]*node
	tunnels map[control.Address]*node
	guests  map[control.MAC][]*guest // MAC addresses repeat among tenants
	tenants map[uint64]string
	ports   map[string]int // of a tenant
}

func newDirectory(self string, site *Site, keys []MasterKey) (*directory, error) {
	d := &directory{
		self: self, selfID: notice.ID(self), sendKey: keys[0].ID, nodes: map[string]*node{}, byID: map[uint64]*node{},
		tunnels: map[control.Address]*node{}, guests: map[control.MAC][]*guest{}, tenants: map[uint64]string{}, ports: map[string]int{},
	}
	for _, n := range site.Nodes {
		address, err := netip.ParseAddrPort(n.Address)
		if err != nil {
			return nil, err
		}
		entry := &node{name: n.Node, id: notice.ID(n.Node), address: address, keys: map[uint16][]byte{}}
		for _, k := range keys {
			if entry.keys[k.ID], err = notice.PairKey(k.Secret, self, n.Node, k.ID); err != nil {
				return nil, err
			}
		}
		d.nodes[n.Node], d.byID[entry.id] = entry, entry
		// Tunnels of a second switch may end at the node's own address.
		if own := addressOf(address.Addr().String()); d.tunnels[own] == nil {
			d.tunnels[own] = entry
		}
		if n.Tunnel != "" {
			d.tunnels[addressOf(n.Tunnel)] = entry
		}
	}
	for _, p := range site.Ports {
		mac, err := net.ParseMAC(p.MAC)
		if err != nil {
			return nil, err
		}
		g := &guest{SitePort: p, mac: control.MAC(mac), addr: addressOf(p.IP)}
		d.guests[g.mac] = append(d.guests[g.mac], g)
		d.tenants[notice.ID(p.Tenant)] = p.Tenant
		d.ports[p.Tenant]++
	}
	return d, nil
}

// addressOf folds an address of a validated site as the BPF programs do.
func addressOf(ip string) control.Address {
	return control.Address(classify.AddressOf(net.ParseIP(ip)))
}

// key returns the key between this node and another.
func (d *directory) key(from uint64, id uint16) []byte {
	if n := d.byID[from]; n != nil {
		return n.keys[id]
	}
	return nil
}

// guest finds a tenant's guest by MAC address.
func (d *directory) guest(tenant string, mac control.MAC) *guest {
	for _, g := range d.guests[mac] {
		if g.Tenant == tenant {
			return g
		}
	}
	return nil
}

// at finds a tenant's guest on a node by its address.
func (d *directory) at(node, tenant string, addr control.Address) bool {
	for _, list := range d.guests {
		for _, g := range list {
			if g.Node == node && g.Tenant == tenant && g.addr == addr {
				return true
			}
		}
	}
	return false
}

// hosts reports whether a node has a port of the tenant.
func (d *directory) hosts(node, tenant string) bool {
	for _, list := range d.guests {
		for _, g := range list {
			if g.Node == node && g.Tenant == tenant {
				return true
			}
		}
	}
	return false
}

// origin finds the node that a frame came from: by its tunnel, or else by the
// guest's MAC address.
func (d *directory) origin(tenant string, s *control.Source) *node {
	if s.Host != (control.Address{}) {
		return d.tunnels[s.Host]
	}
	if g := d.guest(tenant, s.From); g != nil {
		return d.nodes[g.Node]
	}
	return nil
}
