package rtnl

import (
	"errors"
	"net"
	"net/netip"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"vigia/internal/netns"
	"vigia/internal/testutil"
)

var testMAC = net.HardwareAddr{0xfa, 0x16, 0x3e, 0, 0, 7}

// addPair makes a pair of devices between two namespaces and returns connections into both.
func addPair(t *testing.T, a, b string) (here, there *Conn) {
	t.Helper()
	other, err := netns.Open(b)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	here, there = dialTest(t, a), dialTest(t, b)
	if err := here.AddVeth(VethPair{Name: "port0", Peer: "eth0", PeerMAC: testMAC, PeerNetNS: other.FD(), MTU: 1442}); err != nil {
		t.Fatal(err)
	}
	return here, there
}

func TestPairsOfDevices(t *testing.T) {
	a, b := testutil.NewNetNS(t), testutil.NewNetNS(t)
	here, there := addPair(t, a, b)
	outer, inner := linkByName(t, here, "port0"), linkByName(t, there, "eth0")
	if outer.Kind != "veth" || inner.MAC.String() != testMAC.String() || outer.Up || inner.Up {
		t.Errorf("%+v and %+v", outer, inner)
	}
	for ns, device := range map[string]string{a: "port0", b: "eth0"} {
		if said := testutil.IP(t, "-n", ns, "link", "show", "dev", device); !strings.Contains(said, "mtu 1442") {
			t.Errorf("%s", said)
		}
	}
	for c, index := range map[*Conn]int{here: outer.Index, there: inner.Index} {
		if err := c.SetUp(index); err != nil {
			t.Fatal(err)
		}
	}
	if !linkByName(t, here, "port0").Up || !linkByName(t, there, "eth0").Up {
		t.Error("they are not up")
	}
	other, err := netns.Open(b)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	again := VethPair{Name: "port0", Peer: "eth1", PeerMAC: testMAC, PeerNetNS: other.FD(), MTU: 1442}
	if err := here.AddVeth(again); !errors.Is(err, unix.EEXIST) || !strings.Contains(err.Error(), "port0 and eth1") {
		t.Errorf("a second device of the name: %v", err)
	}
	if err := here.DeleteLink(outer.Index); err != nil {
		t.Fatal(err)
	}
	if err := here.DeleteLink(outer.Index); !errors.Is(err, unix.ENODEV) {
		t.Errorf("a device that is gone: %v", err)
	}
	links, err := there.Links()
	if err != nil || len(links) != 1 {
		t.Errorf("the peer stays: %+v %v", links, err)
	}
}

func TestBridgesTakeDevices(t *testing.T) {
	a, b := testutil.NewNetNS(t), testutil.NewNetNS(t)
	here, there := addPair(t, a, b)
	testutil.IP(t, "-n", a, "link", "add", "brq0", "type", "bridge")
	testutil.IP(t, "-n", a, "addr", "add", "10.9.0.9/24", "dev", "brq0")
	testutil.IP(t, "-n", a, "link", "set", "brq0", "up")
	outer, inner, bridge := linkByName(t, here, "port0"), linkByName(t, there, "eth0"), linkByName(t, here, "brq0")
	if bridge.Kind != "bridge" || outer.Master != 0 {
		t.Errorf("%+v, %+v", bridge, outer)
	}
	for range 2 { // what belongs to it already stays
		if err := here.SetMaster(outer.Index, bridge.Index); err != nil {
			t.Fatal(err)
		}
	}
	if got := linkByName(t, here, "port0").Master; got != bridge.Index {
		t.Errorf("it belongs to %d, not to %d", got, bridge.Index)
	}
	if err := there.AddAddress(inner.Index, netip.MustParsePrefix("10.9.0.2/24")); err != nil {
		t.Fatal(err)
	}
	for c, index := range map[*Conn]int{here: outer.Index, there: inner.Index} {
		if err := c.SetUp(index); err != nil {
			t.Fatal(err)
		}
	}
	testutil.WaitFor(t, "an answer through the bridge", func() bool {
		return exec.Command("ip", "netns", "exec", b, "ping", "-c", "1", "-W", "1", "10.9.0.9").Run() == nil
	})
	for name, try := range map[string]error{
		"no bridge":        here.SetMaster(outer.Index, 99999),
		"no device":        here.SetMaster(99999, bridge.Index),
		"what is a bridge": here.SetMaster(bridge.Index, outer.Index), // no device takes others but a bridge
	} {
		if try == nil || !strings.Contains(try.Error(), "join interface") {
			t.Errorf("%s: %v", name, try)
		}
	}
}

func TestAddresses(t *testing.T) {
	a, b := testutil.NewNetNS(t), testutil.NewNetNS(t)
	here, there := addPair(t, a, b)
	for c, own := range map[*Conn][]string{here: {"10.9.0.1/24", "fd00:9::1/64"}, there: {"10.9.0.2/24", "fd00:9::2/64"}} {
		name := map[*Conn]string{here: "port0", there: "eth0"}[c]
		index := linkByName(t, c, name).Index
		for _, address := range append(own, own...) { // what is there already stays
			if err := c.AddAddress(index, netip.MustParsePrefix(address)); err != nil {
				t.Fatal(err)
			}
		}
		if err := c.SetUp(index); err != nil {
			t.Fatal(err)
		}
	}
	for _, to := range []string{"10.9.0.1", "fd00:9::1"} {
		testutil.WaitFor(t, "an answer of "+to, func() bool {
			return exec.Command("ip", "netns", "exec", b, "ping", "-c", "1", "-W", "1", to).Run() == nil
		})
	}
	err := here.AddAddress(99999, netip.MustParsePrefix("10.9.0.1/24"))
	if !errors.Is(err, unix.ENODEV) || !strings.Contains(err.Error(), "10.9.0.1/24") {
		t.Errorf("a device that is not there: %v", err)
	}
}
