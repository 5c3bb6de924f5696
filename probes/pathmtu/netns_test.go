package pathmtu

import (
	"net/netip"
	"testing"
	"time"

	"vigia/internal/testutil"
	"vigia/probes/protocol/echo"
	stampprobe "vigia/probes/protocol/stamp"
	"vigia/probes/routed"
	"vigia/probes/sender"
	"vigia/probes/stamp"
)

// find searches from a namespace and demands an MTU.
func find(t *testing.T, tg sender.Target, to netip.AddrPort, want int) Result {
	t.Helper()
	tg.Deadline = time.Second
	r := Search(t.Context(), tg, to, Limits{Min: DefaultMin, Max: DefaultMax})
	if r.Outcome != Found || r.MTU != want {
		t.Errorf("%+v, want %d bytes", r, want)
	}
	return r
}

func icmpTarget(ns string) sender.Target {
	return sender.Target{Netns: ns, Protocol: echo.Protocol{}}
}

// TestRouterTells has a router that says what is too large: the search is short.
func TestRouterTells(t *testing.T) {
	t.Parallel()
	r := routed.New(t, "1400")
	routed.Reflect(t, r.Right, "", routed.Endpoint(routed.RightIP), routed.Endpoint(routed.RightIP6))
	for name, to := range map[string]string{"IPv4": routed.RightIP, "IPv6": routed.RightIP6} {
		t.Run(name, func(t *testing.T) {
			got := find(t, sender.Target{Netns: r.Left, Protocol: stampprobe.Protocol{}, DSCP: 46}, routed.Endpoint(to), 1400)
			if got.Reported != 1400 {
				t.Errorf("reported %d bytes, want 1400", got.Reported)
			}
			if got.Probes > 100 || got.AtMax {
				t.Errorf("%+v", got)
			}
			find(t, icmpTarget(r.Left), netip.AddrPortFrom(netip.MustParseAddr(to), 0), 1400)
		})
	}
}

// TestBlackHole has one that says nothing.
func TestBlackHole(t *testing.T) {
	t.Parallel()
	r := routed.New(t, "1437")
	r.BlackHole(t)
	routed.Reflect(t, r.Right, "", routed.Endpoint(routed.RightIP), routed.Endpoint(routed.RightIP6))
	for name, to := range map[string]string{"IPv4": routed.RightIP, "IPv6": routed.RightIP6} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := find(t, sender.Target{Netns: r.Left, Protocol: stampprobe.Protocol{}}, routed.Endpoint(to), 1437)
			if got.Reported != 9000 { // by our own device
				t.Errorf("reported %d bytes, want 9000", got.Reported)
			}
			find(t, icmpTarget(r.Left), netip.AddrPortFrom(netip.MustParseAddr(to), 0), 1437)
		})
	}
}

// TestLoss drops each fifth probe: every other one of a burst, so that four tries of a size are lost in a row, and their
// control probes are not. At random a search may misjudge, as rarely as it promises.
func TestLoss(t *testing.T) {
	t.Parallel()
	r := routed.New(t, "1400")
	r.BlackHole(t)
	routed.Reflect(t, r.Right, "", routed.Endpoint(routed.RightIP))
	var rules []string
	for _, protocol := range []string{"udp", "icmp"} { // each counts for itself
		rules = append(rules, "meta l4proto "+protocol+" ip daddr "+routed.RightIP+" numgen inc mod 20 { 0, 2, 4, 6 } drop")
	}
	routed.NFT(t, r.Router, "forward", rules...)
	t.Run("STAMP", func(t *testing.T) {
		t.Parallel()
		find(t, sender.Target{Netns: r.Left, Protocol: stampprobe.Protocol{}}, routed.Endpoint(routed.RightIP), 1400)
	})
	t.Run("ICMP", func(t *testing.T) {
		t.Parallel()
		find(t, icmpTarget(r.Left), netip.AddrPortFrom(netip.MustParseAddr(routed.RightIP), 0), 1400)
	})
}

// TestWayBackIsSmaller loses large answers: that large probes arrived is seen in
// the answers to small ones.
func TestWayBackIsSmaller(t *testing.T) {
	t.Parallel()
	r := routed.New(t, "1500")
	routed.Reflect(t, r.Right, "", routed.Endpoint(routed.RightIP))
	routed.NFT(t, r.Router, "forward", "ip saddr "+routed.RightIP+" meta length > 1000 drop")
	find(t, sender.Target{Netns: r.Left, Protocol: stampprobe.Protocol{}}, routed.Endpoint(routed.RightIP), 1500)
}

// TestAuthenticated searches with a key.
func TestAuthenticated(t *testing.T) {
	t.Parallel()
	keys, err := stamp.ParseKeys([]byte("00112233445566778899aabbccddeeff\n"))
	if err != nil {
		t.Fatal(err)
	}
	r := routed.New(t, "1500")
	r.BlackHole(t)
	routed.Reflect(t, r.Right, keys, routed.Endpoint(routed.RightIP))
	find(t, sender.Target{Netns: r.Left, Protocol: stampprobe.Protocol{Keys: keys}}, routed.Endpoint(routed.RightIP), 1500)
}

// TestTunnel searches through VXLAN, whose outer packets may not be fragmented: an
// inner packet has 50 bytes less than the link.
func TestTunnel(t *testing.T) {
	t.Parallel()
	left, right := testutil.NewNetNS(t), testutil.NewNetNS(t)
	testutil.NewVethPair(t, left, "veth0", right, "veth0")
	for i, ns := range []string{left, right} {
		self, other := []string{"10.9.0.1", "10.9.0.2"}[i], []string{"10.9.0.2", "10.9.0.1"}[i]
		testutil.IP(t, "-n", ns, "link", "set", "veth0", "mtu", "1400")
		testutil.IP(t, "-n", ns, "addr", "add", self+"/24", "dev", "veth0")
		testutil.IP(t, "-n", ns, "link", "add", "vxlan0", "mtu", "1500", "type", "vxlan", "id", "7", "dstport", "4789",
			"local", self, "remote", other, "df", "set")
		testutil.IP(t, "-n", ns, "link", "set", "vxlan0", "up")
		testutil.IP(t, "-n", ns, "addr", "add", []string{routed.LeftIP, "10.8.1.3"}[i]+"/24", "dev", "vxlan0")
		// The device may have cut its MTU to what the link has.
		testutil.IP(t, "-n", ns, "link", "set", "vxlan0", "mtu", "1500")
	}
	routed.Reflect(t, right, "", routed.Endpoint("10.8.1.3"))
	find(t, sender.Target{Netns: left, Protocol: stampprobe.Protocol{}}, routed.Endpoint("10.8.1.3"), 1350)
}

// TestNoReflector searches towards nothing.
func TestNoReflector(t *testing.T) {
	t.Parallel()
	r := routed.New(t, "1500")
	got := Search(t.Context(), sender.Target{Netns: r.Left, Protocol: stampprobe.Protocol{}, Deadline: 50 * time.Millisecond}, routed.Endpoint(routed.RightIP), Limits{Min: DefaultMin, Max: 1500})
	if got.Outcome != Unreachable || got.MTU != 0 || got.Err == nil {
		t.Errorf("%+v", got)
	}
	got = Search(t.Context(), sender.Target{Netns: "vigia-test-none", Protocol: stampprobe.Protocol{}}, routed.Endpoint(routed.RightIP), Limits{Min: DefaultMin, Max: 1500})
	if got.Outcome != Failed || got.Err == nil {
		t.Errorf("%+v", got)
	}
}
