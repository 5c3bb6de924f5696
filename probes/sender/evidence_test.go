package sender

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"vigia/internal/testutil"
	"vigia/probes/accounting"
	"vigia/probes/delay"
	stampprobe "vigia/probes/protocol/stamp"
	"vigia/probes/reflector"
	"vigia/probes/stamp"
)

func testKeys(t *testing.T, digit string) stamp.Keys {
	t.Helper()
	k, err := stamp.ParseKeys([]byte(strings.Repeat(digit, 64)))
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// TestWaysOfLossAreToldApart drops known numbers on both ways at once, with every
// make of packet from which the ways can be told: the plain one has nothing but the
// reflector's sequence number, that of 64 bytes has to ask, larger ones carry the
// received window all the time.
func TestWaysOfLossAreToldApart(t *testing.T) {
	t.Parallel()
	const n = 200
	forward := func(s uint32) fate { return fate{}.orPass(s, n, s%10 == 3) }
	reverse := func(s uint32) fate { return fate{}.orPass(s, n, s%10 == 6 || s%20 == 7) }
	for _, tc := range []struct {
		name string
		size int
		keys stamp.Keys
	}{
		{"numbers alone", 44, ""},
		{"on demand", 64, ""},
		{"window", 84, ""},
		{"authenticated, all TLVs", 256, testKeys(t, "5")},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			upstream := testutil.FreePort(t, "udp", "127.0.0.1")
			reflectWith(t, "", upstream, reflecting{counters: silent{}, keys: tc.keys})
			_, at := newRelayOf(t, tc.keys.Mode(), upstream, forward, reverse)
			f := newSender(t, Options{})
			tg := target("b", at)
			tg.Count, tg.Size, tg.Protocol = n, tc.size, stampprobe.Protocol{Keys: tc.keys}
			f.apply(tg)
			st, _ := f.finish(tg.Labels)
			want := [accounting.NumCauses]uint64{accounting.Forward: 20, accounting.Reverse: 30}
			if st.Counts.Lost != want || st.Counts.Received != n-50 || st.Counts.Corrupt != 0 {
				t.Errorf("%+v", st.Counts)
			}
			note := f.note(tg.Labels)
			note.mu.Lock()
			defer note.mu.Unlock()
			// 3, 6+7, 13, 16, 23, 26+27, ...
			ones, twos := count(note.bursts, 1), count(note.bursts, 2)
			if ones != 30 || twos != 10 || len(note.bursts) != 40 {
				t.Errorf("%d runs of one loss, %d of two: %v", ones, twos, note.bursts)
			}
		})
	}
}

func count(values []uint64, v uint64) (n int) {
	for _, x := range values {
		if x == v {
			n++
		}
	}
	return n
}

// TestOutagesOfEitherWay breaks a way for longer than the received window is.
func TestOutagesOfEitherWay(t *testing.T) {
	t.Parallel()
	const n, from, to = 300, 100, 220
	cut := func(s uint32) fate { return fate{}.orPass(s, n, s >= from && s < to) }
	for cause, ways := range map[accounting.Cause][2]func(uint32) fate{
		accounting.Forward: {cut, always},
		accounting.Reverse: {always, cut},
	} {
		t.Run(cause.String(), func(t *testing.T) {
			t.Parallel()
			_, at := newRelay(t, reflectOnLoopback(t), ways[0], ways[1])
			f := newSender(t, Options{})
			tg := target("b", at)
			tg.Count, tg.Size = n, 100
			f.apply(tg)
			st, _ := f.finish(tg.Labels)
			if lostTo(st, cause) != to-from || st.Counts.LostTotal() != to-from {
				t.Errorf("%+v", st.Counts)
			}
			note := f.note(tg.Labels)
			note.mu.Lock()
			defer note.mu.Unlock()
			if !slices.Equal(note.bursts, []uint64{to - from}) {
				t.Errorf("runs of losses: %v", note.bursts)
			}
		})
	}
}

// TestDuplicatesDoNotDisguiseLoss duplicates probes on the way there, which makes
// the reflector answer more often than it was asked.
func TestDuplicatesDoNotDisguiseLoss(t *testing.T) {
	t.Parallel()
	const n = 200
	forward := func(s uint32) fate {
		switch s % 8 {
		case 2:
			return fate{copies: 2}.orPass(s, n, true)
		case 3:
			return fate{}.orPass(s, n, true)
		}
		return pass
	}
	_, at := newRelay(t, reflectOnLoopback(t), forward, every(8, n, fate{}))
	f := newSender(t, Options{})
	tg := target("b", at)
	tg.Count, tg.Size = n, 84
	f.apply(tg)
	st, _ := f.finish(tg.Labels)
	want := [accounting.NumCauses]uint64{accounting.Forward: 25, accounting.Reverse: 25}
	if st.Counts.Lost != want || st.Counts.Duplicate != 25 {
		t.Errorf("%+v", st.Counts)
	}
}

// TestOvertakenAnswerAfterLossesForward loses four probes in a row on the way there and lets
// the answers to the next three overtake the one that follows the losses: its number, which
// is missing for a moment, must not pass for that of a lost probe's answer.
func TestOvertakenAnswerAfterLossesForward(t *testing.T) {
	t.Parallel()
	const n, every = 120, 10 * time.Millisecond
	forward := func(s uint32) fate { return fate{}.orPass(s, n, s%20 >= 6 && s%20 < 10) }
	reverse := func(s uint32) fate { return fate{copies: 1, delay: 7 * every / 2}.orPass(s, n, s%20 == 10) }
	for _, size := range []int{44, 64, 84, 128} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			t.Parallel()
			_, at := newRelay(t, reflectOnLoopback(t), forward, reverse)
			f := newSender(t, Options{})
			tg := target("b", at)
			tg.Count, tg.Size, tg.Interval = n, size, every
			f.apply(tg)
			st, _ := f.finish(tg.Labels)
			if st.Counts.LostTotal() != 24 || lostTo(st, accounting.Forward) != 24 {
				t.Errorf("%+v", st.Counts)
			}
		})
	}
}

// gate is a listener's counters that hold the reflector up from the first packet
// after shut until open.
type gate struct {
	shut             atomic.Bool
	open             chan struct{}
	overflows, limit atomic.Uint64
	received         atomic.Uint64
}

func (g *gate) Received() {
	g.received.Add(1)
	if g.shut.Load() {
		<-g.open
	}
}
func (*gate) Reflected() {}
func (g *gate) Rejected(r reflector.Reason) {
	if r == reflector.RateLimited {
		g.limit.Add(1)
	}
}
func (g *gate) Overflowed(n uint32) { g.overflows.Add(uint64(n)) }

// TestReflectorOverflow holds the reflector up until its receive buffer is full,
// and demands that the losses are put down to that: as many as its socket dropped.
func TestReflectorOverflow(t *testing.T) {
	t.Parallel()
	g := &gate{open: make(chan struct{})}
	at := testutil.FreePort(t, "udp", "127.0.0.1")
	// So large that a starved reflector does not fill it at the end, where no answer would tell of the losses.
	reflectWith(t, "", at, reflecting{counters: g, buffer: 64 << 10})
	release := sync.OnceFunc(func() { close(g.open) })
	t.Cleanup(release) // before the reflector is stopped
	f := newSender(t, Options{})
	tg := target("b", at)
	tg.Count = 1500
	f.apply(tg)
	f.waitFor("the first answers", func() bool { return f.status(tg.Labels).Counts.Received >= 50 })
	g.shut.Store(true)
	f.burst(tg.Labels, 300, func(int, *socket) bool { return false }) // more than fit into the buffer
	g.shut.Store(false)
	release()
	st, _ := f.finish(tg.Labels)
	drops := g.overflows.Load()
	if drops == 0 || lostTo(st, accounting.ReflectorOverflow) != drops || st.Counts.LostTotal() != drops {
		t.Errorf("the reflector's socket dropped %d: %+v", drops, st.Counts)
	}
}

// TestReflectorRateLimitIsNotThePath asks more often than the reflector allows.
func TestReflectorRateLimitIsNotThePath(t *testing.T) {
	t.Parallel()
	g := &gate{}
	at := testutil.FreePort(t, "udp", "127.0.0.1")
	reflectWith(t, "", at, reflecting{counters: g, rate: 100})
	f := newSender(t, Options{})
	tg := target("b", at)
	tg.Interval, tg.Size, tg.Count = 2*time.Millisecond, 84, 300
	f.apply(tg)
	f.waitFor("the first answers", func() bool { return f.status(tg.Labels).Counts.Received >= 5 })
	const burst = 40 // also on a machine that sends few probes a second
	f.burst(tg.Labels, burst, func(int, *socket) bool { return false })
	st, _ := f.finish(tg.Labels)
	lost := lostTo(st, accounting.ReflectorOverflow)
	// The last may be refused without another answer that tells, closings too.
	if lost == 0 || lost > g.limit.Load() || st.Counts.Lost[accounting.Forward] != 0 || st.Counts.Lost[accounting.Reverse] != 0 {
		t.Errorf("%d refused: %+v", g.limit.Load(), st.Counts)
	}
}

// TestStatelessReflector cannot tell the ways apart: its numbers are ours.
func TestStatelessReflector(t *testing.T) {
	t.Parallel()
	const n = 60
	_, at := newRelay(t, plainReflector(t, "symmetric"), every(6, n, fate{}), every(5, n, fate{}))
	f := newSender(t, Options{})
	tg := target("b", at)
	tg.Count, tg.Size = n, 84
	f.apply(tg)
	st, _ := f.finish(tg.Labels)
	if lost := lostTo(st, accounting.Unknown); lost == 0 || lost != st.Counts.LostTotal() {
		t.Errorf("%+v", st.Counts)
	}
}

// TestSlowProbesWaitForEvidence has the deadline pass before the next probe is sent. Where
// the machine keeps the sender waiting for longer than that, nothing tells where probes
// were lost; it may not be said wrongly, though.
func TestSlowProbesWaitForEvidence(t *testing.T) {
	t.Parallel()
	const n, attempts = 20, 8
	for attempt := 1; ; attempt++ {
		_, at := newRelay(t, reflectOnLoopback(t), func(s uint32) fate { return fate{}.orPass(s, n, s == 5) },
			func(s uint32) fate { return fate{}.orPass(s, n, s == 11) })
		f := newSender(t, Options{})
		tg := target("b", at)
		tg.Interval, tg.Deadline, tg.Count = 200*time.Millisecond, 100*time.Millisecond, n
		f.apply(tg)
		f.waitFor("the losses", func() bool { return f.status(tg.Labels).Counts.Sent > 14 })
		st := f.status(tg.Labels)
		forward, reverse := lostTo(st, accounting.Forward), lostTo(st, accounting.Reverse)
		// More than the one may miss so short a deadline on their way back.
		if forward == 1 && reverse > 0 {
			return
		}
		if forward > 1 || lostTo(st, accounting.Unknown) == 0 || attempt == attempts {
			t.Fatalf("attempt %d: %+v", attempt, st.Counts)
		}
	}
}

func TestGrace(t *testing.T) {
	for _, tc := range []struct {
		interval, deadline time.Duration
		answers            int
		want               time.Duration
	}{
		{50 * time.Millisecond, time.Second, 3, 0},
		{time.Second, time.Second, 1, 100 * time.Millisecond},
		{2 * time.Second, time.Second, 1, 1100 * time.Millisecond},
		{time.Minute, time.Second, 1, 0},
		{100 * time.Millisecond, 10 * time.Millisecond, 1, 100 * time.Millisecond},
		{50 * time.Millisecond, 10 * time.Millisecond, 3, 150 * time.Millisecond},
	} {
		tg := Target{Interval: tc.interval, Deadline: tc.deadline}
		if got := time.Duration(tg.grace(tc.answers)); got != tc.want {
			t.Errorf("%v, deadline %v, %d answers: %v, want %v", tc.interval, tc.deadline, tc.answers, got, tc.want)
		}
	}
}

// TestWrongKeysNeverCount lets a reflector with another key answer, and an open one.
func TestWrongKeysNeverCount(t *testing.T) {
	for name, keys := range map[string]stamp.Keys{"another key": testKeys(t, "7"), "no key": ""} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			at := testutil.FreePort(t, "udp", "127.0.0.1")
			reflectWith(t, "", at, reflecting{counters: silent{}, keys: keys})
			f := newSender(t, Options{})
			tg := target("b", at)
			tg.Count, tg.Size, tg.Deadline = 20, 172, 100*time.Millisecond
			tg.Protocol = stampprobe.Protocol{Keys: testKeys(t, "5")}
			f.apply(tg)
			st, _ := f.finish(tg.Labels)
			if keys == "" { // the open reflector answers, if late, the other one is silent
				f.waitFor("its answers", func() bool { st = f.status(tg.Labels); return st.Counts.Corrupt > 0 })
			} else if st.Counts.Corrupt != 0 {
				t.Errorf("%d corrupt", st.Counts.Corrupt)
			}
			if st.Counts.Received != 0 || st.Counts.LostTotal() != 20 {
				t.Errorf("%+v", st.Counts)
			}
		})
	}
}

// TestTamperedAnswers changes authenticated answers on the way: what the base
// packet covers makes them corrupt, what the TLVs' own HMAC covers costs their
// content alone.
func TestTamperedAnswers(t *testing.T) {
	t.Parallel()
	const n = 60
	for name, tc := range map[string]struct {
		at      int
		corrupt uint64
	}{"base packet": {40, 12}, "TLV": {stamp.AuthenticatedSize + 6, 0}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			keys := testKeys(t, "5")
			upstream := testutil.FreePort(t, "udp", "127.0.0.1")
			reflectWith(t, "", upstream, reflecting{counters: silent{}, keys: keys})
			_, at := newRelayOf(t, stamp.Authenticated, upstream, always, every(5, n, fate{copies: 1, change: func(b []byte) []byte { b[tc.at] ^= 1; return b }}))
			f := newSender(t, Options{})
			tg := target("b", at)
			tg.Count, tg.Size, tg.Protocol = n, 172, stampprobe.Protocol{Keys: keys}
			f.apply(tg)
			st, _ := f.finish(tg.Labels)
			if st.Counts.Corrupt != tc.corrupt || st.Counts.Received != n-tc.corrupt {
				t.Errorf("%+v", st.Counts)
			}
			if tc.corrupt == 0 && st.Quarantined[delay.NoKernelStamp] == 0 {
				t.Error("follow-ups from TLVs without integrity were believed")
			}
		})
	}
}

// TestDSCPChangesAreCounted rewrites the DSCP with the firewall, each way.
func TestDSCPChangesAreCounted(t *testing.T) {
	for name, tc := range map[string]struct {
		rule string
		want [2]uint64
	}{
		"kept":    {"counter", [2]uint64{0, 0}},
		"forward": {"udp dport 862 ip dscp set cs1", [2]uint64{20, 0}},
		"reverse": {"udp sport 862 ip dscp set cs1", [2]uint64{0, 20}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			left, right := link(t)
			reflect(t, right, right862)
			for _, ns := range []string{left, right} {
				inNamespace(t, ns, "nft", "add table ip m; add chain ip m out { type filter hook output priority -150; }; add rule ip m out "+tc.rule)
			}
			f := newSender(t, Options{})
			tg := overVeth(left, 20)
			tg.Size, tg.DSCP = 92, 46
			f.apply(tg)
			st, _ := f.finish(tg.Labels)
			if st.Rewritten != tc.want || st.Counts.Received != 20 {
				t.Errorf("%v: %+v", st.Rewritten, st.Counts)
			}
		})
	}
}
