package vport

import (
	"vigia/internal/testutil/frame"
)

// Packets for the program tests, mostly from 10.0.0.1.

const (
	ethIPv4 = frame.TypeIPv4
	ethIPv6 = frame.TypeIPv6
	ethARP  = frame.TypeARP
	ethVLAN = frame.TypeVLAN
	ethQinQ = frame.TypeQinQ
)

func ethernet(kind uint16, payload []byte) []byte {
	return frame.Ethernet(frame.MAC{2, 0, 0, 0, 0, 2}, frame.MAC{2, 0, 0, 0, 0, 1}, kind, payload)
}

func vlan(inner uint16, payload []byte) []byte { return frame.Tag(33, inner, payload) }

// ipv4 makes an IPv4 packet; fragment is the flags and offset field.
func ipv4(src, dst string, protocol byte, fragment uint16, options int, payload []byte) []byte {
	return frame.IPv4(frame.V4{From: src, To: dst, Protocol: protocol, Flags: fragment, Options: options}, payload)
}

func ipv6(src, dst string, next byte, payload []byte) []byte {
	return frame.IPv6(next, src, dst, payload)
}

// extension makes an IPv6 extension header of 8 bytes.
func extension(next byte, second uint16, payload []byte) []byte {
	return frame.Extension(frame.Fragment, next, second, payload)
}

func udp(srcPort, dstPort uint16, size int) []byte {
	return frame.UDPHeader(srcPort, dstPort, make([]byte, size))
}

func tcp() []byte { return frame.TCPHeader(0, 0, frame.ACK, 0, nil) }

func tcpFrame(to string) []byte { return ethernet(ethIPv4, ipv4("10.0.0.1", to, 6, 0, 0, tcp())) }

func udpFrame(dst string, port uint16, size int) []byte {
	return ethernet(ethIPv4, ipv4("10.0.0.1", dst, 17, 0, 0, udp(4000, port, size)))
}

func replyFrame(from string, size int) []byte {
	return ethernet(ethIPv4, ipv4(from, "10.0.0.1", 17, 0, 0, udp(53, 4000, size)))
}
