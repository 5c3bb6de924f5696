package timestamping

import (
	"encoding/binary"
	"net/netip"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Peer is an address as system calls take it.
type Peer struct {
	raw  unix.RawSockaddrInet6 // large enough for both families
	size uint32
}

// NewPeer prepares an address for sending.
func NewPeer(a netip.AddrPort) Peer {
	var p Peer
	if a.Addr().Is4() {
		v4 := (*unix.RawSockaddrInet4)(unsafe.Pointer(&p.raw))
		v4.Family = unix.AF_INET
		v4.Addr = a.Addr().As4()
		putPort(&v4.Port, a.Port())
		p.size = unix.SizeofSockaddrInet4
		return p
	}
	p.raw.Family = unix.AF_INET6
	p.raw.Addr = a.Addr().As16()
	putPort(&p.raw.Port, a.Port())
	p.size = unix.SizeofSockaddrInet6
	return p
}

// AddrPort returns the address, without a zone.
func (p *Peer) AddrPort() netip.AddrPort {
	switch p.raw.Family {
	case unix.AF_INET:
		v4 := (*unix.RawSockaddrInet4)(unsafe.Pointer(&p.raw))
		return netip.AddrPortFrom(netip.AddrFrom4(v4.Addr), port(&v4.Port))
	case unix.AF_INET6:
		return netip.AddrPortFrom(netip.AddrFrom16(p.raw.Addr), port(&p.raw.Port))
	}
	return netip.AddrPort{}
}

// Ports are in network byte order in memory.
func putPort(p *uint16, v uint16) {
	binary.BigEndian.PutUint16((*[2]byte)(unsafe.Pointer(p))[:], v)
}

func port(p *uint16) uint16 {
	return binary.BigEndian.Uint16((*[2]byte)(unsafe.Pointer(p))[:])
}

func sockaddr(a netip.AddrPort) unix.Sockaddr {
	if a.Addr().Is4() {
		return &unix.SockaddrInet4{Port: int(a.Port()), Addr: a.Addr().As4()}
	}
	return &unix.SockaddrInet6{Port: int(a.Port()), Addr: a.Addr().As16()}
}

func addrPort(sa unix.Sockaddr) netip.AddrPort {
	switch v := sa.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(v.Addr), uint16(v.Port))
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(v.Addr), uint16(v.Port))
	}
	return netip.AddrPort{}
}
