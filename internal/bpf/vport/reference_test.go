package vport

import (
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"testing"

	"vigia/internal/testutil/frame"
)

// reference says, by another reading of the standards than the programs', which protocol a
// frame is of, as an index into Protocols. Beyond two tags and six extension headers
// everything is another protocol, and so is what ends before it can be told.
func reference(data []byte) int {
	kind, rest := binary.BigEndian.Uint16(data[12:]), data[14:]
	for range 2 {
		if kind != frame.TypeVLAN && kind != frame.TypeQinQ {
			break
		}
		if len(rest) < 6 { // the tag, and the two bytes that the kernel wants behind it
			return indexOther
		}
		kind, rest = binary.BigEndian.Uint16(rest[2:]), rest[4:]
	}
	switch kind {
	case frame.TypeARP:
		return indexARPND
	case frame.TypeIPv4:
		return reference4(rest)
	case frame.TypeIPv6:
		return reference6(rest)
	}
	return indexOther
}

func reference4(packet []byte) int {
	if len(packet) < 20 {
		return indexOther
	}
	if binary.BigEndian.Uint16(packet[6:])&0x1fff != 0 {
		return indexFragment
	}
	header := int(packet[0]&0xf) * 4
	return transport(packet[9], packet[min(header, len(packet)):])
}

func reference6(packet []byte) int {
	if len(packet) < 40 {
		return indexOther
	}
	next, rest := packet[6], packet[40:]
	for range maxIPv6Extensions {
		if !slices.Contains([]byte{frame.HopByHop, frame.Routing, frame.Fragment, frame.DestOptions}, next) {
			break
		}
		if len(rest) < 8 {
			return indexOther
		}
		size := 8 * (int(rest[1]) + 1)
		if next == frame.Fragment {
			if binary.BigEndian.Uint16(rest[2:])>>3 != 0 {
				return indexFragment
			}
			size = 8
		}
		next = rest[0]
		rest = rest[min(size, len(rest)):]
	}
	return transport(next, rest)
}

// maxIPv6Extensions is how many the programs look behind.
const maxIPv6Extensions = 6

func transport(protocol byte, rest []byte) int {
	switch protocol {
	case frame.TCP:
		return protocolTCP
	case frame.UDP:
		return protocolUDP
	case frame.ICMP:
		return indexICMP
	case frame.ICMPv6:
		if len(rest) > 0 && rest[0] >= 133 && rest[0] <= 137 {
			return indexARPND
		}
		return indexICMP
	}
	return indexOther
}

// randomFrame nests random headers, and then may cut the frame or alter a byte of it.
func randomFrame(r *rand.Rand) []byte {
	payload := make([]byte, r.IntN(200))
	for i := range payload {
		payload[i] = byte(r.Uint32())
	}
	pick := func(of ...byte) byte { return of[r.IntN(len(of))] }
	next := pick(frame.TCP, frame.UDP, frame.ICMP, frame.ICMPv6, frame.GRE, frame.SCTP, frame.NoNext, 253)
	switch next {
	case frame.TCP:
		payload = frame.TCPHeader(uint16(r.Uint32()), 80, pick(frame.SYN, frame.ACK, frame.SYN|frame.ACK), 4*r.IntN(11), payload)
	case frame.UDP:
		payload = frame.UDPHeader(uint16(r.Uint32()), 53, payload)
	case frame.ICMPv6:
		payload = append([]byte{pick(128, 132, 133, 135, 137, 138), 0}, payload...)
	}
	var kind uint16
	switch r.IntN(5) {
	case 0, 1:
		flags := []uint16{0, 0x4000, 0x2000, 0x2001, 0x1fff, 0x0001}[r.IntN(6)]
		payload, kind = frame.IPv4(frame.V4{From: "10.0.0.1", To: "10.0.0.2", Protocol: next, Flags: flags, Options: 4 * r.IntN(11)}, payload), frame.TypeIPv4
	case 2, 3:
		for range r.IntN(9) {
			extension := pick(frame.HopByHop, frame.Routing, frame.Fragment, frame.DestOptions)
			payload, next = frame.Extension(extension, next, []uint16{0, 1, 8, 0xfff8}[r.IntN(4)], payload), extension
		}
		payload, kind = frame.IPv6(next, "fd00::1", "fd00::2", payload), frame.TypeIPv6
	default:
		kind = []uint16{frame.TypeARP, frame.TypeUnused, 0x88cc, 40}[r.IntN(4)]
	}
	for range r.IntN(4) {
		payload, kind = frame.Tag(uint16(r.Uint32()), kind, payload), []uint16{frame.TypeVLAN, frame.TypeQinQ}[r.IntN(2)]
	}
	out := ethernet(kind, payload)
	switch r.IntN(4) {
	case 0:
		out = out[:14+r.IntN(len(out)-13)]
	case 1:
		out[12+r.IntN(len(out)-12)] = byte(r.Uint32())
	}
	return out
}

// runs tells whether the kernel's test run takes a frame: it wants whole IP headers right
// behind the MAC header.
func runs(data []byte) bool {
	switch binary.BigEndian.Uint16(data[12:]) {
	case frame.TypeIPv4:
		return len(data) >= 14+20
	case frame.TypeIPv6:
		return len(data) >= 14+40
	}
	return true
}

// agree holds what all programs that count say of a frame to the reference.
func (b *bench) agree(data []byte) {
	b.t.Helper()
	want := reference(data)
	for name, p := range b.counting() {
		before := b.read()
		b.run(p.program, data)
		after := b.read()
		bytes, packets, bySize := grown(&before, &after, p.direction)
		var wantBytes, wantPackets [6]uint64
		wantBytes[want], wantPackets[want] = uint64(len(data)), 1
		if bytes != wantBytes || packets != wantPackets || bySize != sizes(len(data)) {
			b.t.Errorf("%s: % x\ncounts as %v bytes, %v packets, sizes %v; it is %s", name, data, bytes, packets, bySize, Protocols()[want])
		}
	}
}

func TestRandomFramesAreWhatTheReferenceSays(t *testing.T) {
	b := newBench(t)
	r := rand.New(rand.NewPCG(4711, 42))
	found := make(map[int]int)
	for range 4000 {
		data := randomFrame(r)
		if !runs(data) {
			continue
		}
		if b.agree(data); t.Failed() {
			return
		}
		found[reference(data)]++
	}
	for i, name := range Protocols() {
		if found[i] < 50 {
			t.Errorf("only %d random frames were of the protocol %s", found[i], name)
		}
	}
}

// FuzzFrames looks for a frame that programs and reference do not agree on.
func FuzzFrames(f *testing.F) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 50 {
		f.Add(randomFrame(r))
	}
	b := newBench(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) < 14 || len(data) > 3000 || !runs(data) {
			return
		}
		(&bench{Manager: b.Manager, t: t, slot: b.slot}).agree(data)
	})
}
