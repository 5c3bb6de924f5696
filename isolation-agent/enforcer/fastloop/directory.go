package fastloop

import (
	"net"
	"net/netip"
	"slices"

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
	mac control.MAC
}

// place is an address on a node.
type place struct {
	node string
	addr control.Address
}

// tenant is whose ports are where.
type tenant struct {
	name   string
	guests map[control.MAC]*guest // nil for a MAC address of several ports, which tells them not apart
	places map[place]bool
	nodes  map[string][]*guest // by node
	order  []*node             // that host it, as the site lists them
}

// nobody is a tenant without ports.
var nobody = &tenant{}

// directory answers who is who on the site, without allocation and whatever its size.
type directory struct {
	self    string
	selfID  uint64
	sendKey uint16
	nodes   map[string]*node
	byID    map[uint64]*node
	tunnels map[control.Address]*node
	tenants map[string]*tenant
	named   map[uint64]*tenant // by notice.ID
	own     []netip.Addr       // tunnel end points of this node
	others  []netip.Addr       // and of the others
	tunnel  netip.Addr         // this node's tunnel end point
	vlan    uint16             // that this node's uplinks carry tunnels in; 0 = not written
}

func newDirectory(self string, site *Site, keys *Keys) (*directory, error) {
	d := &directory{
		self: self, selfID: notice.ID(self), sendKey: keys.sends(), nodes: map[string]*node{}, byID: map[uint64]*node{},
		tunnels: map[control.Address]*node{}, tenants: map[string]*tenant{}, named: map[uint64]*tenant{},
	}
	for _, n := range site.Nodes {
		if err := d.addNode(&n, keys); err != nil {
			return nil, err
		}
	}
	d.others = append(d.others, site.strangers...)
	for _, p := range site.Ports {
		if err := d.addPort(p); err != nil {
			return nil, err
		}
	}
	for _, n := range site.Nodes {
		for _, t := range d.tenants {
			if len(t.nodes[n.Node]) > 0 {
				t.order = append(t.order, d.nodes[n.Node])
			}
		}
	}
	return d, nil
}

func (d *directory) addNode(n *SiteNode, keys *Keys) error {
	address, err := netip.ParseAddrPort(n.Address)
	if err != nil {
		return err
	}
	entry := &node{name: n.Node, id: notice.ID(n.Node), address: address, keys: keys.of(n.Node)}
	d.nodes[n.Node], d.byID[entry.id] = entry, entry
	if n.Tunnel == "" {
		return nil
	}
	tunnel, err := netip.ParseAddr(n.Tunnel)
	if err != nil {
		return err
	}
	// Tunnels of a second switch may end at the node's own address.
	for _, end := range []netip.Addr{tunnel, address.Addr()} {
		d.tunnels[addressOf(end.String())] = entry
		if n.Node == d.self {
			d.own, d.tunnel, d.vlan = append(d.own, end), tunnel, uint16(n.VLAN)
		} else {
			d.others = append(d.others, end)
		}
	}
	return nil
}

func (d *directory) addPort(p SitePort) error {
	mac, err := net.ParseMAC(p.MAC)
	if err != nil {
		return err
	}
	t := d.tenants[p.Tenant]
	if t == nil {
		t = &tenant{name: p.Tenant, guests: map[control.MAC]*guest{}, places: map[place]bool{}, nodes: map[string][]*guest{}}
		d.tenants[p.Tenant], d.named[notice.ID(p.Tenant)] = t, t
	}
	g := &guest{SitePort: p, mac: control.MAC(mac)}
	if p.IP != "" {
		t.places[place{p.Node, addressOf(p.IP)}] = true
	}
	first, listed := t.guests[g.mac]
	switch {
	case !listed:
		t.guests[g.mac] = g
	case first != nil && first.Node == p.Node && first.Port == p.Port: // another address of it
		return nil
	default:
		t.guests[g.mac] = nil
	}
	if here := t.nodes[p.Node]; len(here) == 0 || here[len(here)-1].Port != p.Port {
		t.nodes[p.Node] = append(here, g)
	}
	return nil
}

// addressOf folds an address of a validated site as the BPF programs do.
func addressOf(ip string) control.Address {
	return control.Address(classify.AddressOf(net.ParseIP(ip)))
}

// sameTunnels tells whether another directory has the tunnel end points of this one.
func (d *directory) sameTunnels(other *directory) bool {
	return d.vlan == other.vlan && len(d.tunnels) == len(other.tunnels) && slices.Equal(d.own, other.own) && slices.Equal(d.others, other.others)
}

// key returns the key between this node and another.
func (d *directory) key(from uint64, id uint16) []byte {
	if n := d.byID[from]; n != nil {
		return n.keys[id]
	}
	return nil
}

// of returns a tenant; nobody if the site does not list it.
func (d *directory) of(name string) *tenant {
	if t := d.tenants[name]; t != nil {
		return t
	}
	return nobody
}

// ofID is of by what notices call the tenant.
func (d *directory) ofID(id uint64) *tenant {
	if t := d.named[id]; t != nil {
		return t
	}
	return nobody
}

// at tells whether a guest of the tenant on a node has that address.
func (t *tenant) at(node string, addr control.Address) bool { return t.places[place{node, addr}] }

// hosts tells whether a node has a port of the tenant.
func (t *tenant) hosts(node string) bool { return len(t.nodes[node]) > 0 }

// attribute returns who sends, by what the sender cannot choose: the tunnel's end point says
// which node, and the class which tenant. Of the rest only what the site lists remains: the
// port of that node by its MAC address, and a destination on this node.
func (d *directory) attribute(t *tenant, s *classify.Source) control.Source {
	out := control.Source{Link: s.Link, Class: s.Class, Host: control.Address(s.Host)}
	g := t.guests[control.MAC(s.From)]
	if g == nil {
		return out
	}
	if out.Host != (control.Address{}) {
		if n := d.tunnels[out.Host]; n == nil || n.name != g.Node {
			return out
		}
	}
	out.From = g.mac
	if to := control.Address(s.Destination); t.at(d.self, to) {
		out.Destination = to
	}
	return out
}

// origins returns the nodes that a source may be on: that of its tunnel, or else of its
// port, or else all others that host the tenant.
func (d *directory) origins(t *tenant, s *control.Source) []*node {
	if s.Host != (control.Address{}) {
		if n := d.tunnels[s.Host]; n != nil && n.name != d.self {
			return []*node{n}
		}
		return nil
	}
	if g := t.guests[s.From]; g != nil {
		if g.Node == d.self {
			return nil
		}
		return []*node{d.nodes[g.Node]}
	}
	var out []*node
	for _, n := range t.order {
		if n.name != d.self {
			out = append(out, n)
		}
	}
	return out
}
