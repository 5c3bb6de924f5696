package classify

import (
	"bytes"
	"encoding/binary"
	"net"
	"testing"

	"github.com/cilium/ebpf"

	"vigia/internal/testutil"
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

func join(parts ...[]byte) []byte { return bytes.Join(parts, nil) }

func ethernet(to, from MACAddress, kind uint16) []byte {
	return join(to[:], from[:], binary.BigEndian.AppendUint16(nil, kind))
}

func vlan(id, kind uint16) []byte {
	return binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(nil, id), kind)
}

func ipv4(protocol byte, from, to string) []byte {
	return join([]byte{0x45, 0, 0, 0, 0, 0, 0, 0, 64, protocol, 0, 0}, net.ParseIP(from).To4(), net.ParseIP(to).To4())
}

func ipv6(next byte, from, to string) []byte {
	return join([]byte{0x60, 0, 0, 0, 0, 0, next, 64}, net.ParseIP(from).To16(), net.ParseIP(to).To16())
}

func udp(port uint16) []byte {
	return join([]byte{0x30, 0x39}, binary.BigEndian.AppendUint16(nil, port), make([]byte, 4))
}

func vni(id uint32) []byte {
	return join([]byte{8, 0, 0, 0}, binary.BigEndian.AppendUint32(nil, id<<8))
}

func geneve(id uint32, options int) []byte {
	return join([]byte{byte(options), 0, 0x65, 0x58}, binary.BigEndian.AppendUint32(nil, id<<8), make([]byte, options*4))
}

func gre(flags uint16, words ...uint32) []byte {
	b := join(binary.BigEndian.AppendUint16(nil, flags), []byte{0x65, 0x58})
	for _, w := range words {
		b = binary.BigEndian.AppendUint32(b, w)
	}
	return b
}

// inner is what vmA sends to vmB.
func inner() []byte {
	return join(ethernet(vmB, vmA, 0x0800), ipv4(17, "192.168.0.1", "192.168.0.2"), udp(53), make([]byte, 200))
}

func outer() []byte {
	return join(ethernet(far, far, 0x0800), ipv4(17, "10.0.0.1", "10.0.0.2"), udp(4789))
}

func run(t testing.TB, p *ebpf.Program, frame []byte) uint32 {
	t.Helper()
	verdict, err := p.Run(&ebpf.RunOptions{Data: frame})
	if err != nil {
		t.Fatal(err)
	}
	return verdict
}

func TestFramesFindTheirClass(t *testing.T) {
	overVXLAN := join(outer(), vni(110), inner())
	taggedInner := join(ethernet(vmB, vmA, 0x8100), vlan(20, 0x0800), inner()[14:])
	greHead := join(ethernet(far, far, 0x0800), ipv4(47, "10.0.0.1", "10.0.0.2"))
	for _, tc := range []struct {
		name    string
		frame   []byte
		matches map[Match]uint32
		send    uint32
		receive uint32
	}{
		{"a VXLAN network", overVXLAN, map[Match]uint32{{VXLAN, 110, vmNone}: classA}, classA, classA},
		{"another VXLAN network", overVXLAN, map[Match]uint32{{VXLAN, 111, vmNone}: classA}, 0, 0},
		{
			"VXLAN over IPv6", join(ethernet(far, far, 0x86dd), ipv6(17, "fd00::1", "fd00::2"), udp(4789), vni(110), inner()),
			map[Match]uint32{{VXLAN, 110, vmNone}: classA},
			classA, classA,
		},
		{
			"VXLAN below a VLAN", join(ethernet(far, far, 0x8100), vlan(7, 0x0800), ipv4(17, "10.0.0.1", "10.0.0.2"), udp(4789), vni(110), inner()),
			map[Match]uint32{{VXLAN, 110, vmNone}: classA, {VLAN, 7, vmNone}: classB},
			classA, classA,
		},
		{
			"Geneve with options", join(ethernet(far, far, 0x0800), ipv4(17, "10.0.0.1", "10.0.0.2"), udp(6081), geneve(5, 3), inner()),
			map[Match]uint32{{Geneve, 5, vmA}: classA, {Geneve, 5, vmB}: classB},
			classA, classB,
		},
		{"a GRE key", join(greHead, gre(0x2000, 100), inner()), map[Match]uint32{{GRE, 100, vmNone}: classA}, classA, classA},
		{
			"a GRE key after a checksum, before a sequence number", join(greHead, gre(0xb000, 0xffff0000, 100, 1), inner()),
			map[Match]uint32{{GRE, 100, vmA}: classA, {GRE, 100, vmB}: classB},
			classA, classB,
		},
		{"GRE without a key", join(greHead, gre(0), inner()), map[Match]uint32{{GRE, 0, vmNone}: classA}, classA, classA},
		{"a VLAN", taggedInner, map[Match]uint32{{VLAN, 20, vmNone}: classA}, classA, classA},
		{
			"an interface of a VLAN before the VLAN", taggedInner,
			map[Match]uint32{{VLAN, 20, vmNone}: classA, {VLAN, 20, vmB}: classB},
			classA, classB,
		},
		{"a VLAN inside one shared tunnel", join(outer(), vni(1), taggedInner), map[Match]uint32{{VLAN, 20, vmNone}: classB}, classB, classB},
		{"a MAC address", inner(), map[Match]uint32{{Plain, 0, vmA}: classA, {Plain, 0, vmB}: classB}, classA, classB},
		{"the address of another network", overVXLAN, map[Match]uint32{{VXLAN, 111, vmA}: classA, {Plain, 0, vmB}: classB}, 0, 0},
		{
			"a tag that the tenant wrote into its own network", join(outer(), vni(110), taggedInner),
			map[Match]uint32{{VXLAN, 110, vmNone}: classA, {VLAN, 20, vmNone}: classB},
			classA, classA,
		},
		{"a later fragment of a tunnel's packet", fragment(overVXLAN), map[Match]uint32{{VXLAN, 110, vmNone}: classA}, 0, 0},
		{"a cut VXLAN header", overVXLAN[:44], map[Match]uint32{{VXLAN, 110, vmNone}: classA}, 0, 0},
		{"ARP", join(ethernet(vmB, vmA, 0x0806), make([]byte, 28)), map[Match]uint32{{Plain, 0, vmB}: classB}, 0, classB},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := open(t, tc.matches)
			if got := run(t, p.Send(), tc.frame); got != tc.send {
				t.Errorf("sent: class %x, want %x", got, tc.send)
			}
			if got := run(t, p.Receive(), tc.frame); got != tc.receive {
				t.Errorf("received: class %x, want %x", got, tc.receive)
			}
			if got := run(t, p.All(), tc.frame); got != 0xffffffff {
				t.Errorf("not everything matches: %x", got)
			}
		})
	}
}

var vmNone MACAddress

// fragment turns the outer packet into a later fragment.
func fragment(frame []byte) []byte {
	out := bytes.Clone(frame)
	out[14+7] = 5
	return out
}

func TestArrivalsAreCountedByClassAndSource(t *testing.T) {
	p := open(t, map[Match]uint32{{VXLAN, 110, vmNone}: classA})
	frame := join(outer(), vni(110), inner())
	for range 5 {
		run(t, p.Receive(), frame)
	}
	run(t, p.Send(), frame) // what is sent is not counted
	plain := join(ethernet(vmB, vmA, 0x86dd), ipv6(6, "fd00::1", "fd00::2"), make([]byte, 20))
	run(t, p.Receive(), plain)
	want := Arrival{Bytes: uint64(5 * len(frame)), Packets: 5}
	if got, err := p.Arrived(loopback, classA); err != nil || got != want {
		t.Errorf("arrived %+v %v, want %+v", got, err, want)
	}
	all := map[Class]Arrival{}
	if err := p.Arrivals(all); err != nil || all[Class{loopback, classA}] != want {
		t.Errorf("all arrivals %+v, %v", all, err)
	}
	if got, err := p.Arrived(loopback, classB); err != nil || got != (Arrival{}) {
		t.Errorf("arrived %+v %v for a class without traffic", got, err)
	}
	got := map[Source]Arrival{}
	if err := p.Sources(func(s Source, a Arrival) { got[s] = a }); err != nil {
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
	frame := join(outer(), vni(110), inner())
	for range 3 {
		for name, program := range map[string]*ebpf.Program{"send": p.Send(), "receive": p.Receive()} {
			b.Run(name, func(b *testing.B) { testutil.BenchmarkProgram(b, program, frame) })
		}
	}
}
