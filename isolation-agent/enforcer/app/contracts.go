package app

import (
	"errors"
	"fmt"
	"net"

	"vigia/internal/bpf/classify"
	"vigia/internal/config"
	"vigia/isolation-agent/enforcer/contract"
	"vigia/isolation-agent/enforcer/scheduling"
)

// contractKeys are the keys of a contract; what they mean is package contract's.
type contractKeys struct {
	Tenant      string       `yaml:"tenant"`                   // who bought it
	Port        string       `yaml:"port"`                     // empty: all ports of the tenant that have no contract of their own
	Guarantee   config.Rate  `yaml:"guarantee"`                // what it gets whatever others send, each way unless receive says otherwise
	Ceiling     config.Rate  `yaml:"ceiling"`                  // what it may use of what is idle
	Receive     *receiveKeys `yaml:"receive"`                  // what it may receive; as what it may send, if missing
	Match       []matchKeys  `yaml:"match"`                    // which frames on the uplink are its own: one of vxlan, geneve, gre and vlan, with or without mac, or mac alone
	Packets     uint64       `yaml:"packets_per_second"`       // packets that a port may send; 0 for any number
	NewFlows    uint64       `yaml:"new_flows_per_second"`     // flows that a port may begin; 0 for any number
	NewMACPairs *uint64      `yaml:"new_mac_pairs_per_second"` // pairs of MAC addresses that a port may begin; 20 if missing, 0 for any number
}

// receiveKeys are what a contract says of what is received.
type receiveKeys struct {
	Guarantee config.Rate `yaml:"guarantee"`          // what it gets whatever others are sent
	Ceiling   config.Rate `yaml:"ceiling"`            // what it may be sent of what is idle
	Packets   uint64      `yaml:"packets_per_second"` // packets that a port may be sent; 0 for any number
}

// matchKeys say which frames on the uplink are a tenant's.
type matchKeys struct {
	VXLAN  *uint32 `yaml:"vxlan"`  // VNI
	Geneve *uint32 `yaml:"geneve"` // VNI
	GRE    *uint32 `yaml:"gre"`    // key
	VLAN   *uint32 `yaml:"vlan"`   // VLAN ID, 1 to 4094
	MAC    string  `yaml:"mac"`    // address of the guest's interface
}

// linkKeys are the keys of an uplink on which contracts become HTB classes.
type linkKeys struct {
	Device   string      `yaml:"device"`   // name of the uplink
	Rate     config.Rate `yaml:"rate"`     // its rate
	Headroom *float64    `yaml:"headroom"` // share of the rate that is never given out; 0.05 if missing
}

const (
	defaultMACPairs = 20
	defaultHeadroom = 0.05
	maxHeadroom     = 0.5
	maxVNI          = 1<<24 - 1
	maxDevice       = 15
)

// faults collects what is wrong with fields.
type faults []error

func (f *faults) add(field string, value any, problem, fix string) {
	*f = append(*f, &config.FieldError{Field: field, Value: value, Problem: problem, Fix: fix})
}

// contract converts the keys, which are contracts[i]; what is wrong with the matches
// goes to f.
func (k *contractKeys) contract(i int, f *faults) contract.Contract {
	both := contract.Bandwidth{GuaranteeBytesPerSecond: uint64(k.Guarantee), CeilingBytesPerSecond: uint64(k.Ceiling)}
	out := contract.Contract{
		Owner: contract.Owner{Tenant: k.Tenant, Port: k.Port}, Send: both, Receive: both, SendPacketsPerSecond: k.Packets, NewFlowsPerSecond: k.NewFlows,
		NewMACPairsPerSecond: defaultMACPairs,
	}
	if k.NewMACPairs != nil {
		out.NewMACPairsPerSecond = *k.NewMACPairs
	}
	if r := k.Receive; r != nil {
		out.Receive = contract.Bandwidth{GuaranteeBytesPerSecond: uint64(r.Guarantee), CeilingBytesPerSecond: uint64(r.Ceiling)}
		out.ReceivePacketsPerSecond = r.Packets
	}
	for j := range k.Match {
		m, err := k.Match[j].match()
		if err != nil {
			f.add(fmt.Sprintf("contracts[%d].match[%d]", i, j), nil, err.Error(), "write one of vxlan, geneve, gre, vlan, with or without mac, or mac alone")
			continue
		}
		out.Matches = append(out.Matches, m)
	}
	return out
}

// match converts the keys to the classifier's match.
func (m *matchKeys) match() (classify.Match, error) {
	var out classify.Match
	named := 0
	for _, n := range []struct {
		id      *uint32
		network classify.Network
		name    string
		min     uint32
		max     uint32
	}{
		{m.VXLAN, classify.VXLAN, "vxlan", 0, maxVNI},
		{m.Geneve, classify.Geneve, "geneve", 0, maxVNI},
		{m.GRE, classify.GRE, "gre", 0, 1<<32 - 1},
		{m.VLAN, classify.VLAN, "vlan", 1, classify.MaxVLAN},
	} {
		if n.id == nil {
			continue
		}
		named++
		if *n.id < n.min || *n.id > n.max {
			return out, fmt.Errorf("has %s %d, which is not from %d to %d", n.name, *n.id, n.min, n.max)
		}
		out.Network, out.ID = n.network, *n.id
	}
	if m.MAC != "" {
		mac, err := net.ParseMAC(m.MAC)
		if err != nil || len(mac) != 6 {
			return out, fmt.Errorf("has mac %q, which is not a 48-bit MAC address", m.MAC)
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

func (l *linkKeys) link() scheduling.Link {
	out := scheduling.Link{Device: l.Device, RateBytesPerSecond: uint64(l.Rate), Headroom: defaultHeadroom}
	if l.Headroom != nil {
		out.Headroom = *l.Headroom
	}
	return out
}

// convertContracts converts and checks the contracts.
func (c *Config) convertContracts() error {
	var f faults
	list := make([]contract.Contract, 0, len(c.Contracts))
	for i := range c.Contracts {
		list = append(list, c.Contracts[i].contract(i, &f))
		if len(c.Links) > 0 && len(c.Contracts[i].Match) == 0 {
			f.add(fmt.Sprintf("contracts[%d].match", i), nil, "is missing", "say which frames on the links are this tenant's, for example [{vxlan: 110}]; a port's need its mac")
		}
	}
	set, err := contract.NewSet(list)
	c.contracts = set
	return errors.Join(append(f, err)...)
}

// convertLinks converts and checks the uplinks.
func (c *Config) convertLinks() error {
	var f faults
	devices := map[string]bool{}
	c.links = make([]scheduling.Link, 0, len(c.Links))
	for i := range c.Links {
		l := c.Links[i].link()
		at := fmt.Sprintf("links[%d].", i)
		switch {
		case l.Device == "":
			f.add(at+"device", nil, "is missing", "write the uplink's interface name")
		case len(l.Device) > maxDevice:
			f.add(at+"device", l.Device, "is not an interface name", fmt.Sprintf("write at most %d characters", maxDevice))
		case devices[l.Device]:
			f.add(at+"device", l.Device, "is listed twice", "name each uplink once")
		}
		if l.RateBytesPerSecond == 0 {
			f.add(at+"rate", nil, "is missing", "write what the link carries, for example 10Gbit")
		}
		if !(l.Headroom >= 0.001 && l.Headroom <= maxHeadroom) { // also refuses NaN
			f.add(at+"headroom", l.Headroom, "is out of range", "write a share from 0.001 to 0.5; 0.05 is 5%")
		}
		devices[l.Device] = true
		c.links = append(c.links, l)
	}
	return errors.Join(f...)
}

// admit checks contracts against every link.
func (c *Config) admit(set *contract.Set) error {
	var f faults
	if n := len(set.All()); len(c.links) > 0 && n > scheduling.MaxContracts {
		f.add("contracts", n, "are more than a link has classes for", fmt.Sprintf("write at most %d, or remove links", scheduling.MaxContracts))
	}
	for i := range c.links {
		if err := scheduling.Admit(&c.links[i], set); err != nil {
			f.add(fmt.Sprintf("links[%d].rate", i), c.Links[i].Rate, err.Error(), "lower guarantees or move tenants to another node")
		}
	}
	return errors.Join(f...)
}

// classes returns how many there are behind the links' ingress.
func (c *Config) classes(set *contract.Set) int { return len(c.links) * (len(set.All()) + 1) }

// roomFor returns how many of them the kernel is asked to have room for: with a file each port may come to
// have a contract.
func (c *Config) roomFor(set *contract.Set) int {
	if c.ContractsFile == "" {
		return c.classes(set)
	}
	ports := min(c.Node.BPF.Ports(), scheduling.MaxContracts)
	return max(c.classes(set), len(c.links)*(len(c.Contracts)+ports+1))
}
