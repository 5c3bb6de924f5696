package timestamping

import (
	"bytes"
	"errors"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"vigia/internal/testutil"
)

const patience = time.Minute

func open(t testing.TB, o Options) *Socket {
	t.Helper()
	if !o.Local.IsValid() {
		o.Local = netip.MustParseAddrPort("127.0.0.1:0")
	}
	s, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// warm makes sure that the kernel stamps arrivals while the test runs.
func warm(t testing.TB) {
	t.Helper()
	s, err := WarmUp()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
}

// send sends the payloads in one batch and demands that the kernel takes them.
func send(t testing.TB, s *Socket, to netip.AddrPort, payloads ...string) {
	t.Helper()
	out, peer := NewOutbox(len(payloads)), NewPeer(to)
	for _, p := range payloads {
		out.Add(&peer, []byte(p), 0, netip.Addr{})
	}
	if n, err := out.Send(s, 0); err != nil || n != len(payloads) {
		t.Fatalf("sent %d of %d: %v", n, len(payloads), err)
	}
}

type reader interface {
	Receive(*Socket) (int, error)
}

// await receives until something is there.
func await(t testing.TB, r reader, s *Socket) int {
	t.Helper()
	var n int
	testutil.WaitFor(t, "something to arrive", func() bool {
		var err error
		if n, err = r.Receive(s); err != nil {
			t.Fatal(err)
		}
		return n > 0
	})
	return n
}

func TestStampsBothWays(t *testing.T) {
	warm(t)
	for _, address := range []string{"127.0.0.1:0", "[::1]:0"} {
		t.Run(address, func(t *testing.T) {
			local := netip.MustParseAddrPort(address)
			a, b := open(t, Options{Local: local}), open(t, Options{Local: local})
			before := time.Now().UnixNano()
			send(t, a, b.Local(), "one", "two", "three")
			after := time.Now().UnixNano()

			in, queue := NewInbox(8, 64), NewErrorQueue(8)
			if n := await(t, in, b); n != 3 {
				t.Fatalf("%d datagrams", n)
			}
			if n := await(t, queue, a); n != 3 {
				t.Fatalf("%d send stamps", n)
			}
			for i, want := range []string{"one", "two", "three"} {
				var d Datagram
				in.Datagram(i, &d)
				if string(d.Payload) != want || d.From != a.Local() || d.Truncated {
					t.Errorf("%d: got %q from %s", i, d.Payload, d.From)
				}
				var r Report
				if !queue.Report(i, &r) || r.Errno != 0 || r.Count != uint32(i) {
					t.Errorf("%d: report %+v", i, r)
				}
				if r.Stamp < before || d.Stamp < r.Stamp || d.Stamp > after {
					t.Errorf("%d: out of order: call %d, send stamp %d, receive stamp %d, return %d", i, before, r.Stamp, d.Stamp, after)
				}
			}
		})
	}
}

func TestReceiveNothing(t *testing.T) {
	s := open(t, Options{})
	for name, r := range map[string]reader{"inbox": NewInbox(2, 8), "error queue": NewErrorQueue(2)} {
		if n, err := r.Receive(s); n != 0 || err != nil {
			t.Errorf("%s: got %d, %v", name, n, err)
		}
	}
}

func TestRestartCount(t *testing.T) {
	a, b := open(t, Options{}), open(t, Options{})
	queue := NewErrorQueue(8)
	count := func() uint32 {
		t.Helper()
		send(t, a, b.Local(), "x")
		await(t, queue, a)
		var r Report
		if !queue.Report(0, &r) {
			t.Fatal("no stamp")
		}
		return r.Count
	}
	count()
	if got := count(); got != 1 {
		t.Errorf("the second packet is number %d", got)
	}
	if err := a.RestartCount(); err != nil {
		t.Fatal(err)
	}
	if got := count(); got != 0 {
		t.Errorf("after the restart the first packet is number %d", got)
	}
}

func TestHeaderFields(t *testing.T) {
	for _, tc := range []struct{ bind, to string }{
		{"0.0.0.0:0", "127.0.0.5"},
		{"[::]:0", "::1"},
	} {
		t.Run(tc.bind, func(t *testing.T) {
			b := open(t, Options{Local: netip.MustParseAddrPort(tc.bind), ReportHeader: true})
			target := netip.AddrPortFrom(netip.MustParseAddr(tc.to), b.Local().Port())
			a := open(t, Options{Local: netip.AddrPortFrom(loopback(target.Addr()), 0)})
			out, peer := NewOutbox(2), NewPeer(target)
			out.Add(&peer, []byte("marked"), 46<<2, netip.Addr{})
			out.Add(&peer, []byte("plain"), 0, netip.Addr{})
			if n, err := out.Send(a, 0); n != 2 || err != nil {
				t.Fatal(n, err)
			}
			in := NewInbox(4, 64)
			if n := await(t, in, b); n != 2 {
				t.Fatalf("%d datagrams", n)
			}
			for i, tos := range []uint8{46 << 2, 0} {
				var d Datagram
				in.Datagram(i, &d)
				if d.TOS != tos || d.TTL != 64 || d.Local != target.Addr() {
					t.Errorf("%d: TOS %d, TTL %d, local %s", i, d.TOS, d.TTL, d.Local)
				}
			}
			// An answer leaves from the address that was asked.
			out.Reset()
			out.Add(in.Peer(0), []byte("answer"), 0, target.Addr())
			if n, err := out.Send(b, 0); n != 1 || err != nil {
				t.Fatal(n, err)
			}
			await(t, in, a)
			var d Datagram
			in.Datagram(0, &d)
			if d.From != target {
				t.Errorf("the answer came from %s, want %s", d.From, target)
			}
		})
	}
}

func loopback(a netip.Addr) netip.Addr {
	if a.Is6() {
		return netip.IPv6Loopback()
	}
	return netip.MustParseAddr("127.0.0.1")
}

func TestTruncated(t *testing.T) {
	a, b := open(t, Options{}), open(t, Options{})
	send(t, a, b.Local(), "12345678", "123456789")
	in := NewInbox(4, 8)
	if n := await(t, in, b); n != 2 {
		t.Fatalf("%d datagrams", n)
	}
	for i, want := range []bool{false, true} {
		var d Datagram
		in.Datagram(i, &d)
		if d.Truncated != want || string(d.Payload) != "12345678" {
			t.Errorf("%d: truncated %v, payload %q", i, d.Truncated, d.Payload)
		}
	}
}

func TestDropsAreCounted(t *testing.T) {
	a, b := open(t, Options{}), open(t, Options{})
	// Not even CAP_NET_ADMIN gets less than the kernel's minimum.
	if err := b.setBuffer(unix.SO_RCVBUF, unix.SO_RCVBUF, 1); err != nil {
		t.Fatal(err)
	}
	if n, err := b.Drops(); n != 0 || err != nil {
		t.Fatalf("at first: %d, %v", n, err)
	}
	const sent = 200
	for range sent {
		send(t, a, b.Local(), "payload")
	}
	in := NewInbox(sent, 16)
	received := await(t, in, b)
	drops, err := b.Drops()
	if err != nil || received == sent || int(drops) != sent-received {
		t.Fatalf("%d sent, %d received, %d drops, %v", sent, received, drops, err)
	}
	// The next datagram carries the counter.
	send(t, a, b.Local(), "next")
	await(t, in, b)
	var d Datagram
	in.Datagram(0, &d)
	if !d.HasDrops || d.Drops != drops {
		t.Errorf("SO_RXQ_OVFL says %d (%v), SO_MEMINFO %d", d.Drops, d.HasDrops, drops)
	}
}

func TestICMPErrorsAreReported(t *testing.T) {
	for _, address := range []string{"127.0.0.1:0", "[::1]:0"} {
		t.Run(address, func(t *testing.T) {
			to := testutil.FreePort(t, "udp", netip.MustParseAddrPort(address).Addr().String())
			a := open(t, Options{Local: netip.MustParseAddrPort(address), ReportErrors: true})
			send(t, a, to, "is anybody there")
			var refused Report
			queue := NewErrorQueue(8)
			for deadline := time.Now().Add(patience); refused.Errno == 0 && time.Now().Before(deadline); {
				n, err := queue.Receive(a)
				if err != nil {
					t.Fatal(err)
				}
				for i := range n {
					var r Report
					if queue.Report(i, &r) && r.Stamp == 0 {
						refused = r
					}
				}
			}
			if refused.Errno != syscall.ECONNREFUSED || refused.To != to || !bytes.HasPrefix([]byte("is anybody there"), refused.Payload) || len(refused.Payload) < 8 {
				t.Errorf("got %v for %s, payload %q", refused.Errno, refused.To, refused.Payload)
			}
		})
	}
}

func TestOpenErrorsNameTheAddress(t *testing.T) {
	busy := open(t, Options{})
	for _, tc := range []struct {
		local netip.AddrPort
		want  error
		fix   string
	}{
		{busy.Local(), unix.EADDRINUSE, "; stop the process that holds it"},
		{netip.MustParseAddrPort("192.0.2.1:0"), unix.EADDRNOTAVAIL, "; give this address to a device"},
		{netip.MustParseAddrPort("[2001:db8::1]:0"), unix.EADDRNOTAVAIL, "; give this address to a device"},
	} {
		_, err := Open(Options{Local: tc.local})
		if !errors.Is(err, tc.want) || !strings.Contains(err.Error(), tc.local.String()) || !strings.Contains(err.Error(), tc.fix) {
			t.Errorf("%s: got %v, want %v%s", tc.local, err, tc.want, tc.fix)
		}
	}
}

func TestOpenLeaksNothing(t *testing.T) {
	count := func() int {
		entries, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(entries)
	}
	before := count()
	for range 10 {
		if s, err := Open(Options{Local: netip.MustParseAddrPort("192.0.2.1:0")}); err == nil {
			s.Close()
			t.Fatal("a foreign address was bound")
		}
	}
	if after := count(); after > before {
		t.Errorf("%d file descriptors became %d", before, after)
	}
}

func TestSendErrorBelongsToTheNextDatagram(t *testing.T) {
	ns := testutil.NewNetNS(t)
	testutil.IP(t, "-n", ns, "addr", "add", "10.9.9.1/32", "dev", "lo")
	a, b := openIn(t, ns, "10.9.9.1:0"), openIn(t, ns, "127.0.0.1:0")
	good, unroutable := NewPeer(b.Local()), NewPeer(netip.MustParseAddrPort("192.0.2.1:9"))
	out := NewOutbox(3)
	for _, p := range []*Peer{&good, &unroutable, &good} {
		out.Add(p, []byte("x"), 0, netip.Addr{})
	}
	if n, err := out.Send(a, 0); n != 1 || err != nil {
		t.Fatalf("first call: %d, %v; want 1 and no error", n, err)
	}
	if n, err := out.Send(a, 1); n != 0 || !errors.Is(err, unix.ENETUNREACH) {
		t.Fatalf("second call: %d, %v; want ENETUNREACH", n, err)
	}
	if n, err := out.Send(a, 2); n != 1 || err != nil {
		t.Fatalf("third call: %d, %v", n, err)
	}
}

func TestBatchesDoNotAllocate(t *testing.T) {
	a, b := open(t, Options{}), open(t, Options{ReportHeader: true})
	peer, payload := NewPeer(b.Local()), []byte("payload")
	out, in, queue := NewOutbox(8), NewInbox(8, 64), NewErrorQueue(8)
	allocs := testing.AllocsPerRun(200, func() {
		out.Reset()
		for range 8 {
			out.Add(&peer, payload, 8, netip.Addr{})
		}
		if _, err := out.Send(a, 0); err != nil {
			t.Fatal(err)
		}
		n, err := in.Receive(b)
		if err != nil {
			t.Fatal(err)
		}
		for i := range n {
			var d Datagram
			in.Datagram(i, &d)
		}
		if n, err = queue.Receive(a); err != nil {
			t.Fatal(err)
		}
		for i := range n {
			var r Report
			queue.Report(i, &r)
		}
	})
	if allocs != 0 {
		t.Errorf("%v allocations for eight packets, want 0", allocs)
	}
}

// TestASecondCloseClosesNothing: the number of a socket that is closed is the next file's.
func TestASecondCloseClosesNothing(t *testing.T) {
	const apart = 900 // no other test's files have such numbers
	move := func(fd int) int {
		t.Helper()
		moved, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, apart)
		if err != nil {
			t.Fatal(err)
		}
		return moved
	}
	s := open(t, Options{})
	old := s.fd
	s.fd = move(old)
	unix.Close(old)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	next := move(int(null.Fd()))
	if next != apart {
		t.Fatalf("the number %d is taken; the next free one is %d", apart, next)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if err := unix.Close(next); err != nil {
		t.Errorf("the other file was closed: %v", err)
	}
}
