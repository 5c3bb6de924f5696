// Package ovskernel reads the ports of Open vSwitch's kernel datapath by generic
// netlink: the families ovs_datapath and ovs_vport of uapi/linux/openvswitch.h.
package ovskernel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"

	"golang.org/x/sys/unix"

	"vigia/internal/netlink"
)

// Vport is a port of a kernel datapath. What it received came into the switch.
type Vport struct {
	Number                                   uint32
	Name                                     string
	Index                                    int // of the interface behind it; 0 before Linux 4.17
	RxPackets, TxPackets, RxBytes, TxBytes   uint64
	RxErrors, TxErrors, RxDropped, TxDropped uint64
	HasUpcalls                               bool // since Linux 6.2
	Upcalls, LostUpcalls                     uint64
}

// Values of uapi/linux/openvswitch.h.
const (
	ovsHeader      = 4 // struct ovs_header: the datapath's index
	cmdGet         = 3 // of both families
	vportNumber    = 1
	vportName      = 3
	vportStats     = 6
	vportIndex     = 8
	vportUpcalls   = 10
	upcallsSuccess = 0
	upcallsFailed  = 1
	ovsVersion     = 1
)

// Conn is a generic netlink socket. It must not be used by several goroutines at
// a time.
type Conn struct {
	socket           *netlink.Socket
	datapaths, ports *netlink.Family // nil while they are unknown
}

// Dial connects to the namespace given by name or path; empty means the own one.
func Dial(nameOrPath string) (*Conn, error) {
	socket, err := netlink.Open(nameOrPath, unix.NETLINK_GENERIC)
	if err != nil {
		return nil, err
	}
	return &Conn{socket: socket}, nil
}

// Close closes the connection.
func (c *Conn) Close() error { return c.socket.Close() }

// ErrNoDatapath means that the kernel has no module openvswitch, or not yet.
var ErrNoDatapath = errors.New("the kernel has no datapath of Open vSwitch")

// Vports lists the ports of every kernel datapath of the namespace.
func (c *Conn) Vports() ([]Vport, error) {
	if err := c.find(); err != nil {
		return nil, err
	}
	var datapaths []uint32
	err := c.datapaths.Dump(cmdGet, make([]byte, ovsHeader), func(data []byte) error {
		if len(data) < ovsHeader {
			return netlink.ErrShort
		}
		datapaths = append(datapaths, netlink.Uint32(data, 0))
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list datapaths: %w", err)
	}
	var out []Vport
	for _, index := range datapaths {
		err := c.ports.Dump(cmdGet, binary.NativeEndian.AppendUint32(nil, index), func(data []byte) error {
			p, err := parseVport(data)
			out = append(out, p)
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("list ports of datapath %d: %w", index, err)
		}
	}
	return out, nil
}

// find looks up the two families until they are there.
func (c *Conn) find() (err error) {
	if c.datapaths == nil {
		c.datapaths, err = c.socket.Family("ovs_datapath", ovsVersion)
	}
	if c.ports == nil && err == nil {
		c.ports, err = c.socket.Family("ovs_vport", ovsVersion)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return ErrNoDatapath
	}
	return err
}

// parseVport reads an OVS_VPORT_CMD_NEW from struct ovs_header on.
func parseVport(data []byte) (p Vport, err error) {
	for kind, value := range netlink.Attributes(data, ovsHeader, &err) {
		switch kind {
		case vportNumber:
			p.Number = netlink.Uint32(value, 0)
		case vportName:
			p.Name = netlink.Text(value)
		case vportIndex:
			p.Index = int(netlink.Uint32(value, 0))
		case vportStats: // struct ovs_vport_stats
			into := []*uint64{&p.RxPackets, &p.TxPackets, &p.RxBytes, &p.TxBytes, &p.RxErrors, &p.TxErrors, &p.RxDropped, &p.TxDropped}
			if len(value) < 8*len(into) {
				return p, netlink.ErrShort
			}
			for i, f := range into {
				*f = netlink.Uint64(value, 8*i)
			}
		case vportUpcalls:
			for kind, value := range netlink.Attributes(value, 0, &err) {
				switch kind {
				case upcallsSuccess:
					p.Upcalls, p.HasUpcalls = netlink.Uint64(value, 0), true
				case upcallsFailed:
					p.LostUpcalls, p.HasUpcalls = netlink.Uint64(value, 0), true
				}
			}
		}
	}
	return p, err
}
