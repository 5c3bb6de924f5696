package rtnl

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"vigia/internal/netlink"
	"vigia/internal/testutil"
)

// TestEgress follows addresses, sources, marks and devices through real routes.
func TestEgress(t *testing.T) {
	left, right := testutil.NewNetNS(t), testutil.NewNetNS(t)
	for _, dev := range []string{"v0", "v1"} {
		testutil.NewVethPair(t, left, dev, right, dev)
	}
	for _, args := range []string{
		"addr add 10.9.0.1/24 dev v0", "addr add 10.9.1.1/24 dev v1", "-6 addr add fd00:9::1/64 dev v1 nodad",
		"route add 10.8.0.0/16 via 10.9.0.2", "route add default via 10.9.1.2 table 7", "rule add fwmark 7 table 7",
	} {
		testutil.IP(t, append([]string{"-n", left}, strings.Fields(args)...)...)
	}
	c := dialTest(t, left)
	address := netip.MustParseAddr
	for _, tc := range []struct {
		flow Flow
		want string
	}{
		{Flow{To: address("10.9.0.2")}, "v0"},
		{Flow{To: address("10.9.1.2"), From: address("0.0.0.0")}, "v1"},
		{Flow{To: address("10.8.3.4"), From: address("10.9.0.1")}, "v0"},
		{Flow{To: address("10.8.3.4"), Mark: 7}, "v1"},
		{Flow{To: address("fd00:9::2")}, "v1"},
		{Flow{To: address("127.0.0.1")}, "lo"},
		{Flow{To: address("10.9.0.2"), Device: "v1"}, "v1"},
	} {
		if got, err := c.Egress(tc.flow); err != nil || got != tc.want {
			t.Errorf("%+v: %q, %v, want %s", tc.flow, got, err, tc.want)
		}
	}
	if got, err := c.Egress(Flow{To: address("203.0.113.1")}); err == nil {
		t.Errorf("without a route: %q", got)
	}
	for local, want := range map[string]string{"10.9.1.1": "v1", "fd00:9::1": "v1", "10.9.9.9": "", "0.0.0.0": "lo v0 v1"} {
		got, err := c.Holders(address(local))
		slices.Sort(got)
		if err != nil || strings.Join(got, " ") != want {
			t.Errorf("%s is held by %q, %v, want %q", local, got, err, want)
		}
	}
}

func TestRoutesAndAddressesAreChecked(t *testing.T) {
	for n := range unix.SizeofRtMsg {
		if _, err := parseRoute(make([]byte, n)); err == nil {
			t.Errorf("a route of %d bytes was taken", n)
		}
	}
	if _, err := parseRoute(make([]byte, unix.SizeofRtMsg)); err == nil || !strings.Contains(err.Error(), "no device") {
		t.Errorf("a route without a device: %v", err)
	}
	for n := range unix.SizeofIfAddrmsg {
		if _, _, err := parseAddress(make([]byte, n)); err == nil {
			t.Errorf("an address of %d bytes was taken", n)
		}
	}
	e := netlink.NewEncoder([]byte{unix.AF_INET, 32, 0, 0, 7, 0, 0, 0})
	e.Bytes(unix.IFA_ADDRESS, []byte{10, 0, 0, 2}) // the peer's
	e.Bytes(unix.IFA_LOCAL, []byte{10, 0, 0, 1})
	message, err := e.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if index, address, err := parseAddress(message); index != 7 || address != netip.MustParseAddr("10.0.0.1") || err != nil {
		t.Errorf("of a point-to-point link: %d, %s, %v", index, address, err)
	}
}

func TestWhatIsNotThereHasNoName(t *testing.T) {
	c := dialTest(t, testutil.NewNetNS(t))
	if name, err := c.name(4242); err == nil {
		t.Errorf("interface 4242 is %q", name)
	}
}

func FuzzRoutes(f *testing.F) {
	f.Add(make([]byte, 40))
	f.Fuzz(func(_ *testing.T, b []byte) {
		_, _ = parseRoute(b)
		_, _, _ = parseAddress(b)
		_, _ = parseLink(b)
		_, _, _ = parseStats(b)
		_, _ = parseVFs(b)
	})
}

// TestAddressesAreListed with their interface and prefix, and what cannot be bound to is told.
func TestAddressesAreListed(t *testing.T) {
	ns, other := testutil.NewNetNS(t), testutil.NewNetNS(t)
	testutil.NewVethPair(t, ns, "veth0", other, "veth0")
	testutil.IP(t, "-n", ns, "addr", "add", "10.9.0.1/24", "dev", "veth0")
	testutil.IP(t, "-n", ns, "addr", "add", "10.9.0.7", "peer", "10.9.0.8/32", "dev", "veth0")
	testutil.IP(t, "-n", ns, "addr", "add", "fd00::1/64", "dev", "veth0", "nodad")
	c, err := Dial(ns)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	links, err := c.Links()
	if err != nil {
		t.Fatal(err)
	}
	all, err := c.Addresses()
	if err != nil {
		t.Fatal(err)
	}
	found := make(map[string]bool)
	for _, a := range all {
		for _, l := range links {
			if l.Index == a.Index && l.Name == "veth0" {
				found[a.Prefix.String()] = a.Usable
			}
		}
	}
	for _, want := range []string{"10.9.0.1/24", "10.9.0.7/32", "fd00::1/64"} {
		if !found[want] {
			t.Errorf("%s is missing or cannot be bound to: %v", want, found)
		}
	}
	// Everybody else waits for the link, to find out who else has the address.
	testutil.IP(t, "-n", other, "link", "set", "veth0", "down")
	testutil.IP(t, "-n", ns, "addr", "add", "fd00::2/64", "dev", "veth0")
	if all, err = c.Addresses(); err != nil {
		t.Fatal(err)
	}
	for _, a := range all {
		if a.Prefix.String() == "fd00::2/64" && a.Usable {
			t.Error("a tentative address is called usable")
		}
	}
}
