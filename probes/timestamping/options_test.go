package timestamping

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"vigia/internal/netns"
	"vigia/internal/testutil"
)

// option reads an option of a socket.
func option(t *testing.T, s *Socket, level, name int) int {
	t.Helper()
	v, err := unix.GetsockoptInt(s.FD(), level, name)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// TestChannelIsSet reads back what a socket was asked for, of either family and on every
// transport.
func TestChannelIsSet(t *testing.T) {
	testutil.RequireRoot(t)
	for _, address := range []string{"127.0.0.1:0", "[::1]:0"} {
		for _, transport := range []Transport{UDP, ICMP, TCP} {
			t.Run(transport.String()+" "+address, func(t *testing.T) {
				local := netip.MustParseAddrPort(address)
				s := open(t, Options{Local: local, Transport: transport, Channel: Channel{
					Device: "lo", Mark: 42, Priority: 5, TOS: 46 << 2, DontFragment: true,
				}})
				level, tos, discover := unix.IPPROTO_IP, unix.IP_TOS, unix.IP_MTU_DISCOVER
				if local.Addr().Is6() {
					level, tos, discover = unix.IPPROTO_IPV6, unix.IPV6_TCLASS, unix.IPV6_MTU_DISCOVER
				}
				for what, v := range map[string][2]int{
					"mark":           {option(t, s, unix.SOL_SOCKET, unix.SO_MARK), 42},
					"priority":       {option(t, s, unix.SOL_SOCKET, unix.SO_PRIORITY), 5},
					"TOS":            {option(t, s, level, tos), 46 << 2},
					"don't fragment": {option(t, s, level, discover), unix.IP_PMTUDISC_PROBE},
				} {
					if v[0] != v[1] {
						t.Errorf("%s is %d, want %d", what, v[0], v[1])
					}
				}
				if device, err := unix.GetsockoptString(s.FD(), unix.SOL_SOCKET, unix.SO_BINDTODEVICE); err != nil || strings.TrimRight(device, "\x00") != "lo" {
					t.Errorf("device %q, %v", device, err)
				}
				stamps, _ := unix.GetsockoptInt(s.FD(), unix.SOL_SOCKET, unix.SO_TIMESTAMPING)
				if (stamps == stampFlagsCounted) != (transport != TCP) {
					t.Errorf("stamps %#x", stamps)
				}
			})
		}
	}
}

// TestDefaultsLeaveTheSocketAlone: a channel that asks for nothing changes nothing.
func TestDefaultsLeaveTheSocketAlone(t *testing.T) {
	s := open(t, Options{})
	for what, v := range map[string]int{
		"mark": option(t, s, unix.SOL_SOCKET, unix.SO_MARK), "priority": option(t, s, unix.SOL_SOCKET, unix.SO_PRIORITY),
		"TOS": option(t, s, unix.IPPROTO_IP, unix.IP_TOS), "errors": option(t, s, unix.IPPROTO_IP, unix.IP_RECVERR),
		"header": option(t, s, unix.IPPROTO_IP, unix.IP_RECVTTL),
	} {
		if v != 0 {
			t.Errorf("%s is %d", what, v)
		}
	}
	if option(t, s, unix.SOL_SOCKET, unix.SO_RXQ_OVFL) != 1 {
		t.Error("drops are not reported")
	}
}

// TestReports turns on what is asked for, of either family.
func TestReports(t *testing.T) {
	for _, tc := range []struct {
		local   string
		options Options
		level   int
		on, off []int
	}{
		{"127.0.0.1:0", Options{ReportErrors: true}, unix.IPPROTO_IP, []int{unix.IP_RECVERR}, []int{unix.IP_RECVTOS, unix.IP_RECVTTL}},
		{"127.0.0.1:0", Options{ReportTOS: true}, unix.IPPROTO_IP, []int{unix.IP_RECVTOS}, []int{unix.IP_RECVERR, unix.IP_RECVTTL}},
		{"127.0.0.1:0", Options{ReportHeader: true}, unix.IPPROTO_IP, []int{unix.IP_RECVTOS, unix.IP_RECVTTL, unix.IP_PKTINFO}, nil},
		{"[::1]:0", Options{ReportErrors: true}, unix.IPPROTO_IPV6, []int{unix.IPV6_RECVERR, unix.IPV6_V6ONLY}, []int{unix.IPV6_RECVTCLASS}},
		{"[::1]:0", Options{ReportTOS: true}, unix.IPPROTO_IPV6, []int{unix.IPV6_RECVTCLASS}, []int{unix.IPV6_RECVHOPLIMIT}},
		{"[::1]:0", Options{ReportHeader: true}, unix.IPPROTO_IPV6, []int{unix.IPV6_RECVTCLASS, unix.IPV6_RECVHOPLIMIT, unix.IPV6_RECVPKTINFO}, nil},
	} {
		tc.options.Local = netip.MustParseAddrPort(tc.local)
		s := open(t, tc.options)
		for _, name := range tc.on {
			if option(t, s, tc.level, name) != 1 {
				t.Errorf("%s %+v: option %d is off", tc.local, tc.options, name)
			}
		}
		for _, name := range tc.off {
			if option(t, s, tc.level, name) != 0 {
				t.Errorf("%s %+v: option %d is on", tc.local, tc.options, name)
			}
		}
	}
}

// TestBuffers are as large as they are asked to be (the kernel doubles them), beyond the
// system's limits where we may.
func TestBuffers(t *testing.T) {
	testutil.RequireRoot(t)
	s := open(t, Options{ReceiveBuffer: 16 << 20, SendBuffer: 12 << 20})
	if r, w := option(t, s, unix.SOL_SOCKET, unix.SO_RCVBUF), option(t, s, unix.SOL_SOCKET, unix.SO_SNDBUF); r != 32<<20 || w != 24<<20 {
		t.Errorf("buffers of %d and %d bytes", r, w)
	}
}

// TestHardwareStampsAreAskedFor beside the kernel's and given up again; the count of
// packets goes on.
func TestHardwareStampsAreAskedFor(t *testing.T) {
	s := open(t, Options{})
	for _, on := range []bool{true, true, false} {
		if err := s.SetHardware(on); err != nil {
			t.Fatal(err)
		}
		want := stampFlagsCounted
		if on {
			want |= hardwareFlags
		}
		if got := option(t, s, unix.SOL_SOCKET, unix.SO_TIMESTAMPING); got != want || s.Hardware() != on {
			t.Errorf("flags %#x, want %#x", got, want)
		}
	}
	c := open(t, Options{Transport: TCP})
	if err := c.SetHardware(true); err != nil || c.Hardware() {
		t.Errorf("the kernel does not stamp connections, and yet: %v, %v", c.Hardware(), err)
	}
}

// TestOpenErrorsSayWhatToDo names transport, address and remedy.
func TestOpenErrorsSayWhatToDo(t *testing.T) {
	taken := open(t, Options{})
	for want, o := range map[string]Options{
		"bind UDP socket to " + taken.Local().String() + ": address already in use; stop the process that holds it (ss -lunp) or choose another port": {Local: taken.Local()},
		"bind TCP socket to 192.0.2.1:0: cannot assign requested address; give this address to a device or correct it":                                {Transport: TCP, Local: netip.MustParseAddrPort("192.0.2.1:0")},
		"on the UDP socket for 127.0.0.1:0: set device absent0: no such device":                                                                       {Local: netip.MustParseAddrPort("127.0.0.1:0"), Channel: Channel{Device: "absent0"}},
	} {
		s, err := Open(o)
		if err == nil {
			s.Close()
		}
		if err == nil || err.Error() != want {
			t.Errorf("got %v\nwant %s", err, want)
		}
	}
	if bindFix(unix.EACCES) == "" || bindFix(errors.New("x")) != "" {
		t.Error("a port below 1024 has a remedy, an unknown error has none")
	}
}

// TestUnprivilegedICMP has sockets with and without the right to raw ones.
func TestUnprivilegedICMP(t *testing.T) {
	ns := testutil.NewNetNS(t)
	open := func() (s *Socket) {
		t.Helper()
		if err := netns.Do(ns, func() (err error) {
			s, err = Open(Options{Transport: ICMP, Local: netip.MustParseAddrPort("127.0.0.1:0")})
			return err
		}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		return s
	}
	testutil.Run(t, "ip", "netns", "exec", ns, "sysctl", "-qw", "net.ipv4.ping_group_range=1 0")
	raw := open()
	if !raw.Raw() || raw.Local().Port() == 0 {
		t.Errorf("raw %v, identifier %d", raw.Raw(), raw.Local().Port())
	}
	testutil.Run(t, "ip", "netns", "exec", ns, "sysctl", "-qw", "net.ipv4.ping_group_range=0 2147483647")
	plain := open()
	if plain.Raw() || plain.Local().Port() == 0 {
		t.Errorf("raw %v, identifier %d", plain.Raw(), plain.Local().Port())
	}
}

// TestRawSocketsHearEchoRepliesAlone of either family: what others ask is none of their
// business.
func TestRawSocketsHearEchoRepliesAlone(t *testing.T) {
	testutil.RequireRoot(t)
	ns := testutil.NewNetNS(t)
	testutil.Run(t, "ip", "netns", "exec", ns, "sysctl", "-qw", "net.ipv4.ping_group_range=1 0")
	for _, tc := range []struct {
		address        string
		request, reply byte
		header         int
	}{{"127.0.0.1", 8, 0, 20}, {"::1", 128, 129, 0}} {
		var s *Socket
		if err := netns.Do(ns, func() (err error) {
			s, err = Open(Options{Transport: ICMP, Local: netip.AddrPortFrom(netip.MustParseAddr(tc.address), 0)})
			return err
		}); err != nil {
			t.Fatal(err)
		}
		out, peer := NewOutbox(1), NewPeer(netip.AddrPortFrom(netip.MustParseAddr(tc.address), 0))
		packet := []byte{tc.request, 0, 0xf7, 0xff, 0, 0, 0, 0} // the checksum of an echo request of zeros
		out.Add(&peer, packet, 0, netip.Addr{})
		if n, err := out.Send(s, 0); n != 1 {
			t.Fatal(err)
		}
		in := NewInbox(8, 1024)
		n := await(t, in, s)
		var d Datagram
		in.Datagram(0, &d)
		if n != 1 || len(d.Payload) <= tc.header || d.Payload[tc.header] != tc.reply {
			t.Errorf("%s: %d packets, the first is % x", tc.address, n, d.Payload)
		}
		s.Close()
	}
}

// TestConnection goes through the life of a connection: under way, established, reset, and
// refused.
func TestConnection(t *testing.T) {
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := l.Addr().(*net.TCPAddr).AddrPort()
	s := open(t, Options{Transport: TCP})
	if c, err := s.Connection(); err != nil || c.Established {
		t.Errorf("before it connects: %+v, %v", c, err)
	}
	var ports []uint16
	for range 2 {
		if err := s.Connect(at); err != nil {
			t.Fatal(err)
		}
		var c Connection
		testutil.WaitFor(t, "the handshake", func() bool {
			if c, err = s.Connection(); err != nil {
				t.Fatal(err)
			}
			return c.Established
		})
		if c.RTT <= 0 || c.RTT > time.Minute || c.Retransmits != 0 {
			t.Errorf("%+v", c)
		}
		accepted, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		ports = append(ports, accepted.RemoteAddr().(*net.TCPAddr).AddrPort().Port())
		if err := s.Disconnect(); err != nil {
			t.Fatal(err)
		}
		if err := accepted.SetReadDeadline(time.Now().Add(patience)); err != nil {
			t.Fatal(err)
		}
		if _, err := accepted.Read(make([]byte, 1)); !errors.Is(err, unix.ECONNRESET) {
			t.Errorf("the other end sees %v, want a reset", err)
		}
		accepted.Close()
	}
	if ports[0] == ports[1] {
		t.Errorf("both connections come from port %d", ports[0])
	}
	l.Close()
	refused := s.Connect(at)
	if refused == nil {
		testutil.WaitFor(t, "the refusal", func() bool { _, refused = s.Connection(); return refused != nil })
	}
	if !errors.Is(refused, unix.ECONNREFUSED) {
		t.Errorf("got %v", refused)
	}
}
