package stamp

import (
	"testing"
	"time"

	"vigia/probes/accounting"
	"vigia/probes/protocol"
	wire "vigia/probes/stamp"
)

// story is a session whose answers a test makes up.
type story struct {
	*lossEvidence
	t *testing.T
	w *protocol.Window
}

// newStory sends so many probes of a size.
func newStory(t *testing.T, size, probes int, interval time.Duration) *story {
	t.Helper()
	s := newBench(t).session(reflectorAt, size, interval, "")
	st := &story{lossEvidence: &s.State.(*session).evidence, t: t, w: s.Window}
	for range probes {
		slot := s.Window.Begin(int64(time.Second))
		slot.Value.Sequence = slot.Sequence
	}
	return st
}

// answers takes answers without TLVs: pairs of our number and the reflector's.
func (s *story) answers(pairs ...[2]int) {
	for _, p := range pairs {
		s.take(p[0], p[1], nil)
	}
}

func (s *story) take(sequence, number int, window *wire.ReceivedWindow) {
	var t tlvAnswers
	if window != nil {
		t.window, t.hasWindow = *window, true
	}
	if slot := s.w.Lookup(uint64(sequence)); slot != nil && slot.Value.State == protocol.InFlight {
		slot.Value.State = protocol.Waiting
		s.w.Answer(uint64(sequence), 0)
	}
	s.learn(uint64(sequence), uint32(number), &t, false)
}

// expect demands where probes are.
func (s *story) expect(want map[int]protocol.Delivery) {
	s.t.Helper()
	for sequence, where := range want {
		if got := s.delivery(s.w.Lookup(uint64(sequence))); got != where {
			s.t.Errorf("probe %d: %d, want %d", sequence, got, where)
		}
	}
}

const (
	notKnown   = protocol.DeliveryUnknown
	arrived    = protocol.Delivered
	notArrived = protocol.NotDelivered
)

// TestNumbers tells stories of a reflector that has numbers alone. Two losses on the way
// there come first in each: from then on its numbers differ from ours.
func TestNumbers(t *testing.T) {
	type pairs = [][2]int
	for _, tc := range []struct {
		name    string
		answers pairs
		want    map[int]protocol.Delivery
	}{
		{"lost there", pairs{{0, 0}, {3, 1}, {4, 2}}, map[int]protocol.Delivery{1: notArrived, 2: notArrived}},
		{"lost on the way back", pairs{{0, 0}, {3, 1}, {4, 2}, {6, 4}}, map[int]protocol.Delivery{5: arrived, 1: notArrived}},
		{"some of both", pairs{{0, 0}, {3, 1}, {4, 2}, {7, 4}}, map[int]protocol.Delivery{5: notKnown, 6: notKnown}},
		{"nothing came after", pairs{{0, 0}, {3, 1}, {4, 2}}, map[int]protocol.Delivery{5: notKnown}},
		// 5 to 8 are lost there and the answer to 9 is overtaken by three others.
		{
			"an answer is overtaken",
			pairs{{0, 0}, {3, 1}, {4, 2}, {10, 4}, {11, 5}, {12, 6}},
			map[int]protocol.Delivery{5: notKnown, 6: notKnown, 7: notKnown, 8: notKnown, 9: notKnown},
		},
		{
			"and comes",
			pairs{{0, 0}, {3, 1}, {4, 2}, {10, 4}, {11, 5}, {12, 6}, {9, 3}},
			map[int]protocol.Delivery{5: notArrived, 6: notArrived, 7: notArrived, 8: notArrived},
		},
		// 6 overtakes 5 on the way there and the answer to 5 is lost: between 6 and 7
		// there is a number that no probe explains.
		{"a probe is overtaken", pairs{{0, 0}, {3, 1}, {4, 2}, {6, 3}, {7, 5}}, map[int]protocol.Delivery{5: notKnown}},
		// 4 arrives twice, and one of the two answers is lost, like 6.
		{"a second answer", pairs{{0, 0}, {3, 1}, {3, 2}, {4, 3}, {5, 4}, {7, 6}, {8, 7}}, map[int]protocol.Delivery{6: notKnown}},
		{"the first are lost there", pairs{{2, 0}, {3, 1}}, map[int]protocol.Delivery{0: notArrived, 1: notArrived}},
		{"the first are lost on the way back", pairs{{2, 2}, {3, 3}, {5, 4}, {6, 5}}, map[int]protocol.Delivery{0: notKnown, 1: notKnown}},
		// After 4 the reflector begins anew: what it answered in between is not known.
		{"a restart", pairs{{0, 0}, {3, 1}, {4, 2}, {9, 0}, {10, 1}, {12, 2}, {13, 3}}, map[int]protocol.Delivery{5: notKnown, 8: notKnown, 11: notArrived}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newStory(t, 44, 14, 10*time.Millisecond)
			s.answers(tc.answers...)
			s.expect(tc.want)
		})
	}
}

// TestCopiesOfOurNumbers are those of a stateless reflector, which knows nothing, and may
// be damaged once.
func TestCopiesOfOurNumbers(t *testing.T) {
	s := newStory(t, 44, 10, 10*time.Millisecond)
	s.answers([2]int{0, 0}, [2]int{1, 1}, [2]int{3, 3}, [2]int{4, 77}, [2]int{5, 5})
	s.expect(map[int]protocol.Delivery{2: notKnown})
}

// TestDisorderedPathsNeedMoreEvidence: once probes were seen to be overtaken, the numbers
// of more answers around a loss must agree.
func TestDisorderedPathsNeedMoreEvidence(t *testing.T) {
	s := newStory(t, 44, 20, 10*time.Millisecond)
	s.answers([2]int{0, 0}, [2]int{2, 1}, [2]int{1, 2}, [2]int{3, 3}, [2]int{4, 4}, [2]int{6, 5}, [2]int{7, 6})
	s.expect(map[int]protocol.Delivery{5: notKnown}) // 8 may still show that it was overtaken
	s.answers([2]int{8, 7})
	s.expect(map[int]protocol.Delivery{5: notArrived})
	s.answers([2]int{9, 8}, [2]int{10, 9}, [2]int{11, 10}, [2]int{13, 12}, [2]int{14, 13}, [2]int{15, 14})
	s.expect(map[int]protocol.Delivery{12: notKnown}) // its number may be that of 16 or 17
	s.answers([2]int{16, 15}, [2]int{17, 16})
	s.expect(map[int]protocol.Delivery{12: arrived})
}

// TestLongOutages are longer than a received window: the numbers tell of what is too old
// for it, and not when answers were refused, which use up numbers as well.
func TestLongOutages(t *testing.T) {
	const from, to = 10, 130
	for _, tc := range []struct {
		name    string
		number  int // of the first answer after the outage
		refused bool
		mask    uint64
		want    map[int]protocol.Delivery
	}{
		{"forward", from, false, 0b1111, map[int]protocol.Delivery{from: notArrived, to - 30: notArrived, to - 1: notArrived}},
		{"reverse", to, false, ^uint64(0), map[int]protocol.Delivery{from: arrived, to - 30: arrived, to - 1: arrived}},
		{"refused", to, true, ^uint64(0), map[int]protocol.Delivery{from: notKnown, to - 1: arrived}},
		{"some of each", to - 40, false, ^uint64(0), map[int]protocol.Delivery{from: notKnown, to - 1: arrived}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newStory(t, 84, 140, 10*time.Millisecond)
			for i := range from {
				s.take(i, i, &wire.ReceivedWindow{Highest: uint32(i), Mask: 1<<(i+1) - 1})
			}
			s.refused = tc.refused
			for i := range 4 {
				s.take(to+i, tc.number+i, &wire.ReceivedWindow{Highest: uint32(to + i), Mask: tc.mask >> (3 - i)})
			}
			s.expect(tc.want)
		})
	}
}

// TestWindowsNewestWins: an older window comes late and says less.
func TestWindowsNewestWins(t *testing.T) {
	s := newStory(t, 84, 20, 10*time.Millisecond)
	s.take(0, 0, &wire.ReceivedWindow{Highest: 0, Mask: 1})
	s.take(6, 3, &wire.ReceivedWindow{Highest: 6, Mask: 0b1110101}) // 3 and 5 have not arrived yet
	s.expect(map[int]protocol.Delivery{1: arrived, 2: arrived, 3: notArrived, 4: arrived, 5: notKnown})
	s.take(4, 2, &wire.ReceivedWindow{Highest: 4, Mask: 0b10001}) // and of before: 1 and 2 were not there
	s.expect(map[int]protocol.Delivery{1: arrived, 2: arrived, 3: notArrived})
	s.take(8, 5, &wire.ReceivedWindow{Highest: 8, Mask: 0b111011101})
	s.expect(map[int]protocol.Delivery{3: notArrived, 5: arrived})
}

// TestRefusedAnswers: a mark that is gone again is an answer that the reflector's kernel
// refused, and the reflector owns up to it.
func TestRefusedAnswers(t *testing.T) {
	s := newStory(t, 84, 20, 10*time.Millisecond)
	s.take(0, 0, &wire.ReceivedWindow{Highest: 0, Mask: 1})
	s.take(2, 2, &wire.ReceivedWindow{Highest: 2, Mask: 0b111})
	s.expect(map[int]protocol.Delivery{1: arrived})
	s.take(3, 3, &wire.ReceivedWindow{Highest: 3, Mask: 0b1011, Overflowed: 1})
	s.expect(map[int]protocol.Delivery{1: notArrived})
	if !s.overflow.takeCredit(1) || s.overflow.takeCredit(1) {
		t.Error("one refused answer explains one loss")
	}
}

// TestCountersOfOthers: a reflector may count other traffic; those of the session alone say
// that answers were refused.
func TestCountersOfOthers(t *testing.T) {
	for _, tc := range []struct {
		m    wire.DirectMeasurement
		want bool
	}{
		{wire.DirectMeasurement{ReflectorRX: 8, ReflectorTX: 8}, false},
		{wire.DirectMeasurement{ReflectorRX: 8, ReflectorTX: 7}, true},
		{wire.DirectMeasurement{ReflectorRX: 80_000, ReflectorTX: 50_000}, false},
	} {
		var e lossEvidence
		e.learnState(7, 7, &tlvAnswers{measurement: tc.m, hasMeasurement: true})
		if e.refused != tc.want {
			t.Errorf("%+v: %v", tc.m, e.refused)
		}
	}
}

// TestAskingForTheWindow: when later answers have overtaken a probe, one packet asks, and
// the next only when that one was lost, too.
func TestAskingForTheWindow(t *testing.T) {
	for _, tc := range []struct {
		name     string
		interval time.Duration
		ending   bool
		after    int // answers to later probes
	}{
		{"fast", 10 * time.Millisecond, false, 3},
		{"at the end", 10 * time.Millisecond, true, 2},
		{"slow", time.Second, false, 1},
	} {
		s := newStory(t, 64, 20, tc.interval)
		for i := range tc.after {
			if s.takeAsk(99) {
				t.Errorf("%s: asks after %d answers", tc.name, i)
			}
			s.w.Answer(uint64(i+1), 0)
			s.learn(uint64(i+1), uint32(i), &tlvAnswers{}, tc.ending)
		}
		if !s.takeAsk(10) || s.takeAsk(11) {
			t.Errorf("%s: does not ask once after %d answers", tc.name, tc.after)
		}
		s.learn(9, 9, &tlvAnswers{}, tc.ending)
		if s.takeAsk(12) {
			t.Errorf("%s: asks before the answer to the question can have come", tc.name)
		}
		s.learn(11, 10, &tlvAnswers{}, tc.ending)
		if !s.takeAsk(13) {
			t.Errorf("%s: does not ask again after the question was lost", tc.name)
		}
	}
}

// TestOverflowCredit is for the losses up to when the reflector owned up, and each once.
func TestOverflowCredit(t *testing.T) {
	var o overflow
	o.update(2, 10)
	if !o.takeCredit(5) || !o.takeCredit(9) || o.takeCredit(10) {
		t.Error("two overflows explain two losses")
	}
	o.update(5, 20)
	if o.takeCredit(21) || o.takeCredit(15) {
		t.Error("a loss after the report used up what was reported before")
	}
	o.update(1, 30) // it has begun anew
	if o.takeCredit(25) {
		t.Error("a counter that fell explains a loss")
	}
	o.update(2, 40)
	if !o.takeCredit(35) {
		t.Error("an overflow after the restart explains nothing")
	}
}

// TestLocatingIsCheap: a loss in a long run of losses does not look through the whole run
// again.
func TestLocatingIsCheap(t *testing.T) {
	const run = 30_000
	s := &protocol.Session{Size: 44, Interval: time.Millisecond, Deadline: time.Second}
	s.Window = accounting.NewWindow[protocol.Probe](new(accounting.Counts), run+100)
	e := newLossEvidence(s, false)
	for range run + 20 {
		s.Window.Begin(1)
	}
	for i := range uint64(10) {
		e.note(i, uint32(i))
	}
	for i := range uint64(10) {
		e.note(run+10+i, uint32(10+i))
	}
	e.stateful = true
	looked := 0
	for sequence := uint64(10); sequence < run+10; sequence++ {
		before := e.verdict
		if e.delivery(s.Window.Lookup(sequence)) != protocol.NotDelivered {
			t.Fatalf("probe %d", sequence)
		}
		if e.verdict != before {
			looked++
		}
	}
	if looked > 10 {
		t.Errorf("the answers around were compared %d times for one run", looked)
	}
}
