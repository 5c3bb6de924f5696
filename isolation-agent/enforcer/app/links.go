package app

import (
	"errors"
	"fmt"
	"net"

	"vigia/internal/bpf/classify"
	"vigia/internal/config"
	"vigia/isolation-agent/enforcer/contracts"
)

// Link is an uplink on which contracts become HTB classes.
type Link struct {
	Device   string      `yaml:"device"`
	Rate     config.Rate `yaml:"rate"`
	Headroom *float64    `yaml:"headroom"` // share of the rate that is never given out; 0.05 if missing
}

// Direction is what a contract says of one direction.
type Direction struct {
	Guarantee config.Rate `yaml:"guarantee"`
	Ceiling   config.Rate `yaml:"ceiling"`
	Packets   uint64      `yaml:"packets_per_second"` // that a port may be sent; 0 for any number
}

// Match says which frames on the uplink are a tenant's.
type Match struct {
	VXLAN  *uint32 `yaml:"vxlan"`
	Geneve *uint32 `yaml:"geneve"`
	GRE    *uint32 `yaml:"gre"`
	VLAN   *uint32 `yaml:"vlan"`
	MAC    string  `yaml:"mac"`
}

const (
	defaultHeadroom = 0.05
	maxHeadroom     = 0.5
	maxVNI          = 1<<24 - 1
	maxVLAN         = 4094
	maxDevice       = 15
)

func (l *Link) link() contracts.Link {
	out := contracts.Link{Device: l.Device, Rate: uint64(l.Rate), Headroom: defaultHeadroom}
	if l.Headroom != nil {
		out.Headroom = *l.Headroom
	}
	return out
}

// match turns the configuration's match into the classifier's.
func (m *Match) match() (classify.Match, error) {
	var out classify.Match
	named := 0
	for _, n := range []struct {
		id      *uint32
		network classify.Network
		name    string
		max     uint32
	}{
		{m.VXLAN, classify.VXLAN, "vxlan", maxVNI},
		{m.Geneve, classify.Geneve, "geneve", maxVNI},
		{m.GRE, classify.GRE, "gre", 1<<32 - 1},
		{m.VLAN, classify.VLAN, "vlan", maxVLAN},
	} {
		if n.id == nil {
			continue
		}
		named++
		if *n.id > n.max || (n.network == classify.VLAN && *n.id == 0) {
			return out, fmt.Errorf("has %s %d, which is out of range", n.name, *n.id)
		}
		out.Network, out.ID = n.network, *n.id
	}
	if m.MAC != "" {
		mac, err := net.ParseMAC(m.MAC)
		if err != nil || len(mac) != 6 {
			return out, fmt.Errorf("has mac %q, which is no 48-bit MAC address", m.MAC)
		}
		out.MAC = [6]byte(mac)
	}
	if named > 1 {
		return out, errors.New("names more than one network")
	}
	if named == 0 && m.MAC == "" {
		return out, errors.New("is empty")
	}
	return out, nil
}

// validateLinks checks the uplinks, the matches, and that the contracts fit.
func (c *Config) validateLinks(fault func(field string, value any, problem, fix string)) {
	devices := map[string]bool{}
	for i := range c.Links {
		l := &c.Links[i]
		at := fmt.Sprintf("links[%d].", i)
		if l.Device == "" || len(l.Device) > maxDevice || devices[l.Device] {
			fault(at+"device", l.Device, "is no interface name or listed twice", "name each uplink once")
		}
		if l.Rate == 0 {
			fault(at+"rate", l.Rate, "is missing", "write what the link carries, for example 10Gbit")
		}
		if h := l.link().Headroom; !(h >= 0.001 && h <= maxHeadroom) { // also refuses NaN
			fault(at+"headroom", h, "is out of range", "write a share from 0.001 to 0.5; 0.05 is 5%")
		}
		devices[l.Device] = true
	}
	taken := map[classify.Match]string{}
	for i := range c.Contracts {
		k := &c.Contracts[i]
		at := fmt.Sprintf("contracts[%d].match", i)
		for j := range k.Match {
			m, err := k.Match[j].match()
			if err != nil {
				fault(fmt.Sprintf("%s[%d]", at, j), nil, err.Error(), "write one of vxlan, geneve, gre, vlan, with or without mac, or mac alone")
				continue
			}
			if other := taken[m]; other != "" {
				fault(fmt.Sprintf("%s[%d]", at, j), nil, fmt.Sprintf("is %s's already", other), "let each match lead to one contract")
			}
			taken[m] = k.name()
			if k.Port != "" && m.MAC == [6]byte{} {
				fault(fmt.Sprintf("%s[%d]", at, j), nil, "is a whole network, but the contract is for one port", "name the port's mac, too")
			}
		}
		if len(c.Links) > 0 && len(k.Match) == 0 {
			fault(at, nil, "is missing", "say which frames on the links are this tenant's, for example [{vxlan: 110}]; a port's need its mac")
		}
	}
}

// admit checks the contracts against every link.
func (c *Config) admit() error {
	var errs []error
	scheduled := c.scheduled()
	for i := range c.Links {
		l := c.Links[i].link()
		if err := contracts.Admit(&l, scheduled); err != nil {
			errs = append(errs, &config.FieldError{
				Field: fmt.Sprintf("links[%d].rate", i), Value: c.Links[i].Rate, Problem: err.Error(), Fix: "lower guarantees or move tenants to another node",
			})
		}
	}
	return errors.Join(errs...)
}

// classes returns how many there are behind the links' ingress.
func (c *Config) classes() int { return len(c.Links) * (len(c.Contracts) + 1) }

func (c *Config) links() []contracts.Link {
	out := make([]contracts.Link, 0, len(c.Links))
	for i := range c.Links {
		out = append(out, c.Links[i].link())
	}
	return out
}

// scheduled returns the contracts for the links' schedulers. The configuration
// has been validated.
func (c *Config) scheduled() []contracts.Contract {
	out := make([]contracts.Contract, 0, len(c.Contracts))
	for i := range c.Contracts {
		k := &c.Contracts[i]
		send := contracts.Rates{Guarantee: uint64(k.Guarantee), Ceiling: uint64(k.Ceiling)}
		entry := contracts.Contract{Name: k.name(), Tenant: k.Tenant, Port: k.Port, Send: send, Receive: send}
		if k.Receive != nil {
			entry.Receive = contracts.Rates{Guarantee: uint64(k.Receive.Guarantee), Ceiling: uint64(k.Receive.Ceiling)}
		}
		for j := range k.Match {
			if m, err := k.Match[j].match(); err == nil {
				entry.Matches = append(entry.Matches, m)
			}
		}
		out = append(out, entry)
	}
	return out
}
