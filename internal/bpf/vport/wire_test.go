package vport

import (
	"encoding/binary"
	"fmt"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"vigia/internal/testutil/frame"
)

// Offsets in struct __sk_buff.
const (
	skbGSOSegs = 164
	skbGSOSize = 176
	skbSize    = 192
)

// superFrame is what a tenant hands over with segmentation offload: one buffer, whose
// payload the kernel spreads over frames that all begin with its headers.
type superFrame struct {
	name     string
	frame    func(payload []byte) []byte
	headers  int // bytes that each frame on the wire begins with
	surplus  int // bytes that the super-frame has beyond those
	protocol int // index into Protocols
}

const (
	indexICMP     = 2
	indexARPND    = 3
	indexFragment = protocolFragment
	indexOther    = 5
)

func superFrames() []superFrame {
	a, b := frame.MAC{2, 0, 0, 0, 0, 1}, frame.MAC{2, 0, 0, 0, 0, 2}
	tcp := func(options int) func([]byte) []byte {
		return func(p []byte) []byte { return frame.TCPHeader(1, 2, frame.ACK, options, p) }
	}
	udp := func(port uint16) func([]byte) []byte {
		return func(p []byte) []byte { return frame.UDPHeader(4000, port, p) }
	}
	ipv4 := func(protocol byte, options int, inner func([]byte) []byte) func([]byte) []byte {
		return func(p []byte) []byte {
			return frame.IPv4(frame.V4{From: "10.0.0.1", To: "10.0.0.2", Protocol: protocol, Options: options}, inner(p))
		}
	}
	ipv6 := func(next byte, inner func([]byte) []byte) func([]byte) []byte {
		return func(p []byte) []byte { return frame.IPv6(next, "fd00::1", "fd00::2", inner(p)) }
	}
	extension := func(kind, next byte, inner func([]byte) []byte) func([]byte) []byte {
		return func(p []byte) []byte { return frame.Extension(kind, next, 0, inner(p)) }
	}
	eth := func(kind uint16, inner func([]byte) []byte) func([]byte) []byte {
		return func(p []byte) []byte { return frame.Ethernet(b, a, kind, inner(p)) }
	}
	tag := func(kind uint16, inner func([]byte) []byte) func([]byte) []byte {
		return func(p []byte) []byte { return frame.Tag(7, kind, inner(p)) }
	}
	vxlan := func(inner func([]byte) []byte) func([]byte) []byte {
		return func(p []byte) []byte { return frame.VXLAN(110, inner(p)) }
	}
	geneve := func(options int, inner func([]byte) []byte) func([]byte) []byte {
		return func(p []byte) []byte { return frame.Geneve(110, options, inner(p)) }
	}
	gre := func(flags, kind uint16, words []uint32, inner func([]byte) []byte) func([]byte) []byte {
		return func(p []byte) []byte { return frame.GREHeader(flags, kind, words, inner(p)) }
	}
	plain := func(p []byte) []byte { return p }
	inner4 := eth(frame.TypeIPv4, ipv4(frame.TCP, 0, tcp(12)))
	inner6 := eth(frame.TypeIPv6, ipv6(frame.TCP, tcp(0)))
	// A jumbogram's length stands in a hop-by-hop option, which no frame on the wire has.
	jumbo := func(p []byte) []byte {
		out := ipv6(frame.HopByHop, extension(frame.HopByHop, frame.TCP, tcp(0)))(p)
		out[4], out[5] = 0, 0
		return out
	}
	return []superFrame{
		{"TCP", inner4, 14 + 20 + 32, 0, protocolTCP},
		{"TCP behind IP options", eth(frame.TypeIPv4, ipv4(frame.TCP, 8, tcp(0))), 14 + 28 + 20, 0, protocolTCP},
		{"TCP below two tags", eth(frame.TypeQinQ, tag(frame.TypeVLAN, tag(frame.TypeIPv4, ipv4(frame.TCP, 0, tcp(0))))), 14 + 8 + 20 + 20, 0, protocolTCP},
		{"TCP over IPv6", inner6, 14 + 40 + 20, 0, protocolTCP},
		{
			"TCP behind three extensions", eth(frame.TypeIPv6, ipv6(frame.HopByHop, extension(frame.HopByHop, frame.Routing,
				extension(frame.Routing, frame.DestOptions, extension(frame.DestOptions, frame.TCP, tcp(0)))))), 14 + 40 + 24 + 20, 0, protocolTCP,
		},
		{"a jumbogram", eth(frame.TypeIPv6, jumbo), 14 + 40 + 20, 8, protocolTCP},
		{"UDP", eth(frame.TypeIPv4, ipv4(frame.UDP, 0, udp(443))), 14 + 20 + 8, 0, protocolUDP},
		{"UDP over IPv6 below a tag", eth(frame.TypeVLAN, tag(frame.TypeIPv6, ipv6(frame.UDP, udp(443)))), 14 + 4 + 40 + 8, 0, protocolUDP},
		{"UDP to the port of VXLAN that is none", eth(frame.TypeIPv4, ipv4(frame.UDP, 0, udp(4789))), 14 + 20 + 8, 0, protocolUDP},
		{"SCTP", eth(frame.TypeIPv4, ipv4(frame.SCTP, 0, plain)), 14 + 20 + 12, 0, indexOther},
		{"VXLAN", eth(frame.TypeIPv4, ipv4(frame.UDP, 0, func(p []byte) []byte { return udp(4789)(vxlan(inner4)(p)) })), 42 + 8 + 66, 0, protocolUDP},
		{
			"VXLAN at a port of one's own over IPv6", eth(frame.TypeIPv6, ipv6(frame.UDP, func(p []byte) []byte { return udp(8472)(vxlan(inner6)(p)) })),
			14 + 40 + 8 + 8 + 74, 0, protocolUDP,
		},
		{"Geneve with options", eth(frame.TypeIPv4, ipv4(frame.UDP, 0, func(p []byte) []byte { return udp(6081)(geneve(3, inner4)(p)) })), 42 + 8 + 12 + 66, 0, protocolUDP},
		{
			"UDP inside VXLAN", eth(frame.TypeIPv4, ipv4(frame.UDP, 0, func(p []byte) []byte {
				return udp(4789)(vxlan(eth(frame.TypeIPv4, ipv4(frame.UDP, 0, udp(443))))(p))
			})), 42 + 8 + 42, 0, protocolUDP,
		},
		{"GRE", eth(frame.TypeIPv4, ipv4(frame.GRE, 0, gre(0, frame.TypeIPv4, nil, ipv4(frame.TCP, 0, tcp(0))))), 34 + 4 + 40, 0, indexOther},
		{
			"GRE with key and sequence number around Ethernet",
			eth(frame.TypeIPv4, ipv4(frame.GRE, 0, gre(0x3000, frame.TypeTEB, []uint32{5, 1}, inner4))), 34 + 12 + 66, 0, indexOther,
		},
		{"IP in IP", eth(frame.TypeIPv4, ipv4(frame.IPIP, 0, ipv4(frame.TCP, 0, tcp(0)))), 34 + 40, 0, indexOther},
		{"IPv6 in IPv4", eth(frame.TypeIPv4, ipv4(frame.IPv6InIP, 0, ipv6(frame.TCP, tcp(0)))), 34 + 60, 0, indexOther},
		{"IPv4 in IPv6", eth(frame.TypeIPv6, ipv6(frame.IPIP, ipv4(frame.UDP, 0, udp(443)))), 54 + 28, 0, indexOther},
		{"ESP", eth(frame.TypeIPv4, ipv4(frame.ESP, 0, plain)), 34, 0, indexOther},
	}
}

// counting returns the programs that count, with their direction.
func (b *bench) counting() map[string]struct {
	program   *ebpf.Program
	direction Direction
} {
	type counter = struct {
		program   *ebpf.Program
		direction Direction
	}
	return map[string]counter{
		"from": {b.objects.VportTcxFrom, FromTenant}, "passed": {b.objects.VportTcxPassed, FromTenant}, "to": {b.objects.VportTcxTo, ToTenant},
	}
}

// offloaded runs a program on a super-frame; gsoSegs is 0 where a virtual machine
// leaves the number of frames open.
func (b *bench) offloaded(p *ebpf.Program, data []byte, gsoSegs, gsoSize uint32) {
	b.t.Helper()
	context := make([]byte, skbSize)
	binary.NativeEndian.PutUint32(context[skbGSOSegs:], gsoSegs)
	binary.NativeEndian.PutUint32(context[skbGSOSize:], gsoSize)
	if _, err := p.Run(&ebpf.RunOptions{Data: data, Context: context}); err != nil {
		b.t.Fatalf("run on %x: %v", data[:min(len(data), 64)], err)
	}
}

// sizes puts frames where SizeBounds says.
func sizes(frames ...int) (out [8]uint64) {
	bounds := SizeBounds()
	for _, f := range frames {
		at := 0
		for at < len(bounds) && float64(f) > bounds[at] {
			at++
		}
		out[at]++
	}
	return out
}

// grown is what counters have in a direction that they had not before.
func grown(before, after *Counters, d Direction) (bytes, packets [6]uint64, bySize [8]uint64) {
	for i := range bytes {
		bytes[i], packets[i] = after.Bytes[d][i]-before.Bytes[d][i], after.Packets[d][i]-before.Packets[d][i]
	}
	for i := range bySize {
		bySize[i] = after.Sizes[d][i] - before.Sizes[d][i]
	}
	return bytes, packets, bySize
}

// TestASuperFrameIsCountedAsItsFrames cuts each super-frame by hand and compares. The
// kernel's test run takes one page at most.
func TestASuperFrameIsCountedAsItsFrames(t *testing.T) {
	const segment, last = 300, 50
	b := newBench(t)
	for _, s := range superFrames() {
		for _, segments := range []int{2, 9} {
			payload := (segments-1)*segment + last
			data := s.frame(make([]byte, payload))
			if s.name == "SCTP" {
				payload -= 12 // its own header is in what was made
			}
			if got := len(data) - payload; got != s.headers+s.surplus {
				t.Fatalf("%s has %d bytes of headers, not %d", s.name, got, s.headers+s.surplus)
			}
			var frames []int
			total := 0
			for left := payload; left > 0; left -= segment {
				frames = append(frames, s.headers+min(left, segment))
				total += s.headers + min(left, segment)
			}
			for name, p := range b.counting() {
				for _, gsoSegs := range []int{0, len(frames)} {
					before := b.read()
					b.offloaded(p.program, data, uint32(gsoSegs), segment)
					after := b.read()
					bytes, packets, bySize := grown(&before, &after, p.direction)
					var wantBytes, wantPackets [6]uint64
					wantBytes[s.protocol], wantPackets[s.protocol] = uint64(total), uint64(len(frames))
					if bytes != wantBytes || packets != wantPackets || bySize != sizes(frames...) {
						t.Errorf("%s, %s, %d frames, gso_segs %d: counted %v bytes, %v packets, sizes %v; want %v, %v, %v",
							s.name, name, len(frames), gsoSegs, bytes, packets, bySize, wantBytes, wantPackets, sizes(frames...))
					}
				}
			}
		}
	}
}

// TestASuperFrameOfOneFrameIsOne has no more payload than a segment takes.
func TestASuperFrameOfOneFrameIsOne(t *testing.T) {
	b := newBench(t)
	data := udpFrame("10.0.0.2", 443, 200)
	for name, p := range b.counting() {
		for _, gsoSegs := range []uint32{0, 1} {
			before := b.read()
			b.offloaded(p.program, data, gsoSegs, 200)
			after := b.read()
			bytes, packets, bySize := grown(&before, &after, p.direction)
			if bytes[protocolUDP] != uint64(len(data)) || packets[protocolUDP] != 1 || bySize != sizes(len(data)) {
				t.Errorf("%s, gso_segs %d: %v bytes, %v packets, sizes %v", name, gsoSegs, bytes, packets, bySize)
			}
		}
	}
}

// TestPacketsOfSCTPHaveSizesOfTheirOwn gives the kernel's mark for that.
func TestPacketsOfSCTPHaveSizesOfTheirOwn(t *testing.T) {
	const bySegments, packets, headers = 0xffff, 5, 14 + 20 + 12
	b := newBench(t)
	data := ethernet(ethIPv4, ipv4("10.0.0.1", "10.0.0.2", frame.SCTP, 0, 0, make([]byte, 12+900)))
	for name, p := range b.counting() {
		before := b.read()
		b.offloaded(p.program, data, packets, bySegments)
		after := b.read()
		bytes, n, bySize := grown(&before, &after, p.direction)
		total := len(data) + (packets-1)*headers
		each := total / packets
		if bytes[indexOther] != uint64(total) || n[indexOther] != packets || bySize != sizes(each, each, each, each, each) {
			t.Errorf("%s: %v bytes, %v packets, sizes %v; want %d bytes", name, bytes, n, bySize, total)
		}
	}
}

// TestASuperFrameWithHeadersThatNobodyCanReadCountsOnce holds on to what is sure.
func TestASuperFrameWithHeadersThatNobodyCanReadCountsOnce(t *testing.T) {
	b := newBench(t)
	for name, data := range map[string][]byte{
		"an unknown ethertype": ethernet(frame.TypeUnused, make([]byte, 900)),
		"a cut GRE header":     ethernet(ethIPv4, ipv4("10.0.0.1", "10.0.0.2", frame.GRE, 0, 0, []byte{0})),
		"a cut TCP header":     ethernet(ethIPv4, ipv4("10.0.0.1", "10.0.0.2", frame.TCP, 0, 0, make([]byte, 8))),
		"a cut tag":            ethernet(ethVLAN, []byte{0, 1}),
	} {
		for which, p := range b.counting() {
			before := b.read()
			b.offloaded(p.program, data, 3, 300)
			after := b.read()
			bytes, packets, _ := grown(&before, &after, p.direction)
			var sum, n uint64
			for i := range bytes {
				sum, n = sum+bytes[i], n+packets[i]
			}
			if sum != uint64(len(data)) || n != 3 {
				t.Errorf("%s, %s: %d bytes, %d packets; want %d and 3", name, which, sum, n, len(data))
			}
		}
	}
}

// TestLimitsTakeTheBytesOfTheWire polices a super-frame as the frames that it is.
func TestLimitsTakeTheBytesOfTheWire(t *testing.T) {
	const segments, segment = 4, 500
	data := udpFrame("10.0.0.2", 443, segments*segment)
	wire := uint64(segments * (segment + 42))
	b := newBench(t)
	b.setLimit(LimitRequest{Rate: 1, Burst: 3*wire - 1})
	for range 5 {
		b.offloaded(b.objects.VportTcxFrom, data, segments, segment)
	}
	c := b.read()
	if c.PolicedPackets != 3*segments || c.PolicedBytes != 3*wire || c.Bytes[FromTenant][protocolUDP] != 5*wire {
		t.Errorf("%d packets, %d bytes policed of %d; want %d, %d of %d",
			c.PolicedPackets, c.PolicedBytes, c.Bytes[FromTenant][protocolUDP], 3*segments, 3*wire, 5*wire)
	}
	if err := b.RemoveLimit(loopback); err != nil {
		t.Fatal(err)
	}
	b.setPair(dest("10.0.0.3"), Pair{Rate: 1, Burst: 2 * wire, TTL: time.Minute})
	for range 5 {
		b.offloaded(b.objects.VportTcxFrom, udpFrame("10.0.0.3", 443, segments*segment), segments, segment)
	}
	list, err := b.Pairs()
	if err != nil || len(list) != 1 || list[0].OfferedBytes != 5*wire || list[0].DroppedBytes != 3*wire || list[0].DroppedPackets != 3*segments {
		t.Errorf("limits %+v, %v; a frame has %d bytes on the wire", list, err, wire)
	}
}

// TestXDPCountsWhatItDropsAndLeavesTheRest keeps the two hooks of a port of Open vSwitch
// from counting a frame twice, or never.
func TestXDPCountsWhatItDropsAndLeavesTheRest(t *testing.T) {
	b := newBench(t)
	data := udpFrame("10.0.0.2", 443, 300)
	b.setLimit(LimitRequest{Rate: 1, Burst: 3 * uint64(len(data))})
	for range 10 {
		if b.run(b.objects.VportXdpFrom, data) == xdpPass {
			b.run(b.objects.VportTcxPassed, data)
		}
	}
	b.run(b.objects.VportTcxPassed, tcpFrame("10.0.0.2"))
	c := b.read()
	if c.Packets[FromTenant][protocolUDP] != 10 || c.Bytes[FromTenant][protocolUDP] != 10*uint64(len(data)) || c.Sizes[FromTenant] != sum8(sizes(54), 10, sizes(len(data))) {
		t.Errorf("counted %+v", c)
	}
	if c.PolicedPackets != 7 || c.PolicedBytes != 7*uint64(len(data)) {
		t.Errorf("%d packets policed, want 7", c.PolicedPackets)
	}
	if s, _ := c.OfferedUDP(); s != 10*uint64(len(data)) {
		t.Errorf("%d bytes offered", s)
	}
}

// sum8 adds b n times to a.
func sum8(a [8]uint64, n uint64, b [8]uint64) [8]uint64 {
	for i := range a {
		a[i] += n * b[i]
	}
	return a
}

// TestEveryEndOfARangeOfSizes runs frames of every size next to a bound that fits in the
// kernel's test run.
func TestEveryEndOfARangeOfSizes(t *testing.T) {
	b := newBench(t)
	for _, bound := range []int{64, 128, 256, 512, 1024, 1518} {
		for _, size := range []int{bound - 1, bound, bound + 1} {
			t.Run(fmt.Sprint(size), func(t *testing.T) {
				data := udpFrame("10.0.0.2", 9, size-42)
				for name, p := range b.counting() {
					before := b.read()
					b.run(p.program, data)
					after := b.read()
					if _, _, got := grown(&before, &after, p.direction); got != sizes(size) {
						t.Errorf("%s: sizes %v, want %v", name, got, sizes(size))
					}
				}
			})
		}
	}
}
