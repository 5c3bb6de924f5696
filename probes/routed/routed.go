// Package routed has the network that tests of paths are made on: a sender's and a reflector's
// network namespace with a router between them.
package routed

import (
	"log/slog"
	"net/netip"
	"testing"

	"vigia/internal/testutil"
	"vigia/probes/reflector"
	"vigia/probes/sockets"
	"vigia/probes/stamp"
)

// The addresses of the ends and of the router's sides.
const (
	LeftIP, RightIP           = "10.8.1.2", "10.8.2.2"
	LeftIP6, RightIP6         = "fd08:1::2", "fd08:2::2"
	RouterIP, RouterIP6       = "10.8.1.1", "fd08:1::1"
	routerRight, routerRight6 = "10.8.2.1", "fd08:2::1"
)

// Network is three namespaces. The router's devices are left0 and right0, those of the ends veth0.
type Network struct{ Left, Router, Right string }

// New makes links of 9000 bytes on the left and mtu bytes on the right of the router.
func New(t testing.TB, mtu string) Network {
	t.Helper()
	n := Network{testutil.NewNetNS(t), testutil.NewNetNS(t), testutil.NewNetNS(t)}
	for _, ns := range []string{n.Left, n.Router, n.Right} {
		// A router whose link-local address is tentative asks for no neighbour, and calls him unreachable after 3 s.
		// A host tells one sender of few of his packets a second that nobody listens: others of his would take their place.
		testutil.Run(t, "ip", "netns", "exec", ns, "sysctl", "-qw", "net.ipv6.conf.all.accept_dad=0", "net.ipv6.conf.default.accept_dad=0",
			"net.ipv4.icmp_ratelimit=0", "net.ipv6.icmp.ratelimit=0")
	}
	testutil.Run(t, "ip", "netns", "exec", n.Router, "sysctl", "-qw", "net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1")
	testutil.NewVethPair(t, n.Left, "veth0", n.Router, "left0")
	testutil.NewVethPair(t, n.Right, "veth0", n.Router, "right0")
	for _, l := range []struct{ ns, dev, mtu, v4, v6, via4, via6 string }{
		{n.Left, "veth0", "9000", LeftIP, LeftIP6, RouterIP, RouterIP6},
		{n.Right, "veth0", mtu, RightIP, RightIP6, routerRight, routerRight6},
		{n.Router, "left0", "9000", RouterIP, RouterIP6, "", ""},
		{n.Router, "right0", mtu, routerRight, routerRight6, "", ""},
	} {
		testutil.IP(t, "-n", l.ns, "link", "set", l.dev, "mtu", l.mtu)
		testutil.IP(t, "-n", l.ns, "addr", "add", l.v4+"/24", "dev", l.dev)
		testutil.IP(t, "-n", l.ns, "addr", "add", l.v6+"/64", "dev", l.dev, "nodad")
		if l.via4 != "" {
			testutil.IP(t, "-n", l.ns, "route", "add", "default", "via", l.via4)
			testutil.IP(t, "-n", l.ns, "-6", "route", "add", "default", "via", l.via6)
		}
	}
	return n
}

// NFT installs rules in a chain of the hook.
func NFT(t testing.TB, ns, hook string, rules ...string) {
	t.Helper()
	run := func(line string) { testutil.Run(t, "ip", "netns", "exec", ns, "nft", line) }
	run("add table inet " + hook)
	run("add chain inet " + hook + " c { type filter hook " + hook + " priority 0; }")
	for _, rule := range rules {
		run("add rule inet " + hook + " c " + rule)
	}
}

// BlackHole keeps the router from telling what is too large.
func (n Network) BlackHole(t testing.TB) {
	t.Helper()
	NFT(t, n.Router, "output", "icmp type destination-unreachable drop", "icmpv6 type packet-too-big drop")
}

// Endpoint returns an address with the port of STAMP.
func Endpoint(ip string) netip.AddrPort {
	return netip.AddrPortFrom(netip.MustParseAddr(ip), stamp.Port)
}

type silent struct{}

func (silent) Received()                 {}
func (silent) Reflected()                {}
func (silent) Rejected(reflector.Reason) {}
func (silent) Overflowed(uint32)         {}

// Reflect runs a reflector until the end of the test.
func Reflect(t testing.TB, ns string, keys stamp.Keys, at ...netip.AddrPort) {
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
	testutil.Running(t, r)
}
