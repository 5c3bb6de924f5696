package classify

import (
	"encoding/binary"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"vigia/internal/bpf/vport/vporttest"
	"vigia/internal/netns"
	"vigia/internal/testutil"
	"vigia/internal/testutil/frame"
)

// What others have, and what a tenant may want to send in.
const (
	classVLAN  = 0x11500303
	classPlain = 0x11500404
)

var (
	nodeA  = MACAddress{6, 0, 0, 0, 0, 1} // this node's
	nodeB  = MACAddress{6, 0, 0, 0, 0, 2}
	madeUp = MACAddress{2, 6, 6, 6, 6, 6}
)

// victims are the classes of tenants on networks of all kinds: vmA and vmB are the ports of
// one on a plain network.
func victims() map[Match]uint32 {
	return map[Match]uint32{
		{VXLAN, 110, vmNone}: classA, {Geneve, 110, vmNone}: classA, {GRE, 110, vmNone}: classA, {VXLAN, 0, vmNone}: classA, {GRE, 0, vmNone}: classA,
		{VLAN, 20, vmNone}: classVLAN, {Plain, 0, vmA}: classPlain, {Plain, 0, vmB}: classPlain,
	}
}

// listed opens programs on node 10.0.0.1 that has tunnels to 10.0.0.2, on VLAN underlay.
func listed(t *testing.T, underlay uint16) *Programs {
	t.Helper()
	p := open(t, victims())
	if err := p.SetTunnels(addresses("10.0.0.1", "fd00::1"), addresses("10.0.0.2", "fd00::2"), underlay); err != nil {
		t.Fatal(err)
	}
	return p
}

// looks are packets between two addresses that look like tunnels with the victim's network, or
// with one that nobody has.
func looks(from, to string) map[string][]byte {
	v4 := func(protocol byte, payload []byte) []byte {
		return frame.IPv4(frame.V4{From: from, To: to, Protocol: protocol}, payload)
	}
	return map[string][]byte{
		"VXLAN": datagram(from, to, 4789, frame.VXLAN(110, inner())), "VXLAN of nobody's": datagram(from, to, 4789, frame.VXLAN(999, inner())),
		"VXLAN of network 0": datagram(from, to, 4789, frame.VXLAN(0, inner())), "Geneve": datagram(from, to, 6081, frame.Geneve(110, 3, inner())),
		"GRE": v4(frame.GRE, frame.GREHeader(0x2000, frame.TypeTEB, []uint32{110}, inner())), "GRE without a key": v4(frame.GRE, frame.GREHeader(0, frame.TypeTEB, nil, inner())),
		"GRE of nobody's": v4(frame.GRE, frame.GREHeader(0x2000, frame.TypeTEB, []uint32{999}, inner())), "GRE of IP": v4(frame.GRE, frame.GREHeader(0x2000, frame.TypeIPv4, []uint32{110}, guests())),
		"IP in IP": v4(4, guests()), "VXLAN in IP in IP": v4(4, datagram("10.0.0.1", "10.0.0.2", 4789, frame.VXLAN(110, inner()))),
		"a tag inside of VXLAN": datagram(from, to, 4789, frame.VXLAN(999, tagged(20))), "a tag inside of a key": v4(frame.GRE, frame.GREHeader(0x2000, frame.TypeTEB, []uint32{999}, tagged(20))),
	}
}

// inVLANs is a packet below tags, the outermost first.
func inVLANs(to, from MACAddress, packet []byte, ids ...uint16) []byte {
	kind := uint16(frame.TypeIPv4)
	for i := len(ids) - 1; i >= 0; i-- {
		packet, kind = frame.Tag(ids[i], kind, packet), frame.TypeVLAN
	}
	return ethernet(to, from, kind, packet)
}

// TestNothingInsideOfATenantsFrameChangesItsClass: not what looks like a tunnel, between
// whatever addresses, and not below whatever tags.
func TestNothingInsideOfATenantsFrameChangesItsClass(t *testing.T) {
	for underlay, p := range map[string]*Programs{"no end points": open(t, victims()), "untagged": listed(t, 0), "VLAN 7": listed(t, 7)} {
		for _, ends := range [][2]string{{"192.168.0.1", "192.168.0.2"}, {"10.0.0.1", "10.0.0.2"}, {"10.0.0.2", "10.0.0.1"}, {"10.0.0.1", "192.168.0.2"}} {
			for look, packet := range looks(ends[0], ends[1]) {
				for _, tc := range []struct {
					name          string
					data          []byte
					send, receive uint32
				}{
					{"in its VLAN", inVLANs(far, far, packet, 20), classVLAN, classVLAN},
					{"in its VLAN, by the nodes' addresses", inVLANs(nodeB, nodeA, packet, 20), classVLAN, classVLAN},
					{"below two tags", inVLANs(far, far, packet, 20, 30), classVLAN, classVLAN},
					{"below the underlay's tag, too", inVLANs(far, far, packet, 20, 7), classVLAN, classVLAN},
					{"in a VLAN without contract", inVLANs(far, far, packet, 30), 0, 0},
					{"below two tags without contract", inVLANs(far, far, packet, 30, 20), 0, 0},
					{"below a tag of priority and one of a VLAN", inVLANs(far, far, packet, 0, 20), 0, 0},
					{"from a port of a plain network to a node", inVLANs(nodeB, vmA, packet), classPlain, 0},
					{"from a node to a port of a plain network", inVLANs(vmB, nodeA, packet), 0, classPlain},
					{"between ports of a plain network", inVLANs(vmB, vmA, packet), classPlain, classPlain},
					{"the same below a tag of priority", inVLANs(vmB, vmA, packet, 0), classPlain, classPlain},
				} {
					if sent, received := run(t, p.Send(), tc.data), run(t, p.Receive(), tc.data); sent != tc.send || received != tc.receive {
						t.Errorf("%s, %s from %s to %s %s: sent in class %x, received in %x, want %x and %x", underlay, look, ends[0], ends[1], tc.name, sent, received, tc.send, tc.receive)
					}
				}
			}
		}
	}
}

// TestTheUnderlaysOwnVLAN: where the nodes' tunnels are in a VLAN, no other one has any, and
// neither has what is untagged.
func TestTheUnderlaysOwnVLAN(t *testing.T) {
	packet := datagram("10.0.0.1", "10.0.0.2", 4789, frame.VXLAN(110, inner()))
	for _, tc := range []struct {
		name     string
		data     []byte
		underlay uint16
		want     uint32
	}{
		{"untagged", inVLANs(nodeB, nodeA, packet), 0, classA},
		{"with a priority", inVLANs(nodeB, nodeA, packet, 0), 0, classA},
		{"in another VLAN", inVLANs(nodeB, nodeA, packet, 7), 0, 0},
		{"in the underlay's", inVLANs(nodeB, nodeA, packet, 7), 7, classA},
		{"untagged, the underlay is not", inVLANs(nodeB, nodeA, packet), 7, 0},
		{"in another than the underlay's", inVLANs(nodeB, nodeA, packet, 8), 7, 0},
		{"below another tag in the underlay's", inVLANs(nodeB, nodeA, packet, 7, 8), 7, 0},
		{"in the underlay's, which is a tenant's", inVLANs(nodeB, nodeA, packet, 20), 20, classVLAN},
	} {
		p := listed(t, tc.underlay)
		if got := run(t, p.Send(), tc.data); got != tc.want {
			t.Errorf("%s: class %x, want %x", tc.name, got, tc.want)
		}
	}
	p := listed(t, 7) // and back
	if err := p.SetTunnels(addresses("10.0.0.1"), addresses("10.0.0.2"), 0); err != nil {
		t.Fatal(err)
	}
	if got := run(t, p.Send(), inVLANs(nodeB, nodeA, packet)); got != classA {
		t.Errorf("untagged after all: class %x, want %x", got, classA)
	}
	if err := p.SetTunnels(nil, nil, 4095); err == nil {
		t.Error("a VLAN that cannot be is taken")
	}
}

// TestATagCountsInsideOfATunnelWithoutANetworkOnly: in one with a number it is the tenant's own.
func TestATagCountsInsideOfATunnelWithoutANetworkOnly(t *testing.T) {
	matches := map[Match]uint32{{VLAN, 20, vmNone}: classVLAN}
	for name, tc := range map[string]struct {
		data []byte
		want uint32
	}{
		"VXLAN of network 0":          {outer(4789, frame.VXLAN(0, tagged(20))), classVLAN},
		"VXLAN of a network":          {outer(4789, frame.VXLAN(1, tagged(20))), 0},
		"Geneve of network 0":         {outer(6081, frame.Geneve(0, 3, tagged(20))), classVLAN},
		"Geneve of a network":         {outer(6081, frame.Geneve(1, 3, tagged(20))), 0},
		"a tag of nobody's":           {outer(4789, frame.VXLAN(0, tagged(21))), 0},
		"a tunnel inside of a tunnel": {outer(4789, frame.VXLAN(1, outer(4789, frame.VXLAN(0, tagged(20))))), 0},
	} {
		p := open(t, matches)
		if sent, received := run(t, p.Send(), tc.data), run(t, p.Receive(), tc.data); sent != tc.want || received != tc.want {
			t.Errorf("%s: sent in class %x, received in %x, want %x", name, sent, received, tc.want)
		}
	}
}

// TestWhatCameInByAnotherInterfaceIsNoTunnelOfTheNode: whatever addresses a guest writes, its
// packet has come from its port; the node makes its own packets itself.
func TestWhatCameInByAnotherInterfaceIsNoTunnelOfTheNode(t *testing.T) {
	const ingressIndex, size = 36, 192 // offset in struct __sk_buff
	context := make([]byte, size)
	binary.NativeEndian.PutUint32(context[ingressIndex:], loopback)
	for name, p := range map[string]*Programs{"no end points": open(t, victims()), "listed": listed(t, 0)} {
		for _, from := range []MACAddress{nodeA, madeUp} {
			data := inVLANs(nodeB, from, datagram("10.0.0.1", "10.0.0.2", 4789, frame.VXLAN(110, inner())))
			if got := run(t, p.Send(), data); got != classA {
				t.Errorf("%s, the node's own: class %x, want %x", name, got, classA)
			}
			got, err := p.Send().Run(&ebpf.RunOptions{Data: data, Context: context})
			if err != nil || got != 0 {
				t.Errorf("%s, forwarded from %s: class %x, %v", name, from, got, err)
			}
		}
	}
}

// TestATagBesideTheFrameCountsAsOneInIt: the kernel takes the outermost tag off what it receives.
func TestATagBesideTheFrameCountsAsOneInIt(t *testing.T) {
	near, away := testutil.NewNetNS(t), testutil.NewNetNS(t)
	testutil.DisableIPv6(t, near)
	testutil.DisableIPv6(t, away)
	testutil.NewVethPair(t, near, "up0", away, "eth0")
	packet := datagram("10.0.0.2", "10.0.0.1", 4789, frame.VXLAN(110, inner()))
	for _, tc := range []struct {
		name     string
		ids      []uint16
		underlay uint16
		want     uint32
	}{
		{"untagged", nil, 0, classA},
		{"with a priority", []uint16{0}, 0, classA},
		{"a tenant's VLAN", []uint16{20}, 0, classVLAN},
		{"below two tags", []uint16{20, 30}, 0, classVLAN},
		{"below a tag of priority and one of a VLAN", []uint16{0, 20}, 0, 0},
		{"in the underlay's", []uint16{7}, 7, classA},
		{"below another tag in the underlay's", []uint16{7, 20}, 7, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := listed(t, tc.underlay)
			index := vporttest.Index(t, near, "up0")
			err := netns.Do(near, func() error {
				l, err := link.AttachTCX(link.TCXOptions{Program: p.Receive(), Interface: index, Attach: ebpf.AttachTCXIngress})
				if err == nil {
					t.Cleanup(func() { l.Close() })
				}
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			const frames = 5
			send(t, away, "eth0", inVLANs(nodeA, nodeB, packet, tc.ids...), frames)
			all := map[Class]Arrival{}
			testutil.WaitFor(t, "the frames to arrive", func() bool {
				clear(all)
				if err := arrivals(p, all); err != nil {
					t.Fatal(err)
				}
				arrived := uint64(0)
				for _, a := range all {
					arrived += a.Packets
				}
				return arrived >= frames
			})
			if got := all[Class{index, tc.want}]; got.Packets != frames || len(all) != 1 {
				t.Errorf("arrived %v, want %d of class %x", all, frames, tc.want)
			}
		})
	}
}

// send puts a frame on a device several times.
func send(t *testing.T, ns, device string, data []byte, times int) {
	t.Helper()
	index := vporttest.Index(t, ns, device)
	err := netns.Do(ns, func() error {
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		for range times {
			if err := unix.Sendto(fd, data, 0, &unix.SockaddrLinklayer{Ifindex: index}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
