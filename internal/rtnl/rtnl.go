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
	"sync"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"vigia/internal/netns"
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
	mu   sync.Mutex
	conn *netlink.Conn
}

// Dial connects to the namespace given by name or path; empty means the
// process's own.
func Dial(nameOrPath string) (*Conn, error) {
	conn, err := dial(nameOrPath, 0)
	if err != nil {
		return nil, err
	}
	return &Conn{conn: conn}, nil
}

func dial(nameOrPath string, groups uint32) (*netlink.Conn, error) {
	var conn *netlink.Conn
	err := netns.Do(nameOrPath, func() (err error) {
		conn, err = netlink.Dial(unix.NETLINK_ROUTE, &netlink.Config{Groups: groups})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("open rtnetlink socket in namespace %q: %w", nameOrPath, err)
	}
	return conn, nil
}

// Close closes the connection.
func (c *Conn) Close() error { return c.conn.Close() }

func (c *Conn) dump(kind uint16, body []byte) ([]netlink.Message, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.conn.Execute(netlink.Message{
		Header: netlink.Header{Type: netlink.HeaderType(kind), Flags: netlink.Request | netlink.Dump},
		Data:   body,
	})
}

// Links lists the interfaces of the namespace.
func (c *Conn) Links() ([]Link, error) {
	msgs, err := c.dump(unix.RTM_GETLINK, make([]byte, unix.SizeofIfInfomsg))
	if err != nil {
		return nil, fmt.Errorf("list interfaces: %w", err)
	}
	links := make([]Link, 0, len(msgs))
	for _, m := range msgs {
		l, err := parseLink(m.Data)
		if err != nil {
			return nil, fmt.Errorf("parse interface: %w", err)
		}
		links = append(links, l)
	}
	return links, nil
}

var errShort = errors.New("message is too short")

func parseLink(data []byte) (Link, error) {
	if len(data) < unix.SizeofIfInfomsg {
		return Link{}, errShort
	}
	l := Link{Index: int(int32(binary.NativeEndian.Uint32(data[4:])))}
	flags := binary.NativeEndian.Uint32(data[8:])
	l.Up = flags&unix.IFF_UP != 0 && flags&unix.IFF_LOWER_UP != 0
	ad, err := netlink.NewAttributeDecoder(data[unix.SizeofIfInfomsg:])
	if err != nil {
		return Link{}, err
	}
	for ad.Next() {
		switch ad.Type() {
		case unix.IFLA_IFNAME:
			l.Name = ad.String()
		case unix.IFLA_ADDRESS:
			l.MAC = net.HardwareAddr(ad.Bytes())
		case unix.IFLA_MASTER:
			l.Master = int(ad.Uint32())
		case unix.IFLA_LINKINFO:
			ad.Nested(func(nad *netlink.AttributeDecoder) error {
				for nad.Next() {
					if nad.Type() == unix.IFLA_INFO_KIND {
						l.Kind = nad.String()
					}
				}
				return nil
			})
		}
	}
	return l, ad.Err()
}

const (
	sizeofIfStatsMsg = 12 // struct if_stats_msg
	// statsFields is the number of counters that the oldest kernel with
	// RTM_GETSTATS reports; newer ones append.
	statsFields = 24
)

// Stats returns the counters of every interface by index.
func (c *Conn) Stats() (map[int]Stats, error) {
	req := make([]byte, sizeofIfStatsMsg)
	binary.NativeEndian.PutUint32(req[8:], 1<<(unix.IFLA_STATS_LINK_64-1)) // filter_mask
	msgs, err := c.dump(unix.RTM_GETSTATS, req)
	if err != nil {
		return nil, fmt.Errorf("dump interface statistics: %w", err)
	}
	out := make(map[int]Stats, len(msgs))
	for _, m := range msgs {
		index, s, err := parseStats(m.Data)
		if err != nil {
			return nil, fmt.Errorf("parse interface statistics: %w", err)
		}
		out[index] = s
	}
	return out, nil
}

func parseStats(data []byte) (int, Stats, error) {
	if len(data) < sizeofIfStatsMsg {
		return 0, Stats{}, errShort
	}
	index := int(int32(binary.NativeEndian.Uint32(data[4:])))
	ad, err := netlink.NewAttributeDecoder(data[sizeofIfStatsMsg:])
	if err != nil {
		return 0, Stats{}, err
	}
	for ad.Next() {
		if ad.Type() == unix.IFLA_STATS_LINK_64 {
			s, err := parseStats64(ad.Bytes())
			return index, s, err
		}
	}
	if err := ad.Err(); err != nil {
		return 0, Stats{}, err
	}
	return 0, Stats{}, errors.New("IFLA_STATS_LINK_64 is missing")
}

func parseStats64(b []byte) (Stats, error) {
	if len(b) < statsFields*8 {
		return Stats{}, errShort
	}
	var s Stats
	fields := []*uint64{
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
	return s, nil
}

// Watcher tells when interfaces of a namespace come, go or change.
type Watcher struct {
	conn    *netlink.Conn
	changes chan struct{}
	done    chan struct{}
	err     error
}

// Watch subscribes to RTNLGRP_LINK.
func Watch(nameOrPath string) (*Watcher, error) {
	conn, err := dial(nameOrPath, 1<<(unix.RTNLGRP_LINK-1))
	if err != nil {
		return nil, err
	}
	w := &Watcher{conn: conn, changes: make(chan struct{}, 1), done: make(chan struct{})}
	go w.receive()
	return w, nil
}

func (w *Watcher) receive() {
	defer close(w.done)
	for {
		_, err := w.conn.Receive()
		if err != nil && !errors.Is(err, unix.ENOBUFS) { // lost events are an event
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
	err := w.conn.Close()
	<-w.done
	return err
}
