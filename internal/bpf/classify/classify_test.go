package classify

import (
	"bytes"
	"net"
	"testing"

	"github.com/cilium/ebpf"

	"vigia/internal/testutil"
	"vigia/internal/testutil/frame"
)

const (
	loopback = 1 // the interface that the kernel's test run pretends
	classA   = 0x11500101
	classB   = 0x11500202
)

var (
	vmA = MACAddress{2, 0, 0, 0, 0, 0xa}
	vmB = MACAddress{2, 0, 0, 0, 0, 0xb}
	far = MACAddress{2, 0, 0, 0, 0, 0xf}
)

func open(t testing.TB, matches map[Match]uint32) *Programs {
	t.Helper()
	p, err := Open(testutil.NewBPFFS(t), 4)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	if _, err := p.SetMatches(matches); err != nil {
		t.Fatal(err)
	}
	return p
}

func mac(m MACAddress) frame.MAC { return frame.MAC(m) }

func ethernet(to, from MACAddress, kind uint16, payload []byte) []byte {
	return frame.Ethernet(mac(to), mac(from), kind, payload)
}

// datagram is UDP between two addresses of IPv4 to a port.
func datagram(from, to string, port uint16, payload []byte) []byte {
	return frame.IPv4(frame.V4{From: from, To: to, Protocol: frame.UDP}, frame.UDPHeader(12345, port, payload))
}

// guests is what one of vmA's datagrams is behind its MAC header.
func guests() []byte { return datagram("192.168.0.1", "192.168.0.2", 53, make([]byte, 200)) }

// inner is what vmA sends to vmB.
func inner() []byte { return ethernet(vmB, vmA, frame.TypeIPv4, guests()) }

// tagged is the same below a tag that vmA wrote.
func tagged(id uint16) []byte {
	return ethernet(vmB, vmA, frame.TypeVLAN, frame.Tag(id, frame.TypeIPv4, guests()))
}

// outer is a packet between two nodes.
func outer(port uint16, payload []byte) []byte {
	return ethernet(far, far, frame.TypeIPv4, datagram("10.0.0.1", "10.0.0.2", port, payload))
}

func overGRE(flags uint16, words []uint32) []byte {
	return ethernet(far, far, frame.TypeIPv4, frame.IPv4(frame.V4{From: "10.0.0.1", To: "10.0.0.2", Protocol: frame.GRE},
		frame.GREHeader(flags, frame.TypeTEB, words, inner())))
}

func run(t testing.TB, p *ebpf.Program, data []byte) uint32 {
	t.Helper()
	verdict, err := p.Run(&ebpf.RunOptions{Data: data})
	if err != nil {
		t.Fatal(err)
	}
	return verdict
}

func TestFramesFindTheirClass(t *testing.T) {
	overVXLAN := outer(4789, frame.VXLAN(110, inner()))
	for _, tc := range []struct {
		name    string
		data    []byte
		matches map[Match]uint32
		send    uint32
		receive uint32
	}{
		{"a VXLAN network", overVXLAN, map[Match]uint32{{VXLAN, 110, vmNone}: classA}, classA, classA},
		{"another VXLAN network", overVXLAN, map[Match]uint32{{VXLAN, 111, vmNone}: classA}, 0, 0},
		{
			"VXLAN over IPv6", ethernet(far, far, frame.TypeIPv6, frame.IPv6(frame.UDP, "fd00::1", "fd00::2", frame.UDPHeader(1, 4789, frame.VXLAN(110, inner())))),
			map[Match]uint32{{VXLAN, 110, vmNone}: classA},
			classA, classA,
		},
		{
			"VXLAN in a VLAN that is not the underlay's", ethernet(far, far, frame.TypeVLAN, frame.Tag(7, frame.TypeIPv4, overVXLAN[14:])),
			map[Match]uint32{{VXLAN, 110, vmNone}: classA, {VLAN, 8, vmNone}: classB},
			0, 0,
		},
		{
			"VXLAN in a tenant's VLAN", ethernet(far, far, frame.TypeVLAN, frame.Tag(7, frame.TypeIPv4, overVXLAN[14:])),
			map[Match]uint32{{VXLAN, 110, vmNone}: classA, {VLAN, 7, vmNone}: classB},
			classB, classB,
		},
		{
			"Geneve with options", outer(6081, frame.Geneve(5, 3, inner())),
			map[Match]uint32{{Geneve, 5, vmA}: classA, {Geneve, 5, vmB}: classB},
			classA, classB,
		},
		{"a GRE key", overGRE(0x2000, []uint32{100}), map[Match]uint32{{GRE, 100, vmNone}: classA}, classA, classA},
		{
			"a GRE key after a checksum, before a sequence number", overGRE(0xb000, []uint32{0xffff0000, 100, 1}),
			map[Match]uint32{{GRE, 100, vmA}: classA, {GRE, 100, vmB}: classB},
			classA, classB,
		},
		{"GRE without a key", overGRE(0, nil), map[Match]uint32{{GRE, 0, vmNone}: classA}, classA, classA},
		{"a VLAN", tagged(20), map[Match]uint32{{VLAN, 20, vmNone}: classA}, classA, classA},
		{
			"an interface of a VLAN before the VLAN", tagged(20),
			map[Match]uint32{{VLAN, 20, vmNone}: classA, {VLAN, 20, vmB}: classB},
			classA, classB,
		},
		{"a VLAN inside one shared tunnel", outer(4789, frame.VXLAN(0, tagged(20))), map[Match]uint32{{VLAN, 20, vmNone}: classB}, classB, classB},
		{"a MAC address", inner(), map[Match]uint32{{Plain, 0, vmA}: classA, {Plain, 0, vmB}: classB}, classA, classB},
		{"the address of another network", overVXLAN, map[Match]uint32{{VXLAN, 111, vmA}: classA, {Plain, 0, vmB}: classB}, 0, 0},
		{
			"a tag that the tenant wrote into its own network", outer(4789, frame.VXLAN(110, tagged(20))),
			map[Match]uint32{{VXLAN, 110, vmNone}: classA, {VLAN, 20, vmNone}: classB},
			classA, classA,
		},
		{"a later fragment of a tunnel's packet", fragment(overVXLAN), map[Match]uint32{{VXLAN, 110, vmNone}: classA}, 0, 0},
		{"a cut VXLAN header", overVXLAN[:44], map[Match]uint32{{VXLAN, 110, vmNone}: classA}, 0, 0},
		{"ARP", ethernet(vmB, vmA, frame.TypeARP, make([]byte, 28)), map[Match]uint32{{Plain, 0, vmB}: classB}, 0, classB},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := open(t, tc.matches)
			if got := run(t, p.Send(), tc.data); got != tc.send {
				t.Errorf("sent: class %x, want %x", got, tc.send)
			}
			if got := run(t, p.Receive(), tc.data); got != tc.receive {
				t.Errorf("received: class %x, want %x", got, tc.receive)
			}
			if got := run(t, p.All(), tc.data); got != 0xffffffff {
				t.Errorf("not everything matches: %x", got)
			}
		})
	}
}

// TestLowerEffortOfNoContractWaitsApart marks what tells nothing about whose it is: of a tenant it changes nothing.
func TestLowerEffortOfNoContractWaitsApart(t *testing.T) {
	const dscp, ecn = 1, 3
	marked := func(kind uint16, packet []byte) []byte {
		mark(kind, packet, dscp)
		return packet
	}
	alone := ethernet(far, far, frame.TypeIPv4, marked(frame.TypeIPv4, guests()))
	aloneV6 := ethernet(far, far, frame.TypeIPv6, marked(frame.TypeIPv6, frame.IPv6(frame.UDP, "fd00::1", "fd00::2", guests()[20:])))
	guest := ethernet(vmB, vmA, frame.TypeIPv4, marked(frame.TypeIPv4, guests()))
	congested := bytes.Clone(alone)
	congested[15] |= ecn
	outside := outer(4789, frame.VXLAN(110, inner()))
	mark(frame.TypeIPv4, outside[14:], dscp)
	other := bytes.Clone(alone)
	mark(frame.TypeIPv4, other[14:], 8) // CS1
	for _, tc := range []struct {
		name string
		data []byte
		want uint32
	}{
		{"IPv4", alone, LowerEffort},
		{"IPv6", aloneV6, LowerEffort},
		{"congestion experienced", congested, LowerEffort},
		{"another code point", other, 0},
		{"inside a tunnel", outer(4789, frame.VXLAN(110, guest)), LowerEffort},
		{"outside of a tunnel alone", outside, 0},
		{"inside a tenant's network", outer(4789, frame.VXLAN(120, guest)), classA},
		{"no IP", ethernet(vmB, vmA, frame.TypeARP, make([]byte, 28)), 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := open(t, map[Match]uint32{{VXLAN, 120, vmNone}: classA})
			if got := run(t, p.Send(), tc.data); got != tc.want {
				t.Errorf("sent: class %x, want %x", got, tc.want)
			}
			if got := run(t, p.Receive(), tc.data); got != tc.want {
				t.Errorf("received: class %x, want %x", got, tc.want)
			}
			if tc.want != LowerEffort {
				return
			}
			if a, err := p.Arrived(loopback, 0); err != nil || a.Packets != 1 {
				t.Errorf("counted with what has no contract: %+v, %v", a, err)
			}
		})
	}
}

var vmNone MACAddress

// fragment turns the outer packet into a later fragment.
func fragment(data []byte) []byte {
	out := bytes.Clone(data)
	out[14+7] = 5
	return out
}

func TestArrivalsAreCountedByClassAndSource(t *testing.T) {
	p := open(t, map[Match]uint32{{VXLAN, 110, vmNone}: classA})
	data := outer(4789, frame.VXLAN(110, inner()))
	for range 5 {
		run(t, p.Receive(), data)
	}
	run(t, p.Send(), data) // what is sent is not counted
	plain := ethernet(vmB, vmA, frame.TypeIPv6, frame.IPv6(frame.TCP, "fd00::1", "fd00::2", make([]byte, 20)))
	run(t, p.Receive(), plain)
	want := Arrival{Bytes: uint64(5 * len(data)), Packets: 5}
	if got, err := p.Arrived(loopback, classA); err != nil || got != want {
		t.Errorf("arrived %+v %v, want %+v", got, err, want)
	}
	all := map[Class]Arrival{}
	if err := arrivals(p, all); err != nil || all[Class{loopback, classA}] != want {
		t.Errorf("all arrivals %+v, %v", all, err)
	}
	if got, err := p.Arrived(loopback, classB); err != nil || got != (Arrival{}) {
		t.Errorf("arrived %+v %v for a class without traffic", got, err)
	}
	got := map[Source]Arrival{}
	if err := p.TakeSources(func(s *Source, a Arrival) { got[*s] = a }); err != nil {
		t.Fatal(err)
	}
	tunnelled := Source{
		Link: loopback, Class: classA, Host: [4]byte{10, 0, 0, 1}, Destination: AddressOf(net.ParseIP("192.168.0.2")), From: vmA, To: vmB,
	}
	direct := Source{Link: loopback, Destination: AddressOf(net.ParseIP("fd00::2")), From: vmA, To: vmB}
	if len(got) != 2 || got[tunnelled] != want || got[direct] != (Arrival{uint64(len(plain)), 1}) {
		t.Errorf("sources %+v", got)
	}
}

func TestMatchesBecomeExactlyWhatIsWanted(t *testing.T) {
	p := open(t, map[Match]uint32{{VXLAN, 1, vmNone}: classA, {VXLAN, 2, vmNone}: classA})
	for _, step := range []struct {
		want    map[Match]uint32
		changed int
	}{
		{map[Match]uint32{{VXLAN, 1, vmNone}: classA, {VXLAN, 2, vmNone}: classA}, 0},
		{map[Match]uint32{{VXLAN, 1, vmNone}: classB, {VXLAN, 3, vmNone}: classA}, 3},
		{nil, 2},
	} {
		if changed, err := p.SetMatches(step.want); err != nil || changed != step.changed {
			t.Errorf("%v: %d changes, %v; want %d", step.want, changed, err, step.changed)
		}
	}
}

func TestMapsOutliveTheProcess(t *testing.T) {
	dir := testutil.NewBPFFS(t)
	first, err := Open(dir, 4)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := first.SetMatches(map[Match]uint32{{VLAN, 9, vmNone}: classA}); err != nil {
		t.Fatal(err)
	}
	first.Close()
	second, err := Open(dir, 4)
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	if changed, err := second.SetMatches(map[Match]uint32{{VLAN, 9, vmNone}: classA}); err != nil || changed != 0 {
		t.Errorf("%d changes, %v: the matches were lost", changed, err)
	}
}

// BenchmarkClassify prints what a classifier costs: ns/packet is what it takes beyond a
// program that does nothing (empty-ns), which is the cost of the test run itself; raw-ns
// is all of it. There are some rounds, as of BenchmarkVport.
func BenchmarkClassify(b *testing.B) {
	p := open(b, map[Match]uint32{{VXLAN, 110, vmNone}: classA})
	data := outer(4789, frame.VXLAN(110, inner()))
	for range 3 {
		for name, program := range map[string]*ebpf.Program{"send": p.Send(), "receive": p.Receive()} {
			b.Run(name, func(b *testing.B) { testutil.BenchmarkProgram(b, program, data) })
		}
	}
}
