package rtnl

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"vigia/internal/netlink"
)

// Flow is what routing looks at.
type Flow struct {
	To, From netip.Addr // From may be unspecified or not valid
	Mark     uint32
	Device   string // bound to; empty for any
}

// Egress returns the device by which packets of a flow leave.
func (c *Conn) Egress(f Flow) (string, error) {
	if f.Device != "" {
		return f.Device, nil
	}
	request, err := encodeRoute(f)
	if err != nil {
		return "", err
	}
	var index int32
	err = c.socket.Ask(unix.RTM_GETROUTE, 0, request, func(_ uint16, data []byte) (err error) {
		index, err = parseRoute(data)
		return err
	})
	if err != nil {
		return "", fmt.Errorf("look up the route to %s: %w", f.To, err)
	}
	return c.name(index)
}

// name returns the name of an interface of the namespace.
func (c *Conn) name(index int32) (string, error) {
	request := make([]byte, unix.SizeofIfInfomsg)
	binary.NativeEndian.PutUint32(request[4:], uint32(index))
	var l Link
	err := c.socket.Ask(unix.RTM_GETLINK, 0, request, func(_ uint16, data []byte) (err error) {
		l, err = parseLink(data)
		return err
	})
	if err != nil {
		return "", fmt.Errorf("look up interface %d: %w", index, err)
	}
	return l.Name, nil
}

// encodeRoute makes the body of an RTM_GETROUTE.
func encodeRoute(f Flow) ([]byte, error) {
	family, bits := uint8(unix.AF_INET), uint8(32)
	if f.To.Is6() {
		family, bits = unix.AF_INET6, 128
	}
	head := make([]byte, unix.SizeofRtMsg)
	head[0], head[1] = family, bits
	from := f.From.IsValid() && !f.From.IsUnspecified()
	if from {
		head[2] = bits
	}
	e := netlink.NewEncoder(head)
	e.Bytes(unix.RTA_DST, f.To.AsSlice())
	if from {
		e.Bytes(unix.RTA_SRC, f.From.AsSlice())
	}
	if f.Mark != 0 {
		e.Uint32(unix.RTA_MARK, f.Mark)
	}
	return e.Encode()
}

// parseRoute returns the index of the interface of an RTM_NEWROUTE.
func parseRoute(data []byte) (index int32, err error) {
	for kind, value := range netlink.Attributes(data, unix.SizeofRtMsg, &err) {
		if kind == unix.RTA_OIF {
			index = int32(netlink.Uint32(value, 0))
		}
	}
	if err == nil && index == 0 {
		err = errors.New("the route has no device")
	}
	return index, err
}

// Address is an address of an interface.
type Address struct {
	Index  int // of the interface
	Prefix netip.Prefix
	// Usable says that sockets may be bound to it: nobody else on the link has it, as far as is known.
	Usable bool
}

// Addresses lists the addresses of the namespace, the first of an interface first.
func (c *Conn) Addresses() (all []Address, err error) {
	begin := func() { all = nil }
	err = c.socket.Snapshot(unix.RTM_GETADDR, make([]byte, unix.SizeofIfAddrmsg), begin, func(_ uint16, data []byte) error {
		index, address, err := parseAddress(data)
		if err != nil || !address.IsValid() {
			return err
		}
		bits, flags := int(data[1]), data[2]
		all = append(all, Address{
			Index: int(index), Prefix: netip.PrefixFrom(address, bits),
			Usable: flags&(unix.IFA_F_TENTATIVE|unix.IFA_F_DADFAILED) == 0,
		})
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list addresses: %w", err)
	}
	return all, nil
}

// Holders returns the devices that have a local address, and all devices with any
// address when it is unspecified.
func (c *Conn) Holders(local netip.Addr) ([]string, error) {
	var indices []int32
	var seen map[int32]bool
	begin := func() { indices, seen = nil, make(map[int32]bool) }
	err := c.socket.Snapshot(unix.RTM_GETADDR, make([]byte, unix.SizeofIfAddrmsg), begin, func(_ uint16, data []byte) error {
		index, address, err := parseAddress(data)
		if err == nil && !seen[index] && (local.IsUnspecified() || address == local) {
			seen[index] = true
			indices = append(indices, index)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list addresses: %w", err)
	}
	names := make([]string, len(indices))
	for i, index := range indices {
		if names[i], err = c.name(index); err != nil {
			return nil, err
		}
	}
	return names, nil
}

// parseAddress reads an RTM_NEWADDR.
func parseAddress(data []byte) (index int32, address netip.Addr, err error) {
	index = int32(netlink.Uint32(data, 4))
	for kind, value := range netlink.Attributes(data, unix.SizeofIfAddrmsg, &err) {
		// IFA_LOCAL is our own of a point-to-point link, and IFA_ADDRESS the
		// peer's; where there is no peer they are the same, or the first is not
		// there.
		switch {
		case kind == unix.IFA_LOCAL, kind == unix.IFA_ADDRESS && !address.IsValid():
			address, _ = netip.AddrFromSlice(value)
		}
	}
	return index, address, err
}
