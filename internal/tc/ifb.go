package tc

import (
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"vigia/internal/netlink"
)

// EnsureIFB makes an intermediate functional block device of that name, brings
// it up and returns its index. A device of the name and of another kind is an error.
func (c *Conn) EnsureIFB(name string) (int, error) {
	index, kind, err := c.link(name)
	if errors.Is(err, unix.ENODEV) {
		if err := c.addIFB(name); err != nil {
			return 0, fmt.Errorf("make IFB device %s (needs the ifb module): %w", name, err)
		}
		index, kind, err = c.link(name)
	}
	if err != nil {
		return 0, fmt.Errorf("look up %s: %w", name, err)
	}
	if kind != "ifb" {
		return 0, fmt.Errorf("interface %s is a %s, not an IFB device; rename it", name, kind)
	}
	head := make([]byte, unix.SizeofIfInfomsg)
	binary.NativeEndian.PutUint32(head[4:], uint32(index))
	binary.NativeEndian.PutUint32(head[8:], unix.IFF_UP)
	binary.NativeEndian.PutUint32(head[12:], unix.IFF_UP)
	if err := c.socket.Change(unix.RTM_NEWLINK, 0, head); err != nil {
		return 0, fmt.Errorf("bring %s up: %w", name, err)
	}
	return index, nil
}

func (c *Conn) addIFB(name string) error {
	return c.change(unix.RTM_NEWLINK, exclusive, make([]byte, unix.SizeofIfInfomsg), func(e *netlink.Encoder) {
		e.String(unix.IFLA_IFNAME, name)
		e.Nested(unix.IFLA_LINKINFO, func() { e.String(unix.IFLA_INFO_KIND, "ifb") })
	})
}

// LinkIndex returns the index of an interface; ENODEV if there is none.
func (c *Conn) LinkIndex(name string) (int, error) {
	index, _, err := c.link(name)
	if err != nil {
		return 0, fmt.Errorf("look up %s: %w", name, err)
	}
	return index, nil
}

// link returns index and kind of an interface.
func (c *Conn) link(name string) (index int, kind string, err error) {
	e := netlink.NewEncoder(make([]byte, unix.SizeofIfInfomsg))
	e.String(unix.IFLA_IFNAME, name)
	request, err := e.Encode()
	if err != nil {
		return 0, "", err
	}
	err = c.socket.Ask(unix.RTM_GETLINK, 0, request, func(_ uint16, data []byte) (err error) {
		index = int(netlink.Uint32(data, 4))
		for attribute, value := range netlink.Attributes(data, unix.SizeofIfInfomsg, &err) {
			if attribute != unix.IFLA_LINKINFO {
				continue
			}
			for attribute, value := range netlink.Attributes(value, 0, &err) {
				if attribute == unix.IFLA_INFO_KIND {
					kind = netlink.Text(value)
				}
			}
		}
		return err
	})
	return index, kind, err
}

// DeleteIFB removes an IFB device; without one it changes nothing, and a device
// of another kind stays.
func (c *Conn) DeleteIFB(name string) error {
	index, kind, err := c.link(name)
	if errors.Is(err, unix.ENODEV) || (err == nil && kind != "ifb") {
		return nil
	}
	if err == nil {
		head := make([]byte, unix.SizeofIfInfomsg)
		binary.NativeEndian.PutUint32(head[4:], uint32(index))
		err = c.socket.Change(unix.RTM_DELLINK, 0, head)
	}
	if err != nil {
		return fmt.Errorf("delete IFB device %s: %w", name, err)
	}
	return nil
}
