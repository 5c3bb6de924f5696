package app

import (
	"fmt"

	"vigia/internal/bpf/vport/vporttest"
	"vigia/internal/testutil"
	"vigia/internal/testutil/frame"
)

// wireKind is a kind of traffic.
type wireKind struct {
	name   string
	send   func(w *wire, from, to *end)
	least  uint64 // frames that a direction has at least
	oneWay bool   // a switch may keep it to itself: then nothing has to arrive
	// merged tells that a packet socket where it is sent sees super-frames. They are
	// counted where they arrive as frames.
	merged  bool
	stacks  bool // it needs a network stack at both ends
	offload bool // the ends leave segmentation to the node
}

// fits tells whether a data plane can have that kind.
func (k *wireKind) fits(w *wire) bool {
	return (!k.stacks || !w.plane.tap) && (!k.offload || w.plane.offload)
}

func wireKinds() []wireKind {
	var out []wireKind
	for _, list := range [][]wireKind{ipv4Kinds(), ipv6Kinds(), tunnelKinds(), linkKinds(), superKinds(), stackKinds()} {
		out = append(out, list...)
	}
	return out
}

// raw is frames handed over as they are.
func raw(name string, make func(from, to *end) []byte) wireKind {
	return wireKind{name: name, least: repeats, send: func(w *wire, from, to *end) { from.send(repeats, make(from, to)) }}
}

// kept is raw that a switch may keep to itself.
func kept(name string, make func(from, to *end) []byte) wireKind {
	k := raw(name, make)
	k.oneWay = true
	return k
}

// Addresses that no stack has, so that nobody answers.
const (
	from4, to4 = "10.9.0.1", "10.9.0.2"
	from6, to6 = "fd09::1", "fd09::2"
)

func eth(from, to *end, kind uint16, payload []byte) []byte {
	return frame.Ethernet(to.mac, from.mac, kind, payload)
}

// ip4 is a kind with an IPv4 payload.
func ip4(name string, protocol byte, payload []byte) wireKind {
	return header4(name, frame.V4{Protocol: protocol}, payload)
}

func header4(name string, h frame.V4, payload []byte) wireKind {
	h.From, h.To = from4, to4
	return raw(name, func(from, to *end) []byte { return eth(from, to, frame.TypeIPv4, frame.IPv4(h, payload)) })
}

// ip6 is a kind with an IPv6 payload.
func ip6(name string, next byte, payload []byte) wireKind {
	return raw(name, func(from, to *end) []byte {
		return eth(from, to, frame.TypeIPv6, frame.IPv6(next, from6, to6, payload))
	})
}

func blank(n int) []byte { return make([]byte, n) }

func ipv4Kinds() []wireKind {
	udp, tcp := frame.UDPHeader(4000, 9, blank(100)), frame.TCPHeader(4000, 9, frame.ACK, 0, blank(100))
	return []wireKind{
		ip4("TCP SYN", frame.TCP, frame.TCPHeader(4000, 9, frame.SYN, 20, nil)),
		ip4("TCP data", frame.TCP, tcp),
		ip4("TCP with options", frame.TCP, frame.TCPHeader(4000, 9, frame.ACK|frame.PSH, 40, blank(1000))),
		ip4("TCP RST", frame.TCP, frame.TCPHeader(4000, 9, frame.RST, 0, nil)),
		header4("TCP behind IP options", frame.V4{Protocol: frame.TCP, Options: 40}, tcp),
		ip4("TCP cut in its header", frame.TCP, tcp[:9]),
		ip4("UDP", frame.UDP, udp),
		ip4("UDP without payload", frame.UDP, frame.UDPHeader(4000, 9, nil)),
		ip4("UDP of a full frame", frame.UDP, frame.UDPHeader(4000, 9, blank(1472))),
		ip4("UDP in a jumbo frame", frame.UDP, frame.UDPHeader(4000, 9, blank(8972))),
		ip4("UDP cut in its header", frame.UDP, udp[:5]),
		header4("UDP that must not be fragmented", frame.V4{Protocol: frame.UDP, Flags: 0x4000}, udp),
		header4("UDP at its last hop", frame.V4{Protocol: frame.UDP, TTL: 1}, udp),
		header4("first fragment of UDP", frame.V4{Protocol: frame.UDP, Flags: 0x2000}, udp),
		header4("later fragment of UDP", frame.V4{Protocol: frame.UDP, Flags: 0x2010}, blank(64)),
		header4("last fragment of TCP", frame.V4{Protocol: frame.TCP, Flags: 0x0010}, blank(9)),
		ip4("ICMP echo", frame.ICMP, frame.ICMPEcho(8, blank(56))),
		ip4("ICMP unreachable", frame.ICMP, append([]byte{3, 3, 0, 0, 0, 0, 0, 0}, blank(28)...)),
		header4("fragment of ICMP", frame.V4{Protocol: frame.ICMP, Flags: 0x0020}, blank(100)),
		ip4("IGMP", frame.IGMP, blank(8)),
		ip4("UDP-Lite", frame.UDPLite, udp),
		ip4("SCTP", frame.SCTP, append(blank(12), 1, 0, 0, 20)),
		ip4("ESP", frame.ESP, blank(80)),
		ip4("AH", frame.AH, blank(80)),
		ip4("OSPF", frame.OSPF, blank(44)),
		ip4("a protocol that nobody has", 253, blank(33)),
		kept("IPv4 with an absurd header length", func(from, to *end) []byte {
			return eth(from, to, frame.TypeIPv4, append([]byte{0x4f}, frame.IPv4(frame.V4{From: from4, To: to4, Protocol: frame.UDP}, udp)[1:]...))
		}),
		kept("IPv4 cut in its header", func(from, to *end) []byte { return eth(from, to, frame.TypeIPv4, blank(12)) }),
	}
}

func ipv6Kinds() []wireKind {
	udp := frame.UDPHeader(4000, 9, blank(100))
	six := udp
	next := byte(frame.UDP)
	for range 6 {
		six, next = frame.Extension(frame.DestOptions, next, 0, six), frame.DestOptions
	}
	return []wireKind{
		ip6("TCP over IPv6", frame.TCP, frame.TCPHeader(4000, 9, frame.ACK, 12, blank(500))),
		ip6("TCP SYN over IPv6", frame.TCP, frame.TCPHeader(4000, 9, frame.SYN, 0, nil)),
		ip6("UDP over IPv6", frame.UDP, udp),
		ip6("ICMPv6 echo", frame.ICMPv6, frame.ICMPEcho(128, blank(56))),
		ip6("neighbour solicitation", frame.ICMPv6, append([]byte{135, 0}, blank(22)...)),
		ip6("router advertisement", frame.ICMPv6, append([]byte{134, 0}, blank(14)...)),
		ip6("multicast listener report", frame.ICMPv6, append([]byte{143, 0}, blank(26)...)),
		ip6("hop-by-hop options and UDP", frame.HopByHop, frame.Extension(frame.HopByHop, frame.UDP, 0, udp)),
		ip6("routing header and TCP", frame.Routing, frame.Extension(frame.Routing, frame.TCP, 0, frame.TCPHeader(1, 2, frame.ACK, 0, nil))),
		ip6("six extension headers", next, six),
		ip6("first fragment of IPv6", frame.Fragment, frame.Extension(frame.Fragment, frame.UDP, 1, udp)),
		ip6("later fragment of IPv6", frame.Fragment, frame.Extension(frame.Fragment, frame.UDP, 0x101, blank(64))),
		ip6("nothing behind the header", frame.NoNext, nil),
		ip6("SCTP over IPv6", frame.SCTP, blank(32)),
		ip6("an extension cut short", frame.DestOptions, []byte{17, 9, 0}),
		kept("IPv6 cut in its header", func(from, to *end) []byte { return eth(from, to, frame.TypeIPv6, blank(20)) }),
	}
}

func tunnelKinds() []wireKind {
	inner := frame.IPv4(frame.V4{From: "192.168.0.1", To: "192.168.0.2", Protocol: frame.UDP}, frame.UDPHeader(1, 2, blank(64)))
	inside := frame.Ethernet(frame.MAC{2, 9}, frame.MAC{2, 8}, frame.TypeIPv4, inner)
	return []wireKind{
		ip4("IP in IP", frame.IPIP, inner),
		ip4("IPv6 in IPv4", frame.IPv6InIP, frame.IPv6(frame.UDP, from6, to6, frame.UDPHeader(1, 2, nil))),
		ip6("IPv4 in IPv6", frame.IPIP, inner),
		ip4("GRE", frame.GRE, frame.GREHeader(0, frame.TypeIPv4, nil, inner)),
		ip4("GRE with a key around Ethernet", frame.GRE, frame.GREHeader(0x2000, frame.TypeTEB, []uint32{7}, inside)),
		ip4("VXLAN", frame.UDP, frame.UDPHeader(4000, 4789, frame.VXLAN(10, inside))),
		ip6("VXLAN over IPv6", frame.UDP, frame.UDPHeader(4000, 4789, frame.VXLAN(10, inside))),
		ip4("Geneve with options", frame.UDP, frame.UDPHeader(4000, 6081, frame.Geneve(10, 3, inside))),
		ip4("ESP in UDP", frame.UDP, frame.UDPHeader(4500, 4500, blank(120))),
	}
}

// tagged is UDP below VLAN tags.
func tagged(name string, outer uint16, tags ...uint16) wireKind {
	return raw(name, func(from, to *end) []byte {
		kind := uint16(frame.TypeIPv4)
		payload := frame.IPv4(frame.V4{From: from4, To: to4, Protocol: frame.UDP}, frame.UDPHeader(4000, 9, blank(100)))
		for _, tci := range tags {
			payload, kind = frame.Tag(tci, kind, payload), frame.TypeVLAN
		}
		return eth(from, to, outer, payload)
	})
}

func linkKinds() []wireKind {
	group := func(to frame.MAC, kind uint16, payload []byte) func(from, _ *end) []byte {
		return func(from, _ *end) []byte { return frame.Ethernet(to, from.mac, kind, payload) }
	}
	udp4 := func(to string) []byte {
		return frame.IPv4(frame.V4{From: from4, To: to, Protocol: frame.UDP}, frame.UDPHeader(4000, 9, blank(40)))
	}
	return []wireKind{
		tagged("VLAN", frame.TypeVLAN, 100),
		tagged("a priority without a VLAN", frame.TypeVLAN, 5<<13),
		tagged("QinQ", frame.TypeQinQ, 100, 200),
		tagged("QinQ by two tags of 802.1Q", frame.TypeVLAN, 100, 200),
		tagged("three tags", frame.TypeQinQ, 1, 2, 3),
		raw("VLAN and TCP over IPv6", func(from, to *end) []byte {
			return eth(from, to, frame.TypeVLAN, frame.Tag(9, frame.TypeIPv6, frame.IPv6(frame.TCP, from6, to6, frame.TCPHeader(1, 2, frame.ACK, 12, blank(700)))))
		}),
		raw("VLAN and ARP", func(from, to *end) []byte {
			return eth(from, to, frame.TypeVLAN, frame.Tag(9, frame.TypeARP, frame.ARPRequest(from.mac, from4, to4)))
		}),
		raw("ARP request", func(from, _ *end) []byte {
			return frame.Ethernet(frame.Broadcast, from.mac, frame.TypeARP, frame.ARPRequest(from.mac, from4, to4))
		}),
		raw("ARP to one", func(from, to *end) []byte {
			return eth(from, to, frame.TypeARP, frame.ARPRequest(from.mac, from4, to4))
		}),
		raw("RARP", func(from, to *end) []byte { return eth(from, to, 0x8035, blank(28)) }),
		raw("broadcast of UDP", group(frame.Broadcast, frame.TypeIPv4, udp4("255.255.255.255"))),
		raw("multicast of UDP", group(frame.MAC{1, 0, 0x5e, 1, 2, 3}, frame.TypeIPv4, udp4("239.1.2.3"))),
		raw("multicast over IPv6", group(frame.MAC{0x33, 0x33, 0, 0, 0, 9}, frame.TypeIPv6, frame.IPv6(frame.UDP, from6, "ff05::9", frame.UDPHeader(1, 2, blank(30))))),
		raw("an unknown ethertype", func(from, to *end) []byte { return eth(from, to, frame.TypeUnused, blank(200)) }),
		raw("MPLS", func(from, to *end) []byte {
			return eth(from, to, 0x8847, append([]byte{0, 0, 0x11, 0xff}, udp4(to4)...))
		}),
		raw("PPPoE", func(from, to *end) []byte { return eth(from, to, 0x8864, blank(60)) }),
		raw("PTP", func(from, to *end) []byte { return eth(from, to, 0x88f7, blank(44)) }),
		raw("MACsec", func(from, to *end) []byte { return eth(from, to, 0x88e5, blank(90)) }),
		raw("802.3 with a length", func(from, to *end) []byte { return eth(from, to, 40, append([]byte{0xaa, 0xaa, 3}, blank(37)...)) }),
		kept("LLDP", group(frame.MAC{1, 0x80, 0xc2, 0, 0, 0xe}, 0x88cc, blank(60))),
		kept("BPDU", group(frame.MAC{1, 0x80, 0xc2}, 38, append([]byte{0x42, 0x42, 3}, blank(35)...))),
		kept("EAPOL", group(frame.MAC{1, 0x80, 0xc2, 0, 0, 3}, 0x888e, blank(46))),
		raw("a header and nothing more", func(from, to *end) []byte { return eth(from, to, frame.TypeUnused, nil) }),
		raw("a runt", func(from, to *end) []byte { return eth(from, to, frame.TypeUnused, blank(3)) }),
		raw("a frame padded to 60 bytes", func(from, to *end) []byte {
			return eth(from, to, frame.TypeIPv4, append(frame.IPv4(frame.V4{From: from4, To: to4, Protocol: frame.UDP}, frame.UDPHeader(1, 2, nil)), blank(18)...))
		}),
	}
}

// offloaded is a super-frame of TCP or UDP that the node has to cut.
func offloaded(name string, kind byte, transport func(payload []byte) []byte, network func(from, to *end, segment []byte) []byte) wireKind {
	const segments, segment, last = 7, 900, 123
	return wireKind{name: name, least: repeats * segments, merged: true, offload: true, send: func(_ *wire, from, to *end) {
		payload := blank((segments-1)*segment + last)
		data := network(from, to, transport(payload))
		from.offload(data, kind, len(data)-len(payload), segment)
	}}
}

func superKinds() []wireKind {
	tcp := func(payload []byte) []byte { return frame.TCPHeader(4000, 9, frame.ACK, 0, payload) }
	udp := func(payload []byte) []byte { return frame.UDPHeader(4000, 9, payload) }
	over4 := func(protocol byte) func(from, to *end, segment []byte) []byte {
		return func(from, to *end, segment []byte) []byte {
			return eth(from, to, frame.TypeIPv4, frame.IPv4(frame.V4{From: from4, To: to4, Protocol: protocol}, segment))
		}
	}
	over6 := func(next byte) func(from, to *end, segment []byte) []byte {
		return func(from, to *end, segment []byte) []byte {
			return eth(from, to, frame.TypeIPv6, frame.IPv6(next, from6, to6, segment))
		}
	}
	return []wireKind{
		offloaded("super-frame of TCP", gsoTCPv4, tcp, over4(frame.TCP)),
		offloaded("super-frame of TCP over IPv6", gsoTCPv6, tcp, over6(frame.TCP)),
		offloaded("super-frame of UDP", gsoUDP, udp, over4(frame.UDP)),
		offloaded("super-frame of UDP over IPv6", gsoUDP, udp, over6(frame.UDP)),
		offloaded("super-frame of TCP below a tag", gsoTCPv4, tcp, func(from, to *end, segment []byte) []byte {
			return eth(from, to, frame.TypeVLAN, frame.Tag(9, frame.TypeIPv4, frame.IPv4(frame.V4{From: from4, To: to4, Protocol: frame.TCP}, segment)))
		}),
	}
}

// overTCP is a connection, between addresses that set makes.
func overTCP(name string, bytes int, merged bool, set func(w *wire, from, to *end) (address string)) wireKind {
	return wireKind{name: name, least: 20, stacks: true, merged: merged, offload: merged, send: func(w *wire, from, to *end) {
		transfer(w.t, from, to, set(w, from, to), bytes)
	}}
}

const (
	much = 2_000_000 // bytes
	some = 200_000
)

func stackKinds() []wireKind {
	plain4 := func(_ *wire, _, to *end) string { return to.ip4 }
	plain6 := func(_ *wire, _, to *end) string { return to.ip6 }
	single := func(of func(*wire, *end, *end) string) func(w *wire, from, to *end) string {
		return func(w *wire, from, to *end) string {
			for _, e := range []*end{from, to} {
				testutil.Run(w.t, "ip", "netns", "exec", e.ns, "ethtool", "-K", "eth0", "tso", "off", "gso", "off")
			}
			return of(w, from, to)
		}
	}
	return []wireKind{
		overTCP("TCP left to offload", much, true, plain4),
		overTCP("TCP over IPv6 left to offload", much, true, plain6),
		{name: "UDP left to offload", least: 80, stacks: true, merged: true, offload: true, send: func(w *wire, from, to *end) {
			datagrams(w.t, from, to.ip4, 10, 8*1000, 1000)
		}},
		{name: "UDP over IPv6 left to offload", least: 80, stacks: true, merged: true, offload: true, send: func(w *wire, from, to *end) {
			datagrams(w.t, from, to.ip6, 10, 8*1000, 1000)
		}},
		below(overTCP("TCP below a tag beside the frame, left to offload", much, true, plain4), frame.TypeVLAN),
		below(overTCP("TCP in QinQ, left to offload", much, true, plain6), frame.TypeVLAN, frame.TypeQinQ),
		overTCP("TCP in VXLAN, left to offload", much, true, vxlanDevice),
		overTCP("TCP of more than 64 kB at once", 20*much, true, bigTCP),
		overTCP("TCP merged by the node", some, true, merging),
		overTCP("TCP in frames", some, false, single(plain4)),
		overTCP("TCP over IPv6 in frames", some, false, single(plain6)),
		below(overTCP("TCP in frames below a tag beside the frame", some, false, single(plain4)), frame.TypeVLAN),
		below(wireKind{name: "UDP below a tag beside the frame", least: 20, stacks: true, send: func(w *wire, from, to *end) {
			datagrams(w.t, from, to.ip4, 20, 300, 0)
		}}, frame.TypeVLAN),
		below(wireKind{name: "UDP in QinQ with a tag beside the frame", least: 20, stacks: true, send: func(w *wire, from, to *end) {
			datagrams(w.t, from, to.ip6, 20, 300, 0)
		}}, frame.TypeVLAN, frame.TypeQinQ),
		{name: "UDP in fragments", least: 40, stacks: true, send: func(w *wire, from, to *end) {
			datagrams(w.t, from, to.ip4, 10, 30_000, 0)
		}},
		{name: "UDP in fragments over IPv6", least: 40, stacks: true, send: func(w *wire, from, to *end) {
			datagrams(w.t, from, to.ip6, 10, 30_000, 0)
		}},
		{name: "ping", least: 3, stacks: true, send: func(w *wire, from, to *end) {
			testutil.Run(w.t, "ip", "netns", "exec", from.ns, "ping", "-c3", "-i0.05", "-W5", to.ip4)
		}},
	}
}

// below is a kind whose frames both ends put below VLAN tags, as devices of VLANs do: the
// outermost stays beside the frame.
func below(k wireKind, tags ...uint16) wireKind {
	send := k.send
	k.send = func(w *wire, from, to *end) {
		for _, e := range []*end{from, to} {
			defer vporttest.PushTags(w.t, e.ns, "eth0", tags...)()
		}
		send(w, from, to)
	}
	return k
}

// vxlanDevice gives both ends a tunnel of their own, at a port of its own.
func vxlanDevice(w *wire, from, to *end) string {
	w.t.Helper()
	address := map[*end]string{w.tenant: "10.8.6.2", w.peer: "10.8.6.3"}
	inner := func(e *end) string { return fmt.Sprintf("02:00:00:00:01:%02x", e.mac[5]) }
	for own, other := range map[*end]*end{from: to, to: from} {
		if w.tunnelled[own] {
			continue
		}
		w.tunnelled[own] = true
		testutil.IP(w.t, "-n", own.ns, "link", "add", "vx5", "address", inner(own), "type", "vxlan", "id", "5", "local", own.ip4, "remote", other.ip4, "dstport", "4790", "dev", "eth0")
		testutil.IP(w.t, "-n", own.ns, "link", "set", "vx5", "up")
		testutil.IP(w.t, "-n", own.ns, "addr", "add", address[own]+"/24", "dev", "vx5")
		testutil.IP(w.t, "-n", own.ns, "neigh", "replace", address[other], "lladdr", inner(other), "dev", "vx5", "nud", "permanent")
	}
	return address[to]
}

// bigTCP lets the stack make super-frames of more than 64 kB.
func bigTCP(w *wire, from, to *end) string {
	w.t.Helper()
	testutil.IP(w.t, "-n", from.ns, "link", "set", "eth0", "gso_max_size", "180000")
	return to.ip6
}

// merging has the sender cut its frames and the node merge them again where they come in.
func merging(w *wire, from, to *end) string {
	w.t.Helper()
	testutil.Run(w.t, "ip", "netns", "exec", from.ns, "ethtool", "-K", "eth0", "tso", "off", "gso", "off")
	testutil.Run(w.t, "ip", "netns", "exec", w.node, "ethtool", "-K", "tap0", "gro", "on")
	testutil.Run(w.t, "ip", "netns", "exec", w.upNode, "ethtool", "-K", "up0", "gro", "on")
	return to.ip4
}
