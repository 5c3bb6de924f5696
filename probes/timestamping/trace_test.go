package timestamping

import (
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"vigia/internal/testutil"
)

// TestTracePackets have their own hop limit and no send stamp, and are left out of the count of
// those.
func TestTracePackets(t *testing.T) {
	warm(t)
	for _, address := range []string{"127.0.0.1:0", "[::1]:0"} {
		t.Run(address, func(t *testing.T) {
			local := netip.MustParseAddrPort(address)
			a, b := open(t, Options{Local: local}), open(t, Options{Local: local, ReportHeader: true})
			out, peer := NewOutbox(4), NewPeer(b.Local())
			out.Add(&peer, []byte("first"), 0, netip.Addr{})
			out.Trace(out.Add(&peer, []byte("traced"), 46<<2, netip.Addr{}), 9)
			out.Trace(out.Add(&peer, []byte("all the way"), 0, netip.Addr{}), 0)
			out.Add(&peer, []byte("last"), 0, netip.Addr{})
			if n, err := out.Send(a, 0); n != 4 || err != nil {
				t.Fatal(n, err)
			}
			type header struct{ ttl, tos uint8 }
			var got []header
			in := NewInbox(4, 64)
			testutil.WaitFor(t, "four datagrams", func() bool {
				n, err := in.Receive(b)
				if err != nil {
					t.Fatal(err)
				}
				for i := range n {
					var d Datagram
					in.Datagram(i, &d)
					got = append(got, header{d.TTL, d.TOS})
				}
				return len(got) == 4
			})
			for i, want := range []header{{64, 0}, {9, 46 << 2}, {64, 0}, {64, 0}} {
				if got[i] != want {
					t.Errorf("datagram %d has %+v, want %+v", i, got[i], want)
				}
			}
			stamps := make(map[uint32]int64)
			queue := NewErrorQueue(8)
			testutil.WaitFor(t, "the stamps", func() bool {
				collect(t, queue, a, stamps)
				return len(stamps) >= 2
			})
			if len(stamps) != 2 || stamps[0] == 0 || stamps[1] == 0 || stamps[0] > stamps[1] {
				t.Errorf("stamps by count: %v, want of the first and the last packet, 0 and 1", stamps)
			}
		})
	}
}

// TestWhoseMessageItIs reads the sender of an ICMP message, its type and when it arrived: of a
// router whose hop limit is used up, and of the far end.
func TestWhoseMessageItIs(t *testing.T) {
	warm(t)
	left, router := testutil.NewNetNS(t), testutil.NewNetNS(t)
	testutil.NewVethPair(t, left, "veth0", router, "veth0")
	testutil.Run(t, "ip", "netns", "exec", router, "sysctl", "-qw", "net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1")
	testutil.Run(t, "ip", "-n", router, "route", "add", "blackhole", "10.9.9.0/24")
	for ns, addresses := range map[string][2]string{left: {"10.9.8.1/24", "fd09::1/64"}, router: {"10.9.8.2/24", "fd09::2/64"}} {
		testutil.IP(t, "-n", ns, "addr", "add", addresses[0], "dev", "veth0")
		testutil.IP(t, "-n", ns, "addr", "add", addresses[1], "dev", "veth0", "nodad")
	}
	testutil.IP(t, "-n", left, "route", "add", "default", "via", "10.9.8.2")
	testutil.IP(t, "-n", left, "-6", "route", "add", "default", "via", "fd09::2")
	testutil.IP(t, "-n", router, "link", "add", "beyond0", "type", "veth", "peer", "name", "beyond1")
	for _, d := range []string{"beyond0", "beyond1"} {
		testutil.IP(t, "-n", router, "link", "set", d, "up")
	}
	testutil.IP(t, "-n", router, "addr", "add", "10.9.7.1/24", "dev", "beyond0")
	testutil.IP(t, "-n", router, "addr", "add", "fd07::1/64", "dev", "beyond0", "nodad")
	for _, tc := range []struct {
		name, bind, to, from string
		exceeded             bool
		kind, code           uint8
	}{
		{"IPv4 router", "10.9.8.1:0", "10.9.7.9:862", "10.9.8.2", true, 11, 0},
		{"IPv6 router", "[fd09::1]:0", "[fd07::9]:862", "fd09::2", true, 3, 0},
		{"IPv4 port", "10.9.8.1:0", "10.9.8.2:862", "10.9.8.2", false, 3, 3},
		{"IPv6 port", "[fd09::1]:0", "[fd09::2]:862", "fd09::2", false, 1, 4},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := openIn(t, left, tc.bind)
			level, name := unix.IPPROTO_IP, unix.IP_RECVERR
			if s.Local().Addr().Is6() {
				level, name = unix.IPPROTO_IPV6, unix.IPV6_RECVERR
			}
			if err := unix.SetsockoptInt(s.FD(), level, name, 1); err != nil {
				t.Fatal(err)
			}
			before := time.Now().UnixNano()
			out, peer := NewOutbox(1), NewPeer(netip.MustParseAddrPort(tc.to))
			queue := NewErrorQueue(8)
			var r Report
			testutil.WaitFor(t, "a message", func() bool {
				out.Reset()
				out.Trace(out.Add(&peer, []byte("who is there"), 0, netip.Addr{}), 1)
				_, _ = out.Send(s, 0) // may fail for the message to the packet before
				n, err := queue.Receive(s)
				return err == nil && n > 0 && queue.Report(0, &r)
			})
			if r.From != netip.MustParseAddr(tc.from) || r.Type != tc.kind || r.Code != tc.code || r.HopsExceeded() != tc.exceeded || r.ICMPv6 != s.Local().Addr().Is6() {
				t.Errorf("%+v", r)
			}
			if r.Stamp != 0 || r.Arrived < before || r.Arrived > time.Now().UnixNano() {
				t.Errorf("stamp %d, arrived %d, sent after %d", r.Stamp, r.Arrived, before)
			}
		})
	}
}

// TestErrorsOfThisHost have no sender: a device refuses what is too large.
func TestErrorsOfThisHost(t *testing.T) {
	left, right := testutil.NewNetNS(t), testutil.NewNetNS(t)
	testutil.NewVethPair(t, left, "veth0", right, "veth0")
	testutil.IP(t, "-n", left, "addr", "add", "10.9.8.1/24", "dev", "veth0")
	s := openIn(t, left, "10.9.8.1:0")
	for option, value := range map[int]int{unix.IP_RECVERR: 1, unix.IP_MTU_DISCOVER: unix.IP_PMTUDISC_PROBE} {
		if err := unix.SetsockoptInt(s.FD(), unix.IPPROTO_IP, option, value); err != nil {
			t.Fatal(err)
		}
	}
	out, peer := NewOutbox(1), NewPeer(netip.MustParseAddrPort("10.9.8.2:862"))
	out.Add(&peer, make([]byte, 2000), 0, netip.Addr{})
	if n, err := out.Send(s, 0); n != 0 || err != unix.EMSGSIZE {
		t.Fatal(n, err)
	}
	var r Report
	queue := NewErrorQueue(8)
	if n, err := queue.Receive(s); err != nil || n != 1 || !queue.Report(0, &r) || r.From.IsValid() || r.HopsExceeded() || r.MTU != 1500 {
		t.Errorf("%d %v %+v", n, err, r)
	}
}
