package pathmtu

import (
	"context"
	"log/slog"
	"net/netip"
	"testing"
	"time"

	"vigia/internal/testutil"
	"vigia/probes/protocol/echo"
	stampprobe "vigia/probes/protocol/stamp"
	"vigia/probes/reflector"
	"vigia/probes/sender"
	"vigia/probes/sockets"
	"vigia/probes/stamp"
)

// routed is a sender's and a reflector's namespace with a router between them.
type routed struct{ left, router, right string }

const (
	leftIP, rightIP   = "10.8.1.2", "10.8.2.2"
	leftIP6, rightIP6 = "fd08:1::2", "fd08:2::2"
)

// newRouted makes links of 9000 bytes on the left and mtu bytes on the right of the
// router.
func newRouted(t *testing.T, mtu string) routed {
	t.Helper()
	r := routed{testutil.NewNetNS(t), testutil.NewNetNS(t), testutil.NewNetNS(t)}
	testutil.Run(t, "ip", "netns", "exec", r.router, "sysctl", "-qw",
		"net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1", "net.ipv4.icmp_ratelimit=0")
	testutil.NewVethPair(t, r.left, "veth0", r.router, "left0")
	testutil.NewVethPair(t, r.right, "veth0", r.router, "right0")
	for _, l := range []struct{ ns, dev, mtu, v4, v6, via4, via6 string }{
		{r.left, "veth0", "9000", leftIP, leftIP6, "10.8.1.1", "fd08:1::1"},
		{r.right, "veth0", mtu, rightIP, rightIP6, "10.8.2.1", "fd08:2::1"},
		{r.router, "left0", "9000", "10.8.1.1", "fd08:1::1", "", ""},
		{r.router, "right0", mtu, "10.8.2.1", "fd08:2::1", "", ""},
	} {
		testutil.IP(t, "-n", l.ns, "link", "set", l.dev, "mtu", l.mtu)
		testutil.IP(t, "-n", l.ns, "addr", "add", l.v4+"/24", "dev", l.dev)
		testutil.IP(t, "-n", l.ns, "addr", "add", l.v6+"/64", "dev", l.dev, "nodad")
		if l.via4 != "" {
			testutil.IP(t, "-n", l.ns, "route", "add", "default", "via", l.via4)
			testutil.IP(t, "-n", l.ns, "-6", "route", "add", "default", "via", l.via6)
		}
	}
	return r
}

// nft installs rules in a chain of the hook.
func nft(t *testing.T, ns, hook string, rules ...string) {
	t.Helper()
	run := func(line string) { testutil.Run(t, "ip", "netns", "exec", ns, "nft", line) }
	run("add table inet " + hook)
	run("add chain inet " + hook + " c { type filter hook " + hook + " priority 0; }")
	for _, rule := range rules {
		run("add rule inet " + hook + " c " + rule)
	}
}

// blackHole keeps the router from telling what is too large.
func (r routed) blackHole(t *testing.T) {
	t.Helper()
	nft(t, r.router, "output", "icmp type destination-unreachable drop", "icmpv6 type packet-too-big drop")
}

type silent struct{}

func (silent) Received()                 {}
func (silent) Reflected()                {}
func (silent) Rejected(reflector.Reason) {}
func (silent) Overflowed(uint32)         {}

// reflect runs a reflector until the end of the test.
func reflect(t *testing.T, ns string, keys stamp.Keys, at ...netip.AddrPort) {
	t.Helper()
	r, err := reflector.New(reflector.Options{
		Logger: slog.New(slog.DiscardHandler), RemoveCounters: func(sockets.Key) {},
		NewCounters: func(sockets.Key) reflector.Counters { return silent{} },
	})
	if err != nil {
		t.Fatal(err)
	}
	config := reflector.Config{
		MaxRate: 100_000, Keys: make(map[sockets.Key]stamp.Keys),
		Allow: []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")},
	}
	for _, a := range at {
		key := sockets.Key{Netns: ns, Local: a}
		config.Listeners = append(config.Listeners, key)
		if keys != "" {
			config.Keys[key] = keys
		}
	}
	if err := r.Apply(config); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		r.Close()
	})
}

func endpoint(ip string) netip.AddrPort { return netip.AddrPortFrom(netip.MustParseAddr(ip), 862) }

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
	r := newRouted(t, "1400")
	reflect(t, r.right, "", endpoint(rightIP), endpoint(rightIP6))
	for name, to := range map[string]string{"IPv4": rightIP, "IPv6": rightIP6} {
		t.Run(name, func(t *testing.T) {
			got := find(t, sender.Target{Netns: r.left, Protocol: stampprobe.Protocol{}, DSCP: 46}, endpoint(to), 1400)
			if got.Reported != 1400 {
				t.Errorf("reported %d bytes, want 1400", got.Reported)
			}
			if got.Probes > 100 || got.AtMax {
				t.Errorf("%+v", got)
			}
			find(t, icmpTarget(r.left), netip.AddrPortFrom(netip.MustParseAddr(to), 0), 1400)
		})
	}
}

// TestBlackHole has one that says nothing.
func TestBlackHole(t *testing.T) {
	t.Parallel()
	r := newRouted(t, "1437")
	r.blackHole(t)
	reflect(t, r.right, "", endpoint(rightIP), endpoint(rightIP6))
	for name, to := range map[string]string{"IPv4": rightIP, "IPv6": rightIP6} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := find(t, sender.Target{Netns: r.left, Protocol: stampprobe.Protocol{}}, endpoint(to), 1437)
			if got.Reported != 9000 { // by our own device
				t.Errorf("reported %d bytes, want 9000", got.Reported)
			}
			find(t, icmpTarget(r.left), netip.AddrPortFrom(netip.MustParseAddr(to), 0), 1437)
		})
	}
}

// TestLoss drops each fifth probe, at random.
func TestLoss(t *testing.T) {
	t.Parallel()
	r := newRouted(t, "1400")
	r.blackHole(t)
	reflect(t, r.right, "", endpoint(rightIP))
	nft(t, r.router, "forward", "meta l4proto { udp, icmp } ip daddr "+rightIP+" numgen random mod 100 < 20 drop")
	t.Run("STAMP", func(t *testing.T) {
		t.Parallel()
		find(t, sender.Target{Netns: r.left, Protocol: stampprobe.Protocol{}}, endpoint(rightIP), 1400)
	})
	t.Run("ICMP", func(t *testing.T) {
		t.Parallel()
		find(t, icmpTarget(r.left), netip.AddrPortFrom(netip.MustParseAddr(rightIP), 0), 1400)
	})
}

// TestWayBackIsSmaller loses large answers: that large probes arrived is seen in
// the answers to small ones.
func TestWayBackIsSmaller(t *testing.T) {
	t.Parallel()
	r := newRouted(t, "1500")
	reflect(t, r.right, "", endpoint(rightIP))
	nft(t, r.router, "forward", "ip saddr "+rightIP+" meta length > 1000 drop")
	find(t, sender.Target{Netns: r.left, Protocol: stampprobe.Protocol{}}, endpoint(rightIP), 1500)
}

// TestAuthenticated searches with a key.
func TestAuthenticated(t *testing.T) {
	t.Parallel()
	keys, err := stamp.ParseKeys([]byte("00112233445566778899aabbccddeeff\n"))
	if err != nil {
		t.Fatal(err)
	}
	r := newRouted(t, "1500")
	r.blackHole(t)
	reflect(t, r.right, keys, endpoint(rightIP))
	find(t, sender.Target{Netns: r.left, Protocol: stampprobe.Protocol{Keys: keys}}, endpoint(rightIP), 1500)
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
		testutil.IP(t, "-n", ns, "addr", "add", []string{leftIP, "10.8.1.3"}[i]+"/24", "dev", "vxlan0")
		// The device may have cut its MTU to what the link has.
		testutil.IP(t, "-n", ns, "link", "set", "vxlan0", "mtu", "1500")
	}
	reflect(t, right, "", endpoint("10.8.1.3"))
	find(t, sender.Target{Netns: left, Protocol: stampprobe.Protocol{}}, endpoint("10.8.1.3"), 1350)
}

// TestNoReflector searches towards nothing.
func TestNoReflector(t *testing.T) {
	t.Parallel()
	r := newRouted(t, "1500")
	got := Search(t.Context(), sender.Target{Netns: r.left, Protocol: stampprobe.Protocol{}, Deadline: 50 * time.Millisecond}, endpoint(rightIP), Limits{Min: DefaultMin, Max: 1500})
	if got.Outcome != Unreachable || got.MTU != 0 || got.Err == nil {
		t.Errorf("%+v", got)
	}
	got = Search(t.Context(), sender.Target{Netns: "vigia-test-none", Protocol: stampprobe.Protocol{}}, endpoint(rightIP), Limits{Min: DefaultMin, Max: 1500})
	if got.Outcome != Failed || got.Err == nil {
		t.Errorf("%+v", got)
	}
}
