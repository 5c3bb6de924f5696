package reflector

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"vigia/internal/netns"
	"vigia/internal/testutil"
	"vigia/probes/sockets"
	"vigia/probes/stamp"
	"vigia/probes/timestamping"
)

const patience = time.Minute

// tally counts what a reflector reports, by listener.
type tally struct {
	mu        sync.Mutex
	received  int
	reflected int
	rejected  map[Reason]int
	overflow  int
	removed   int
}

func (c *tally) Received()           { c.mu.Lock(); c.received++; c.mu.Unlock() }
func (c *tally) Reflected()          { c.mu.Lock(); c.reflected++; c.mu.Unlock() }
func (c *tally) Rejected(r Reason)   { c.mu.Lock(); c.rejected[r]++; c.mu.Unlock() }
func (c *tally) Overflowed(n uint32) { c.mu.Lock(); c.overflow += int(n); c.mu.Unlock() }

// counts returns received, reflected, rejected for a reason, and overflow.
func (c *tally) counts(r Reason) [4]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return [4]int{c.received, c.reflected, c.rejected[r], c.overflow}
}

func newReflector(t testing.TB, buffer int) (*Reflector, *tally) {
	t.Helper()
	c := &tally{rejected: make(map[Reason]int)}
	r, err := New(Options{
		Logger: slog.New(slog.DiscardHandler), NewCounters: func(sockets.Key) Counters { return c },
		RemoveCounters: func(sockets.Key) { c.removed++ }, ReceiveBuffer: buffer,
	})
	if err != nil {
		t.Fatal(err)
	}
	return r, c
}

// run starts a reflector that ends with the test.
func run(t *testing.T, c Config, buffer int) (*Reflector, *tally) {
	t.Helper()
	r, counts := newReflector(t, buffer)
	start(t, r, c)
	return r, counts
}

// start runs a reflector until the test ends, and frees it.
func start(t *testing.T, r *Reflector, c Config) {
	t.Helper()
	if err := r.Apply(c); err != nil {
		t.Fatal(err)
	}
	testutil.Running(t, r)
}

func loopbackConfig(t testing.TB, address string) (Config, netip.AddrPort) {
	t.Helper()
	network := "udp4"
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(host, ":") {
		network = "udp6"
	}
	local := testutil.FreePort(t, network, host)
	return Config{
		Listeners: []sockets.Key{{Local: local}}, MaxRate: 1_000_000,
		Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")},
	}, local
}

func dial(t testing.TB, ns string, to netip.AddrPort) *net.UDPConn {
	t.Helper()
	var c *net.UDPConn
	err := netns.Do(ns, func() (err error) {
		c, err = net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(to))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// ask sends a packet and returns the answer; nil when there is none in time.
func ask(t testing.TB, c *net.UDPConn, packet []byte, wait time.Duration) []byte {
	t.Helper()
	if _, err := c.Write(packet); err != nil {
		t.Fatal(err)
	}
	if err := c.SetReadDeadline(time.Now().Add(wait)); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 1<<16)
	n, err := c.Read(b)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	return b[:n]
}

func TestAnswersWithTheSameSizeAndTimes(t *testing.T) {
	for _, address := range []string{"127.0.0.1:0", "[::1]:0"} {
		t.Run(address, func(t *testing.T) {
			c, to := loopbackConfig(t, address)
			_, counts := run(t, c, 0)
			conn := dial(t, "", to)
			sizes := []int{44, 48, 64, 128, 1400, 9000, 60000}
			for i, size := range sizes {
				before := time.Now().UnixNano()
				b := ask(t, conn, request(size, uint32(i), 3), patience)
				after := time.Now().UnixNano()
				if len(b) != size {
					t.Fatalf("%d bytes were answered by %d", size, len(b))
				}
				reply, _ := stamp.ParseReply(b)
				if reply.Sequence != uint32(i) || reply.SenderSequence != uint32(i) || reply.SenderTTL != 64 {
					t.Errorf("reply %+v", reply)
				}
				t2, t3 := reply.ReceiveTimestamp.UnixNano(stamp.NTP, before), reply.Timestamp.UnixNano(stamp.NTP, before)
				// The stamps are of the same clock as the test's, and NTP format rounds.
				if t2 < before-1 || t3 < t2 || t3 > after+1 {
					t.Errorf("size %d: asked %d, received %d, sent %d, answered %d", size, before, t2, t3, after)
				}
			}
			n := len(sizes) // an answer is counted after it was sent
			testutil.WaitFor(t, "the counters", func() bool { return counts.counts(Malformed) == [4]int{n, n, 0, 0} })
		})
	}
}

// TestFollowUpIsTheKernelsSendStamp compares the follow-up on an answer with the
// user-space send stamp in the answer itself, and with the time of its arrival.
func TestFollowUpIsTheKernelsSendStamp(t *testing.T) {
	c, to := loopbackConfig(t, "127.0.0.1:0")
	run(t, c, 0)
	conn := dial(t, "", to)
	var sent, arrived int64
	for i := range uint32(50) {
		b := ask(t, conn, request(64, i, 3), patience)
		tlvs := stamp.Unauthenticated.TLVs(b)
		tlv, _ := tlvs.Next()
		f, ok := stamp.ParseFollowUp(tlv)
		if !ok {
			t.Fatalf("no follow-up in %x", b)
		}
		if i > 0 {
			at := f.Timestamp.UnixNano(stamp.NTP, sent)
			if f.Sequence != i-1 || f.Method != stamp.SoftwareLocal || at < sent || at > arrived {
				t.Fatalf("answer %d: follow-up %+v at %d, want number %d between %d and %d", i, f, at, i-1, sent, arrived)
			}
		}
		reply, _ := stamp.ParseReply(b)
		sent, arrived = reply.Timestamp.UnixNano(stamp.NTP, time.Now().UnixNano()), time.Now().UnixNano()
	}
}

func TestSilentTowardsStrangers(t *testing.T) {
	c, to := loopbackConfig(t, "127.0.0.1:0")
	c.Allow = []netip.Prefix{netip.MustParsePrefix("127.0.0.2/32")}
	_, counts := run(t, c, 0)
	conn := dial(t, "", to)
	if b := ask(t, conn, request(44, 0, 0), 100*time.Millisecond); b != nil {
		t.Errorf("a stranger was answered: %x", b)
	}
	if b := ask(t, conn, []byte("hello"), 100*time.Millisecond); b != nil {
		t.Errorf("nonsense was answered: %x", b)
	}
	testutil.WaitFor(t, "the counters", func() bool {
		return counts.counts(NotAllowed) == [4]int{1, 0, 1, 0} && counts.counts(Malformed) == [4]int{1, 0, 1, 0}
	})
}

func TestWildcardAnswersFromTheAddressThatWasAsked(t *testing.T) {
	c, to := loopbackConfig(t, "0.0.0.0:0")
	run(t, c, 0)
	conn := dial(t, "", netip.AddrPortFrom(netip.MustParseAddr("127.0.0.9"), to.Port()))
	// A connected socket takes only what comes from the address it asked.
	if b := ask(t, conn, request(64, 0, 0), patience); len(b) != 64 {
		t.Errorf("got %d bytes", len(b))
	}
}

func TestBroadcastIsNotAnswered(t *testing.T) {
	ns := testutil.NewNetNS(t)
	testutil.IP(t, "-n", ns, "addr", "add", "10.1.1.1/24", "brd", "10.1.1.255", "dev", "lo")
	c := Config{
		Listeners: []sockets.Key{{Netns: ns, Local: netip.MustParseAddrPort("0.0.0.0:862")}},
		Allow:     []netip.Prefix{netip.MustParsePrefix("10.1.1.0/24")}, MaxRate: 100,
	}
	_, counts := run(t, c, 0)
	var s *timestamping.Socket
	err := netns.Do(ns, func() (err error) {
		if s, err = timestamping.Open(timestamping.Options{Local: netip.MustParseAddrPort("10.1.1.1:0")}); err != nil {
			return err
		}
		return unix.SetsockoptInt(s.FD(), unix.SOL_SOCKET, unix.SO_BROADCAST, 1)
	})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	out, peer := timestamping.NewOutbox(1), timestamping.NewPeer(netip.MustParseAddrPort("10.1.1.255:862"))
	out.Add(&peer, request(44, 0, 0), 0, netip.Addr{})
	if n, err := out.Send(s, 0); n != 1 {
		t.Fatal(err)
	}
	testutil.WaitFor(t, "the datagram", func() bool { return counts.counts(Malformed)[2] == 1 })
	if got := counts.counts(Malformed); got[1] != 0 {
		t.Error("a broadcast was answered")
	}
}

func TestApplyKeepsSessionsAndChangesRules(t *testing.T) {
	c, to := loopbackConfig(t, "127.0.0.1:0")
	r, counts := run(t, c, 0)
	conn := dial(t, "", to)
	ask(t, conn, request(44, 0, 7), patience)

	c2, to2 := loopbackConfig(t, "127.0.0.1:0")
	both := c
	both.Listeners = append(c.Listeners[:1:1], c2.Listeners...)
	if err := r.Apply(both); err != nil {
		t.Fatal(err)
	}
	if reply, _ := stamp.ParseReply(ask(t, conn, request(44, 1, 7), patience)); reply.Sequence != 1 {
		t.Errorf("after the change the session's number is %d, want 1", reply.Sequence)
	}
	if b := ask(t, dial(t, "", to2), request(44, 1, 7), patience); len(b) != 44 {
		t.Error("the new listener does not answer")
	}

	busy, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	wrong := both
	wrong.Listeners = []sockets.Key{{Local: busy.LocalAddr().(*net.UDPAddr).AddrPort()}}
	if err := r.Apply(wrong); !errors.Is(err, unix.EADDRINUSE) || !strings.Contains(err.Error(), "reflector") {
		t.Errorf("a busy port: %v", err)
	}
	if b := ask(t, conn, request(44, 2, 7), patience); len(b) != 44 {
		t.Error("a failed change stopped the reflector")
	}

	both.Listeners = c2.Listeners
	both.Allow = nil
	if err := r.Apply(both); err != nil {
		t.Fatal(err)
	}
	if counts.removed != 1 {
		t.Errorf("%d listeners removed, want 1", counts.removed)
	}
	if _, err := conn.Write(request(44, 3, 7)); err != nil {
		t.Fatal(err)
	}
	if err := conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Read(make([]byte, 100)); !errors.Is(err, unix.ECONNREFUSED) {
		t.Errorf("the removed listener: %v, want connection refused", err)
	}
	if b := ask(t, dial(t, "", to2), request(44, 1, 7), 100*time.Millisecond); b != nil {
		t.Error("nobody is allowed any more, but was answered")
	}
}

func TestNamespaceThatComesLater(t *testing.T) {
	testutil.RequireRoot(t)
	name := fmt.Sprintf("vigia-test-refl-%d", os.Getpid())
	to := netip.MustParseAddrPort("127.0.0.1:862")
	r, _ := run(t, Config{
		Listeners: []sockets.Key{{Netns: name, Local: to}}, MaxRate: 100,
		Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")},
	}, 0)
	if err := r.Err(); err == nil || !strings.Contains(err.Error(), name) {
		t.Errorf("Err: %v", err)
	}
	testutil.IP(t, "netns", "add", name)
	t.Cleanup(func() { testutil.IP(t, "netns", "del", name) })
	testutil.IP(t, "-n", name, "link", "set", "lo", "up")
	testutil.WaitFor(t, "the listener", func() bool { return r.Err() == nil })
	if b := ask(t, dial(t, name, to), request(44, 0, 0), patience); len(b) != 44 {
		t.Error("no answer")
	}
}

// TestOverflowIsCounted keeps the reflector from reading while more arrives than
// its buffer holds, and compares with what was sent.
func TestOverflowIsCounted(t *testing.T) {
	c, to := loopbackConfig(t, "127.0.0.1:0")
	r, counts := run(t, c, 4096)
	conn := dial(t, "", to)
	const sent = 500
	if err := r.loop.Do(func() {
		for i := range uint32(sent) {
			if _, err := conn.Write(request(64, i, 0)); err != nil {
				t.Error(err)
			}
		}
	}); err != nil {
		t.Fatal(err)
	}
	testutil.WaitFor(t, "every datagram to be accounted for", func() bool {
		n := counts.counts(Malformed)
		return n[0]+n[3] == sent && n[0] == n[1]
	})
	if n := counts.counts(Malformed); n[3] == 0 || n[0] == 0 {
		t.Errorf("received %d, reflected %d, overflow %d", n[0], n[1], n[3])
	}
}

// TestServingDoesNotAllocate runs the loop by hand, one packet at a time.
func TestServingDoesNotAllocate(t *testing.T) {
	r, counts := newReflector(t, 0)
	defer r.Close()
	c, to := loopbackConfig(t, "127.0.0.1:0")
	if err := r.Apply(c); err != nil {
		t.Fatal(err)
	}
	s, err := timestamping.Open(timestamping.Options{Local: netip.MustParseAddrPort("127.0.0.1:0")})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	out, peer, packet := timestamping.NewOutbox(1), timestamping.NewPeer(to), request(64, 1, 1)
	allocs := testing.AllocsPerRun(500, func() {
		stamp.Request{Sequence: 1, SSID: 1}.Put(packet)
		out.Reset()
		out.Add(&peer, packet, 0, netip.Addr{})
		if _, err := out.Send(s, 0); err != nil {
			t.Fatal(err)
		}
		for before := counts.reflected; counts.reflected == before; {
			if _, err := r.loop.Step(r); err != nil {
				t.Fatal(err)
			}
		}
	})
	if allocs != 0 {
		t.Errorf("%v allocations per packet, want 0", allocs)
	}
}

// TestSurvivesGarbage sends thousands of random datagrams of all sizes and then
// asks a proper question.
func TestSurvivesGarbage(t *testing.T) {
	c, to := loopbackConfig(t, "127.0.0.1:0")
	_, counts := run(t, c, 0)
	garbage := dial(t, "", to)
	junk := make([]byte, 2000)
	x := uint32(1)
	for i := range 3000 {
		for j := range junk {
			x = x*1664525 + 1013904223
			junk[j] = byte(x >> 24)
		}
		if _, err := garbage.Write(junk[:i%len(junk)]); err != nil {
			t.Fatal(err)
		}
	}
	if b := ask(t, dial(t, "", to), request(64, 0, 0), patience); len(b) != 64 {
		t.Error("no answer")
	}
	if got := counts.counts(Malformed); got[0]+got[2] != 3001 {
		t.Errorf("%d datagrams are accounted for, want 3001", got[0]+got[2])
	}
}
