package accounting

import (
	"math/rand/v2"
	"testing"
)

// TestWhatAWindowRemembers follows the ring through several turns: which probes are
// known, which slot is next, and which probe has been in flight longest.
func TestWhatAWindowRemembers(t *testing.T) {
	var counts Counts
	w := NewWindow[uint64](nil, 100)
	w.Adopt(&counts)
	if w.Capacity() != 128 || w.Next() != 0 || w.Remembered() != 0 || w.Oldest() != nil || w.Recycled() != nil {
		t.Fatalf("new: %d, %d, %d, %v, %v", w.Capacity(), w.Next(), w.Remembered(), w.Oldest(), w.Recycled())
	}
	chance := rand.New(rand.NewPCG(7, 3))
	flying := make(map[uint64]bool)
	oldest := func() (first uint64, any bool) {
		for s := range flying {
			if !any || s < first {
				first, any = s, true
			}
		}
		return first, any
	}
	for n := range uint64(1000) {
		recycled := w.Recycled()
		if (recycled != nil) != (n >= 128) || recycled != nil && (recycled.Sequence != n-128 || recycled.Value != n-128) {
			t.Fatalf("probe %d takes the slot of %+v", n, recycled)
		}
		slot := w.Begin(int64(n) + 50)
		slot.Value = n
		w.Handed(slot)
		flying[n] = true
		delete(flying, n-128) // what has lost its slot is lost
		for range chance.IntN(3) {
			s := n - min(n, chance.Uint64N(160))
			outcome := w.Answer(s, 0)
			if known := n-s < 128; (outcome == Received) != flying[s] || (outcome == Forgotten) == known {
				t.Fatalf("answer to %d after %d: %v, in flight: %t", s, n, outcome, flying[s])
			}
			delete(flying, s)
		}
		first, any := oldest()
		if got := w.Oldest(); (got != nil) != any || any && got.Sequence != first {
			t.Fatalf("after %d the oldest is %+v, want %d, %t", n, got, first, any)
		}
		if at, ok := w.Deadline(); ok != any || any && at != int64(first)+50 {
			t.Fatalf("after %d the next deadline is %d, want that of %d", n, at, first)
		}
		if w.InFlight() != uint64(len(flying)) || w.Remembered() != n+1-min(n+1, 128) {
			t.Fatalf("%d in flight, want %d; from %d on", w.InFlight(), len(flying), w.Remembered())
		}
		if m := counts.Mismatch(w.InFlight()); m != 0 {
			t.Fatalf("mismatch %d: %+v", m, counts)
		}
	}
}

// TestAProbeIsLostOnce, and none that was answered or never counted.
func TestAProbeIsLostOnce(t *testing.T) {
	l := newLedger()
	lost, answered, beside := l.send(0), l.send(0), l.BeginUncounted()
	l.Answer(answered, 1)
	for _, tc := range []struct {
		slot *Slot[int]
		want bool
	}{{l.Lookup(lost), true}, {l.Lookup(lost), false}, {l.Lookup(answered), false}, {beside, false}} {
		if got := l.Lose(tc.slot, Reverse); got != tc.want {
			t.Errorf("probe %d: lost is %t, want %t", tc.slot.Sequence, got, tc.want)
		}
	}
	if l.counts.Lost[Reverse] != 1 || l.counts.Sent != 2 {
		t.Errorf("%+v", *l.counts)
	}
	l.check(t, "end")
}
