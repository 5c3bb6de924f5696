// Package tc reads and writes traffic control (queueing disciplines, classes,
// filters) and IFB devices by rtnetlink(7), without a process per change.
//
// What it creates is created only where nothing of somebody else is: a root
// qdisc takes the place of the kernel's default one and of no other.
package tc

import (
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"vigia/internal/netlink"
)

// Handle names a qdisc (minor 0), a class or a parent, as tc(8) does: major:minor.
type Handle uint32

// The places that are no qdisc's or class's own handle.
const (
	Root          Handle = 0xffffffff
	Clsact        Handle = 0xfffffff1 // parent of a clsact or ingress qdisc
	ClsactIngress Handle = 0xfffffff2 // where its ingress filters hang
	ClsactEgress  Handle = 0xfffffff3 // where its egress filters hang
)

// MakeHandle returns major:minor.
func MakeHandle(major, minor uint16) Handle { return Handle(uint32(major)<<16 | uint32(minor)) }

// Major returns the upper half.
func (h Handle) Major() uint16 { return uint16(h >> 16) }

// Minor returns the lower half.
func (h Handle) Minor() uint16 { return uint16(h) }

func (h Handle) String() string {
	if h == Root {
		return "root"
	}
	return fmt.Sprintf("%x:%x", h.Major(), h.Minor())
}

// Stats are struct gnet_stats_basic and gnet_stats_queue.
type Stats struct {
	Bytes   uint64 // that left
	Packets uint64
	Queued  uint32 // socket buffers waiting
	Backlog uint32 // bytes waiting
	Drops   uint32 // socket buffers refused
}

// Qdisc is a queueing discipline.
type Qdisc struct {
	Link    int // interface index
	Handle  Handle
	Parent  Handle
	Kind    string
	Limit   uint32 // pfifo: packets; bfifo: bytes
	Default uint32 // htb: minor of the class for what no filter matches
	Stats   Stats
}

// Class is an HTB class.
type Class struct {
	Link    int
	Handle  Handle
	Parent  Handle
	Kind    string
	Leaf    Handle
	Rate    uint64 // bytes per second, guaranteed
	Ceil    uint64 // bytes per second, at most
	Burst   uint32 // bytes at full speed, for both
	Quantum uint32 // bytes per turn when spare bandwidth is shared out
	Prio    uint32
	Stats   Stats
}

// Filter is a cls_bpf filter.
type Filter struct {
	Link     int
	Parent   Handle
	Priority uint16
	Handle   uint32
	Kind     string
	Name     string
	Program  uint32 // id of the BPF program, as read
	FD       int    // of the BPF program, to write
	Redirect int    // interface that every match is redirected to; 0 = none
	Direct   bool   // the program's answer is the verdict (direct action)
}

// Conn is a connection into one network namespace. It may be used by several
// goroutines.
type Conn struct {
	socket *netlink.Socket
}

// Dial connects to the namespace given by name or path; empty means the
// process's own.
func Dial(nameOrPath string) (*Conn, error) {
	socket, err := netlink.Open(nameOrPath, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, err
	}
	return &Conn{socket: socket}, nil
}

// Close closes the connection.
func (c *Conn) Close() error { return c.socket.Close() }

const sizeofTcmsg = 20

// tcmsg encodes struct tcmsg.
func tcmsg(link int, handle, parent Handle, info uint32) []byte {
	b := make([]byte, sizeofTcmsg, 256)
	binary.NativeEndian.PutUint32(b[4:], uint32(link))
	binary.NativeEndian.PutUint32(b[8:], uint32(handle))
	binary.NativeEndian.PutUint32(b[12:], uint32(parent))
	binary.NativeEndian.PutUint32(b[16:], info)
	return b
}

// change sends a header with attributes and waits for the acknowledgement.
func (c *Conn) change(kind, flags uint16, head []byte, fill func(*netlink.Encoder)) error {
	e := netlink.NewEncoder(head)
	fill(e)
	request, err := e.Encode()
	if err != nil {
		return err
	}
	return c.socket.Change(kind, flags, request)
}

const (
	create    = unix.NLM_F_CREATE
	exclusive = create | unix.NLM_F_EXCL
	replace   = create | unix.NLM_F_REPLACE
)

// AddQdisc makes a qdisc. Where one of another owner sits, the kernel refuses
// with EEXIST; its own default qdisc gives way.
func (c *Conn) AddQdisc(q Qdisc) error { return c.setQdisc(q, exclusive) }

// ReplaceQdisc makes a qdisc or changes the one with the same handle.
func (c *Conn) ReplaceQdisc(q Qdisc) error { return c.setQdisc(q, replace) }

func (c *Conn) setQdisc(q Qdisc, flags uint16) error {
	err := c.change(unix.RTM_NEWQDISC, flags, tcmsg(q.Link, q.Handle, q.Parent, 0), func(e *netlink.Encoder) {
		e.String(unix.TCA_KIND, q.Kind)
		switch q.Kind {
		case "htb":
			e.Nested(unix.TCA_OPTIONS, func() { e.Bytes(tcaHTBInit, htbGlob(q.Default)) })
		case "pfifo", "bfifo":
			e.Bytes(unix.TCA_OPTIONS, binary.NativeEndian.AppendUint32(nil, q.Limit))
		}
	})
	if err != nil {
		return fmt.Errorf("set qdisc %s %s of interface %d: %w", q.Kind, q.Handle, q.Link, err)
	}
	return nil
}

// DeleteQdisc removes a qdisc and everything below it; without one it changes nothing.
func (c *Conn) DeleteQdisc(link int, handle, parent Handle) error {
	err := c.socket.Change(unix.RTM_DELQDISC, 0, tcmsg(link, handle, parent, 0))
	if err = ignoreAbsent(err); err != nil {
		return fmt.Errorf("delete qdisc %s of interface %d: %w", handle, link, err)
	}
	return nil
}

// ReplaceClass makes an HTB class or changes it.
func (c *Conn) ReplaceClass(k Class) error {
	err := c.change(unix.RTM_NEWTCLASS, create, tcmsg(k.Link, k.Handle, k.Parent, 0), func(e *netlink.Encoder) {
		e.String(unix.TCA_KIND, "htb")
		e.Nested(unix.TCA_OPTIONS, func() {
			e.Bytes(tcaHTBParms, htbOpt(&k))
			e.Uint64(tcaHTBRate64, k.Rate)
			e.Uint64(tcaHTBCeil64, k.Ceil)
		})
	})
	if err != nil {
		return fmt.Errorf("set class %s of interface %d: %w", k.Handle, k.Link, err)
	}
	return nil
}

// DeleteClass removes a class; without one it changes nothing.
func (c *Conn) DeleteClass(link int, handle Handle) error {
	err := c.socket.Change(unix.RTM_DELTCLASS, 0, tcmsg(link, handle, 0, 0))
	if err = ignoreAbsent(err); err != nil {
		return fmt.Errorf("delete class %s of interface %d: %w", handle, link, err)
	}
	return nil
}

const ethPAll = 0x0003

func filterInfo(priority uint16) uint32 {
	var be [2]byte
	binary.BigEndian.PutUint16(be[:], ethPAll)
	return uint32(priority)<<16 | uint32(binary.NativeEndian.Uint16(be[:]))
}

// ReplaceFilter makes a cls_bpf filter or changes the one of the same priority
// and handle.
func (c *Conn) ReplaceFilter(f Filter) error {
	head := tcmsg(f.Link, Handle(f.Handle), f.Parent, filterInfo(f.Priority))
	err := c.change(unix.RTM_NEWTFILTER, create, head, func(e *netlink.Encoder) {
		e.String(unix.TCA_KIND, "bpf")
		e.Nested(unix.TCA_OPTIONS, func() {
			if f.Redirect != 0 {
				e.Nested(tcaBPFAct, func() {
					e.Nested(1, func() { redirectAction(e, f.Redirect) })
				})
			}
			e.Uint32(tcaBPFFD, uint32(f.FD))
			e.String(tcaBPFName, f.Name)
			if f.Direct {
				e.Uint32(tcaBPFFlags, tcaBPFFlagActDirect)
			}
		})
	})
	if err != nil {
		return fmt.Errorf("set filter %s of interface %d: %w", f.Name, f.Link, err)
	}
	return nil
}

// DeleteFilter removes the filters of a priority; without any it changes nothing.
func (c *Conn) DeleteFilter(link int, parent Handle, priority uint16) error {
	return c.deleteFilters(link, 0, parent, priority)
}

// DeleteOneFilter removes the filter with f's handle among those of its
// priority; without it it changes nothing.
func (c *Conn) DeleteOneFilter(f Filter) error {
	return c.deleteFilters(f.Link, Handle(f.Handle), f.Parent, f.Priority)
}

func (c *Conn) deleteFilters(link int, handle, parent Handle, priority uint16) error {
	err := c.socket.Change(unix.RTM_DELTFILTER, 0, tcmsg(link, handle, parent, filterInfo(priority)))
	if err = ignoreAbsent(err); err != nil && !errors.Is(err, unix.EINVAL) { // EINVAL: the qdisc is gone, too
		return fmt.Errorf("delete filters of interface %d: %w", link, err)
	}
	return nil
}

// redirectAction encodes a mirred action that takes the packet to another
// interface's egress side.
func redirectAction(e *netlink.Encoder, to int) {
	const (
		stolen         = 4 // TC_ACT_STOLEN
		egressRedirect = 1 // TCA_EGRESS_REDIR
	)
	parms := make([]byte, 28) // struct tc_mirred
	binary.NativeEndian.PutUint32(parms[8:], stolen)
	binary.NativeEndian.PutUint32(parms[20:], egressRedirect)
	binary.NativeEndian.PutUint32(parms[24:], uint32(to))
	e.String(tcaActKind, "mirred")
	e.Nested(tcaActOptions, func() { e.Bytes(tcaMirredParms, parms) })
}

func ignoreAbsent(err error) error {
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENODEV) {
		return nil
	}
	return err
}
