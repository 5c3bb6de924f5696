package vport

import (
	"encoding/binary"
	"net/netip"

	"github.com/cilium/ebpf/asm"
)

// Packet builders for the program tests; only what the parser looks at is right.

const (
	ethIPv4 = 0x0800
	ethIPv6 = 0x86dd
	ethARP  = 0x0806
	ethVLAN = 0x8100
	ethQinQ = 0x88a8
)

func ethernet(etherType uint16, payload []byte) []byte {
	frame := make([]byte, 14, 14+len(payload))
	copy(frame, []byte{2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1})
	binary.BigEndian.PutUint16(frame[12:], etherType)
	return append(frame, payload...)
}

func vlan(inner uint16, payload []byte) []byte {
	tag := make([]byte, 4, 4+len(payload))
	binary.BigEndian.PutUint16(tag, 33)
	binary.BigEndian.PutUint16(tag[2:], inner)
	return append(tag, payload...)
}

// ipv4 makes an IPv4 packet; fragment is the flags and offset field.
func ipv4(src, dst string, protocol byte, fragment uint16, options int, payload []byte) []byte {
	size := 20 + options
	h := make([]byte, size, size+len(payload))
	h[0] = 0x40 | byte(size/4)
	binary.BigEndian.PutUint16(h[2:], uint16(size+len(payload)))
	binary.BigEndian.PutUint16(h[6:], fragment)
	h[8], h[9] = 64, protocol
	s, d := netip.MustParseAddr(src).As4(), netip.MustParseAddr(dst).As4()
	copy(h[12:], s[:])
	copy(h[16:], d[:])
	return append(h, payload...)
}

func ipv6(src, dst string, next byte, payload []byte) []byte {
	h := make([]byte, 40, 40+len(payload))
	h[0], h[6], h[7] = 0x60, next, 64
	binary.BigEndian.PutUint16(h[4:], uint16(len(payload)))
	s, d := netip.MustParseAddr(src).As16(), netip.MustParseAddr(dst).As16()
	copy(h[8:], s[:])
	copy(h[24:], d[:])
	return append(h, payload...)
}

// extension makes an IPv6 extension header of 8 bytes.
func extension(next byte, second uint16, payload []byte) []byte {
	h := make([]byte, 8, 8+len(payload))
	h[0] = next
	binary.BigEndian.PutUint16(h[2:], second)
	return append(h, payload...)
}

func udp(srcPort, dstPort uint16, size int) []byte {
	h := make([]byte, 8+size)
	binary.BigEndian.PutUint16(h, srcPort)
	binary.BigEndian.PutUint16(h[2:], dstPort)
	binary.BigEndian.PutUint16(h[4:], uint16(8+size))
	return h
}

func tcp() []byte { return append(make([]byte, 12), 0x50, 0x10, 0, 0, 0, 0, 0, 0) }

func udpFrame(dst string, port uint16, size int) []byte {
	return ethernet(ethIPv4, ipv4("10.0.0.1", dst, 17, 0, 0, udp(4000, port, size)))
}

func replyFrame(from string, size int) []byte {
	return ethernet(ethIPv4, ipv4(from, "10.0.0.1", 17, 0, 0, udp(53, 4000, size)))
}

// passXDP is a foreign XDP program.
func passXDP() asm.Instructions {
	return asm.Instructions{asm.Mov.Imm(asm.R0, xdpPass), asm.Return()}
}
