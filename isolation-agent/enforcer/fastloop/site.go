package fastloop

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"vigia/internal/bpf/classify"
	"vigia/internal/config"
)

// Site is the inventory of all nodes: which enforcers may ask which others to limit which vports.
type Site struct {
	Version int        `yaml:"version"` // of the format, 1
	Nodes   []SiteNode `yaml:"nodes"`   // every node that runs an enforcer
	Ports   []SitePort `yaml:"ports"`   // every port and the guest behind it
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
	IP     string `yaml:"ip"`     // address of the guest in the tenant's network
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
	seen := map[string]bool{}
	for i, p := range s.Ports {
		at := fmt.Sprintf("ports[%d].", i)
		mac, err := net.ParseMAC(p.MAC)
		if err != nil || len(mac) != 6 {
			fault(at+"mac", p.MAC, "is not a 48-bit MAC address", "write the guest interface's")
		}
		if key := p.Tenant + " " + mac.String(); p.Tenant == "" || p.Port == "" || seen[key] {
			fault(at+"port", p.Port, "lacks a tenant or an id, or its MAC address is listed twice for the tenant", "list each port once")
		} else {
			seen[key] = true
		}
		if !nodes[p.Node] {
			fault(at+"node", p.Node, "is not among the nodes", "list the node, or correct the name")
		}
		if net.ParseIP(p.IP) == nil {
			fault(at+"ip", p.IP, "is not an IP address", "write the guest's address in its tenant's network")
		}
	}
	return errors.Join(errs...)
}

// LoadSite reads the inventory of the site.
func LoadSite(path string) (*Site, error) {
	var s Site
	if err := config.Load(path, &s); err != nil {
		return nil, err
	}
	return &s, nil
}
