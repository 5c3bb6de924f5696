package classify

import (
	"maps"
	"net/netip"
	"testing"

	"vigia/internal/testutil/frame"
)

func addresses(list ...string) (out []netip.Addr) {
	for _, a := range list {
		out = append(out, netip.MustParseAddr(a))
	}
	return out
}

// between is a VXLAN frame of a network between two addresses.
func between(from, to string, vni uint32) []byte {
	packet := frame.UDPHeader(12345, 4789, frame.VXLAN(vni, inner()))
	if netip.MustParseAddr(from).Is6() {
		return ethernet(far, far, frame.TypeIPv6, frame.IPv6(frame.UDP, from, to, packet))
	}
	return ethernet(far, far, frame.TypeIPv4, frame.IPv4(frame.V4{From: from, To: to, Protocol: frame.UDP}, packet))
}

// TestOnlyListedEndpointsHaveTunnels: what a tenant writes into its own packets finds no
// class of another tenant, and no way out of its own.
func TestOnlyListedEndpointsHaveTunnels(t *testing.T) {
	const classVLAN = 0x11500303
	matches := map[Match]uint32{{VXLAN, 110, vmNone}: classA, {GRE, 100, vmNone}: classA, {Geneve, 5, vmNone}: classA, {VLAN, 20, vmNone}: classVLAN}
	tagged := func(data []byte) []byte {
		return ethernet(far, far, frame.TypeVLAN, frame.Tag(20, uint16(data[12])<<8|uint16(data[13]), data[14:]))
	}
	for _, tc := range []struct {
		name          string
		data          []byte
		own           []netip.Addr
		others        []netip.Addr
		send, receive uint32
	}{
		{"from this node to a listed one", between("10.0.0.1", "10.0.0.2", 110), addresses("10.0.0.1"), addresses("10.0.0.2", "10.0.0.3"), classA, 0},
		{"from a listed node to this one", between("10.0.0.2", "10.0.0.1", 110), addresses("10.0.0.1"), addresses("10.0.0.2"), 0, classA},
		{"over IPv6", between("fd00::1", "fd00::2", 110), addresses("fd00::1"), addresses("fd00::2"), classA, 0},
		{"to an address that folds to the same", between("fd00::1", "fd00:0:0:1::3", 110), addresses("fd00::1"), addresses("fd00::2"), 0, 0},
		{"from the end point of a second switch", between("10.1.0.1", "10.0.0.2", 110), addresses("10.0.0.1", "10.1.0.1"), addresses("10.0.0.2"), classA, 0},
		{"to the end point of a second switch", between("10.1.0.2", "10.1.0.1", 110), addresses("10.0.0.1", "10.1.0.1"), addresses("10.0.0.2", "10.1.0.2"), 0, classA},
		{"between two of this node", between("10.0.0.1", "10.1.0.1", 110), addresses("10.0.0.1", "10.1.0.1"), addresses("10.0.0.2"), 0, 0},
		{"to nobody that is listed", between("10.0.0.1", "10.0.0.9", 110), addresses("10.0.0.1"), addresses("10.0.0.2"), 0, 0},
		{"between two others that are listed", between("10.0.0.2", "10.0.0.3", 110), addresses("10.0.0.1"), addresses("10.0.0.2", "10.0.0.3"), 0, 0},
		{"to itself", between("10.0.0.1", "10.0.0.1", 110), addresses("10.0.0.1"), addresses("10.0.0.2"), 0, 0},
		{"on a node without an end point", between("10.0.0.1", "10.0.0.2", 110), nil, addresses("10.0.0.2", "10.0.0.1"), 0, 0},
		{"from nowhere, there", between("::", "fd00::2", 110), nil, addresses("fd00::2"), 0, 0},
		{"a tenant's VXLAN in its VLAN", tagged(between("192.168.0.1", "192.168.0.2", 110)), addresses("10.0.0.1"), addresses("10.0.0.2"), classVLAN, classVLAN},
		{"with a network that nobody has", tagged(between("192.168.0.1", "192.168.0.2", 999)), addresses("10.0.0.1"), addresses("10.0.0.2"), classVLAN, classVLAN},
		{"a tenant's GRE in its VLAN", tagged(overGRE(0x2000, []uint32{100})), addresses("10.0.0.7"), addresses("10.0.0.2"), classVLAN, classVLAN},
		{"a tenant's Geneve in its VLAN", tagged(outer(6081, frame.Geneve(5, 3, inner()))), addresses("10.0.0.7"), addresses("10.0.0.2"), classVLAN, classVLAN},
		{"a tenant's VXLAN in its VLAN, by the nodes' addresses", tagged(between("10.0.0.1", "10.0.0.2", 110)), addresses("10.0.0.1"), addresses("10.0.0.2"), classVLAN, classVLAN},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := open(t, matches)
			if err := p.SetTunnels(tc.own, tc.others, 0); err != nil {
				t.Fatal(err)
			}
			if got := run(t, p.Send(), tc.data); got != tc.send {
				t.Errorf("sent: class %x, want %x", got, tc.send)
			}
			if got := run(t, p.Receive(), tc.data); got != tc.receive {
				t.Errorf("received: class %x, want %x", got, tc.receive)
			}
		})
	}
}

// TestWithoutListedEndpointsATenantsNetworkHasNoTunnels: on networks of VLANs or MAC addresses
// alone, nobody gets into a class by a header that it writes.
func TestWithoutListedEndpointsATenantsNetworkHasNoTunnels(t *testing.T) {
	const classVLAN, classMAC = 0x11500303, 0x11500404
	matches := map[Match]uint32{{VXLAN, 110, vmNone}: classA, {GRE, 100, vmNone}: classA, {Geneve, 5, vmNone}: classA, {VLAN, 30, vmNone}: classA}
	vlan, plain := maps.Clone(matches), maps.Clone(matches)
	vlan[Match{VLAN, 20, vmNone}] = classVLAN
	plain[Match{Plain, 0, far}] = classMAC
	tagged := func(data []byte) []byte {
		return ethernet(far, far, frame.TypeVLAN, frame.Tag(20, uint16(data[12])<<8|uint16(data[13]), data[14:]))
	}
	for name, data := range map[string][]byte{
		"VXLAN": between("192.168.0.1", "192.168.0.2", 110), "of nobody's": between("192.168.0.1", "192.168.0.2", 999),
		"GRE": overGRE(0x2000, []uint32{100}), "Geneve": outer(6081, frame.Geneve(5, 3, inner())),
	} {
		t.Run(name, func(t *testing.T) {
			for _, tc := range []struct {
				name    string
				matches map[Match]uint32
				data    []byte
				want    uint32
			}{{"in a VLAN", vlan, tagged(data), classVLAN}, {"by MAC address", plain, ethernet(far, far, frame.TypeIPv4, data[14:]), classMAC}} {
				p := open(t, tc.matches)
				if sent, received := run(t, p.Send(), tc.data), run(t, p.Receive(), tc.data); sent != tc.want || received != tc.want {
					t.Errorf("%s: sent in class %x, received in %x, want %x", tc.name, sent, received, tc.want)
				}
			}
		})
	}
	p := open(t, matches)
	if got := run(t, p.Send(), between("10.0.0.1", "10.0.0.2", 110)); got != classA {
		t.Errorf("on an underlay that is no tenant's: class %x, want %x", got, classA)
	}
}

// TestWhatIsNoTunnelHasNoHost: a source is told apart by its own addresses then.
func TestWhatIsNoTunnelHasNoHost(t *testing.T) {
	p := open(t, nil)
	if err := p.SetTunnels(addresses("10.0.0.1"), addresses("10.0.0.2"), 0); err != nil {
		t.Fatal(err)
	}
	run(t, p.Receive(), between("192.168.0.1", "192.168.0.2", 110))
	want := Source{Link: loopback, Destination: Address{192, 168, 0, 2}, From: far, To: far}
	if err := p.TakeSources(func(s *Source, _ Arrival) {
		if *s != want {
			t.Errorf("source %+v, want %+v", s, want)
		}
	}); err != nil {
		t.Fatal(err)
	}
}

// TestAnEndpointMoves: what was another node's becomes this node's, and the other way round.
func TestAnEndpointMoves(t *testing.T) {
	p := open(t, map[Match]uint32{{VXLAN, 110, vmNone}: classA})
	ends := [2]string{"10.0.0.1", "10.0.0.2"}
	for range 3 {
		if err := p.SetTunnels(addresses(ends[0]), addresses(ends[1]), 0); err != nil {
			t.Fatal(err)
		}
		if got := run(t, p.Send(), between(ends[0], ends[1], 110)); got != classA {
			t.Errorf("from %s: class %x", ends[0], got)
		}
		if got := run(t, p.Send(), between(ends[1], ends[0], 110)); got != 0 {
			t.Errorf("from %s, which is elsewhere: class %x", ends[1], got)
		}
		ends[0], ends[1] = ends[1], ends[0]
	}
}

func TestEndpointsBecomeExactlyThoseListed(t *testing.T) {
	p := open(t, map[Match]uint32{{VXLAN, 110, vmNone}: classA})
	own := addresses("10.0.0.1")
	for _, listed := range [][]string{{"10.0.0.2", "10.0.0.3"}, {"10.0.0.3", "10.0.0.4"}, {}, {"10.0.0.2"}} {
		if err := p.SetTunnels(own, addresses(listed...), 0); err != nil {
			t.Fatal(err)
		}
		for _, far := range []string{"10.0.0.2", "10.0.0.3", "10.0.0.4"} {
			want := uint32(0)
			for _, l := range listed {
				if l == far {
					want = classA
				}
			}
			if got := run(t, p.Send(), between("10.0.0.1", far, 110)); got != want {
				t.Errorf("%v are listed, to %s: class %x, want %x", listed, far, got, want)
			}
		}
	}
}
