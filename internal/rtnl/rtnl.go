// Package rtnl reads network interfaces and their statistics by rtnetlink(7).
//
// Statistics come from one RTM_GETSTATS dump, the cheapest read path that the
// kernel offers: about 1 us per interface.
package rtnl

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"slices"

	"golang.org/x/sys/unix"

	"vigia/internal/netlink"
)

// Link is a network interface.
type Link struct {
	Index int
	Name  string
	MAC   net.HardwareAddr
	Up    bool // administratively and operationally up
	// Master is the interface that this one belongs to, a bridge for example;
	// 0 without one.
	Master int
	Kind   string // veth, tun, bridge, vxlan, ...; empty for hardware
	Parent int    // the interface that this one sends through, as a VLAN's; 0 without one
	VLAN   uint16 // of a VLAN device
}

// Stats are struct rtnl_link_stats64, seen from the interface.
type Stats struct {
	RxPackets, TxPackets, RxBytes, TxBytes          uint64
	RxErrors, TxErrors, RxDropped, TxDropped        uint64
	Multicast, Collisions                           uint64
	RxLengthErrors, RxOverErrors, RxCRCErrors       uint64
	RxFrameErrors, RxFifoErrors, RxMissed           uint64
	TxAborted, TxCarrier, TxFifo, TxHeartbeat       uint64
	TxWindow, RxCompressed, TxCompressed, NoHandler uint64
	RxOtherhostDropped                              uint64
}

// Conn is a netlink connection into one network namespace. It may be used by
// several goroutines.
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

// Links lists the interfaces of the namespace.
func (c *Conn) Links() ([]Link, error) {
	e := netlink.NewEncoder(make([]byte, unix.SizeofIfInfomsg))
	// Counters are not wanted; and only with a mask does the kernel make room for an
	// interface with hundreds of names, which it leaves out of the list otherwise.
	e.Uint32(iflaExtMask, rtextFilterSkipStats)
	request, err := e.Encode()
	if err != nil {
		return nil, err
	}
	var links []Link
	begin := func() { links = links[:0] }
	err = c.socket.Snapshot(unix.RTM_GETLINK, request, begin, func(_ uint16, data []byte) error {
		l, err := parseLink(data)
		links = append(links, l)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list interfaces: %w", err)
	}
	return links, nil
}

func parseLink(data []byte) (l Link, err error) {
	l.Index = int(int32(netlink.Uint32(data, 4)))
	flags := netlink.Uint32(data, 8)
	l.Up = flags&unix.IFF_UP != 0 && flags&unix.IFF_LOWER_UP != 0
	for kind, value := range netlink.Attributes(data, unix.SizeofIfInfomsg, &err) {
		switch kind {
		case unix.IFLA_IFNAME:
			l.Name = netlink.Text(value)
		case unix.IFLA_ADDRESS:
			l.MAC = slices.Clone(net.HardwareAddr(value))
		case unix.IFLA_MASTER:
			l.Master = int(netlink.Uint32(value, 0))
		case unix.IFLA_LINK:
			l.Parent = int(netlink.Uint32(value, 0))
		case unix.IFLA_LINKINFO:
			l.Kind, l.VLAN = info(value, &err)
		}
	}
	return l, err
}

// info reads an IFLA_LINKINFO: the kind, and a VLAN device's VLAN.
func info(value []byte, err *error) (kind string, vlan uint16) {
	var data []byte
	for attribute, content := range netlink.Attributes(value, 0, err) {
		switch attribute {
		case unix.IFLA_INFO_KIND:
			kind = netlink.Text(content)
		case unix.IFLA_INFO_DATA:
			data = content
		}
	}
	if kind != vlanKind {
		return kind, 0
	}
	for attribute, content := range netlink.Attributes(data, 0, err) {
		if attribute == unix.IFLA_VLAN_ID && len(content) >= 2 {
			vlan = binary.NativeEndian.Uint16(content)
		}
	}
	return kind, vlan
}

const (
	sizeofIfStatsMsg = 12 // struct if_stats_msg
	// statsFields is the number of counters that the oldest kernel with
	// RTM_GETSTATS reports; newer ones append.
	statsFields = 24
)

// StatsTable holds the counters of a namespace's interfaces. It may be filled again
// and again, which costs no memory once it is large enough.
type StatsTable struct {
	rows    []Stats
	indices []int       // of the interfaces, row by row
	at      map[int]int // row by index
	other   bool        // indices are not those that at was made of
}

// Get returns the counters of an interface, valid until the table is filled
// again; nil if it was not there.
func (t *StatsTable) Get(index int) *Stats {
	if i, ok := t.at[index]; ok {
		return &t.rows[i]
	}
	return nil
}

// Len returns the number of interfaces.
func (t *StatsTable) Len() int { return len(t.rows) }

// begin empties the table, also of a list that is begun again.
func (t *StatsTable) begin() { t.rows = t.rows[:0] }

// add appends a row.
func (t *StatsTable) add(index int, s Stats) {
	row := len(t.rows)
	if row == len(t.indices) {
		t.indices, t.other = append(t.indices, index), true
	} else if t.indices[row] != index {
		t.indices[row], t.other = index, true
	}
	t.rows = append(t.rows, s)
}

// end makes rows be found, which were most often the same the last time.
func (t *StatsTable) end() {
	if !t.other && len(t.rows) == len(t.indices) && len(t.at) == len(t.rows) {
		return
	}
	t.indices = t.indices[:len(t.rows)]
	t.at = make(map[int]int, len(t.rows))
	for row, index := range t.indices {
		t.at[index] = row
	}
	t.other = false
}

// Stats fills t with the counters of every interface.
func (c *Conn) Stats(t *StatsTable) error {
	var req [sizeofIfStatsMsg]byte
	binary.NativeEndian.PutUint32(req[8:], 1<<(unix.IFLA_STATS_LINK_64-1)) // filter_mask
	err := c.socket.Snapshot(unix.RTM_GETSTATS, req[:], t.begin, func(_ uint16, data []byte) error {
		index, s, err := parseStats(data)
		if err == nil {
			t.add(index, s)
		}
		return err
	})
	t.end()
	if err != nil {
		return fmt.Errorf("dump interface statistics: %w", err)
	}
	return nil
}

func parseStats(data []byte) (index int, s Stats, err error) {
	found := false
	for kind, value := range netlink.Attributes(data, sizeofIfStatsMsg, &err) {
		if kind != unix.IFLA_STATS_LINK_64 {
			continue
		}
		if len(value) < statsFields*8 {
			return 0, Stats{}, netlink.ErrShort
		}
		s, found = parseStats64(value), true
	}
	if err == nil && !found {
		err = errors.New("IFLA_STATS_LINK_64 is missing")
	}
	return int(int32(netlink.Uint32(data, 4))), s, err
}

// parseStats64 reads struct rtnl_link_stats64, of statsFields numbers or more.
func parseStats64(b []byte) Stats {
	var s Stats
	fields := [...]*uint64{
		&s.RxPackets, &s.TxPackets, &s.RxBytes, &s.TxBytes, &s.RxErrors, &s.TxErrors, &s.RxDropped, &s.TxDropped,
		&s.Multicast, &s.Collisions, &s.RxLengthErrors, &s.RxOverErrors, &s.RxCRCErrors, &s.RxFrameErrors,
		&s.RxFifoErrors, &s.RxMissed, &s.TxAborted, &s.TxCarrier, &s.TxFifo, &s.TxHeartbeat, &s.TxWindow,
		&s.RxCompressed, &s.TxCompressed, &s.NoHandler, &s.RxOtherhostDropped,
	}
	for i, f := range fields {
		if (i+1)*8 <= len(b) {
			*f = binary.NativeEndian.Uint64(b[i*8:])
		}
	}
	return s
}

// Watcher tells when interfaces of a namespace come, go or change.
type Watcher struct {
	events  *netlink.Subscription
	changes chan struct{}
	done    chan struct{}
	err     error
}

// Watch subscribes to RTNLGRP_LINK.
func Watch(nameOrPath string) (*Watcher, error) {
	events, err := netlink.Subscribe(nameOrPath, unix.NETLINK_ROUTE, 1<<(unix.RTNLGRP_LINK-1))
	if err != nil {
		return nil, err
	}
	w := &Watcher{events: events, changes: make(chan struct{}, 1), done: make(chan struct{})}
	go w.receive()
	return w, nil
}

func (w *Watcher) receive() {
	defer close(w.done)
	for {
		if err := w.events.Wait(); err != nil {
			w.err = err
			return
		}
		select {
		case w.changes <- struct{}{}:
		default: // one is pending already
		}
	}
}

// Changes delivers a value after one or more changes.
func (w *Watcher) Changes() <-chan struct{} { return w.changes }

// Done is closed when the subscription has broken; Err tells why.
func (w *Watcher) Done() <-chan struct{} { return w.done }

// Err returns why the subscription broke, after Done is closed.
func (w *Watcher) Err() error { return w.err }

// Close ends the subscription.
func (w *Watcher) Close() error {
	err := w.events.Close()
	<-w.done
	return err
}
