package plug

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"slices"

	"vigia/internal/config"
)

// Switches that an endpoint may be plugged into.
const (
	openVSwitch = "openvswitch"
	linuxBridge = "linuxbridge"
)

// Bounds of a file.
const (
	maxEndpoints = 64
	maxAddresses = 16
	minMTU       = 576
	maxMTU       = 65535
)

var (
	networkRE = regexp.MustCompile(`^[a-z][a-z0-9_]{0,31}$`)
	portRE    = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)
	bridgeRE  = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,64}$`)
	deviceRE  = regexp.MustCompile(`^[A-Za-z0-9_-][A-Za-z0-9_.-]{0,14}$`) // of the kernel
)

// Endpoint is a port that is to be plugged into this node.
type Endpoint struct {
	Network   string   `yaml:"network" json:"network"`     // as the operator calls it; ends the namespace's name
	Port      string   `yaml:"port" json:"port"`           // Neutron's id of the port
	MAC       string   `yaml:"mac" json:"mac"`             // of the port
	MTU       int      `yaml:"mtu" json:"mtu"`             // of the network, in bytes
	Addresses []string `yaml:"addresses" json:"addresses"` // of the port, with the lengths of their subnets' prefixes
	Switch    string   `yaml:"switch" json:"switch"`       // openvswitch or linuxbridge
	Bridge    string   `yaml:"bridge" json:"bridge"`       // of Open vSwitch, or of Linux; the latter may be missing: the agent knows
}

// device is the name that Nova and Neutron's agents give the device of a port in the node.
func (e *Endpoint) device() string { return "tap" + e.Port[:11] }

// same tells whether nothing about an endpoint has changed.
func (e *Endpoint) same(o *Endpoint) bool {
	return e.Network == o.Network && e.Port == o.Port && e.MAC == o.MAC && e.MTU == o.MTU &&
		slices.Equal(e.Addresses, o.Addresses) && e.Switch == o.Switch && e.Bridge == o.Bridge
}

// content is a file of endpoints.
type content struct {
	Version   int        `yaml:"version"` // of the format, 1
	Endpoints []Endpoint `yaml:"endpoints"`
}

// Validate checks every endpoint.
func (c *content) Validate() error {
	var errs []error
	fault := func(field string, value any, problem, fix string) {
		errs = append(errs, &config.FieldError{Field: field, Value: value, Problem: problem, Fix: fix})
	}
	if c.Version != 1 {
		fault("version", c.Version, "is not a known version", "write version: 1")
	}
	if len(c.Endpoints) > maxEndpoints {
		fault("endpoints", len(c.Endpoints), "are too many", fmt.Sprintf("write at most %d", maxEndpoints))
		return errors.Join(errs...)
	}
	networks, devices := map[string]bool{}, map[string]bool{}
	for i := range c.Endpoints {
		e := &c.Endpoints[i]
		at := func(key string) string { return fmt.Sprintf("endpoints[%d].%s", i, key) }
		if networks[e.Network] {
			fault(at("network"), e.Network, "is listed twice", "keep one endpoint of each network")
		}
		networks[e.Network] = true
		if e.check(func(key string, value any, problem, fix string) { fault(at(key), value, problem, fix) }) {
			if devices[e.device()] {
				fault(at("port"), e.Port, "begins as another port does, so that their devices have one name", "make one of the ports anew")
			}
			devices[e.device()] = true
		}
	}
	return errors.Join(errs...)
}

// check tells what is wrong with an endpoint by itself, and whether its port is one.
func (e *Endpoint) check(fault func(key string, value any, problem, fix string)) bool {
	if !networkRE.MatchString(e.Network) {
		fault("network", e.Network, "is no name of a network", "use small letters, digits and _, at most 32")
	}
	if mac, err := net.ParseMAC(e.MAC); err != nil || len(mac) != 6 || mac[0]&1 != 0 {
		fault("mac", e.MAC, "is no address of a device", "write the port's mac_address")
	}
	if e.MTU < minMTU || e.MTU > maxMTU {
		fault("mtu", e.MTU, "is out of range", fmt.Sprintf("write the network's mtu, %d to %d", minMTU, maxMTU))
	}
	if len(e.Addresses) == 0 || len(e.Addresses) > maxAddresses {
		fault("addresses", len(e.Addresses), "are none, or too many", fmt.Sprintf("write 1 to %d", maxAddresses))
	}
	for _, a := range e.Addresses {
		if p, err := netip.ParsePrefix(a); err != nil || !usable(p.Addr()) {
			fault("addresses", a, "is no address of one host with its prefix length", "write for example 10.40.0.5/24")
		}
	}
	if e.Switch != openVSwitch && e.Switch != linuxBridge {
		fault("switch", e.Switch, "is not known", "write "+openVSwitch+" or "+linuxBridge)
	}
	if e.Switch == openVSwitch && !bridgeRE.MatchString(e.Bridge) {
		fault("bridge", e.Bridge, "is no name of a bridge", "write the agent's bridge, for example br-int")
	}
	if e.Switch == linuxBridge && e.Bridge != "" && !deviceRE.MatchString(e.Bridge) {
		fault("bridge", e.Bridge, "is no name of a device", "write brq and the first 11 characters of the network's id, or leave it out: Neutron's agent knows")
	}
	known := portRE.MatchString(e.Port)
	if !known {
		fault("port", e.Port, "is no id of a port", "write Neutron's, 36 characters")
	}
	return known
}

// usable tells whether a host can have an address.
func usable(a netip.Addr) bool {
	return !a.IsUnspecified() && !a.IsMulticast() && !a.IsLoopback() && !a.Is4In6()
}
