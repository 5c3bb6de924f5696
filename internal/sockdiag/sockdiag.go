// Package sockdiag reads the packet sockets of a network namespace by sock_diag(7),
// as ss -0 does.
package sockdiag

import (
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"vigia/internal/netlink"
)

// PacketSocket is a packet socket (packet(7)).
type PacketSocket struct {
	Inode    uint32
	Index    int    // interface that it is bound to; 0 for all
	Protocol uint16 // EtherType
	Drops    uint32 // packets that found its receive buffer full, modulo 2^32
}

// Conn is a connection into one network namespace.
type Conn struct {
	socket *netlink.Socket
}

// New returns a connection into the namespace given by name or path; empty means
// the own one.
func New(nameOrPath string) *Conn {
	return &Conn{socket: netlink.New(nameOrPath, unix.NETLINK_SOCK_DIAG)}
}

// Close closes the connection.
func (c *Conn) Close() error { return c.socket.Close() }

// From linux/packet_diag.h and linux/sock_diag.h.
const (
	sockDiagByFamily = 20
	sizeofRequest    = 20 // struct packet_diag_req
	sizeofMessage    = 16 // struct packet_diag_msg
	showInfo         = 0x01
	showMeminfo      = 0x10
	attrInfo         = 0
	attrMeminfo      = 6
	meminfoDrops     = 8 // SK_MEMINFO_DROPS
)

// PacketSockets appends the packet sockets of the namespace to into. It needs no privilege
// beyond that of the namespace's owner.
func (c *Conn) PacketSockets(into []PacketSocket) ([]PacketSocket, error) {
	req := make([]byte, sizeofRequest)
	req[0] = unix.AF_PACKET
	binary.NativeEndian.PutUint32(req[8:], showInfo|showMeminfo)
	out := into
	err := c.socket.Dump(sockDiagByFamily, req, func(_ uint16, data []byte) error {
		s, err := parse(data)
		out = append(out, s)
		return err
	})
	if errors.Is(err, unix.ENOENT) {
		return nil, fmt.Errorf("list packet sockets: the kernel lacks CONFIG_PACKET_DIAG: %w", err)
	}
	if err != nil {
		return nil, fmt.Errorf("list packet sockets: %w", err)
	}
	return out, nil
}

func parse(data []byte) (s PacketSocket, err error) {
	s = PacketSocket{Protocol: netlink.Uint16(data, 2), Inode: netlink.Uint32(data, 4)}
	for kind, value := range netlink.Attributes(data, sizeofMessage, &err) {
		switch kind {
		case attrInfo:
			s.Index = int(int32(netlink.Uint32(value, 0)))
		case attrMeminfo:
			s.Drops = netlink.Uint32(value, 4*meminfoDrops)
		}
	}
	return s, err
}
