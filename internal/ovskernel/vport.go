// Package ovskernel reads the ports of Open vSwitch's kernel datapath by generic
// netlink: the families ovs_datapath and ovs_vport of uapi/linux/openvswitch.h.
package ovskernel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"vigia/internal/genl"
	"vigia/internal/netns"
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
	conn             *netlink.Conn
	datapaths, ports uint16 // ids of the families; 0 while unknown
}

// Dial connects to the namespace given by name or path; empty means the own one.
func Dial(nameOrPath string) (*Conn, error) {
	var conn *netlink.Conn
	err := netns.Do(nameOrPath, func() (err error) {
		conn, err = netlink.Dial(unix.NETLINK_GENERIC, nil)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("open generic netlink socket in namespace %q: %w", nameOrPath, err)
	}
	return &Conn{conn: conn}, nil
}

// Close closes the connection.
func (c *Conn) Close() error { return c.conn.Close() }

// ErrNoDatapath means that the kernel has no module openvswitch, or not yet.
var ErrNoDatapath = errors.New("the kernel has no datapath of Open vSwitch")

// Vports lists the ports of every kernel datapath of the namespace.
func (c *Conn) Vports() ([]Vport, error) {
	for name, id := range map[string]*uint16{"ovs_datapath": &c.datapaths, "ovs_vport": &c.ports} {
		if *id != 0 {
			continue
		}
		found, err := genl.Family(c.conn, name)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, ErrNoDatapath
		}
		if err != nil {
			return nil, err
		}
		*id = found
	}
	list, err := c.dump(c.datapaths, 0)
	if err != nil {
		return nil, fmt.Errorf("list datapaths: %w", err)
	}
	var out []Vport
	for _, m := range list {
		if len(m.Data) < genl.HeaderLen+ovsHeader {
			return nil, genl.ErrShort
		}
		msgs, err := c.dump(c.ports, binary.NativeEndian.Uint32(m.Data[genl.HeaderLen:]))
		if err != nil {
			return nil, fmt.Errorf("list ports of a datapath: %w", err)
		}
		for _, m := range msgs {
			p, err := parseVport(m.Data)
			if err != nil {
				return nil, fmt.Errorf("parse port of a datapath: %w", err)
			}
			out = append(out, p)
		}
	}
	return out, nil
}

func (c *Conn) dump(family uint16, datapath uint32) ([]netlink.Message, error) {
	body := genl.Body(cmdGet, ovsVersion, binary.NativeEndian.AppendUint32(nil, datapath))
	return c.conn.Execute(netlink.Message{
		Header: netlink.Header{Type: netlink.HeaderType(family), Flags: netlink.Request | netlink.Dump},
		Data:   body,
	})
}

func parseVport(data []byte) (Vport, error) {
	var p Vport
	ad, err := genl.Attributes(data, ovsHeader)
	if err != nil {
		return p, err
	}
	for ad.Next() {
		switch ad.Type() {
		case vportNumber:
			p.Number = ad.Uint32()
		case vportName:
			p.Name = ad.String()
		case vportIndex:
			p.Index = int(ad.Uint32())
		case vportStats: // struct ovs_vport_stats
			into := []*uint64{&p.RxPackets, &p.TxPackets, &p.RxBytes, &p.TxBytes, &p.RxErrors, &p.TxErrors, &p.RxDropped, &p.TxDropped}
			b := ad.Bytes()
			if len(b) < 8*len(into) {
				return p, genl.ErrShort
			}
			for i, f := range into {
				*f = binary.NativeEndian.Uint64(b[8*i:])
			}
		case vportUpcalls:
			ad.Nested(func(nad *netlink.AttributeDecoder) error {
				for nad.Next() {
					switch nad.Type() {
					case upcallsSuccess:
						p.Upcalls, p.HasUpcalls = nad.Uint64(), true
					case upcallsFailed:
						p.LostUpcalls, p.HasUpcalls = nad.Uint64(), true
					}
				}
				return nil
			})
		}
	}
	return p, ad.Err()
}
