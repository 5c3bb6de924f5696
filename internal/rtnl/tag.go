package rtnl

import (
	"fmt"
	"net/netip"
)

const (
	vlanKind = "vlan"
	// deepest is how many interfaces may lie between an address and an uplink.
	deepest = 6
)

// Tag returns the VLAN in which the uplinks carry what is sent from a local address: that of the
// VLAN device between them, straight or below a bridge or bond. It is 0 where there is none,
// where no uplink is found below the address, and where there are several VLANs, one in
// another or beside it: a switch's own tags are not seen.
func (c *Conn) Tag(local netip.Addr, uplinks []string) (uint16, error) {
	addresses, err := c.Addresses()
	if err != nil {
		return 0, err
	}
	links, err := c.Links()
	if err != nil {
		return 0, fmt.Errorf("find the VLAN of %s: %w", local, err)
	}
	found := map[uint16]bool{}
	for _, a := range addresses {
		if a.Prefix.Addr() == local.Unmap() {
			tags(links, a.Index, uplinks, 0, deepest, found)
		}
	}
	if len(found) != 1 {
		return 0, nil
	}
	for vlan := range found {
		return vlan, nil
	}
	return 0, nil
}

// tags enters the VLANs between an interface and the uplinks below it. What has two tags counts
// as untagged, since tunnels are not looked for behind a second one.
func tags(links []Link, index int, uplinks []string, vlan uint16, left int, found map[uint16]bool) {
	at := -1
	for i := range links {
		if links[i].Index == index {
			at = i
		}
	}
	if at < 0 || left == 0 {
		return
	}
	for _, name := range uplinks {
		if links[at].Name == name {
			found[vlan] = true
			return
		}
	}
	if l := &links[at]; l.Kind == vlanKind && l.Parent > 0 {
		if vlan != 0 {
			return
		}
		tags(links, l.Parent, uplinks, l.VLAN, left-1, found)
		return
	}
	for i := range links {
		if links[i].Master == index {
			tags(links, links[i].Index, uplinks, vlan, left-1, found)
		}
	}
}
