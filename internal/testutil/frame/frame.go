// Package frame makes Ethernet frames for tests, from the inside out: every function puts
// a header before a payload. Lengths and the checksums of IPv4 are right; those of
// transports are nought.
package frame

import (
	"encoding/binary"
	"net/netip"
	"slices"
)

// Ethertypes.
const (
	TypeIPv4   = 0x0800
	TypeARP    = 0x0806
	TypeTEB    = 0x6558 // Ethernet frames in a tunnel
	TypeVLAN   = 0x8100
	TypeIPv6   = 0x86dd
	TypeQinQ   = 0x88a8
	TypeUnused = 0x88b5 // for local experiments
)

// Protocols of IP.
const (
	HopByHop    = 0
	ICMP        = 1
	IGMP        = 2
	IPIP        = 4
	TCP         = 6
	UDP         = 17
	IPv6InIP    = 41
	Routing     = 43
	Fragment    = 44
	GRE         = 47
	ESP         = 50
	AH          = 51
	ICMPv6      = 58
	NoNext      = 59
	DestOptions = 60
	OSPF        = 89
	SCTP        = 132
	UDPLite     = 136
)

// MAC is a 48-bit address.
type MAC [6]byte

// Broadcast is everybody's.
var Broadcast = MAC{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}

func join(parts ...[]byte) []byte { return slices.Concat(parts...) }

func be16(values ...uint16) (out []byte) {
	for _, v := range values {
		out = binary.BigEndian.AppendUint16(out, v)
	}
	return out
}

func be32(v uint32) []byte { return binary.BigEndian.AppendUint32(nil, v) }

// Ethernet puts a MAC header before a payload.
func Ethernet(to, from MAC, kind uint16, payload []byte) []byte {
	return join(to[:], from[:], be16(kind), payload)
}

// Tag puts a VLAN tag, without its own ethertype, before what has the ethertype kind:
// Ethernet(to, from, TypeVLAN, Tag(7, TypeIPv4, ...)).
func Tag(tci, kind uint16, payload []byte) []byte { return join(be16(tci, kind), payload) }

// V4 is an IPv4 header. From and To are addresses in text.
type V4 struct {
	From, To string
	Protocol byte
	Flags    uint16 // and offset: 0x2000 = more fragments, 0x4000 = don't, the rest in 8 bytes
	Options  int    // bytes, a multiple of four
	TTL      byte   // 0 = 64
}

// IPv4 puts an IPv4 header before a payload.
func IPv4(h V4, payload []byte) []byte {
	size := 20 + h.Options
	out := make([]byte, size, size+len(payload))
	out[0] = 0x40 | byte(size/4)
	binary.BigEndian.PutUint16(out[2:], uint16(size+len(payload)))
	binary.BigEndian.PutUint16(out[6:], h.Flags)
	out[8], out[9] = h.TTL, h.Protocol
	if h.TTL == 0 {
		out[8] = 64
	}
	from, to := netip.MustParseAddr(h.From).As4(), netip.MustParseAddr(h.To).As4()
	copy(out[12:], from[:])
	copy(out[16:], to[:])
	for i := 20; i < size; i++ {
		out[i] = 1 // no operation
	}
	binary.BigEndian.PutUint16(out[10:], checksum(out))
	return append(out, payload...)
}

func checksum(header []byte) uint16 {
	var sum uint32
	for i := 0; i+1 < len(header); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(header[i:]))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}

// IPv6 puts an IPv6 header before a payload.
func IPv6(next byte, from, to string, payload []byte) []byte {
	out := make([]byte, 40, 40+len(payload))
	out[0], out[6], out[7] = 0x60, next, 64
	binary.BigEndian.PutUint16(out[4:], uint16(len(payload)))
	src, dst := netip.MustParseAddr(from).As16(), netip.MustParseAddr(to).As16()
	copy(out[8:], src[:])
	copy(out[24:], dst[:])
	return append(out, payload...)
}

// Extension puts an extension header of 8 bytes before a payload: hop-by-hop and
// destination options full of padding, a routing header of a kind nobody knows, or a
// fragment header with an offset, flags included, as second.
func Extension(kind, next byte, second uint16, payload []byte) []byte {
	out := make([]byte, 8)
	out[0] = next
	switch kind {
	case HopByHop, DestOptions:
		out[2], out[3] = 1, 4 // PadN
	default:
		binary.BigEndian.PutUint16(out[2:], second)
	}
	return join(out, payload)
}

// UDPHeader puts a UDP header before a payload.
func UDPHeader(from, to uint16, payload []byte) []byte {
	return join(be16(from, to, uint16(8+len(payload)), 0), payload)
}

// Flags of TCP.
const (
	FIN = 0x01
	SYN = 0x02
	RST = 0x04
	PSH = 0x08
	ACK = 0x10
)

// TCPHeader puts a TCP header with so many bytes of options before a payload.
func TCPHeader(from, to uint16, flags byte, options int, payload []byte) []byte {
	out := make([]byte, 20+options)
	copy(out, be16(from, to))
	out[12], out[13] = byte((20+options)/4)<<4, flags
	for i := 20; i < len(out); i++ {
		out[i] = 1 // no operation
	}
	return join(out, payload)
}

// ICMPEcho is an echo request of ICMP (type 8) or ICMPv6 (type 128).
func ICMPEcho(kind byte, payload []byte) []byte {
	return join([]byte{kind, 0, 0, 0, 0, 1, 0, 1}, payload)
}

// VXLAN puts a VXLAN header with a VNI before a frame (RFC 7348).
func VXLAN(vni uint32, frame []byte) []byte {
	return join([]byte{8, 0, 0, 0}, be32(vni<<8), frame)
}

// Geneve puts a Geneve header with so many words of options before a frame (RFC 8926).
func Geneve(vni uint32, options int, frame []byte) []byte {
	return join([]byte{byte(options)}, []byte{0}, be16(TypeTEB), be32(vni<<8), make([]byte, options*4), frame)
}

// GREHeader puts a GRE header with flags and their words before a payload (RFC 2890).
func GREHeader(flags, kind uint16, words []uint32, payload []byte) []byte {
	out := be16(flags, kind)
	for _, w := range words {
		out = append(out, be32(w)...)
	}
	return join(out, payload)
}

// ARPRequest asks who has an address.
func ARPRequest(from MAC, sender, target string) []byte {
	src, dst := netip.MustParseAddr(sender).As4(), netip.MustParseAddr(target).As4()
	return join(be16(1, TypeIPv4), []byte{6, 4}, be16(1), from[:], src[:], make([]byte, 6), dst[:])
}
