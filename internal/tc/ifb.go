package tc

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"vigia/internal/nldump"
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
	if _, err := c.execute(unix.RTM_NEWLINK, netlink.Acknowledge, head); err != nil {
		return 0, fmt.Errorf("bring %s up: %w", name, err)
	}
	return index, nil
}

func (c *Conn) addIFB(name string) error {
	body, err := request(make([]byte, unix.SizeofIfInfomsg), func(ae *netlink.AttributeEncoder) {
		ae.String(unix.IFLA_IFNAME, name)
		ae.Nested(unix.IFLA_LINKINFO, func(nae *netlink.AttributeEncoder) error {
			nae.String(unix.IFLA_INFO_KIND, "ifb")
			return nil
		})
	})
	if err != nil {
		return err
	}
	_, err = c.execute(unix.RTM_NEWLINK, exclusive, body)
	return err
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
func (c *Conn) link(name string) (int, string, error) {
	body, err := request(make([]byte, unix.SizeofIfInfomsg), func(ae *netlink.AttributeEncoder) {
		ae.String(unix.IFLA_IFNAME, name)
	})
	if err != nil {
		return 0, "", err
	}
	msgs, err := c.execute(unix.RTM_GETLINK, 0, body)
	if err != nil {
		return 0, "", err
	}
	if len(msgs) != 1 || len(msgs[0].Data) < unix.SizeofIfInfomsg {
		return 0, "", nldump.ErrShort
	}
	kind := ""
	err = nldump.Attributes(msgs[0].Data[unix.SizeofIfInfomsg:], func(t uint16, v []byte) {
		if t == unix.IFLA_LINKINFO {
			_ = nldump.Attributes(v, func(t uint16, v []byte) {
				if t == unix.IFLA_INFO_KIND {
					kind = text(v)
				}
			})
		}
	})
	return int(u32(msgs[0].Data, 4)), kind, err
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
		_, err = c.execute(unix.RTM_DELLINK, netlink.Acknowledge, head)
	}
	if err != nil {
		return fmt.Errorf("delete IFB device %s: %w", name, err)
	}
	return nil
}
