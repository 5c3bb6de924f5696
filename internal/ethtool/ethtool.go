// Package ethtool asks network devices how fast their links are and which time stamps
// they offer, by generic netlink (uapi/linux/ethtool_netlink.h, Linux 5.6), and by
// ioctl(2) where the kernel has nothing newer.
package ethtool

import (
	"errors"
	"fmt"
	"io/fs"

	"golang.org/x/sys/unix"

	"vigia/internal/netlink"
	"vigia/internal/netns"
)

// Values of uapi/linux/ethtool_netlink.h that all requests share. The header is the
// first attribute of each.
const (
	familyName    = "ethtool"
	familyVersion = 1
	requestHeader = 1
	headerDevName = 2
	headerFlags   = 3
)

// Conn asks about the devices of one network namespace. It may be used by several
// goroutines.
type Conn struct {
	socket *netlink.Socket
	family *netlink.Family // nil where the kernel has no such family
	fd     int             // for ioctl(2)
}

// Dial connects to the namespace given by name or path; empty means the own one.
func Dial(nameOrPath string) (*Conn, error) {
	socket, err := netlink.Open(nameOrPath, unix.NETLINK_GENERIC)
	if err != nil {
		return nil, err
	}
	c := &Conn{socket: socket, fd: -1}
	c.family, err = socket.Family(familyName, familyVersion)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	if err == nil {
		err = netns.Do(nameOrPath, func() (err error) {
			c.fd, err = unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
			return err
		})
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open ethtool in namespace %q: %w", nameOrPath, err), socket.Close())
	}
	return c, nil
}

// Close closes the connection. To close it again does nothing: its number may be another file's by then.
func (c *Conn) Close() error {
	if c.fd < 0 {
		return nil
	}
	fd := c.fd
	c.fd = -1
	return errors.Join(c.socket.Close(), unix.Close(fd))
}

// ask sends a request about a device and calls answer with the answer's attributes.
func (c *Conn) ask(command byte, device string, flags uint32, answer func(data []byte) error) error {
	request, err := encodeRequest(device, flags)
	if err != nil {
		return err
	}
	return c.family.Ask(command, request, answer)
}

func encodeRequest(device string, flags uint32) ([]byte, error) {
	e := netlink.NewEncoder(nil)
	e.Nested(requestHeader, func() {
		e.String(headerDevName, device)
		if flags != 0 {
			e.Uint32(headerFlags, flags)
		}
	})
	return e.Encode()
}
