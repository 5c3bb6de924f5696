package fastloop

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"vigia/internal/bpf/classify"
	"vigia/internal/config"
)

// Site is the inventory of all nodes: which enforcers may ask which others to limit which vports.
type Site struct {
	Version int        `yaml:"version"` // of the format, 1
	Nodes   []SiteNode `yaml:"nodes"`   // every node that runs an enforcer
	Ports   []SitePort `yaml:"ports"`   // every port and the guest behind it, once for each of its addresses; of tenants without a port on the node that reads it they may be left out

	strangers []netip.Addr // where the tunnels of nodes end that have been left out
}

// SiteNode is a node that runs an enforcer.
type SiteNode struct {
	Node    string `yaml:"node"`    // the node's name
	Address string `yaml:"address"` // of its enforcer's notices, host:port
	Tunnel  string `yaml:"tunnel"`  // its tunnel end point; empty without tunnels
	VLAN    int    `yaml:"vlan"`    // that its uplinks carry tunnels in, as a switch tags them; 0 = that of a VLAN device on the way to the uplink, if there is one
}

// SitePort is a vport and the guest behind it.
type SitePort struct {
	Node   string `yaml:"node"`   // where it is
	Port   string `yaml:"port"`   // its id, the label
	Tenant string `yaml:"tenant"` // whose it is
	MAC    string `yaml:"mac"`    // address of the guest's interface
	IP     string `yaml:"ip"`     // address of the guest in the tenant's network; empty if it has none, or none is known
}

// Validate checks the inventory.
func (s *Site) Validate() error {
	var errs []error
	fault := func(field string, value any, problem, fix string) {
		errs = append(errs, &config.FieldError{Field: field, Value: value, Problem: problem, Fix: fix})
	}
	if s.Version != 1 {
		fault("version", s.Version, "is not a known version", "write version: 1")
	}
	nodes := map[string]bool{}
	for i, n := range s.Nodes {
		at := fmt.Sprintf("nodes[%d].", i)
		if n.Node == "" || nodes[n.Node] {
			fault(at+"node", n.Node, "is empty or listed twice", "list each node once")
		}
		if _, err := netip.ParseAddrPort(n.Address); err != nil {
			fault(at+"address", n.Address, "is not address:port", "write for example 192.0.2.1:9876")
		}
		if n.Tunnel != "" && net.ParseIP(n.Tunnel) == nil {
			fault(at+"tunnel", n.Tunnel, "is not an IP address", "write the tunnel's local address")
		}
		if n.VLAN < 0 || n.VLAN > classify.MaxVLAN {
			fault(at+"vlan", n.VLAN, "is not a VLAN", fmt.Sprintf("write a number from 1 to %d, or leave it out where tunnels are untagged or a VLAN device tags them", classify.MaxVLAN))
		}
		nodes[n.Node] = true
	}
	seen := map[SitePort]bool{}
	for i, p := range s.Ports {
		at := fmt.Sprintf("ports[%d].", i)
		mac, err := net.ParseMAC(p.MAC)
		if err != nil || len(mac) != 6 {
			fault(at+"mac", p.MAC, "is not a 48-bit MAC address", "write the guest interface's")
		}
		if p.Tenant == "" || p.Port == "" || seen[p] {
			fault(at+"port", p.Port, "lacks a tenant or an id, or is listed twice with one address", "list each address of a port once")
		}
		seen[p] = true
		if !nodes[p.Node] {
			fault(at+"node", p.Node, "is not among the nodes", "list the node, or correct the name")
		}
		if p.IP != "" && net.ParseIP(p.IP) == nil {
			fault(at+"ip", p.IP, "is not an IP address", "write the guest's address in its tenant's network, or leave it out")
		}
	}
	return errors.Join(errs...)
}

// Strangers returns the nodes, but for this one, that there is no key for: nobody can tell whether it is they who speak.
func (s *Site) Strangers(keys *Keys, self string) []string {
	var out []string
	for _, n := range s.Nodes {
		if n.Node != self && keys.of(n.Node) == nil {
			out = append(out, n.Node)
		}
	}
	return out
}

// Without returns the site without some nodes, and their ports. Their tunnels are the site's all the same.
func (s *Site) Without(strangers []string) *Site {
	if len(strangers) == 0 {
		return s
	}
	out := &Site{Version: s.Version, strangers: slices.Clone(s.strangers)}
	for _, n := range s.Nodes {
		if !slices.Contains(strangers, n.Node) {
			out.Nodes = append(out.Nodes, n)
			continue
		}
		if tunnel, err := netip.ParseAddr(n.Tunnel); err == nil {
			out.strangers = append(out.strangers, tunnel)
			if address, err := netip.ParseAddrPort(n.Address); err == nil {
				out.strangers = append(out.strangers, address.Addr())
			}
		}
	}
	kept := make(map[string]bool, len(out.Nodes))
	for _, n := range out.Nodes {
		kept[n.Node] = true
	}
	for _, p := range s.Ports {
		if kept[p.Node] {
			out.Ports = append(out.Ports, p)
		}
	}
	return out
}

// Lists tells whether a node is of the site.
func (s *Site) Lists(node string) bool {
	return slices.ContainsFunc(s.Nodes, func(n SiteNode) bool { return n.Node == node })
}

// LoadSite reads the inventory of the site.
func LoadSite(path string) (*Site, error) {
	var s Site
	if err := config.Load(path, &s); err != nil {
		return nil, err
	}
	return &s, nil
}
