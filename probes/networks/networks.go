// Package networks finds the networks that a node is in beside the one that it is known by: second
// interfaces of a pod, by whatever made them. Each node looks at its own interfaces, and asks the
// others where they are.
package networks

import (
	"cmp"
	"net/netip"
	"os"
	"path/filepath"
	"slices"

	"vigia/internal/rtnl"
	"vigia/probes/stamp"
)

// Network is one that this node is in.
type Network struct {
	Name    string // of the interface
	Kind    string // of the interface: the kernel's word, or SRIOV, or Device
	Address netip.Addr
}

// Kinds of interfaces that the kernel has no word for.
const (
	SRIOV  = "sriov"  // a virtual function
	Device = "device" // any other hardware
)

// Kernel is what tells of interfaces; *rtnl.Conn is one.
type Kernel interface {
	Links() ([]rtnl.Link, error)
	Addresses() ([]rtnl.Address, error)
	Egress(rtnl.Flow) (string, error)
}

// loopback is the interface that leads nowhere.
const loopback = "lo"

// own returns the networks beside that of the address known, in the order of their names, and how many
// are left out since there are more than can be told. An interface counts while it has an address,
// up or not: one that is down is to be seen as lost, not as gone.
func own(kernel Kernel, sysfs string, known netip.Addr) (all []Network, more int, err error) {
	links, err := kernel.Links()
	if err != nil {
		return nil, 0, err
	}
	addresses, err := kernel.Addresses()
	if err != nil {
		return nil, 0, err
	}
	usual := slices.IndexFunc(addresses, func(a rtnl.Address) bool { return a.Prefix.Addr() == known })
	if usual < 0 {
		return nil, 0, nil // not there yet, and without it nobody can say which ones are further
	}
	for i := range links {
		l := &links[i]
		if l.Index == addresses[usual].Index || l.Name == loopback {
			continue
		}
		n := Network{Name: l.Name, Kind: kindOf(l, sysfs), Address: pick(addresses, l.Index, known)}
		if n.told().Valid() {
			all = append(all, n)
		}
	}
	slices.SortFunc(all, func(a, b Network) int { return cmp.Compare(a.Name, b.Name) })
	if more = len(all) - stamp.MaxNetworks; more > 0 {
		return all[:stamp.MaxNetworks], more, nil
	}
	return all, 0, nil
}

// pick returns an interface's first address that can be told, of the same family as the one that the
// node is known by if there is one.
func pick(addresses []rtnl.Address, index int, known netip.Addr) (picked netip.Addr) {
	for _, a := range addresses {
		address := a.Prefix.Addr()
		switch {
		case a.Index != index || !a.Usable || !(stamp.Network{Name: "n", Address: address}).Valid():
		case address.Is4() == known.Is4():
			return address
		case !picked.IsValid():
			picked = address
		}
	}
	return picked
}

// kindOf names what an interface is. That hardware is a virtual function only the kernel can say: by its
// physical function, whose name may be out of sight in a network namespace, but not that it has one.
func kindOf(l *rtnl.Link, sysfs string) string {
	if l.Kind != "" {
		return l.Kind
	}
	if _, err := os.Lstat(filepath.Join(sysfs, l.Name, "device", "physfn")); err == nil {
		return SRIOV
	}
	return Device
}

// told returns what others are told of the network.
func (n Network) told() stamp.Network { return stamp.Network{Name: n.Name, Address: n.Address} }

// Told returns what others are told of networks.
func Told(all []Network) (out []stamp.Network) {
	for _, n := range all {
		out = append(out, n.told())
	}
	return out
}
