package classify

import (
	"encoding/binary"
	"math/rand/v2"
	"net"
	"testing"

	"vigia/internal/testutil/frame"
)

// view is what a classifier may go by.
type view struct {
	outer, network, inner Match // outer is of what carries a tunnel, and of no use without one
	from, to              end
	dscp, outerDSCP       byte // of the innermost packet, and of what carries a tunnel
}

// end is an interface that a frame is from or to.
type end struct {
	outer, address MACAddress // address is the innermost
}

// look reads a frame by another reading of the standards than the program's.
func look(data []byte) (v view) {
	kind, rest, ok := v.ethernet(data, &v.network)
	if !ok {
		return v
	}
	v.dscp = dscp(kind, rest)
	protocol, rest := payload(kind, rest)
	network, id, inside := tunnel(protocol, rest)
	if inside == nil {
		return v
	}
	v.outer, v.from.outer, v.to.outer = v.network, v.from.address, v.to.address
	v.network.Network, v.network.ID = network, id
	v.dscp, v.outerDSCP = 0, v.dscp
	if kind, rest, ok := v.ethernet(inside, &v.inner); ok {
		v.dscp = dscp(kind, rest)
	}
	return v
}

// ethernet reads a MAC header and at most one tag.
func (v *view) ethernet(data []byte, tag *Match) (kind uint16, rest []byte, ok bool) {
	if len(data) < 14 {
		return 0, nil, false
	}
	v.to.address, v.from.address = MACAddress(data[:6]), MACAddress(data[6:12])
	kind, rest = binary.BigEndian.Uint16(data[12:]), data[14:]
	if kind == frame.TypeVLAN || kind == frame.TypeQinQ {
		if len(rest) < 4 {
			return 0, nil, false
		}
		if id := binary.BigEndian.Uint16(rest) & 0xfff; id != 0 {
			*tag = Match{Network: VLAN, ID: uint32(id)}
		}
		kind, rest = binary.BigEndian.Uint16(rest[2:]), rest[4:]
	}
	return kind, rest, true
}

// dscp returns the code point of an IP packet (RFC 2474), 0 of anything else.
func dscp(kind uint16, packet []byte) byte {
	switch {
	case kind == frame.TypeIPv4 && len(packet) >= 20:
		return packet[1] >> 2
	case kind == frame.TypeIPv6 && len(packet) >= 40:
		return byte(binary.BigEndian.Uint16(packet) >> 6 & 0x3f)
	}
	return 0
}

// mark writes the code point of a packet, of which it leaves the ECN bits alone.
func mark(kind uint16, packet []byte, dscp byte) {
	if kind == frame.TypeIPv4 {
		packet[1] = packet[1]&3 | dscp<<2
		return
	}
	word := binary.BigEndian.Uint16(packet)
	binary.BigEndian.PutUint16(packet, word&^(0x3f<<6)|uint16(dscp)<<6)
}

// payload returns the protocol of an IP packet and what it carries; no tunnel has -1.
func payload(kind uint16, packet []byte) (protocol int, rest []byte) {
	switch {
	case kind == frame.TypeIPv4 && len(packet) >= 20:
		header := int(packet[0]&0xf) * 4
		if binary.BigEndian.Uint16(packet[6:])&0x1fff != 0 || header > len(packet) {
			return -1, nil
		}
		return int(packet[9]), packet[header:]
	case kind == frame.TypeIPv6 && len(packet) >= 40:
		return int(packet[6]), packet[40:]
	}
	return -1, nil
}

// tunnel returns the network that a tunnel's header names, and the frame inside.
func tunnel(protocol int, rest []byte) (network Network, id uint32, inside []byte) {
	switch {
	case protocol == frame.UDP && len(rest) >= 16:
		id = binary.BigEndian.Uint32(rest[12:]) >> 8
		switch binary.BigEndian.Uint16(rest[2:]) {
		case 4789:
			return VXLAN, id, rest[16:]
		case 6081:
			if options := int(rest[8]&0x3f) * 4; 16+options <= len(rest) {
				return Geneve, id, rest[16+options:]
			}
			return Geneve, id, []byte{}
		}
	case protocol == frame.GRE && len(rest) >= 4 && binary.BigEndian.Uint16(rest[2:]) == frame.TypeTEB:
		flags, at := binary.BigEndian.Uint16(rest), 4
		if flags&0x8000 != 0 {
			at += 4
		}
		if flags&0x2000 != 0 {
			if at+4 > len(rest) {
				return 0, 0, nil
			}
			id = binary.BigEndian.Uint32(rest[at:])
			at += 4
		}
		if flags&0x1000 != 0 {
			at += 4
		}
		return GRE, id, rest[min(at, len(rest)):]
	}
	return 0, 0, nil
}

// find finds the first match: of the network with the address, and of the network.
func find(matches map[Match]uint32, network Match, address MACAddress) (class uint32, ok bool) {
	for _, mac := range []MACAddress{address, vmNone} {
		network.MAC = mac
		if class, ok = matches[network]; ok {
			break
		}
	}
	return class, ok
}

// class finds the class of what an end sends or receives, and the code point that counts. No
// ends are listed: what has no tag, and is not between interfaces of the matches, may be a tunnel.
func (v *view) class(matches map[Match]uint32, at end) (class uint32, dscp byte) {
	if v.network.Network < VXLAN {
		class, _ = find(matches, v.network, at.address)
		return class, v.dscp
	}
	_, from := matches[Match{Network: Plain, MAC: v.from.outer}]
	_, to := matches[Match{Network: Plain, MAC: v.to.outer}]
	if v.outer.Network == VLAN || from || to {
		class, _ = find(matches, v.outer, at.outer)
		return class, v.outerDSCP
	}
	class, ok := find(matches, v.network, at.address)
	if !ok && v.network.ID == 0 && v.inner.Network == VLAN {
		class, _ = find(matches, v.inner, at.address)
	}
	return class, v.dscp
}

// queue is where the reference has a packet wait.
func (v *view) queue(matches map[Match]uint32, at end) uint32 {
	class, dscp := v.class(matches, at)
	if class == 0 && dscp == 1 {
		return LowerEffort
	}
	return class
}

// randomFrame nests random headers around vmA's frame to vmB, and may cut it.
func randomFrame(r *rand.Rand) []byte {
	inside, at := inner(), 14
	if r.IntN(3) == 0 {
		inside, at = tagged(uint16(r.IntN(4))), 18
	}
	mark(frame.TypeIPv4, inside[at:], byte(r.IntN(3)))
	var packet []byte
	protocol := byte(frame.UDP)
	switch r.IntN(5) {
	case 0:
		return cut(r, inside)
	case 1:
		packet = frame.UDPHeader(1, 4789, frame.VXLAN(uint32(r.IntN(4)), inside))
	case 2:
		packet = frame.UDPHeader(1, 6081, frame.Geneve(uint32(r.IntN(4)), r.IntN(8), inside))
	case 3:
		packet = frame.UDPHeader(1, 53, frame.VXLAN(uint32(r.IntN(4)), inside))
	default:
		flags := []uint16{0, 0x2000, 0x3000, 0xa000, 0xb000, 0x8000}[r.IntN(6)]
		var words []uint32
		for _, bit := range []uint16{0x8000, 0x2000, 0x1000} {
			if flags&bit != 0 {
				words = append(words, uint32(r.IntN(4)))
			}
		}
		kind := []uint16{frame.TypeTEB, frame.TypeTEB, frame.TypeIPv4}[r.IntN(3)]
		packet, protocol = frame.GREHeader(flags, kind, words, inside), frame.GRE
	}
	kind := uint16(frame.TypeIPv4)
	if r.IntN(3) == 0 {
		packet, kind = frame.IPv6(protocol, "fd00::1", "fd00::2", packet), frame.TypeIPv6
	} else {
		flags := []uint16{0, 0, 0x4000, 0x2000, 1}[r.IntN(5)]
		packet = frame.IPv4(frame.V4{From: "10.0.0.1", To: "10.0.0.2", Protocol: protocol, Flags: flags, Options: 4 * r.IntN(4)}, packet)
	}
	mark(kind, packet, byte(r.IntN(3)))
	if r.IntN(3) == 0 {
		packet, kind = frame.Tag(uint16(r.IntN(4)), kind, packet), frame.TypeVLAN
	}
	return cut(r, ethernet(far, far, kind, packet))
}

func cut(r *rand.Rand, data []byte) []byte {
	if r.IntN(4) == 0 {
		return data[:14+r.IntN(len(data)-13)]
	}
	return data
}

// TestRandomFramesFindTheClassThatTheReferenceFinds tries random matches, too.
func TestRandomFramesFindTheClassThatTheReferenceFinds(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	p := open(t, nil)
	classified, lower := 0, 0
	for range 40 {
		matches := make(map[Match]uint32)
		for range 12 {
			m := Match{Network: Network(r.IntN(5)), MAC: [6]byte([]MACAddress{vmNone, vmA, vmB, far}[r.IntN(4)])}
			if m.Network != Plain {
				m.ID = uint32(r.IntN(4))
			}
			matches[m] = 0x11500000 + uint32(r.IntN(1<<16))
		}
		if _, err := p.SetMatches(matches); err != nil {
			t.Fatal(err)
		}
		for range 150 {
			data := randomFrame(r)
			if !runs(data) {
				continue
			}
			v := look(data)
			if got, want := run(t, p.Send(), data), v.queue(matches, v.from); got != want {
				t.Fatalf("sent: % x\nfinds class %x, want %x by %+v of %v", data, got, want, v, matches)
			} else if got == LowerEffort {
				lower++
			} else if got != 0 {
				classified++
			}
			if got, want := run(t, p.Receive(), data), v.queue(matches, v.to); got != want {
				t.Fatalf("received: % x\nfinds class %x, want %x by %+v of %v", data, got, want, v, matches)
			}
		}
	}
	if classified < 500 || lower < 500 {
		t.Errorf("only %d frames found a class, and %d that of lower effort", classified, lower)
	}
}

// runs tells whether the kernel's test run takes a frame: it wants whole IP headers.
func runs(data []byte) bool {
	switch binary.BigEndian.Uint16(data[12:]) {
	case frame.TypeIPv4:
		return len(data) >= 14+20
	case frame.TypeIPv6:
		return len(data) >= 14+40
	}
	return true
}

func TestAddressesFoldAsTheProgramsDo(t *testing.T) {
	for text, want := range map[string]string{
		"10.1.2.3": "10.1.2.3", "::ffff:10.1.2.3": "10.1.2.3", "fd00::1": "253.0.0.1", "1:2:3:4:5:6:7:8": "0.0.0.8",
		"ffff:ffff:ffff:ffff:ffff:ffff:ffff:fffe": "0.0.0.1",
	} {
		if got := AddressOf(net.ParseIP(text)).String(); got != want {
			t.Errorf("%s folds to %s, want %s", text, got, want)
		}
	}
	if got := (MACAddress{2, 0, 0, 0xaa, 0, 0xb}).String(); got != "02:00:00:aa:00:0b" {
		t.Errorf("a MAC address is written %s", got)
	}
}
