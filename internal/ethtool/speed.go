package ethtool

import (
	"errors"
	"fmt"
	"math"

	"golang.org/x/sys/unix"

	"vigia/internal/netlink"
)

const (
	linkModesGet   = 4 // ETHTOOL_MSG_LINKMODES_GET
	linkModesSpeed = 5 // ETHTOOL_A_LINKMODES_SPEED, Mbit/s
)

// Speed returns the speed of a device's link in bits per second; 0 where nobody
// knows: the link is down, or is none of a fixed speed.
func (c *Conn) Speed(device string) (speed uint64, err error) {
	if c.family == nil {
		return 0, nil
	}
	err = c.ask(linkModesGet, device, 0, func(data []byte) (err error) {
		speed, err = parseSpeed(data)
		return err
	})
	if errors.Is(err, unix.EOPNOTSUPP) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("ask how fast the link of %s is: %w", device, err)
	}
	return speed, nil
}

// parseSpeed reads the attributes of an ETHTOOL_MSG_LINKMODES_GET_REPLY.
func parseSpeed(data []byte) (speed uint64, err error) {
	for kind, value := range netlink.Attributes(data, 0, &err) {
		if kind != linkModesSpeed {
			continue
		}
		if len(value) < 4 {
			return 0, netlink.ErrShort
		}
		if mbit := netlink.Uint32(value, 0); mbit != math.MaxUint32 { // SPEED_UNKNOWN
			speed = uint64(mbit) * 1e6
		}
	}
	return speed, err
}
