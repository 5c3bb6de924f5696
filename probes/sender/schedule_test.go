package sender

import (
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"vigia/internal/testutil"

	"golang.org/x/sys/unix"

	"vigia/probes/accounting"
	"vigia/probes/delay"
	"vigia/probes/protocol"
	stampprobe "vigia/probes/protocol/stamp"
	"vigia/probes/resolver"
)

func TestPhasesAreStableSpreadAndOnTheGrid(t *testing.T) {
	const interval = 100 * time.Millisecond
	counts := make(map[int64]int)
	now := int64(1_234_567_890_123)
	for i := range 1000 {
		tg := Target{Labels: Labels{Src: "a", Dst: fmt.Sprint("b", i)}, Interval: interval}
		first := tg.start(now, 0)
		if first <= now || first > now+int64(interval) {
			t.Fatalf("first probe %d ns from now", first-now)
		}
		phase := first % int64(interval)
		if later := tg.start(now+int64(time.Hour), 0) % int64(interval); later != phase {
			t.Fatalf("the phase moved from %d to %d", phase, later)
		}
		if phase%int64(10*time.Millisecond) != 0 {
			t.Fatalf("phase %d is not on the grid", phase)
		}
		counts[phase]++
	}
	if len(counts) != 10 {
		t.Errorf("%d phases used, want 10", len(counts))
	}
	for phase, n := range counts {
		if n > 150 { // mean 100, standard deviation 9.5
			t.Errorf("%d targets at phase %d", n, phase)
		}
	}
	seldom := make(map[int64]bool)
	for i := range 1000 {
		tg := Target{Labels: Labels{Src: "a", Dst: fmt.Sprint("b", i)}, Interval: time.Second}
		phase := tg.start(now, 0) % int64(time.Second)
		if phase%int64(50*time.Millisecond) != 0 {
			t.Fatalf("phase %d of a second is not on the grid", phase)
		}
		seldom[phase] = true
	}
	if len(seldom) != 20 {
		t.Errorf("%d phases of a second used, want 20", len(seldom))
	}
	short := Target{Labels: Labels{Src: "a"}, Interval: 200 * time.Microsecond}
	if first := short.start(now, 0); first <= now || first > now+int64(short.Interval) {
		t.Errorf("first probe %d ns from now", first-now)
	}
	counted := Target{Interval: time.Hour, Count: 1}
	if counted.start(now, 0) != now {
		t.Error("a counted target does not begin at once")
	}
}

// TestScheduleIsOpenLoop moves time past a session and notes which probes it
// would send.
func TestScheduleIsOpenLoop(t *testing.T) {
	ser := &series{}
	s := newSession(Target{Protocol: stampprobe.Protocol{}, Size: 64, Interval: 10, Deadline: 100}, ser)
	s.next = 1000
	for _, tc := range []struct{ now, intended, next, skipped int64 }{
		{1000, 1000, 1010, 0},
		{1010, 1010, 1020, 0},
		{1029, 1020, 1030, 0}, // nearly an interval late
		{1030, 1030, 1040, 0},
		{1050, 1040, 1060, 1}, // the one at 1050 is skipped
		{1095, 1060, 1100, 4}, // 1070 to 1090 are skipped
		{1100, 1100, 1110, 4},
	} {
		if got := s.advance(tc.now); got != tc.intended || s.next != tc.next || int64(ser.counts.Skipped) != tc.skipped {
			t.Errorf("at %d: intended %d, next %d, skipped %d; want %+v", tc.now, got, s.next, ser.counts.Skipped, tc)
		}
	}
}

// TestNoBurstAfterAStall stops the sender for a while and looks at what it sends
// afterwards.
func TestNoBurstAfterAStall(t *testing.T) {
	t.Parallel()
	f := newSender(t, Options{})
	tg := target("b", reflectOnLoopback(t))
	f.apply(tg)
	f.waitFor("answers", func() bool { return f.status(tg.Labels).Counts.Received > 20 })
	before := f.status(tg.Labels).Counts
	const stall = 400 * time.Millisecond
	if err := f.engine.loop.Do(func() { time.Sleep(stall) }); err != nil {
		t.Fatal(err)
	}
	var after accounting.Counts
	if err := f.engine.loop.Do(func() { after = f.engine.series[tg.Labels].counts }); err != nil {
		t.Fatal(err)
	}
	missed := uint64(stall / tg.Interval)
	if skipped := after.Skipped - before.Skipped; skipped < missed-2 {
		t.Errorf("%d probes skipped, want about %d", skipped, missed)
	}
	f.waitFor("more answers", func() bool { return f.status(tg.Labels).Counts.Received > after.Received+20 })
	n := f.note(tg.Labels)
	n.mu.Lock()
	defer n.mu.Unlock()
	if longest := slices.Max(n.lags); longest < int64(stall-2*tg.Interval) {
		t.Errorf("the longest lag is %d ns, the stall %v", longest, stall)
	}
	if shortest := slices.Min(n.lags); shortest < 0 {
		t.Errorf("a probe was sent %d ns early", -shortest)
	}
	slices.SortFunc(n.settled, func(a, b protocol.Probe) int { return int(a.Sequence) - int(b.Sequence) })
	for i := 1; i < len(n.settled); i++ {
		if gap := n.settled[i].Intended - n.settled[i-1].Intended; gap <= 0 || gap%int64(tg.Interval) != 0 {
			t.Fatalf("probes %d and %d are %d ns apart", i-1, i, gap)
		}
	}
}

func TestQueueOrder(t *testing.T) {
	q := &queue{kind: settleQueue}
	rng := rand.New(rand.NewPCG(1, 1))
	var all []*session
	for range 200 {
		s := &session{}
		s.timers[settleQueue].index = -1
		all = append(all, s)
		q.set(s, rng.Int64N(1000))
	}
	for range 500 {
		s := all[rng.IntN(len(all))]
		switch rng.IntN(3) {
		case 0:
			q.set(s, rng.Int64N(1000))
		case 1:
			q.remove(s)
		case 2:
			at, was := rng.Int64N(1000), s.timers[settleQueue]
			q.setEarlier(s, at)
			if got := s.timers[settleQueue].at; was.index >= 0 && got != min(at, was.at) || was.index < 0 && got != at {
				t.Fatalf("setEarlier(%d) over %d gave %d", at, was.at, got)
			}
		}
	}
	for i, e := range q.entries {
		if own := e.session.timers[settleQueue]; own.index != i || own.at != e.at {
			t.Fatalf("the session at %d for %d believes %+v", i, e.at, own)
		}
	}
	queued := 0
	for _, s := range all {
		if s.timers[settleQueue].index >= 0 {
			queued++
		}
	}
	if queued != len(q.entries) {
		t.Errorf("%d sessions are in a queue of %d", queued, len(q.entries))
	}
	var last int64
	for q.first() != nil {
		if q.at() < last {
			t.Fatalf("%d after %d", q.at(), last)
		}
		last = q.at()
		q.remove(q.first())
	}
	if q.at() != 0 {
		t.Error("an empty queue has a time")
	}
}

func TestTargetKeysAndNames(t *testing.T) {
	for _, tc := range []struct {
		host, source string
		key          string
		name         resolver.Name
	}{
		{"10.0.0.1", "", "0.0.0.0:0", resolver.Name{}},
		{"fd00::1", "", "[::]:0", resolver.Name{}},
		{"10.0.0.1", "10.0.0.2:5", "10.0.0.2:5", resolver.Name{}},
		{"b.example", "", "0.0.0.0:0", resolver.Name{Host: "b.example"}},
		{"b.example", "[fd00::2]:0", "[fd00::2]:0", resolver.Name{Host: "b.example", IPv6: true}},
	} {
		tg := Target{Protocol: stampprobe.Protocol{}, Host: tc.host}
		if tc.source != "" {
			tg.Source = netip.MustParseAddrPort(tc.source)
		}
		if got := tg.key().String(); got != tc.key {
			t.Errorf("%s from %q: socket %s, want %s", tc.host, tc.source, got, tc.key)
		}
		if got, _ := tg.name(); got != tc.name {
			t.Errorf("%s from %q: name %+v, want %+v", tc.host, tc.source, got, tc.name)
		}
	}
}

// TestMemoryIsBounded computes what the largest allowed target needs.
func TestMemoryIsBounded(t *testing.T) {
	for _, tc := range []struct {
		interval, deadline time.Duration
		most               int
	}{
		{time.Hour, time.Minute, accounting.MinCapacity},
		{time.Second, time.Second, accounting.MinCapacity},
		{500 * time.Microsecond, time.Second, 8192},
		{time.Millisecond, time.Minute, 1 << 17},
	} {
		tg := Target{Interval: tc.interval, Deadline: tc.deadline}
		if c := tg.capacity(); c > tc.most || time.Duration(c)*tc.interval < tg.stampWait()+tc.deadline {
			t.Errorf("%v every %v: capacity %d", tc.deadline, tc.interval, c)
		}
	}
}

// idle is a Recorder without memory.
type idle struct{ received atomic.Int64 }

func (*idle) Launched(int64)                    {}
func (*idle) Varied([delay.NumDirections]int64) {}
func (*idle) Burst(uint64)                      {}
func (*idle) Finished()                         {}
func (*idle) Removed()                          {}
func (*idle) SourceChanged()                    {}

// Settled counts the answers.
func (i *idle) Settled(p *protocol.Probe) {
	if p.State == protocol.Answered {
		i.received.Add(1)
	}
}

// wait waits for so many more answers.
func (i *idle) wait(more int64) {
	for target := i.received.Load() + more; i.received.Load() < target; {
		time.Sleep(time.Millisecond)
	}
}

// busy runs sender and reflector with nobody else about.
func busy(t testing.TB, targets int, interval time.Duration) *idle {
	t.Helper()
	at := reflectOnLoopback(t)
	rec := &idle{}
	s, err := New(Options{Logger: slog.New(slog.DiscardHandler), NewRecorder: func(Target) Recorder { return rec }})
	if err != nil {
		t.Fatal(err)
	}
	var all []Target
	for i := range targets {
		tg := target(fmt.Sprint("b", i), at)
		tg.Interval = interval
		all = append(all, tg)
	}
	if err := s.Apply(all); err != nil {
		t.Fatal(err)
	}
	testutil.Running(t, s)
	return rec
}

// TestProbingDoesNotAllocate covers the schedule, sending, both kinds of stamps,
// the reflector, receiving and settling.
func TestProbingDoesNotAllocate(t *testing.T) {
	rec := busy(t, 10, 5*time.Millisecond)
	rec.wait(200)
	// The background looks after the sockets every two seconds, and that may
	// allocate; so the best of some runs counts.
	best := math.Inf(1)
	for range 10 {
		best = min(best, testing.AllocsPerRun(1, func() { rec.wait(100) }))
	}
	if best != 0 {
		t.Errorf("%v allocations for 100 probes, want 0", best)
	}
}

// BenchmarkProbe measures the processor time that a probe costs, sender and reflector
// together, kernel included. The schedule sets the rate, so time says nothing.
func BenchmarkProbe(b *testing.B) {
	rec := busy(b, 20, time.Millisecond)
	b.ReportAllocs()
	before, received := processorTime(b), rec.received.Load()
	b.ResetTimer()
	rec.wait(int64(b.N))
	b.ReportMetric(float64(processorTime(b)-before)/float64(rec.received.Load()-received), "cpu-ns/probe")
}

// processorTime returns the processor time of this process.
func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
