package rtnl

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"

	"golang.org/x/sys/unix"

	"vigia/internal/netlink"
)

// vethInfoPeer is VETH_INFO_PEER of uapi/linux/veth.h: the other device, as a message of its own.
const vethInfoPeer = 1

// VethPair is a pair of devices, the peer of which is in another namespace.
type VethPair struct {
	Name      string
	Peer      string
	PeerMAC   net.HardwareAddr
	PeerNetNS int // file descriptor of the peer's namespace
	MTU       int // of both, in bytes
}

// AddVeth makes a pair of devices, both of them down.
func (c *Conn) AddVeth(v VethPair) error {
	peer := netlink.NewEncoder(make([]byte, unix.SizeofIfInfomsg))
	peer.String(unix.IFLA_IFNAME, v.Peer)
	peer.Bytes(unix.IFLA_ADDRESS, v.PeerMAC)
	peer.Uint32(unix.IFLA_MTU, uint32(v.MTU))
	peer.Uint32(unix.IFLA_NET_NS_FD, uint32(v.PeerNetNS))
	other, err := peer.Encode()
	if err != nil {
		return err
	}
	e := netlink.NewEncoder(make([]byte, unix.SizeofIfInfomsg))
	e.String(unix.IFLA_IFNAME, v.Name)
	e.Uint32(unix.IFLA_MTU, uint32(v.MTU))
	e.Nested(unix.IFLA_LINKINFO, func() {
		e.String(unix.IFLA_INFO_KIND, "veth")
		e.Nested(unix.IFLA_INFO_DATA, func() { e.Bytes(vethInfoPeer, other) })
	})
	request, err := e.Encode()
	if err == nil {
		err = c.socket.Change(unix.RTM_NEWLINK, unix.NLM_F_CREATE|unix.NLM_F_EXCL, request)
	}
	if err != nil {
		return fmt.Errorf("make the pair of devices %s and %s (needs CAP_NET_ADMIN): %w", v.Name, v.Peer, err)
	}
	return nil
}

// SetUp brings an interface up.
func (c *Conn) SetUp(index int) error {
	request := header(index)
	binary.NativeEndian.PutUint32(request[8:], unix.IFF_UP)
	binary.NativeEndian.PutUint32(request[12:], unix.IFF_UP) // which of the flags change
	if err := c.socket.Change(unix.RTM_NEWLINK, 0, request); err != nil {
		return fmt.Errorf("bring interface %d up: %w", index, err)
	}
	return nil
}

// SetMaster has an interface belong to another one, a bridge for example.
func (c *Conn) SetMaster(index, master int) error {
	e := netlink.NewEncoder(header(index))
	e.Uint32(unix.IFLA_MASTER, uint32(master))
	request, err := e.Encode()
	if err == nil {
		err = c.socket.Change(unix.RTM_NEWLINK, 0, request)
	}
	if err != nil {
		return fmt.Errorf("join interface %d to interface %d (needs CAP_NET_ADMIN): %w", index, master, err)
	}
	return nil
}

// DeleteLink removes an interface, and its peer if it has one.
func (c *Conn) DeleteLink(index int) error {
	if err := c.socket.Change(unix.RTM_DELLINK, 0, header(index)); err != nil {
		return fmt.Errorf("remove interface %d: %w", index, err)
	}
	return nil
}

// header makes the struct ifinfomsg of a request about an interface.
func header(index int) []byte {
	request := make([]byte, unix.SizeofIfInfomsg)
	binary.NativeEndian.PutUint32(request[4:], uint32(index))
	return request
}

// AddAddress gives an interface an address, with the network that it is in. One that it has already stays. Duplicates
// of an address of IPv6 are not looked for: whoever gives addresses out answers for that.
func (c *Conn) AddAddress(index int, a netip.Prefix) error {
	family := byte(unix.AF_INET)
	if a.Addr().Is6() {
		family = unix.AF_INET6
	}
	message := make([]byte, unix.SizeofIfAddrmsg)
	message[0], message[1] = family, byte(a.Bits())
	binary.NativeEndian.PutUint32(message[4:], uint32(index))
	e := netlink.NewEncoder(message)
	e.Bytes(unix.IFA_LOCAL, a.Addr().AsSlice())
	e.Bytes(unix.IFA_ADDRESS, a.Addr().AsSlice())
	if family == unix.AF_INET6 {
		e.Uint32(unix.IFA_FLAGS, unix.IFA_F_NODAD)
	}
	request, err := e.Encode()
	if err == nil {
		err = c.socket.Change(unix.RTM_NEWADDR, unix.NLM_F_CREATE|unix.NLM_F_REPLACE, request)
	}
	if err != nil {
		return fmt.Errorf("give interface %d the address %s: %w", index, a, err)
	}
	return nil
}
