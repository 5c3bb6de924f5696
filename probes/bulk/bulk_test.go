package bulk

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"vigia/internal/netns"
	"vigia/internal/testutil"
	"vigia/probes/sender"
	"vigia/probes/timestamping"
)

const farAddress = "10.9.0.2:9876"

// site is a client's and a server's namespace and a running server.
func site(t *testing.T) (near, far string, s *Server) {
	t.Helper()
	near, far = testutil.NewNetNS(t), testutil.NewNetNS(t)
	testutil.NewVethPair(t, near, "v0", far, "v0")
	testutil.IP(t, "-n", near, "addr", "add", "10.9.0.1/24", "dev", "v0")
	testutil.IP(t, "-n", far, "addr", "add", "10.9.0.2/24", "dev", "v0")
	return near, far, serve(t, far)
}

func serve(t *testing.T, ns string) *Server {
	t.Helper()
	s := NewServer(slog.New(slog.DiscardHandler), &LinkLocks{})
	s.Set(Config{
		Listeners: []Listener{{Netns: ns, Address: netip.MustParseAddrPort(farAddress), Link: "l"}},
		Allow:     []netip.Prefix{netip.MustParsePrefix("10.9.0.0/24")},
	})
	t.Cleanup(s.Close)
	testutil.WaitFor(t, "the listener", func() bool { return s.Err() == nil })
	return s
}

func test(ns string, p Protocol) Target {
	return Target{
		Labels: sender.Labels{Src: "a", Dst: "b", Probe: "c"}, Netns: ns, Address: netip.MustParseAddrPort(farAddress), Link: "l",
		Protocol: p, Size: 1000, Rate: 1_000_000, Duration: time.Second, MaxBytes: 4 << 20,
	}
}

func run(t *testing.T, tg Target) Outcome {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return tg.Run(ctx)
}

// runWhenFree runs a test after another one: the other end frees its link a moment after it has answered.
func runWhenFree(t *testing.T, tg Target) (o Outcome) {
	t.Helper()
	testutil.WaitFor(t, "the other end to be free", func() bool { o = run(t, tg); return o.Result != Busy })
	return o
}

func TestTCP(t *testing.T) {
	near, _, _ := site(t)
	tg := test(near, TCP)
	tg.Duration = 30 * time.Second // the bytes end it
	o := run(t, tg)
	if o.Result != Completed || o.Sent != tg.MaxBytes || o.Bytes != tg.MaxBytes || o.Goodput() <= 0 {
		t.Errorf("%+v", o)
	}
	if o.RTT <= 0 || o.MinRTT <= 0 || o.MinRTT > o.RTT*100 || o.DeliveryRate == 0 {
		t.Errorf("TCP_INFO: %+v", o)
	}
}

// On a link that is slower than the sender the goodput is the link's, the time
// ends the test, and the losses of a small buffer show as retransmits.
func TestTCPIsBoundByTimeAndLink(t *testing.T) {
	near, _, _ := site(t)
	testutil.Run(t, "tc", "-n", near, "qdisc", "add", "dev", "v0", "root", "tbf", "rate", "20mbit", "burst", "10kb", "limit", "15kb")
	tg := test(near, TCP)
	tg.Duration, tg.MaxBytes = 2*time.Second, 1<<30
	var o Outcome
	testutil.Attempts(t, 5, func() error { // both ends need the processor
		if o = run(t, tg); o.Result != Completed || o.Bytes != o.Sent {
			t.Fatalf("%+v", o)
		}
		bits := o.Goodput() * 8
		if bits < 5e6 || bits > 21e6 { // too much: the other end began to read late
			return fmt.Errorf("goodput %.3g bit/s on a link of 20 Mbit/s", bits)
		}
		return nil
	})
	if o.Retransmits == 0 {
		t.Errorf("no retransmits on a queue of 15 kB: %+v", o)
	}
}

func TestUDP(t *testing.T) {
	near, _, _ := site(t)
	tg := test(near, UDP)
	o := run(t, tg)
	if o.Result != Completed || o.Packets+o.Refused != 1000 || o.Received+o.Dropped != o.Packets || o.Lost() != 0 {
		t.Fatalf("%+v", o)
	}
	if o.Bytes != o.Received*1000 || o.Duplicate+o.Reordered != 0 || o.Jitter <= 0 {
		t.Errorf("%+v", o)
	}
}

// Every third packet is dropped on the way: that many are lost, and the goodput is
// of the others.
func TestUDPLoss(t *testing.T) {
	near, far, _ := site(t)
	testutil.Run(t, "ip", "netns", "exec", far, "nft",
		"add table inet t; add chain inet t i { type filter hook input priority 0; }; add rule inet t i meta l4proto udp numgen inc mod 3 0 drop")
	o := run(t, test(near, UDP))
	if o.Result != Completed || o.Packets == 0 || o.Lost() != (o.Packets+2)/3 {
		t.Errorf("%d lost of %d: %+v", o.Lost(), o.Packets, o)
	}
}

// What the counter sees is known to the packet: duplicates never make up for a
// loss, strangers' packets count for nothing.
func TestCounter(t *testing.T) {
	c := newCounter(&testRequest{Packets: 100, Size: 100, Token: 7}, netip.MustParseAddr("10.0.0.1"))
	at := int64(1e18)
	packet := func(token, sequence uint64, sent int64) []byte {
		p := make([]byte, 100)
		binary.BigEndian.PutUint64(p, token)
		binary.BigEndian.PutUint64(p[8:], sequence)
		binary.BigEndian.PutUint64(p[16:], uint64(sent))
		return p
	}
	add := func(from string, p []byte, stamp int64) {
		c.add(&timestamping.Datagram{Payload: p, From: netip.AddrPortFrom(netip.MustParseAddr(from), 1), Stamp: stamp})
	}
	add("10.0.0.1", packet(7, 0, 0), at)
	add("10.0.0.1", packet(7, 2, 2000), at+2000)
	add("10.0.0.1", packet(7, 1, 1000), at+2500) // reordered
	add("10.0.0.1", packet(7, 2, 2000), at+2600) // duplicate
	add("10.0.0.1", packet(7, 3, 3000), at+4600) // 1600 ns late
	add("10.0.0.2", packet(7, 4, 0), at)         // a stranger
	add("10.0.0.1", packet(8, 4, 0), at)         // another test
	add("10.0.0.1", packet(7, 100, 0), at)       // beyond the test
	add("10.0.0.1", packet(7, 5, 0)[:10], at)    // too short
	want := report{Bytes: 400, Received: 4, Duplicate: 1, Reordered: 1}
	if c.r != want || c.last-c.first != 4600 || c.jitter != 100 {
		t.Errorf("%+v over %d ns, jitter %v", c.r, c.last-c.first, c.jitter)
	}
}

// Two tests never share a link: while one is under way the next is told that the
// other end is busy, and it takes its turn when the first is over.
func TestBusy(t *testing.T) {
	near, _, _ := site(t)
	var conn net.Conn
	if err := netns.Do(near, func() (err error) { conn, err = net.Dial("tcp", farAddress); return err }); err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := writeLine(conn, testRequest{Version: version, Protocol: TCP, Bytes: 1, Duration: int64(MaxDuration)}); err != nil {
		t.Fatal(err)
	}
	var a testResponse
	if err := readLine(bufio.NewReader(conn), &a); err != nil || a.Busy {
		t.Fatalf("%+v, %v", a, err)
	}
	if o := run(t, shortTest(near)); o.Result != Busy {
		t.Errorf("%+v", o)
	}
	conn.Close()
	testutil.WaitFor(t, "the second to be accepted", func() bool { o := run(t, shortTest(near)); return o.Result == Completed })
}

func shortTest(ns string) Target {
	tg := test(ns, TCP)
	tg.MaxBytes = 1000
	return tg
}

func TestRefused(t *testing.T) {
	near, far, s := site(t)
	s.Set(Config{Listeners: s.config.Listeners, Allow: []netip.Prefix{netip.MustParsePrefix("10.9.9.0/24")}})
	if o := run(t, shortTest(near)); o.Result != Rejected || !strings.Contains(o.Err.Error(), "bulk.allow") {
		t.Errorf("%+v", o)
	}
	s.Set(Config{})
	testutil.WaitFor(t, "the listener to close", func() bool { o := run(t, shortTest(near)); return o.Result == Failed })
	_ = far
}

// A stopped test ends at once, its link is free again.
func TestStopped(t *testing.T) {
	near, _, _ := site(t)
	ctx, cancel := context.WithCancel(context.Background())
	time.AfterFunc(300*time.Millisecond, cancel)
	for _, p := range []Protocol{TCP, UDP} {
		tg := test(near, p)
		tg.Duration, tg.MaxBytes = time.Minute, 1<<40
		if o := tg.Run(ctx); o.Result != Stopped {
			t.Errorf("%+v", o)
		}
	}
	testutil.WaitFor(t, "the link to be free", func() bool { o := run(t, shortTest(near)); return o.Result == Completed })
}

// A namespace that is replaced by another of the same name gets a listener again.
func TestListenerFollowsItsNamespace(t *testing.T) {
	near, far, s := site(t)
	testutil.IP(t, "netns", "del", far)
	testutil.WaitFor(t, "the loss to be noticed", func() bool { return s.Err() != nil })
	testutil.IP(t, "netns", "add", far)
	testutil.IP(t, "-n", far, "link", "set", "lo", "up")
	testutil.NewVethPair(t, near, "v1", far, "v1")
	testutil.IP(t, "-n", near, "addr", "add", "10.9.0.1/24", "dev", "v1")
	testutil.IP(t, "-n", far, "addr", "add", "10.9.0.2/24", "dev", "v1")
	testutil.WaitFor(t, "a test to complete", func() bool { o := run(t, shortTest(near)); return o.Result == Completed })
}

// Whatever a stranger sends, the server answers at most a line and goes on.
func TestHostileClients(t *testing.T) {
	near, _, _ := site(t)
	for _, line := range []string{
		"", "\n", "{}\n", "GET / HTTP/1.1\r\n\r\n", strings.Repeat("x", 1<<16),
		`{"version":1,"protocol":"udp","packets":99999999999,"size":1000,"duration":1000}` + "\n",
		`{"version":1,"protocol":"udp","packets":10,"size":-1,"duration":1000}` + "\n",
		`{"version":1,"protocol":"tcp","duration":-5}` + "\n", `{"version":2,"protocol":"tcp","duration":5}` + "\n",
		`{"version":1,"protocol":"tcp","bytes":10,"duration":1000000000}` + "\n" + strings.Repeat("y", 1<<21), // more than agreed
	} {
		var conn net.Conn
		if err := netns.Do(near, func() (err error) { conn, err = net.Dial("tcp", farAddress); return err }); err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(conn, line)
		_ = conn.(*net.TCPConn).CloseWrite()
		_ = conn.SetReadDeadline(time.Now().Add(30 * time.Second))
		got, err := io.ReadAll(bufio.NewReader(conn))
		if len(got) > 400 || errors.Is(err, errTimeoutOf(err)) {
			t.Errorf("%.40q: answered %d bytes, %v", line, len(got), err)
		}
		conn.Close()
	}
	testutil.WaitFor(t, "a good test to complete", func() bool { o := run(t, shortTest(near)); return o.Result == Completed })
}

// errTimeoutOf returns the error if it is a timeout.
func errTimeoutOf(err error) error {
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		return err
	}
	return errors.New("none")
}

// The runner keeps to the budget, stops when an objective burns, and reports every
// test.
func TestRunner(t *testing.T) {
	near, _, _ := site(t)
	var mu sync.Mutex
	var got []Outcome
	burning := ""
	r := NewRunner(Options{
		Links:   &LinkLocks{},
		Logger:  slog.New(slog.DiscardHandler),
		Burning: func() string { mu.Lock(); defer mu.Unlock(); return burning },
		Done:    func(_ *Target, o *Outcome) { mu.Lock(); defer mu.Unlock(); got = append(got, *o) },
	})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { r.Run(ctx); close(ended) }()
	defer func() { cancel(); <-ended }()
	results := func() string {
		mu.Lock()
		defer mu.Unlock()
		var out []string
		for _, o := range got {
			out = append(out, string(o.Result))
		}
		return strings.Join(out, " ")
	}
	tg := test(near, TCP)
	tg.MaxBytes, tg.Duration = 400_000, 3*time.Second // the bytes end it
	r.Set(Plan{Node: "a", Groups: [][]Target{{tg}}, Budget: 1_000_000, Slots: Slots{Length: 6 * time.Second}})
	testutil.WaitFor(t, "two tests and an empty budget", func() bool { return strings.HasPrefix(results(), "completed completed budget") })
	if left := r.Left(); left != 200_000 {
		t.Errorf("%d bytes left", left)
	}
	r.Set(Plan{Node: "a", Groups: [][]Target{{tg}}, Budget: 1 << 40, Slots: Slots{Length: 6 * time.Second}})
	mu.Lock()
	burning = "blue"
	mu.Unlock()
	testutil.WaitFor(t, "a test to be stopped", func() bool { return strings.HasSuffix(results(), "stopped") })
	long := test(near, UDP)
	long.Duration = 4 * time.Second
	mu.Lock()
	burning, got = "", nil
	mu.Unlock()
	r.Set(Plan{Node: "a", Groups: [][]Target{{long}}, Budget: 1 << 40, Slots: Slots{Length: 7 * time.Second}})
	testutil.WaitFor(t, "the long test to begin", func() bool {
		r.options.Links.mu.Lock()
		defer r.options.Links.mu.Unlock()
		return r.options.Links.taken["l"] != nil
	})
	mu.Lock()
	burning = "blue"
	mu.Unlock()
	testutil.WaitFor(t, "the long test to be stopped", func() bool { return strings.Contains(results(), "stopped") })
	mu.Lock()
	defer mu.Unlock()
	if o := got[len(got)-1]; o.Err == nil || fmt.Sprint(o.Err) != "the objective of tenant blue burns" {
		t.Errorf("%+v", o)
	}
}

// The packets of a test, and the connection that leads it, leave by the device and
// with the mark, the priority and the type of service that were asked for.
func TestChannelOnTheWire(t *testing.T) {
	near, far, _ := site(t)
	testutil.NewVethPair(t, near, "v1", far, "v1")
	testutil.IP(t, "-n", near, "route", "add", "10.9.0.0/24", "dev", "v1", "metric", "100", "src", "10.9.0.1")
	testutil.IP(t, "-n", far, "route", "add", "10.9.0.1/32", "dev", "v1", "src", "10.9.0.2") // a bound socket hears nothing else
	rules := []string{"meta mark 42", "meta priority 0:6", "ip dscp 8", "oifname v1"}
	testutil.Run(t, "ip", "netns", "exec", near, "nft", "add table inet t")
	testutil.Run(t, "ip", "netns", "exec", near, "nft", "add chain inet t c { type filter hook output priority 0; }")
	for _, protocol := range []Protocol{TCP, UDP} {
		for _, rule := range append([]string{""}, rules...) {
			testutil.Run(t, "ip", "netns", "exec", near, "nft", fmt.Sprintf("add rule inet t c meta l4proto %s %s counter", protocol, rule))
		}
	}
	testutil.Run(t, "ip", "netns", "exec", near, "nft", "add chain inet t answers { type filter hook input priority 0; }")
	testutil.Run(t, "ip", "netns", "exec", near, "nft", "add rule inet t answers meta l4proto tcp ip dscp 8 counter")
	listed := func(chain string) string {
		return testutil.Run(t, "ip", "netns", "exec", near, "nft", "list", "chain", "inet", "t", chain)
	}
	counts := func(of Protocol) (n []string) {
		out := listed("c")
		for line := range strings.Lines(out) {
			if _, after, ok := strings.Cut(line, "counter packets "); ok && strings.Contains(line, string(of)) {
				n = append(n, strings.Fields(after)[0])
			}
		}
		return n
	}
	for _, protocol := range []Protocol{TCP, UDP} {
		tg := test(near, protocol)
		if o := runWhenFree(t, tg); o.Result != Completed {
			t.Fatalf("%+v", o)
		}
		before := counts(protocol)
		if len(before) != 1+len(rules) || before[0] == "0" {
			t.Fatalf("%v", before)
		}
		for i, rule := range rules {
			if before[1+i] != "0" {
				t.Errorf("%s packets of %s without being asked for", before[1+i], rule)
			}
		}
		if protocol == TCP && !strings.Contains(listed("answers"), "counter packets 0") {
			t.Errorf("answers have it without being asked for:\n%s", listed("answers"))
		}
		tg.Channel = timestamping.Channel{Mark: 42, Priority: 6, TOS: 8 << 2, Device: "v1"}
		if o := runWhenFree(t, tg); o.Result != Completed {
			t.Fatalf("%+v", o)
		}
		for i, rule := range rules {
			if after := counts(protocol); after[1+i] == "0" {
				t.Errorf("no %s packet has %s: %v", protocol, rule, after)
			}
		}
		if strings.Contains(listed("answers"), "counter packets 0") {
			t.Errorf("no acknowledgement has it:\n%s", listed("answers"))
		}
	}
}
