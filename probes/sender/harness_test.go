package sender

import (
	"context"
	"flag"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"vigia/internal/testutil"
	"vigia/probes/accounting"
	"vigia/probes/delay"
	"vigia/probes/protocol"
	stampprobe "vigia/probes/protocol/stamp"
	"vigia/probes/reflector"
	"vigia/probes/sockets"
	"vigia/probes/stamp"
)

const (
	patience = 60 * time.Second
	// deadline is long enough for any answer on a busy machine.
	deadline = 10 * time.Second
	// never is an interval in which no probe is due by itself while a test runs: the first of an hour's may be at once.
	never = 100_000 * time.Hour
)

// TestMain lets more tests wait side by side than there are processors: most of their time is that until a deadline, in
// which a machine has nothing to do for them.
func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", "16"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// notes is a Recorder that keeps everything.
type notes struct {
	mu        sync.Mutex
	lags      []int64
	settled   []protocol.Probe
	bursts    []uint64
	varied    [][delay.NumDirections]int64
	finished  bool
	changed   int // sources
	removed   bool
	afterward int // calls after Removed
}

func (n *notes) do(fn func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.removed {
		n.afterward++
	}
	fn()
}

func (n *notes) Launched(lag int64)        { n.do(func() { n.lags = append(n.lags, lag) }) }
func (n *notes) Settled(p *protocol.Probe) { n.do(func() { n.settled = append(n.settled, *p) }) }
func (n *notes) Burst(probes uint64)       { n.do(func() { n.bursts = append(n.bursts, probes) }) }
func (n *notes) SourceChanged()            { n.do(func() { n.changed++ }) }
func (n *notes) Finished()                 { n.do(func() { n.finished = true }) }
func (n *notes) Removed()                  { n.do(func() { n.removed = true }) }
func (n *notes) Varied(v [delay.NumDirections]int64) {
	n.do(func() { n.varied = append(n.varied, v) })
}

// good counts the answers with good stamps.
func (n *notes) good() (count int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for i := range n.settled {
		if n.settled[i].State == protocol.Answered && n.settled[i].Verdict == delay.Good {
			count++
		}
	}
	return count
}

// mostlyGood wants good verdicts of the probes that were answered at once. A starved reflector follows up on the last few
// of those that waited alone: the others lack its stamp of sending.
func mostlyGood(t *testing.T, settled []protocol.Probe) {
	t.Helper()
	const followed = 30 * time.Millisecond // fewer probes of a target come in this than the reflector follows up on
	good, answered := 0, 0
	for i := range settled {
		p := &settled[i]
		if p.State != protocol.Answered {
			continue
		}
		if p.Stamps.T3-p.Stamps.T2 < int64(followed) || p.Verdict == delay.Good {
			answered++
		}
		switch {
		case p.Verdict == delay.Good:
			good++
		case p.Verdict != delay.NoKernelStamp || p.Stamps.Kernel&delay.T3 != 0:
			t.Errorf("probe %d: verdict %v, %+v", p.Sequence, p.Verdict, p.Stamps)
		}
	}
	if good == 0 || 2*good < answered {
		t.Errorf("%d of %d answers have good stamps", good, answered)
	}
}

// fixture is a running sender.
type fixture struct {
	*Sender
	t     *testing.T
	stop  func()
	mu    sync.Mutex
	notes map[Labels]*notes
}

// newSender starts a sender that ends with the test, and then checks that every
// target's accounts are in order.
func newSender(t *testing.T, o Options) *fixture {
	t.Helper()
	f := &fixture{t: t, notes: make(map[Labels]*notes)}
	o.Logger = slog.New(slog.DiscardHandler)
	o.NewRecorder = func(t Target) Recorder {
		f.mu.Lock()
		defer f.mu.Unlock()
		l := t.Labels
		f.notes[l] = &notes{}
		return f.notes[l]
	}
	var err error
	if f.Sender, err = New(o); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- f.Run(ctx) }()
	f.stop = sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(patience):
			t.Error("the sender did not stop")
		}
		f.checkAccounts()
	})
	t.Cleanup(func() {
		f.stop()
		f.Close()
	})
	return f
}

func (f *fixture) apply(targets ...Target) {
	f.t.Helper()
	if err := f.Apply(targets); err != nil {
		f.t.Fatal(err)
	}
}

func (f *fixture) note(l Labels) *notes {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.notes[l]
}

// status returns the state of a target.
func (f *fixture) status(l Labels) Status {
	f.t.Helper()
	all, _, err := f.Snapshot(nil)
	if err != nil {
		f.t.Fatal(err)
	}
	i := slices.IndexFunc(all, func(s Status) bool { return s.Target.Labels == l })
	if i < 0 {
		f.t.Fatalf("no target %+v", l)
	}
	return all[i]
}

// checkAccounts demands that everything adds up, now and for every target.
func (f *fixture) checkAccounts() {
	f.t.Helper()
	all, _, err := f.Snapshot(nil)
	if err != nil {
		f.t.Error(err)
	}
	for _, s := range all {
		c := s.Counts
		if c.Mismatch(s.InFlight) != 0 || c.Sent != c.Received+c.LostTotal() {
			f.t.Errorf("%+v: %d in flight, mismatch %d: %+v", s.Target.Labels, s.InFlight, c.Mismatch(s.InFlight), c)
		}
	}
}

func (f *fixture) waitFor(what string, cond func() bool) {
	f.t.Helper()
	met := false
	defer func() {
		if !met {
			all, totals, _ := f.Snapshot(nil)
			f.t.Logf("%+v\n%+v", all, totals)
		}
	}()
	testutil.WaitFor(f.t, what, func() bool {
		f.checkAccounts()
		met = cond()
		return met
	})
}

// finish waits until a counted target is done and returns its state and records
// in order of sequence.
func (f *fixture) finish(l Labels) (Status, []protocol.Probe) {
	f.t.Helper()
	n := f.note(l)
	f.waitFor("the target to be done", func() bool {
		n.mu.Lock()
		defer n.mu.Unlock()
		return n.finished
	})
	n.mu.Lock()
	defer n.mu.Unlock()
	settled := slices.Clone(n.settled)
	slices.SortFunc(settled, func(a, b protocol.Probe) int { return int(a.Sequence) - int(b.Sequence) })
	return f.status(l), settled
}

// target returns a target of which a test changes what it needs.
func target(name string, to netip.AddrPort) Target {
	return Target{
		Labels: Labels{Src: "a", Dst: name, Path: "direct", Tenant: "_infra", Probe: "c"},
		Host:   to.Addr().String(), Port: to.Port(), Size: 64, Protocol: stampprobe.Protocol{},
		Interval: 5 * time.Millisecond, Deadline: deadline,
	}
}

// silent are reflector counters that nobody reads.
type silent struct{}

func (silent) Received()                 {}
func (silent) Reflected()                {}
func (silent) Rejected(reflector.Reason) {}
func (silent) Overflowed(uint32)         {}

// reflect runs a reflector; the returned function stops it.
func reflect(t testing.TB, ns string, at netip.AddrPort) (stop func()) {
	t.Helper()
	return reflectWith(t, ns, at, reflecting{counters: silent{}})
}

// reflecting is how a reflector differs from the usual.
type reflecting struct {
	counters reflector.Counters
	buffer   int
	rate     int
	keys     stamp.Keys
}

func reflectWith(t testing.TB, ns string, at netip.AddrPort, how reflecting) (stop func()) {
	t.Helper()
	r, err := reflector.New(reflector.Options{
		Logger: slog.New(slog.DiscardHandler), RemoveCounters: func(sockets.Key) {}, ReceiveBuffer: how.buffer,
		NewCounters: func(sockets.Key) reflector.Counters { return how.counters },
	})
	if err != nil {
		t.Fatal(err)
	}
	if how.rate == 0 {
		how.rate = 1_000_000
	}
	key := sockets.Key{Netns: ns, Local: at}
	err = r.Apply(reflector.Config{
		Listeners: []sockets.Key{key}, MaxRate: how.rate, Keys: map[sockets.Key]stamp.Keys{key: how.keys},
		Allow: []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	end := sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		r.Close()
	})
	t.Cleanup(end)
	return func() {
		end()
		testutil.WaitUnbound(t, ns, "udp", at.Port())
	}
}

// reflectOnLoopback runs a reflector on a free port.
func reflectOnLoopback(t testing.TB) netip.AddrPort {
	t.Helper()
	at := testutil.FreePort(t, "udp", "127.0.0.1")
	reflect(t, "", at)
	return at
}

// link joins two new namespaces by a veth pair, 10.9.0.1 on the left and 10.9.0.2
// on the right.
func link(t *testing.T) (left, right string) {
	t.Helper()
	left, right = testutil.NewNetNS(t), testutil.NewNetNS(t)
	testutil.NewVethPair(t, left, "veth0", right, "veth0")
	testutil.IP(t, "-n", left, "addr", "add", "10.9.0.1/24", "dev", "veth0")
	testutil.IP(t, "-n", right, "addr", "add", "10.9.0.2/24", "dev", "veth0")
	return left, right
}

var right862 = netip.MustParseAddrPort("10.9.0.2:862")

// inNamespace runs a command there.
func inNamespace(t *testing.T, ns string, args ...string) string {
	t.Helper()
	return testutil.Run(t, "ip", append([]string{"netns", "exec", ns}, args...)...)
}

// fate is what a relay does with a packet.
type fate struct {
	copies  int // 0 drops it
	delay   time.Duration
	change  func([]byte) []byte
	another bool // send it from another port
	hold    bool // send it after the next one
}

var pass = fate{copies: 1}

// relay forwards datagrams to a reflector and back, and decides about each probe
// by its sequence number. It is a path with faults that are known exactly.
type relay struct {
	t                *testing.T
	front            *net.UDPConn
	upstream         netip.AddrPort
	forward, reverse func(sequence uint32) fate
	mode             stamp.Mode

	mu     sync.Mutex
	backs  map[netip.AddrPort]*net.UDPConn
	closed bool
	wg     sync.WaitGroup
}

func newRelay(t *testing.T, upstream netip.AddrPort, forward, reverse func(uint32) fate) (*relay, netip.AddrPort) {
	t.Helper()
	return newRelayOf(t, stamp.Unauthenticated, upstream, forward, reverse)
}

// newRelayOf relays packets of the mode.
func newRelayOf(t *testing.T, mode stamp.Mode, upstream netip.AddrPort, forward, reverse func(uint32) fate) (*relay, netip.AddrPort) {
	t.Helper()
	front, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{t: t, front: front, upstream: upstream, forward: forward, reverse: reverse, mode: mode, backs: make(map[netip.AddrPort]*net.UDPConn)}
	r.wg.Go(r.listen)
	t.Cleanup(r.close)
	return r, front.LocalAddr().(*net.UDPAddr).AddrPort()
}

func (r *relay) close() {
	r.mu.Lock()
	r.closed = true
	r.front.Close()
	for _, b := range r.backs {
		b.Close()
	}
	r.mu.Unlock()
	r.wg.Wait()
}

func (r *relay) listen() {
	b := make([]byte, 1<<16)
	for {
		n, client, err := r.front.ReadFromUDPAddrPort(b)
		if err != nil {
			return
		}
		back := r.back(client)
		if back == nil {
			return
		}
		request, _ := r.mode.ParseRequest(b[:n])
		r.send(r.forward(request.Sequence), b[:n], func(p []byte) { _, _ = back.Write(p) })
	}
}

// back returns the socket that stands for a client towards the reflector.
func (r *relay) back(client netip.AddrPort) *net.UDPConn {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c := r.backs[client]; c != nil || r.closed {
		return c
	}
	c, err := net.DialUDP("udp4", nil, net.UDPAddrFromAddrPort(r.upstream))
	if err != nil {
		r.t.Error(err)
		return nil
	}
	r.backs[client] = c
	r.wg.Go(func() {
		b := make([]byte, 1<<16)
		var held []byte
		for {
			n, err := c.Read(b)
			if err != nil {
				return
			}
			reply, _ := r.mode.ParseReply(b[:n])
			f := r.reverse(reply.SenderSequence)
			if f.hold {
				held = slices.Clone(b[:n])
				continue
			}
			r.send(f, b[:n], func(p []byte) {
				if f.another {
					r.strange(p, client)
					return
				}
				_, _ = r.front.WriteToUDPAddrPort(p, client)
			})
			if held != nil {
				_, _ = r.front.WriteToUDPAddrPort(held, client)
				held = nil
			}
		}
	})
	return c
}

func (r *relay) strange(p []byte, client netip.AddrPort) {
	c, err := net.DialUDP("udp4", nil, net.UDPAddrFromAddrPort(client))
	if err != nil {
		r.t.Error(err)
		return
	}
	defer c.Close()
	_, _ = c.Write(p)
}

func (r *relay) send(f fate, p []byte, write func([]byte)) {
	p = slices.Clone(p)
	if f.change != nil {
		p = f.change(p)
	}
	for range f.copies {
		if f.delay == 0 {
			write(p)
			continue
		}
		r.wg.Add(1)
		time.AfterFunc(f.delay, func() { defer r.wg.Done(); write(p) })
	}
}

func always(uint32) fate { return pass }

// every returns a policy that does something to each n-th of the first total
// probes.
func every(n, total uint32, f fate) func(uint32) fate {
	return func(sequence uint32) fate {
		if sequence < total && sequence%n == 0 {
			return f
		}
		return pass
	}
}

// lostTo sums up the losses of a cause.
func lostTo(s Status, cause accounting.Cause) uint64 { return s.Counts.Lost[cause] }
