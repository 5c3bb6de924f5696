package rtnl

import (
	"encoding/binary"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"vigia/internal/netlink"
	"vigia/internal/testutil"
)

// lies returns the VLANs found below an interface.
func lies(links []Link, index int, uplinks ...string) map[uint16]bool {
	found := map[uint16]bool{}
	tags(links, index, uplinks, 0, deepest, found)
	return found
}

func TestTheVLANBetweenAnAddressAndAnUplink(t *testing.T) {
	card, other := Link{Index: 1, Name: "eth0"}, Link{Index: 2, Name: "eth1"}
	tagged := Link{Index: 3, Name: "eth0.7", Kind: "vlan", Parent: 1, VLAN: 7}
	bridge, under := Link{Index: 4, Name: "br0", Kind: "bridge"}, Link{Index: 5, Name: "eth0.9", Kind: "vlan", Parent: 1, VLAN: 9, Master: 4}
	member, bond := Link{Index: 6, Name: "eth2", Master: 7}, Link{Index: 7, Name: "bond0", Kind: "bond"}
	overBond := Link{Index: 8, Name: "bond0.5", Kind: "vlan", Parent: 7, VLAN: 5}
	inner := Link{Index: 9, Name: "eth0.7.8", Kind: "vlan", Parent: 3, VLAN: 8}
	guest := Link{Index: 10, Name: "tap0", Master: 4}
	links := []Link{card, other, tagged, bridge, under, member, bond, overBond, inner, guest}
	for _, c := range []struct {
		what    string
		index   int
		uplinks []string
		want    map[uint16]bool
	}{
		{"on the uplink itself", 1, []string{"eth0"}, map[uint16]bool{0: true}},
		{"on a VLAN of it", 3, []string{"eth0"}, map[uint16]bool{7: true}},
		{"on a VLAN that is the uplink", 3, []string{"eth0.7"}, map[uint16]bool{0: true}},
		{"on a bridge over a VLAN", 4, []string{"eth0"}, map[uint16]bool{9: true}},
		{"on a VLAN of a bond whose members are uplinks", 8, []string{"eth2"}, map[uint16]bool{5: true}},
		{"on a VLAN of a bond that is the uplink", 8, []string{"bond0"}, map[uint16]bool{5: true}},
		{"in two VLANs", 9, []string{"eth0"}, map[uint16]bool{}},
		{"elsewhere", 2, []string{"eth0"}, map[uint16]bool{}},
		{"nowhere", 99, []string{"eth0"}, map[uint16]bool{}},
	} {
		got := lies(links, c.index, c.uplinks...)
		if len(got) != len(c.want) {
			t.Errorf("%s: VLANs %v, want %v", c.what, got, c.want)
		}
		for vlan := range c.want {
			if !got[vlan] {
				t.Errorf("%s: VLANs %v, want %v", c.what, got, c.want)
			}
		}
	}
}

// TestInterfacesInACircleEnd: whatever the kernel says.
func TestInterfacesInACircleEnd(t *testing.T) {
	circle := []Link{{Index: 1, Name: "a", Master: 2}, {Index: 2, Name: "b", Master: 1}}
	if got := lies(circle, 1, "eth0"); len(got) != 0 {
		t.Errorf("found %v", got)
	}
}

func TestAVLANDeviceIsRead(t *testing.T) {
	kind := append([]byte("vlan"), 0)
	id := binary.NativeEndian.AppendUint16(nil, 100)
	e := netlink.NewEncoder(nil)
	e.Bytes(unix.IFLA_VLAN_ID, id)
	data, err := e.Encode()
	if err != nil {
		t.Fatal(err)
	}
	e = netlink.NewEncoder(nil)
	e.Bytes(unix.IFLA_INFO_KIND, kind)
	e.Bytes(unix.IFLA_INFO_DATA, data)
	var failed error
	value, err := e.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if name, vlan := info(value, &failed); name != "vlan" || vlan != 100 || failed != nil {
		t.Errorf("kind %q, VLAN %d, %v", name, vlan, failed)
	}
}

func TestAnAddressOnAnUplinkHasNoTag(t *testing.T) {
	ns := testutil.NewNetNS(t)
	testutil.NewVethPair(t, ns, "up0", testutil.NewNetNS(t), "eth0")
	testutil.IP(t, "-n", ns, "link", "add", "br0", "type", "bridge")
	testutil.IP(t, "-n", ns, "link", "set", "up0", "master", "br0")
	testutil.IP(t, "-n", ns, "address", "add", "10.8.0.1/24", "dev", "br0")
	c := dialTest(t, ns)
	for _, local := range []string{"10.8.0.1", "::ffff:10.8.0.1", "10.8.0.9"} {
		if vlan, err := c.Tag(netip.MustParseAddr(local), []string{"up0"}); vlan != 0 || err != nil {
			t.Errorf("%s: VLAN %d, %v", local, vlan, err)
		}
	}
}
