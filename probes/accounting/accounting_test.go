package accounting

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// ledger is a window with its counts, and a deadline of ten ticks.
type ledger struct {
	*Window[int]
	counts *Counts
}

const deadline = 10

func newLedger() ledger {
	c := new(Counts)
	return ledger{NewWindow[int](c, 1), c}
}

func (l ledger) send(now int64) uint64 {
	slot := l.Begin(now + deadline)
	l.Handed(slot)
	return slot.Sequence
}

func (l ledger) expire(now int64, cause Cause) (n int) {
	for slot := l.Overdue(now); slot != nil; slot = l.Overdue(now) {
		l.Lose(slot, cause)
		n++
	}
	return n
}

func (l ledger) check(t *testing.T, step string) {
	t.Helper()
	c := l.counts
	if m := c.Mismatch(l.InFlight()); m != 0 {
		t.Fatalf("%s: mismatch %d, %d in flight, %+v", step, m, l.InFlight(), *c)
	}
	if c.Sent != c.Received+c.LostTotal() {
		t.Fatalf("%s: sent %d, but received %d and lost %d", step, c.Sent, c.Received, c.LostTotal())
	}
}

// TestHistories tells short stories: what happens to probes 0, 1, 2, and what
// the counters say at the end.
func TestHistories(t *testing.T) {
	type story func(t *testing.T, l ledger)
	answer := func(seq uint64, at int64, want Outcome) story {
		return func(t *testing.T, l ledger) {
			t.Helper()
			if got := l.Answer(seq, at); got != want {
				t.Errorf("answer to %d at %d: outcome %d, want %d", seq, at, got, want)
			}
		}
	}
	send := func(at int64) story { return func(_ *testing.T, l ledger) { l.send(at) } }
	refuse := func(at int64) story {
		return func(_ *testing.T, l ledger) { l.Refused(l.Begin(at + deadline)) }
	}
	expire := func(now int64, cause Cause, want int) story {
		return func(t *testing.T, l ledger) {
			t.Helper()
			if got := l.expire(now, cause); got != want {
				t.Errorf("%d expired at %d, want %d", got, now, want)
			}
		}
	}
	lost := func(cause Cause, n uint64) (out [NumCauses]uint64) { out[cause] = n; return out }
	for _, tc := range []struct {
		name  string
		story []story
		want  Counts
	}{
		{"answered", []story{send(0), answer(0, 5, Received)}, Counts{Sent: 1, Received: 1, Handed: 1}},
		{"answered at the deadline", []story{send(0), answer(0, 10, Received)}, Counts{Sent: 1, Received: 1, Handed: 1}},
		{"in flight", []story{send(0), expire(10, Unknown, 0)}, Counts{Handed: 1}},
		{"lost", []story{send(0), expire(11, LocalOverflow, 1)}, Counts{Sent: 1, Lost: lost(LocalOverflow, 1), Handed: 1}},
		{"lost once", []story{send(0), expire(11, Unknown, 1), expire(99, Unknown, 0)}, Counts{Sent: 1, Lost: lost(Unknown, 1), Handed: 1}},
		{"refused", []story{refuse(0), expire(99, Unknown, 0)}, Counts{Sent: 1, Lost: lost(SendError, 1), Refused: 1}},
		{
			"late",
			[]story{send(0), expire(11, Forward, 1), answer(0, 12, Late)},
			Counts{Sent: 1, Lost: lost(Forward, 1), Late: 1, Handed: 1},
		},
		{
			"late before anybody looked",
			[]story{send(0), answer(0, 11, Overdue), expire(99, Reverse, 0)},
			Counts{Sent: 1, Lost: lost(Unknown, 1), Late: 1, Handed: 1},
		},
		{
			"late twice",
			[]story{send(0), answer(0, 11, Overdue), answer(0, 12, Duplicate)},
			Counts{Sent: 1, Lost: lost(Unknown, 1), Late: 1, Duplicate: 1, Handed: 1},
		},
		{
			"duplicates do not offset a loss",
			[]story{send(0), send(1), answer(0, 2, Received), answer(0, 2, Duplicate), answer(0, 2, Duplicate), expire(12, Unknown, 1)},
			Counts{Sent: 2, Received: 1, Lost: lost(Unknown, 1), Duplicate: 2, Handed: 2},
		},
		{
			"reordered",
			[]story{send(0), send(1), send(2), answer(2, 5, Received), answer(0, 6, Received), answer(1, 7, Received)},
			Counts{Sent: 3, Received: 3, Reordered: 2, Handed: 3},
		},
		{
			"a duplicate after a later probe is not reordered",
			[]story{send(0), send(1), answer(0, 5, Received), answer(1, 6, Received), answer(0, 7, Duplicate)},
			Counts{Sent: 2, Received: 2, Duplicate: 1, Handed: 2},
		},
		{
			"a late answer is not reordered",
			[]story{send(0), send(9), expire(11, Unknown, 1), answer(1, 12, Received), answer(0, 13, Late)},
			Counts{Sent: 2, Received: 1, Lost: lost(Unknown, 1), Late: 1, Handed: 2},
		},
		{"never sent", []story{send(0), answer(1, 1, Invalid), answer(1<<40, 1, Invalid)}, Counts{Handed: 1}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := newLedger()
			for i, step := range tc.story {
				step(t, l)
				l.check(t, fmt.Sprintf("step %d", i))
			}
			if diff := cmp.Diff(tc.want, *l.counts); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestUncountedProbesLeaveNoTrace(t *testing.T) {
	l := newLedger()
	slot := l.BeginUncounted()
	if got := l.Answer(slot.Sequence, 5); got != Uncounted {
		t.Errorf("outcome %d", got)
	}
	l.expire(1<<60, Unknown)
	if *l.counts != (Counts{}) || l.InFlight() != 0 {
		t.Errorf("%+v, %d in flight", *l.counts, l.InFlight())
	}
	if l.send(0) != 1 {
		t.Error("the sequence number was not used up")
	}
}

func TestExpand(t *testing.T) {
	l := newLedger()
	l.next = 5
	for low, want := range map[uint32]uint64{0: 0, 4: 4} {
		if got, ok := l.Expand(low); !ok || got != want {
			t.Errorf("%d: got %d, %v", low, got, ok)
		}
	}
	for _, low := range []uint32{5, 6, 1 << 31, 1<<32 - 1} {
		if got, ok := l.Expand(low); ok {
			t.Errorf("%d was expanded to %d, but was never sent", low, got)
		}
	}
	l.next = 1<<32 + 3 // after the wrap
	for low, want := range map[uint32]uint64{2: 1<<32 + 2, 0: 1 << 32, 1<<32 - 1: 1<<32 - 1, 1<<31 + 10: 1<<31 + 10} {
		if got, ok := l.Expand(low); !ok || got != want {
			t.Errorf("after the wrap %d: got %d, %v; want %d", low, got, ok, want)
		}
	}
	if got, ok := l.Expand(3); ok {
		t.Errorf("after the wrap 3 was expanded to %d", got)
	}
}

func TestOldAnswersAreLateNotForgiven(t *testing.T) {
	l := newLedger()
	for now := range int64(3 * MinCapacity) {
		l.send(now)
		l.expire(now, Unknown)
	}
	if got := l.Answer(0, 1000); got != Forgotten {
		t.Errorf("outcome %d", got)
	}
	if l.counts.Late != 1 || l.counts.Received != 0 || l.Lookup(0) != nil {
		t.Errorf("%+v", *l.counts)
	}
	l.check(t, "end")
}

// TestFullWindow sends more probes than fit without ever looking at deadlines.
func TestFullWindow(t *testing.T) {
	l := newLedger()
	for range MinCapacity + 10 {
		l.send(0)
		l.check(t, "send")
	}
	if l.InFlight() != MinCapacity || l.counts.Lost[Unknown] != 10 {
		t.Errorf("%d in flight, %+v", l.InFlight(), *l.counts)
	}
	if n := l.expire(100, Unknown); n != MinCapacity {
		t.Errorf("%d expired", n)
	}
	if _, ok := l.Deadline(); ok {
		t.Error("there is a deadline and nothing in flight")
	}
	l.check(t, "end")
}

func TestCapacityIsAtLeastWhatWasAsked(t *testing.T) {
	for _, n := range []int{0, 1, 64, 65, 1000, 65536} {
		if got := len(NewWindow[int](new(Counts), n).slots); got < n || got > max(2*n, MinCapacity) {
			t.Errorf("%d: %d slots", n, got)
		}
	}
}

// model is the same ledger written the simple way: it forgets nothing.
type model struct {
	probes   map[uint64]string
	due      map[uint64]int64
	counts   Counts
	highest  int64
	capacity uint64
	next     uint64
}

func (m *model) answer(seq uint64, at int64) {
	if seq >= m.next {
		return
	}
	if m.next-seq > m.capacity {
		m.counts.Late++
		return
	}
	switch m.probes[seq] {
	case "flying":
		if at > m.due[seq] {
			m.probes[seq] = "late"
			m.counts.Sent++
			m.counts.Lost[Unknown]++
			m.counts.Late++
			return
		}
		m.probes[seq] = "received"
		m.counts.Sent++
		m.counts.Received++
		if int64(seq) < m.highest {
			m.counts.Reordered++
		}
		m.highest = max(m.highest, int64(seq))
	case "lost":
		m.probes[seq] = "late"
		m.counts.Late++
	default:
		m.counts.Duplicate++
	}
}

func (m *model) expire(now int64, cause Cause) {
	for seq, s := range m.probes {
		if s == "flying" && m.due[seq] < now {
			m.probes[seq] = "lost"
			m.counts.Sent++
			m.counts.Lost[cause]++
		}
	}
}

// TestRandomHistories plays long random histories on the window and the model.
func TestRandomHistories(t *testing.T) {
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 7))
		l := newLedger()
		m := &model{probes: map[uint64]string{}, due: map[uint64]int64{}, highest: -1, capacity: uint64(len(l.slots))}
		var now int64
		for step := range 500 {
			now += rng.Int64N(3)
			switch rng.IntN(6) {
			case 0, 1:
				seq := l.send(now)
				m.probes[seq], m.due[seq], m.next = "flying", now+deadline, seq+1
				m.counts.Handed++
			case 2:
				l.Refused(l.Begin(now + deadline))
				m.probes[m.next] = "lost"
				m.counts.Refused++
				m.counts.Sent++
				m.counts.Lost[SendError]++
				m.next++
			case 3, 4:
				seq := uint64(max(0, int64(m.next)-rng.Int64N(90)))
				l.Answer(seq, now)
				m.answer(seq, now)
			case 5:
				cause := Cause(rng.IntN(NumCauses))
				l.expire(now, cause)
				m.expire(now, cause)
			}
			// In ten ticks at most 30 probes leave, so none is overwritten in flight.
			l.expire(now, Unknown)
			m.expire(now, Unknown)
			l.check(t, fmt.Sprintf("seed %d, step %d", seed, step))
			if diff := cmp.Diff(m.counts, *l.counts); diff != "" {
				t.Fatalf("seed %d, step %d (-model +window):\n%s", seed, step, diff)
			}
		}
	}
}

func TestMismatchSeesEveryMistake(t *testing.T) {
	good := Counts{Handed: 10, Refused: 2, Sent: 9, Received: 6, Lost: [NumCauses]uint64{SendError: 2, Unknown: 1}}
	if m := good.Mismatch(3); m != 0 {
		t.Fatalf("mismatch %d", m)
	}
	for name, spoil := range map[string]func(*Counts){
		"an answer counted twice":   func(c *Counts) { c.Received++ },
		"a loss counted twice":      func(c *Counts) { c.Lost[Reverse]++ },
		"a probe never settled":     func(c *Counts) { c.Handed++ },
		"a refusal without a loss":  func(c *Counts) { c.Refused++ },
		"an answer that went amiss": func(c *Counts) { c.Received-- },
	} {
		c := good
		spoil(&c)
		if c.Mismatch(3) == 0 {
			t.Errorf("%s goes unnoticed", name)
		}
	}
	if good.Mismatch(2) == 0 || good.Mismatch(4) == 0 {
		t.Error("a wrong number in flight goes unnoticed")
	}
}

func TestCauseNames(t *testing.T) {
	seen := map[string]bool{}
	for c := range Cause(NumCauses) {
		if seen[c.String()] || c.String() == "" {
			t.Errorf("cause %d is called %q", c, c)
		}
		seen[c.String()] = true
	}
	if SendError.String() != "send_error" || Unknown.String() != "unknown" {
		t.Error("names and constants are out of step")
	}
}

func TestWindowDoesNotAllocate(t *testing.T) {
	l := newLedger()
	var now int64
	allocs := testing.AllocsPerRun(1000, func() {
		now++
		l.Answer(l.send(now), now)
		l.send(now)
		l.expire(now, Unknown)
		l.InFlight()
	})
	if allocs != 0 {
		t.Errorf("%v allocations per step, want 0", allocs)
	}
}

// TestWhatIsLostInTheNetwork: neither at our own socket nor at the reflector's.
func TestWhatIsLostInTheNetwork(t *testing.T) {
	var network []Cause
	for c := range Cause(NumCauses) {
		if c.InNetwork() {
			network = append(network, c)
		}
	}
	if diff := cmp.Diff([]Cause{Forward, Reverse, Unknown}, network); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
