// Package genl speaks the part of generic netlink that all its families share:
// messages' headers, and the number of a family (uapi/linux/genetlink.h).
package genl

import (
	"errors"
	"fmt"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// HeaderLen is the size of struct genlmsghdr in bytes: a message's payload begins
// with it.
const HeaderLen = 4

const (
	controllerVersion = 1
	getFamily         = 3 // CTRL_CMD_GETFAMILY
	familyID          = 1 // CTRL_ATTR_FAMILY_ID
	familyName        = 2 // CTRL_ATTR_FAMILY_NAME
)

// ErrShort means that a message ends within its headers.
var ErrShort = errors.New("message is too short")

// Body returns the payload of a request: the header of a command of a family's
// version, and what follows it.
func Body(command, version byte, rest []byte) []byte {
	return append([]byte{command, version, 0, 0}, rest...)
}

// Attributes returns a decoder of what follows the header, and so many bytes of the
// family's own, in the payload of a message.
func Attributes(payload []byte, own int) (*netlink.AttributeDecoder, error) {
	if len(payload) < HeaderLen+own {
		return nil, ErrShort
	}
	return netlink.NewAttributeDecoder(payload[HeaderLen+own:])
}

// Family asks the controller for the number of a family. Where the kernel has no such
// family the error is fs.ErrNotExist.
func Family(c *netlink.Conn, name string) (uint16, error) {
	ae := netlink.NewAttributeEncoder()
	ae.String(familyName, name)
	attributes, err := ae.Encode()
	if err != nil {
		return 0, err
	}
	msgs, err := c.Execute(netlink.Message{
		Header: netlink.Header{Type: unix.GENL_ID_CTRL, Flags: netlink.Request},
		Data:   Body(getFamily, controllerVersion, attributes),
	})
	if err != nil {
		return 0, fmt.Errorf("look up generic netlink family %s: %w", name, err)
	}
	for _, m := range msgs {
		ad, err := Attributes(m.Data, 0)
		if err != nil {
			return 0, err
		}
		for ad.Next() {
			if ad.Type() == familyID {
				return ad.Uint16(), ad.Err()
			}
		}
	}
	return 0, fmt.Errorf("generic netlink family %s has no number", name)
}
