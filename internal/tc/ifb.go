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
	l, err := c.link(name)
	if errors.Is(err, unix.ENODEV) {
		if err := c.addIFB(name); err != nil {
			return 0, fmt.Errorf("make IFB device %s (needs the ifb module): %w", name, err)
		}
		l, err = c.link(name)
	}
	if err != nil {
		return 0, fmt.Errorf("look up %s: %w", name, err)
	}
	index := l.index
	if l.kind != "ifb" {
		return 0, fmt.Errorf("interface %s is a %s, not an IFB device; rename it", name, l.kind)
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
	l, err := c.link(name)
	if err != nil {
		return 0, fmt.Errorf("look up %s: %w", name, err)
	}
	return l.index, nil
}

// Uplink returns the index of an interface, and of how many bytes one packet of it may be that offload has not cut yet,
// either way: 64 KiB, or what BIG TCP was set to (gso_max_size and gro_max_size of ip-link(8)); ENODEV if there is none.
func (c *Conn) Uplink(name string) (index int, largest uint32, err error) {
	l, err := c.link(name)
	if err != nil {
		return 0, 0, fmt.Errorf("look up %s: %w", name, err)
	}
	return l.index, l.largest, nil
}

// link is what is known of an interface.
type link struct {
	index   int
	kind    string
	largest uint32 // bytes of a packet before segmentation
}

func (c *Conn) link(name string) (l link, err error) {
	e := netlink.NewEncoder(make([]byte, unix.SizeofIfInfomsg))
	e.String(unix.IFLA_IFNAME, name)
	request, err := e.Encode()
	if err != nil {
		return l, err
	}
	err = c.socket.Ask(unix.RTM_GETLINK, 0, request, func(_ uint16, data []byte) (err error) {
		l.index = int(netlink.Uint32(data, 4))
		for attribute, value := range netlink.Attributes(data, unix.SizeofIfInfomsg, &err) {
			switch attribute {
			case unix.IFLA_GSO_MAX_SIZE, unix.IFLA_GRO_MAX_SIZE, unix.IFLA_GSO_IPV4_MAX_SIZE, unix.IFLA_GRO_IPV4_MAX_SIZE:
				l.largest = max(l.largest, netlink.Uint32(value, 0))
			case unix.IFLA_LINKINFO:
				for attribute, value := range netlink.Attributes(value, 0, &err) {
					if attribute == unix.IFLA_INFO_KIND {
						l.kind = netlink.Text(value)
					}
				}
			}
		}
		return err
	})
	return l, err
}

// DeleteIFB removes an IFB device; without one it changes nothing, and a device
// of another kind stays.
func (c *Conn) DeleteIFB(name string) error {
	l, err := c.link(name)
	if errors.Is(err, unix.ENODEV) || (err == nil && l.kind != "ifb") {
		return nil
	}
	if err == nil {
		head := make([]byte, unix.SizeofIfInfomsg)
		binary.NativeEndian.PutUint32(head[4:], uint32(l.index))
		err = c.socket.Change(unix.RTM_DELLINK, 0, head)
	}
	if err != nil {
		return fmt.Errorf("delete IFB device %s: %w", name, err)
	}
	return nil
}
