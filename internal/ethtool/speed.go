// Package ethtool asks how fast links are, by generic netlink
// (uapi/linux/ethtool_netlink.h, Linux 5.6).
package ethtool

import (
	"errors"
	"fmt"
	"io/fs"
	"math"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"vigia/internal/genl"
	"vigia/internal/netns"
)

const (
	family         = "ethtool"
	familyVersion  = 1
	linkModesGet   = 4 // ETHTOOL_MSG_LINKMODES_GET
	requestHeader  = 1 // ETHTOOL_A_LINKMODES_HEADER
	linkModesSpeed = 5 // ETHTOOL_A_LINKMODES_SPEED, Mbit/s
	headerDevName  = 2 // ETHTOOL_A_HEADER_DEV_NAME
)

// Conn is a generic netlink socket. It must not be used by several goroutines at a
// time.
type Conn struct {
	conn   *netlink.Conn
	family uint16 // 0 where the kernel has no such family
}

// Dial connects to the namespace given by name or path; empty means the own one.
func Dial(nameOrPath string) (*Conn, error) {
	c := &Conn{}
	err := netns.Do(nameOrPath, func() (err error) {
		c.conn, err = netlink.Dial(unix.NETLINK_GENERIC, nil)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("open generic netlink socket in namespace %q: %w", nameOrPath, err)
	}
	c.family, err = genl.Family(c.conn, family)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		c.conn.Close()
		return nil, err
	}
	return c, nil
}

// Close closes the connection.
func (c *Conn) Close() error { return c.conn.Close() }

// Speed returns the speed of a device's link in bits per second; 0 where nobody
// knows: the link is down, or is none of a fixed speed.
func (c *Conn) Speed(device string) (uint64, error) {
	if c.family == 0 {
		return 0, nil
	}
	ae := netlink.NewAttributeEncoder()
	ae.Nested(requestHeader, func(n *netlink.AttributeEncoder) error {
		n.String(headerDevName, device)
		return nil
	})
	attributes, err := ae.Encode()
	if err != nil {
		return 0, err
	}
	msgs, err := c.conn.Execute(netlink.Message{
		Header: netlink.Header{Type: netlink.HeaderType(c.family), Flags: netlink.Request},
		Data:   genl.Body(linkModesGet, familyVersion, attributes),
	})
	if errors.Is(err, unix.EOPNOTSUPP) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("ask how fast the link of %s is: %w", device, err)
	}
	for _, m := range msgs {
		speed, err := parseSpeed(m.Data)
		if err != nil || speed > 0 {
			return speed, err
		}
	}
	return 0, nil
}

// parseSpeed reads an ETHTOOL_MSG_LINKMODES_GET_REPLY.
func parseSpeed(payload []byte) (uint64, error) {
	ad, err := genl.Attributes(payload, 0)
	if err != nil {
		return 0, fmt.Errorf("read how fast a link is: %w", err)
	}
	var speed uint64
	for ad.Next() {
		if ad.Type() == linkModesSpeed {
			if mbit := ad.Uint32(); mbit != math.MaxUint32 { // SPEED_UNKNOWN
				speed = uint64(mbit) * 1e6
			}
		}
	}
	return speed, ad.Err()
}
