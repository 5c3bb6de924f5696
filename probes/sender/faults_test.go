package sender

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"vigia/internal/testutil"
	"vigia/probes/accounting"
	"vigia/probes/delay"
	"vigia/probes/protocol"
	"vigia/probes/stamp"
)

func losses(cause accounting.Cause, n uint64) (l [accounting.NumCauses]uint64) {
	l[cause] = n
	return l
}

// TestFaultsAreCountedExactly lets a relay harm a known number of probes and
// demands that the counters say just that.
func TestFaultsAreCountedExactly(t *testing.T) {
	t.Parallel()
	const n = 100
	flip := func(at int) func([]byte) []byte {
		return func(b []byte) []byte { b[at] ^= 0x10; return b }
	}
	for _, tc := range []struct {
		name             string
		forward, reverse func(uint32) fate
		size             int
		want             accounting.Counts // without what is the same for all
		stray            uint64
	}{
		{"no fault", always, always, 64, accounting.Counts{Received: n}, 0},
		{"lost on the way there", every(4, n, fate{}), always, 64, accounting.Counts{Received: 75, Lost: losses(accounting.Forward, 25)}, 0},
		{"lost on the way back", always, every(5, n, fate{}), 64, accounting.Counts{Received: 80, Lost: losses(accounting.Reverse, 20)}, 0},
		{"everything lost", func(uint32) fate { return fate{} }, always, 64, accounting.Counts{Lost: losses(accounting.Unknown, n)}, 0},
		{"everything but what tells", every(1, n, fate{}), always, 64, accounting.Counts{Lost: losses(accounting.Forward, n)}, 0},
		{"duplicated on the way back", always, every(4, n, fate{copies: 3}), 64, accounting.Counts{Received: n, Duplicate: 50}, 0},
		{"duplicated on the way there", every(4, n, fate{copies: 2}), always, 64, accounting.Counts{Received: n, Duplicate: 25}, 0},
		{
			"some duplicated and others lost", always,
			func(s uint32) fate { return map[uint32]fate{0: {copies: 2}, 1: {}}[s%10].orPass(s, n, s%10 < 2) },
			64,
			accounting.Counts{Received: 90, Duplicate: 10, Lost: losses(accounting.Reverse, 10)},
			0,
		},
		{"overtaken by the next", always, every(10, n, fate{hold: true}), 64, accounting.Counts{Received: n, Reordered: 10}, 0},
		{"after the deadline", always, every(10, n, fate{copies: 1, delay: deadline + time.Second}), 64, accounting.Counts{Received: 90, Late: 10, Lost: losses(accounting.Reverse, 10)}, 0},
		{"sequence number damaged", always, every(10, n, fate{copies: 1, change: flip(26)}), 64, accounting.Counts{Received: 90, Corrupt: 10, Lost: losses(accounting.Reverse, 10)}, 0},
		{"time stamp damaged", always, every(10, n, fate{copies: 1, change: flip(30)}), 64, accounting.Counts{Received: 90, Corrupt: 10, Lost: losses(accounting.Reverse, 10)}, 0},
		{"padding damaged", always, every(10, n, fate{copies: 1, change: flip(500)}), 1000, accounting.Counts{Received: 90, Corrupt: 10, Lost: losses(accounting.Reverse, 10)}, 0},
		{"cut short", always, every(10, n, fate{copies: 1, change: func(b []byte) []byte { return b[:40] }}), 64, accounting.Counts{Received: 90, Corrupt: 10, Lost: losses(accounting.Reverse, 10)}, 0},
		{"made longer", always, every(10, n, fate{copies: 1, change: func(b []byte) []byte { return append(b, 0) }}), 64, accounting.Counts{Received: 90, Corrupt: 10, Lost: losses(accounting.Reverse, 10)}, 0},
		{"from another port", always, every(10, n, fate{copies: 1, another: true}), 64, accounting.Counts{Received: 90, Lost: losses(accounting.Reverse, 10)}, 10},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			_, at := newRelay(t, reflectOnLoopback(t), tc.forward, tc.reverse)
			f := newSender(t, Options{})
			target := target("b", at)
			target.Count, target.Size = n, tc.size
			f.apply(target)
			f.finish(target.Labels)
			want := tc.want
			want.Sent, want.Handed = n, n
			f.waitFor("the last late answers", func() bool { return f.status(target.Labels).Counts.Late == want.Late })
			got := f.status(target.Labels).Counts
			got.Skipped = 0 // depends on the machine
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if _, totals, _ := f.Snapshot(nil); totals.Stray != tc.stray {
				t.Errorf("%d stray, want %d", totals.Stray, tc.stray)
			}
		})
	}
}

// orPass returns the fate for one of the first total probes, if it is chosen.
func (f fate) orPass(sequence, total uint32, chosen bool) fate {
	if sequence < total && chosen {
		return f
	}
	return pass
}

// TestDamagedIdentifier breaks the session identifier in answers: they belong to
// no session, but come from the target.
func TestDamagedIdentifier(t *testing.T) {
	t.Parallel()
	const n = 40
	_, at := newRelay(t, reflectOnLoopback(t), always, every(4, n, fate{copies: 1, change: func(b []byte) []byte {
		at := stamp.Unauthenticated.SSIDOffset()
		binary.BigEndian.PutUint16(b[at:], binary.BigEndian.Uint16(b[at:])+100)
		return b
	}}))
	f := newSender(t, Options{})
	target := target("b", at)
	target.Count = n
	f.apply(target)
	st, _ := f.finish(target.Labels)
	if st.Counts.Corrupt != 10 || st.Counts.Received != 30 {
		t.Errorf("%+v", st.Counts)
	}
}

// TestLossOfAnswersCostsTwoSamplesEach drops answers: with each, the follow-up that
// it carried is gone, too, and another gives way to the question of what became of
// the probe. The samples that wait for them must stay out.
func TestLossOfAnswersCostsTwoSamplesEach(t *testing.T) {
	t.Parallel()
	const n = 100
	testutil.Attempts(t, 5, func() error { // a starved reflector follows up on the last few alone
		_, at := newRelay(t, reflectOnLoopback(t), always, func(s uint32) fate { return fate{}.orPass(s, n, s%10 == 5) })
		f := newSender(t, Options{})
		target := target("b", at)
		target.Count = n
		f.apply(target)
		st, settled := f.finish(target.Labels)
		if st.Counts.Received != 90 {
			t.Fatalf("%+v", st.Counts)
		}
		var good, without uint64
		for _, p := range settled {
			if (p.State == protocol.Lost) != (p.Sequence%10 == 5) {
				t.Errorf("probe %d: state %d", p.Sequence, p.State)
			}
			switch {
			case p.State == protocol.Lost:
			case p.Verdict == delay.Good:
				good++
			case p.Verdict == delay.NoKernelStamp:
				without++
			default:
				t.Errorf("probe %d: verdict %v", p.Sequence, p.Verdict)
			}
		}
		// A reflector that was behind may have had nothing to say in an answer
		// that was lost.
		if without == 0 || good+without != 90 || st.Quarantined[delay.NoKernelStamp] != without {
			t.Errorf("%d good samples, %d without a kernel stamp, %v counted", good, without, st.Quarantined)
		}
		if without > 20 {
			return fmt.Errorf("%d samples are without a kernel stamp, two for each loss are 20", without)
		}
		return nil
	})
}

// TestForgedFollowUps sends follow-ups that cannot be true; none may become a
// sample.
func TestForgedFollowUps(t *testing.T) {
	t.Parallel()
	const n = 50
	forge := func(b []byte) []byte {
		tlvs := stamp.Unauthenticated.TLVs(b)
		tlv, _ := tlvs.Next()
		if f, ok := stamp.ParseFollowUp(tlv); ok && f.Timestamp != 0 {
			f.Timestamp += 3600 << 32 // an hour later
			f.Put(tlv)
		}
		return b
	}
	_, at := newRelay(t, reflectOnLoopback(t), always, func(uint32) fate { return fate{copies: 1, change: forge} })
	f := newSender(t, Options{})
	target := target("b", at)
	target.Count = n
	f.apply(target)
	st, settled := f.finish(target.Labels)
	if st.Counts.Received != n {
		t.Fatalf("%+v", st.Counts)
	}
	for _, p := range settled {
		if p.Verdict == delay.Good {
			t.Errorf("probe %d has an RTT of %d ns", p.Sequence, p.Stamps.RTT())
		}
	}
}

// TestTwoTargetsAtOneAddress share a socket and a reflector's address; a fault of
// one class must not show with the other.
func TestTwoTargetsAtOneAddress(t *testing.T) {
	t.Parallel()
	const n = 60
	_, at := newRelay(t, reflectOnLoopback(t), always, always)
	f := newSender(t, Options{})
	a, b := target("b", at), target("b", at)
	a.Count, b.Count, b.Labels.Probe, b.Size = n, n, "big", 800
	f.apply(a, b)
	for _, l := range []Labels{a.Labels, b.Labels} {
		if st, _ := f.finish(l); st.Counts.Received != n || st.Counts.Corrupt != 0 {
			t.Errorf("%s: %+v", l.Probe, st.Counts)
		}
	}
	if n := len(f.engine.sockets); n != 1 {
		t.Errorf("%d sockets, want 1", n)
	}
}

// TestStallIsNotLoss keeps the sender from reading until long after the deadline:
// the answers arrived in time, and the kernel's stamps prove it.
func TestStallIsNotLoss(t *testing.T) {
	t.Parallel()
	at := reflectOnLoopback(t)
	f := newSender(t, Options{})
	var targets []Target
	for i := range 20 {
		tg := target(netip.AddrFrom4([4]byte{1, 2, 3, byte(i)}).String(), at)
		tg.Interval = 20 * time.Millisecond
		targets = append(targets, tg)
	}
	f.apply(targets...)
	f.waitFor("answers", func() bool { return f.status(targets[0].Labels).Counts.Received > 5 })
	stalls := 0
	for stalls < 3 {
		var flying uint64
		if err := f.engine.loop.Do(func() {
			for _, ser := range f.engine.series {
				flying += ser.current[0].Window.InFlight()
			}
			if flying > 0 {
				time.Sleep(deadline + deadline/5)
			}
		}); err != nil {
			t.Fatal(err)
		}
		if flying > 0 {
			stalls++
		}
	}
	f.waitFor("answers after the stalls", func() bool {
		return f.status(targets[0].Labels).Counts.Received > 50
	})
	for _, tg := range targets {
		if st := f.status(tg.Labels); st.Counts.LostTotal() != 0 || st.Counts.Late != 0 {
			t.Errorf("%s: %+v", tg.Labels.Dst, st.Counts)
		}
	}
}
