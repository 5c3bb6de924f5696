package sender

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"vigia/internal/testutil"
	"vigia/probes/accounting"
	"vigia/probes/delay"
	"vigia/probes/protocol"
	"vigia/probes/timestamping"
)

// overVeth returns a target that probes the other end of a link.
func overVeth(left string, n uint64) Target {
	tg := target("b", right862)
	tg.Netns, tg.Source, tg.Count = left, netip.MustParseAddrPort("10.9.0.1:0"), n
	return tg
}

// TestKernelStampsOverVeth checks every record of a clean path.
func TestKernelStampsOverVeth(t *testing.T) {
	t.Parallel()
	left, right := link(t)
	reflect(t, right, right862)
	f := newSender(t, Options{})
	const n = 200
	tg := overVeth(left, n)
	f.apply(tg)
	st, settled := f.finish(tg.Labels)
	if st.Counts.Received != n || len(settled) != n {
		t.Fatalf("%d records, %+v", len(settled), st.Counts)
	}
	for i, p := range settled {
		s := p.Stamps
		if all := delay.T1 | delay.T2 | delay.T4; p.Sequence != uint64(i) || s.Kernel&all != all {
			t.Fatalf("record %d: %+v", i, p)
		}
		if p.Verdict != delay.Good {
			continue // mostlyGood says how many may be
		}
		// Both ends are on one machine with one clock, so even the one-way
		// delays are true.
		if s.T2 < s.T1 || s.T3 < s.T2 || s.T4 < s.T3 {
			t.Errorf("record %d: stamps out of order: %+v", i, s)
		}
		if s.RTT() <= 0 || p.Application != s.RTT()+s.Residence() {
			t.Errorf("record %d: RTT %d + residence %d, application %d", i, s.RTT(), s.Residence(), p.Application)
		}
	}
	mostlyGood(t, settled)
	checkVariation(t, f.note(tg.Labels), settled)
	checkOwn(t, settled)
	_, totals, err := f.Snapshot(nil)
	if err != nil {
		t.Fatal(err)
	}
	for p := range Point(NumPoints) {
		stamps := totals.Stamps[p]
		if p == ReflectorTX { // see mostlyGood
			stamps[Kernel] += stamps[User]
			stamps[User] = 0
		}
		if stamps != [NumSources]uint64{Kernel: n} {
			t.Errorf("%s: sources %v, want %d kernel stamps", p, totals.Stamps[p], n)
		}
	}
}

// checkOwn adds up where each probe was from the time it was due to the read of its
// answer: nothing is counted twice and nothing is left out.
func checkOwn(t *testing.T, settled []protocol.Probe) {
	t.Helper()
	const clocks = 2000 // ns; the offset between the two clocks is known to about as much
	for i := range settled {
		p := &settled[i]
		if !p.Own.Known || p.Own.Send < 0 || p.Own.Read < -clocks || p.Application <= 0 {
			t.Errorf("probe %d: own %+v, application %d", p.Sequence, p.Own, p.Application)
		}
		sum := p.Lag() + p.Own.Send + p.Application + p.Own.Read
		if off := sum - (p.ReadAt - p.Intended); off < -clocks || off > clocks {
			t.Errorf("probe %d: the parts add up to %d ns more than it took", p.Sequence, off)
		}
	}
}

// checkVariation recomputes the variation from the records: one value for each
// pair of neighbours, in whatever order.
func checkVariation(t *testing.T, n *notes, settled []protocol.Probe) {
	t.Helper()
	n.mu.Lock()
	defer n.mu.Unlock()
	want := make(map[[delay.NumDirections]int64]int)
	for i := 1; i < len(settled); i++ {
		if settled[i-1].Verdict != delay.Good || settled[i].Verdict != delay.Good {
			continue
		}
		v, _ := delay.Variation(&settled[i-1].Stamps, &settled[i].Stamps)
		want[v]++
		if v[delay.Forward]+v[delay.Reverse] != v[delay.RoundTrip] {
			t.Errorf("pair %d: %v does not add up", i, v)
		}
	}
	for _, v := range n.varied {
		want[v]--
	}
	for v, left := range want {
		if left != 0 {
			t.Errorf("variation %v: %d too few", v, left)
		}
	}
}

var counterRE = regexp.MustCompile(`counter packets (\d+)`)

// nftCounts returns the packet counters of a namespace's rules in order.
func nftCounts(t *testing.T, ns string) (counts []uint64) {
	t.Helper()
	for _, m := range counterRE.FindAllStringSubmatch(inNamespace(t, ns, "nft", "list", "ruleset"), -1) {
		v, err := strconv.ParseUint(m[1], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		counts = append(counts, v)
	}
	return counts
}

// nftRules installs rules for UDP to port 862 in a chain of the hook.
func nftRules(t *testing.T, ns, hook string, rules ...string) {
	t.Helper()
	inNamespace(t, ns, "nft", "add table inet t")
	inNamespace(t, ns, "nft", fmt.Sprintf("add chain inet t c { type filter hook %s priority 0; }", hook))
	for _, r := range rules {
		inNamespace(t, ns, "nft", "add rule inet t c udp dport 862 "+r)
	}
}

// TestLossAgainstNft drops each seventh probe on arrival and compares with what
// the firewall counted.
func TestLossAgainstNft(t *testing.T) {
	t.Parallel()
	left, right := link(t)
	reflect(t, right, right862)
	nftRules(t, right, "input", "counter", "numgen inc mod 7 == 0 counter drop")
	f := newSender(t, Options{})
	const n = 210
	tg := overVeth(left, n)
	f.apply(tg)
	st, _ := f.finish(tg.Labels)
	closings := uint64(0)
	if err := f.engine.loop.Do(func() { closings = uint64(f.engine.series[tg.Labels].current[0].closings) }); err != nil {
		t.Fatal(err)
	}
	counts := nftCounts(t, right)
	if seen := counts[0]; seen != n+closings {
		t.Errorf("the firewall saw %d packets, %d probes and %d closings were sent", seen, n, closings)
	}
	// A closing packet may have been the one that was dropped.
	if dropped, lost := counts[1], lostTo(st, accounting.Forward); lost > dropped || dropped-lost > closings || lost != n/7 {
		t.Errorf("the firewall dropped %d, %d are lost", dropped, lost)
	}
	if st.Counts.Received+n/7 != n || st.Counts.Handed != n {
		t.Errorf("%+v", st.Counts)
	}
}

// TestRefusedByOwnFirewall drops packets on the way out of our own namespace: the
// kernel says so, and it is not the network's loss. The send stamps of the others
// must not be mixed up by it.
func TestRefusedByOwnFirewall(t *testing.T) {
	t.Parallel()
	left, right := link(t)
	reflect(t, right, right862)
	nftRules(t, left, "output", "numgen inc mod 3 == 0 counter drop")
	f := newSender(t, Options{})
	const n = 150
	tg := overVeth(left, n)
	f.apply(tg)
	st, settled := f.finish(tg.Labels)
	dropped := nftCounts(t, left)[0]
	refused := lostTo(st, accounting.SendError)
	if refused != st.Counts.Refused || refused != n/3 || dropped < refused || st.Counts.Received != n-refused {
		t.Errorf("%d dropped, %+v", dropped, st.Counts)
	}
	if !errors.Is(st.LastError, unix.EPERM) {
		t.Errorf("last error %v, want EPERM", st.LastError)
	}
	for _, p := range settled {
		if p.State == protocol.Answered && p.Stamps.Kernel&delay.T1 != 0 && (p.Stamps.T1 > p.Stamps.T2 || p.Stamps.T1 < f.realtime(p.SentAt)) {
			t.Errorf("probe %d was stamped at %d, but sent at %d and received at %d", p.Sequence, p.Stamps.T1, f.realtime(p.SentAt), p.Stamps.T2)
		}
	}
	mostlyGood(t, settled)
}

// realtime converts a monotonic time of the sender. Its offset estimate may have
// become better since by some nanoseconds.
func (f *fixture) realtime(monotonic int64) (realtime int64) {
	_ = f.engine.loop.Do(func() { realtime = f.engine.clock.Realtime(monotonic) - 1000 })
	return realtime
}

func TestUnreachable(t *testing.T) {
	t.Parallel()
	left := testutil.NewNetNS(t)
	testutil.IP(t, "-n", left, "addr", "add", "10.9.0.1/32", "dev", "lo")
	testutil.IP(t, "-n", left, "route", "add", "unreachable", "10.8.0.0/24")
	f := newSender(t, Options{})
	noRoute, rejected := target("noroute", netip.MustParseAddrPort("10.7.0.1:862")), target("rejected", netip.MustParseAddrPort("10.8.0.1:862"))
	for _, tg := range []*Target{&noRoute, &rejected} {
		tg.Netns, tg.Source, tg.Count = left, netip.MustParseAddrPort("10.9.0.1:0"), 20
	}
	f.apply(noRoute, rejected)
	for l, want := range map[Labels]syscall.Errno{noRoute.Labels: unix.ENETUNREACH, rejected.Labels: unix.EHOSTUNREACH} {
		st, _ := f.finish(l)
		if lostTo(st, accounting.SendError) != 20 || !errors.Is(st.LastError, want) || st.Up {
			t.Errorf("%s: %v, %+v", l.Dst, st.LastError, st.Counts)
		}
	}
}

// TestReflectorDiesAndReturns goes through the life of a reflector.
func TestReflectorDiesAndReturns(t *testing.T) {
	t.Parallel()
	left, right := link(t)
	f := newSender(t, Options{})
	tg := overVeth(left, 0)
	tg.Deadline = 500 * time.Millisecond
	f.apply(tg)
	f.waitFor("losses while nobody listens", func() bool { return lostTo(f.status(tg.Labels), accounting.Unknown) > 5 })
	if st := f.status(tg.Labels); !errors.Is(st.LastError, unix.ECONNREFUSED) || st.Counts.Received != 0 || st.Up {
		t.Errorf("%v, up %v, %+v", st.LastError, st.Up, st.Counts)
	}
	if n := f.status(tg.Labels).Counts.Refused; n != 0 {
		t.Errorf("%d probes failed to be sent because of ICMP messages about others", n)
	}
	for range 2 { // its sequence numbers start again from 0
		stop := reflect(t, right, right862)
		before := f.note(tg.Labels).good()
		f.waitFor("answers with all stamps", func() bool { return f.note(tg.Labels).good() >= before+50 })
		f.waitFor("being up", func() bool { return f.status(tg.Labels).Up })
		stop()
	}
	f.waitFor("being down", func() bool { return !f.status(tg.Labels).Up })
	n := f.note(tg.Labels)
	n.mu.Lock()
	defer n.mu.Unlock()
	good := 0
	for _, p := range n.settled {
		if p.State == protocol.Answered && p.Verdict == delay.Good {
			good++
			if p.Stamps.T3 < p.Stamps.T2 || p.Stamps.T4 < p.Stamps.T3 {
				t.Errorf("probe %d has stamps of another: %+v", p.Sequence, p.Stamps)
			}
		}
	}
	if good < 100 {
		t.Errorf("%d good samples", good)
	}
}

// TestOneDeadTargetDoesNotDisturbOthers shares a socket between a reflector that
// answers and many ports that refuse; the messages about these fail whatever is
// sent next, if one does not take care.
func TestOneDeadTargetDoesNotDisturbOthers(t *testing.T) {
	t.Parallel()
	left, right := link(t)
	reflect(t, right, right862)
	f := newSender(t, Options{})
	const n = 200
	alive := overVeth(left, n)
	targets := []Target{alive}
	for i := range 10 {
		dead := target(fmt.Sprint("dead", i), netip.AddrPortFrom(right862.Addr(), uint16(1000+i)))
		dead.Netns, dead.Source, dead.Count = left, alive.Source, n
		targets = append(targets, dead)
	}
	f.apply(targets...)
	st, settled := f.finish(alive.Labels)
	if st.Counts.Received != n || st.Counts.Refused != 0 || st.LastError != nil {
		t.Errorf("%v, %+v", st.LastError, st.Counts)
	}
	mostlyGood(t, settled)
	for _, p := range settled {
		if p.Stamps.T1 > p.Stamps.T2 {
			t.Errorf("probe %d: %v %+v", p.Sequence, p.Verdict, p.Stamps)
		}
	}
	refusals := 0 // the kernel limits how many it sends
	for _, dead := range targets[1:] {
		st, _ := f.finish(dead.Labels)
		if errors.Is(st.LastError, unix.ECONNREFUSED) {
			refusals++
		}
		if lostTo(st, accounting.Unknown) != n {
			t.Errorf("%s: %v, %+v", dead.Labels.Dst, st.LastError, st.Counts)
		}
	}
	if refusals == 0 {
		t.Error("no target was told that it is refused")
	}
}

// TestPendingErrorOfAnotherPacket leaves an ICMP message about another packet with
// the socket, unread, when a probe is sent: the message fails the call, but not
// the probe.
func TestPendingErrorOfAnotherPacket(t *testing.T) {
	t.Parallel()
	closed := testutil.FreePort(t, "udp", "127.0.0.1")
	f := newSender(t, Options{})
	tg := target("b", reflectOnLoopback(t))
	tg.Source, tg.Interval = netip.MustParseAddrPort("127.0.0.1:0"), never
	f.apply(tg)
	other, peer := timestamping.NewOutbox(1), timestamping.NewPeer(closed)
	const n = 20
	for i := range n {
		if err := f.engine.loop.Do(func() {
			e, s := f.engine, f.engine.series[tg.Labels].current[0]
			other.Reset()
			other.Add(&peer, []byte("to nobody"), 0, netip.Addr{})
			if sent, err := other.Send(s.socket.Socket, 0); sent != 1 {
				t.Error(err)
			}
			s.next = e.clock.Now()
			e.due.set(s, s.next)
			e.transmitDue()
		}); err != nil {
			t.Fatal(err)
		}
		f.waitFor("the answer", func() bool { return f.status(tg.Labels).Counts.Sent == uint64(i+1) })
	}
	if st := f.status(tg.Labels); st.Counts.Received != n || st.Counts.Refused != 0 {
		t.Errorf("%+v", st.Counts)
	}
	notes := f.note(tg.Labels)
	notes.mu.Lock()
	defer notes.mu.Unlock()
	for _, p := range notes.settled {
		if p.Stamps.Kernel&delay.T1 != 0 && p.Stamps.T1 > p.Stamps.T2 {
			t.Errorf("probe %d has the send stamp of another packet: %+v", p.Sequence, p.Stamps)
		}
	}
}

func TestNamespaceThatComesLater(t *testing.T) {
	t.Parallel()
	testutil.RequireRoot(t)
	name := fmt.Sprintf("vigia-test-sender-%d", os.Getpid())
	f := newSender(t, Options{})
	at := netip.MustParseAddrPort("127.0.0.1:862")
	tg := target("b", at)
	tg.Netns, tg.Interval = name, 20*time.Millisecond
	f.apply(tg)
	f.waitFor("failed probes", func() bool { return lostTo(f.status(tg.Labels), accounting.SendError) > 5 })
	if st := f.status(tg.Labels); st.Open || st.LastError == nil || !strings.Contains(st.LastError.Error(), name) {
		t.Errorf("open %v, %v", st.Open, st.LastError)
	}
	if err := f.Ready(); err == nil || !strings.Contains(err.Error(), name) {
		t.Errorf("Ready: %v", err)
	}
	add := func() {
		testutil.IP(t, "netns", "add", name)
		testutil.IP(t, "-n", name, "link", "set", "lo", "up")
	}
	add()
	t.Cleanup(func() { testutil.IP(t, "netns", "del", name) })
	stop := reflect(t, name, at)
	f.waitFor("answers", func() bool { return f.status(tg.Labels).Counts.Received > 20 })
	f.waitFor("being ready", func() bool { return f.Ready() == nil })
	refused := f.status(tg.Labels).Counts.Refused

	// The namespace is replaced by another of the same name.
	stop()
	testutil.IP(t, "netns", "del", name)
	add()
	f.waitFor("the socket to be closed or opened anew", func() bool {
		return f.status(tg.Labels).Counts.Refused > refused || f.status(tg.Labels).Counts.Lost[accounting.Unknown] > 0
	})
	reflect(t, name, at)
	before := f.status(tg.Labels).Counts.Received
	f.waitFor("answers again", func() bool { return f.status(tg.Labels).Counts.Received > before+20 })
}

// becomes waits, also where nothing else can run meanwhile, until the condition holds.
func becomes(cond func() bool) bool {
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if cond() {
			return true
		}
	}
	return false
}

// TestLocalOverflow lets the answers of many targets arrive while the sender does
// not read and its buffer holds few of them.
func TestLocalOverflow(t *testing.T) {
	t.Parallel()
	left, right := link(t)
	reflect(t, right, right862)
	f := newSender(t, Options{ReceiveBuffer: 8192})
	const n = 60
	var targets []Target
	for i := range n {
		tg := overVeth(left, 0)
		tg.Labels.Dst = fmt.Sprint("b", i)
		tg.Interval, tg.Deadline = never, 20*time.Second // a starved reflector must not be late
		targets = append(targets, tg)
	}
	f.apply(targets...)
	f.waitFor("the socket", func() bool { return f.Err() == nil })
	// Send a probe to every target at once, and look away until the buffer is full.
	var k *socket
	const rounds = 3
	for range rounds {
		missed := false
		if err := f.engine.loop.Do(func() {
			k = f.engine.sockets[targets[0].key()]
			now := f.engine.clock.Now()
			for _, ser := range f.engine.series {
				s := ser.current[0]
				s.next = now
				f.engine.due.set(s, now)
			}
			before, _ := k.Drops()
			f.engine.transmitDue()
			missed = becomes(func() bool { n, err := k.Drops(); return err == nil && n > before })
		}); err != nil || !missed {
			t.Fatalf("the buffer does not overflow: %v", err)
		}
	}
	sum := func() (sent, received, overflow uint64) {
		for _, tg := range targets {
			c := f.status(tg.Labels).Counts
			sent, received, overflow = sent+c.Sent, received+c.Received, overflow+c.Lost[accounting.LocalOverflow]
		}
		return sent, received, overflow
	}
	f.waitFor("the deadline", func() bool { sent, _, _ := sum(); return sent == rounds*n })
	var drops uint32
	var err error
	if doErr := f.engine.loop.Do(func() { drops, err = k.Drops() }); doErr != nil || err != nil {
		t.Fatal(doErr, err)
	}
	sent, received, overflow := sum()
	if overflow == 0 || received == 0 || overflow != uint64(drops) || received+overflow != sent {
		t.Errorf("%d sent, %d received, %d lost to overflow; the kernel dropped %d", sent, received, overflow, drops)
		for _, tg := range targets {
			t.Logf("%v", f.status(tg.Labels).Counts)
		}
	}
}

// TestClockStep steps the real-time clock as the sender sees it. What is in flight
// at that moment must not become a sample; what follows must.
func TestClockStep(t *testing.T) {
	t.Parallel()
	left, right := link(t)
	reflect(t, right, right862)
	f := newSender(t, Options{})
	real, err := timestamping.NewClock()
	if err != nil {
		t.Fatal(err)
	}
	var shift int64
	stepping := timestamping.NewClockFrom(real.Now, func() (int64, int64) {
		now := real.Now()
		return now, real.Realtime(now) + shift
	})
	const n = 1000 // more than are sent until the clock was stepped, also by a test that was kept from running
	tg := overVeth(left, n)
	if err := f.engine.loop.Do(func() { f.engine.clock = stepping }); err != nil {
		t.Fatal(err)
	}
	f.apply(tg)
	f.waitFor("some answers", func() bool { return f.status(tg.Labels).Counts.Received > 50 })
	steps := 0
	for steps < 3 {
		if err := f.engine.loop.Do(func() {
			if s := f.engine.series[tg.Labels].current[0]; s.Window.InFlight() > 0 || s.finished {
				steps++
				shift -= int64(time.Second)
			}
		}); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.engine.loop.Do(func() { shift = 0 }); err != nil { // so that stamps and clock agree again
		t.Fatal(err)
	}
	st, settled := f.finish(tg.Labels)
	if st.Counts.Received != n || st.Counts.LostTotal() != 0 || st.Counts.Late != 0 {
		t.Errorf("a clock step made losses: %+v", st.Counts)
	}
	if st.Quarantined[delay.ClockStep] == 0 {
		t.Error("no sample was kept out")
	}
	for _, p := range settled {
		if p.Verdict == delay.Good && (p.Stamps.RTT() <= 0 || p.Stamps.RTT() > int64(deadline)) {
			t.Errorf("probe %d: RTT %d", p.Sequence, p.Stamps.RTT())
		}
	}
}
