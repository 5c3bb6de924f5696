// Package tsinfo finds out which devices stamp packets in hardware, and whether packets
// to an address leave by one of them.
package tsinfo

import (
	"errors"

	"vigia/internal/ethtool"
	"vigia/internal/rtnl"
)

// Flow is what routing looks at.
type Flow = rtnl.Flow

// Devices asks about the devices of one network namespace.
type Devices struct {
	ethtool *ethtool.Conn
	routes  *rtnl.Conn
}

// Open opens the devices of the network namespace given by name or path; empty means
// the process's own.
func Open(netns string) (*Devices, error) {
	devices, err := ethtool.Dial(netns)
	if err != nil {
		return nil, err
	}
	routes, err := rtnl.Dial(netns)
	if err != nil {
		return nil, errors.Join(err, devices.Close())
	}
	return &Devices{ethtool: devices, routes: routes}, nil
}

// Close frees the sockets.
func (d *Devices) Close() error { return errors.Join(d.ethtool.Close(), d.routes.Close()) }
