package timestamping

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"slices"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// TestControlMessagesRoundTrip builds control messages and reads them back.
func TestControlMessagesRoundTrip(t *testing.T) {
	var b [controlSize]byte
	a := appender{buffer: b[:]}
	*(*int32)(a.add(unix.IPPROTO_IP, unix.IP_TTL, 4)) = 63
	*(*byte)(a.add(unix.IPPROTO_IP, unix.IP_TOS, 1)) = 184
	*(*uint32)(a.add(unix.SOL_SOCKET, unix.SO_RXQ_OVFL, 4)) = 77
	stamps := (*[3]unix.Timespec)(a.add(unix.SOL_SOCKET, unix.SO_TIMESTAMPING, 48))
	stamps[0] = unix.Timespec{Sec: 5, Nsec: 6}
	*(*unix.Inet4Pktinfo)(a.add(unix.IPPROTO_IP, unix.IP_PKTINFO, unix.SizeofInet4Pktinfo)) = unix.Inet4Pktinfo{Spec_dst: [4]byte{10, 0, 0, 1}, Addr: [4]byte{10, 0, 0, 1}}

	var d Datagram
	var kinds []int
	c := control{rest: b[:a.used]}
	for level, kind, data, ok := c.next(); ok; level, kind, data, ok = c.next() {
		kinds = append(kinds, kind)
		d.read(level, kind, data)
	}
	if !slices.Equal(kinds, []int{unix.IP_TTL, unix.IP_TOS, unix.SO_RXQ_OVFL, unix.SO_TIMESTAMPING, unix.IP_PKTINFO}) {
		t.Errorf("read %v", kinds)
	}
	if d.TTL != 63 || d.TOS != 184 || !d.HasDrops || d.Drops != 77 || d.Stamp != 5_000_000_006 || d.Local != netip.MustParseAddr("10.0.0.1") {
		t.Errorf("%+v", d)
	}
}

func TestIPv6ControlMessages(t *testing.T) {
	var b [controlSize]byte
	a := appender{buffer: b[:]}
	*(*int32)(a.add(unix.IPPROTO_IPV6, unix.IPV6_HOPLIMIT, 4)) = 7
	*(*int32)(a.add(unix.IPPROTO_IPV6, unix.IPV6_TCLASS, 4)) = 8
	info := (*unix.Inet6Pktinfo)(a.add(unix.IPPROTO_IPV6, unix.IPV6_PKTINFO, unix.SizeofInet6Pktinfo))
	info.Addr = netip.MustParseAddr("fd00::1").As16()
	read := func() (d Datagram) {
		c := control{rest: b[:a.used]}
		for level, kind, data, ok := c.next(); ok; level, kind, data, ok = c.next() {
			d.read(level, kind, data)
		}
		return d
	}
	if d := read(); d.TTL != 7 || d.TOS != 8 || d.Local != netip.MustParseAddr("fd00::1") {
		t.Errorf("%+v", d)
	}
	info.Addr = netip.MustParseAddr("ff02::1").As16()
	if d := read(); d.Local.IsValid() {
		t.Errorf("a multicast address is local: %s", d.Local)
	}
}

// TestBrokenControlMessages cuts a good buffer at every byte and damages its
// lengths; reading must end and stay inside.
func TestBrokenControlMessages(t *testing.T) {
	var b [controlSize]byte
	a := appender{buffer: b[:]}
	for range 3 {
		*(*int32)(a.add(unix.IPPROTO_IP, unix.IP_TTL, 4)) = 1
	}
	walk := func(raw []byte) (n int) {
		c := control{rest: raw}
		for _, _, data, ok := c.next(); ok; _, _, data, ok = c.next() {
			if len(data) > len(raw) {
				t.Fatalf("%d bytes of data in %d", len(data), len(raw))
			}
			var d Datagram
			d.read(unix.IPPROTO_IP, unix.IP_PKTINFO, data)
			d.read(unix.SOL_SOCKET, unix.SO_TIMESTAMPING, data)
			d.read(unix.SOL_SOCKET, unix.SO_RXQ_OVFL, data)
			if n++; n > 10 {
				t.Fatal("reading does not end")
			}
		}
		return n
	}
	for cut := range a.used {
		if n := walk(b[:cut]); n > cut/unix.SizeofCmsghdr {
			t.Errorf("%d messages in %d bytes", n, cut)
		}
	}
	for _, length := range []uint64{0, 1, 15, uint64(a.used) + 1, 1 << 40, 1<<64 - 1} {
		damaged := bytes.Clone(b[:a.used])
		binary.NativeEndian.PutUint64(damaged, length)
		if n := walk(damaged); n != 0 {
			t.Errorf("length %d: %d messages", length, n)
		}
	}
}

func TestReportsThatAreNone(t *testing.T) {
	q := NewErrorQueue(1)
	fill := func(e unix.SockExtendedErr, stamp unix.Timespec) *Report {
		a := appender{buffer: q.controls[0][:]}
		(*[3]unix.Timespec)(a.add(unix.SOL_SOCKET, unix.SO_TIMESTAMPING, 48))[0] = stamp
		*(*unix.SockExtendedErr)(a.add(unix.IPPROTO_IP, unix.IP_RECVERR, int(unsafe.Sizeof(e)))) = e
		q.messages.messages[0].header.SetControllen(a.used)
		var r Report
		if !q.Report(0, &r) {
			return nil
		}
		return &r
	}
	at := unix.Timespec{Sec: 1}
	if r := fill(unix.SockExtendedErr{Origin: unix.SO_EE_ORIGIN_TIMESTAMPING, Info: unix.SCM_TSTAMP_SND, Data: 9}, at); r == nil || r.Count != 9 || r.Stamp != 1e9 {
		t.Errorf("a send stamp: %+v", r)
	}
	for name, e := range map[string]unix.SockExtendedErr{
		"stamp of a queue": {Origin: unix.SO_EE_ORIGIN_TIMESTAMPING, Info: unix.SCM_TSTAMP_SCHED},
		"unknown origin":   {Origin: 99, Errno: uint32(unix.EIO)},
		"no error":         {Origin: unix.SO_EE_ORIGIN_ICMP},
	} {
		if r := fill(e, at); r != nil {
			t.Errorf("%s: %+v", name, r)
		}
	}
	if r := fill(unix.SockExtendedErr{Origin: unix.SO_EE_ORIGIN_TIMESTAMPING, Info: unix.SCM_TSTAMP_SND}, unix.Timespec{}); r != nil {
		t.Errorf("a send stamp without a time: %+v", r)
	}
}

func TestOutboxIsReused(t *testing.T) {
	o := NewOutbox(2)
	a, b := NewPeer(netip.MustParseAddrPort("1.2.3.4:5")), NewPeer(netip.MustParseAddrPort("[fd00::1]:6"))
	o.Add(&a, []byte("one"), 8, netip.MustParseAddr("9.9.9.9"))
	if o.Len() != 1 || string(o.Payload(0)) != "one" {
		t.Errorf("%d datagrams, payload %q", o.Len(), o.Payload(0))
	}
	o.Add(&b, []byte("two"), 0, netip.Addr{})
	if o.Len() != 2 {
		t.Errorf("%d datagrams", o.Len())
	}
	o.Reset()
	o.Add(&b, []byte("three"), 0, netip.Addr{})
	h := &o.messages.messages[0].header
	if h.Control != nil || h.Controllen != 0 || h.Namelen != unix.SizeofSockaddrInet6 || o.names[0].AddrPort().Port() != 6 {
		t.Errorf("the header keeps something of the datagram before: %+v", h)
	}
}
