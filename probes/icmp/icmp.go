// Package icmp has the wire format of ICMP echo probes (RFC 792, RFC 4443).
//
// The sequence number of an echo request has 16 bits, too few for the probes that
// may be in flight, so the payload begins with what identifies the probe:
//
//	0      session identifier, 16 bits
//	2      zero, 16 bits
//	4      sequence number, low 32 bits
//	8      nonce, 64 bits: an answer that does not return it answers no probe
package icmp

import (
	"bytes"
	"encoding/binary"
)

const (
	// HeaderSize is the size of the ICMP header in bytes.
	HeaderSize = 8
	// MinSize and MaxSize bound the payload of a probe in bytes. The largest
	// IPv4 packet has 65535 bytes, of which 28 are headers.
	MinSize = 16
	MaxSize = 65507
)

const (
	echoReply     = 0
	echoRequest   = 8
	echoRequestV6 = 128
	echoReplyV6   = 129
)

// Probe identifies an echo request, and the reply to it.
type Probe struct {
	ID       uint16 // of the socket
	SSID     uint16 // of the session on it
	Sequence uint32
	Nonce    uint64
}

// New returns an echo request with a payload of size bytes. Put completes it.
func New(size int, v6 bool, seed uint64) []byte {
	packet := make([]byte, HeaderSize+size)
	packet[0] = echoRequest
	if v6 {
		packet[0] = echoRequestV6
	}
	// Padding that neither compresses nor sums up to the same when bytes are
	// exchanged (xorshift, Marsaglia 2003).
	state := seed | 1
	for i := range packet[HeaderSize+MinSize:] {
		state ^= state << 13
		state ^= state >> 7
		state ^= state << 17
		packet[HeaderSize+MinSize+i] = byte(state)
	}
	return packet
}

// Put writes the probe into a packet that New made. The checksum of ICMPv6 is
// left to the kernel, which knows the addresses.
func (p Probe) Put(packet []byte) {
	be := binary.BigEndian
	be.PutUint16(packet[4:], p.ID)
	be.PutUint16(packet[6:], uint16(p.Sequence))
	be.PutUint16(packet[8:], p.SSID)
	be.PutUint16(packet[10:], 0)
	be.PutUint32(packet[12:], p.Sequence)
	be.PutUint64(packet[16:], p.Nonce)
	be.PutUint16(packet[2:], 0)
	if packet[0] == echoRequest {
		be.PutUint16(packet[2:], Checksum(packet))
	}
}

// ParseReply reads an echo reply. ok is false when it is none, or none of ours.
func ParseReply(packet []byte, v6 bool) (p Probe, ok bool) {
	want := byte(echoReply)
	if v6 {
		want = echoReplyV6
	}
	if len(packet) < HeaderSize+MinSize || packet[0] != want || packet[1] != 0 {
		return Probe{}, false
	}
	be := binary.BigEndian
	p = Probe{
		ID: be.Uint16(packet[4:]), SSID: be.Uint16(packet[8:]),
		Sequence: be.Uint32(packet[12:]), Nonce: be.Uint64(packet[16:]),
	}
	return p, be.Uint16(packet[6:]) == uint16(p.Sequence)
}

// StripIPv4 takes off the IP header that raw sockets deliver; nil when there is
// no whole one.
func StripIPv4(packet []byte) []byte {
	if len(packet) < 20 || packet[0]>>4 != 4 {
		return nil
	}
	size := int(packet[0]&15) * 4
	if size < 20 || size > len(packet) {
		return nil
	}
	return packet[size:]
}

// ID returns the identifier of a packet that is at least a header.
func ID(packet []byte) (id uint16, ok bool) {
	if len(packet) < HeaderSize {
		return 0, false
	}
	return binary.BigEndian.Uint16(packet[4:]), true
}

// SSID returns the session identifier of a probe, of which a part is enough that has it.
func SSID(packet []byte) (ssid uint16, ok bool) {
	if len(packet) < HeaderSize+2 {
		return 0, false
	}
	return binary.BigEndian.Uint16(packet[HeaderSize:]), true
}

// Intact reports whether a reply returns the request's padding.
func Intact(request, reply []byte) bool {
	return len(request) == len(reply) && bytes.Equal(request[HeaderSize+MinSize:], reply[HeaderSize+MinSize:])
}

// Checksum returns the Internet checksum of a packet whose checksum field is 0
// (RFC 1071).
func Checksum(packet []byte) uint16 {
	var sum uint64
	for ; len(packet) >= 4; packet = packet[4:] {
		sum += uint64(binary.BigEndian.Uint32(packet))
	}
	if len(packet) >= 2 {
		sum += uint64(binary.BigEndian.Uint16(packet))
		packet = packet[2:]
	}
	if len(packet) == 1 {
		sum += uint64(packet[0]) << 8
	}
	for sum>>16 != 0 {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}
