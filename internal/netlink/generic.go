package netlink

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// genericHeader is the size of struct genlmsghdr in bytes.
const genericHeader = 4

// The controller of generic netlink (uapi/linux/genetlink.h).
const (
	controllerVersion = 1
	getFamily         = 3 // CTRL_CMD_GETFAMILY
	familyID          = 1 // CTRL_ATTR_FAMILY_ID
	familyName        = 2 // CTRL_ATTR_FAMILY_NAME
)

// Family is a family of generic netlink, on a socket of NETLINK_GENERIC that it may
// share with others.
type Family struct {
	socket  *Socket
	id      uint16
	version byte
}

// Family asks the kernel for a family, which is spoken to in a version. Where the
// kernel has no such family the error is fs.ErrNotExist.
func (s *Socket) Family(name string, version byte) (*Family, error) {
	f := &Family{socket: s, id: unix.GENL_ID_CTRL, version: controllerVersion}
	e := NewEncoder(nil)
	e.String(familyName, name)
	request, err := e.Encode()
	if err != nil {
		return nil, err
	}
	var id uint16
	err = f.Ask(getFamily, request, func(data []byte) (err error) {
		for kind, value := range Attributes(data, 0, &err) {
			if kind == familyID {
				id = Uint16(value, 0)
			}
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("look up generic netlink family %s: %w", name, err)
	}
	if id == 0 {
		return nil, fmt.Errorf("generic netlink family %s has no number", name)
	}
	return &Family{socket: s, id: id, version: version}, nil
}

// Dump sends a command that the kernel answers by many messages, and calls each with
// what follows the header in each of them. What Socket.Dump says of data holds.
func (f *Family) Dump(command byte, body []byte, each func(data []byte) error) error {
	return f.socket.Dump(f.id, f.body(command, body), behindHeader(each))
}

// Ask sends a command that the kernel answers by one message.
func (f *Family) Ask(command byte, body []byte, answer func(data []byte) error) error {
	return f.socket.Ask(f.id, 0, f.body(command, body), behindHeader(answer))
}

func (f *Family) body(command byte, rest []byte) []byte {
	return append([]byte{command, f.version, 0, 0}, rest...)
}

func behindHeader(fn func(data []byte) error) func(uint16, []byte) error {
	return func(_ uint16, data []byte) error {
		if len(data) < genericHeader {
			return ErrShort
		}
		return fn(data[genericHeader:])
	}
}
