package stamp

import (
	"vigia/probes/accounting"
	"vigia/probes/protocol"
	wire "vigia/probes/stamp"
)

// verdict is what the numbers said of all probes between two answers, while no further
// answer has come.
type verdict struct {
	first, last uint64 // of the probes that it holds for
	count       uint64 // run.count
	where       protocol.Delivery
}

// bracket is what lies between two answered probes, of which one was sent before and one
// after the probe in question.
type bracket struct {
	before, after uint64 // sequence numbers; before is meaningless when fromStart
	low, high     uint32 // the reflector's numbers of their answers
	fromStart     bool   // before is the beginning of the session, low one less than 0
}

// compareNumbers says how far an unanswered probe came, by the numbers of the answers
// around it.
func (e *lossEvidence) compareNumbers(sequence uint64) protocol.Delivery {
	if v := &e.verdict; v.count == e.epoch.count && sequence >= v.first && sequence <= v.last && v.count > 0 {
		return v.where
	}
	reach := uint64(1)
	if e.windows.any || e.disordered || e.duplicated {
		reach = e.reorderLimit
	}
	s, ok := e.bracketOf(sequence, reach)
	if !ok {
		return protocol.DeliveryUnknown
	}
	where := protocol.DeliveryUnknown
	if reach > 1 || e.inOrder(&s) {
		where = e.compare(&s, reach)
	}
	first := s.before + reach
	if s.fromStart {
		first = 0
	}
	e.verdict = verdict{first: first, last: s.after - reach, count: e.epoch.count, where: where}
	return where
}

// bracketOf finds the nearest answered probes of this run that are at least reach away.
func (e *lossEvidence) bracketOf(sequence, reach uint64) (s bracket, ok bool) {
	w := e.session.Window
	for s.after = sequence + reach; ; s.after++ {
		if s.after > e.epoch.latest {
			return s, false
		}
		if number, answered := e.numberOf(s.after); answered {
			s.high = number
			break
		}
	}
	oldest := max(w.Remembered(), e.epoch.since)
	for before := sequence - min(sequence, reach) + 1; before > oldest; before-- {
		if number, answered := e.numberOf(before - 1); answered && sequence >= reach {
			s.before, s.low = before-1, number
			return s, s.countable(e)
		}
	}
	s.fromStart, s.low = true, ^uint32(0)
	return s, oldest == 0 && s.countable(e)
}

// numberOf returns the reflector's number of the answer to a probe, if there was one.
func (e *lossEvidence) numberOf(sequence uint64) (number uint32, answered bool) {
	slot := e.session.Window.Lookup(sequence)
	if slot == nil || !slot.Value.Numbered {
		return 0, false
	}
	return slot.Value.Number, true
}

// countable reports whether the numbers in between can be counted: they rise, and all that
// have come are remembered.
func (s *bracket) countable(e *lossEvidence) bool {
	return int32(s.high-s.low) > 0 && int64(e.epoch.top-s.low) <= int64(len(e.numbers))
}

// inOrder reports whether the numbers around show nothing against the probes having
// arrived in order and once: nowhere more numbers than probes.
func (e *lossEvidence) inOrder(s *bracket) bool {
	first := s.before - min(s.before, e.reorderLimit)
	last, number, any := uint64(0), uint32(0), false
	for sequence := max(first, e.epoch.since); sequence <= min(s.after+e.reorderLimit, e.epoch.latest); sequence++ {
		if !s.fromStart && sequence == s.before+1 {
			sequence = s.after // nothing in between was answered
		}
		n, answered := e.numberOf(sequence)
		if !answered {
			continue
		}
		if any && int64(int32(n-number)) > int64(sequence-last) {
			e.disordered = true
			return false
		}
		last, number, any = sequence, n, true
	}
	return true
}

// compare compares the numbers that are missing with the probes that nobody answered.
func (e *lossEvidence) compare(s *bracket, reach uint64) protocol.Delivery {
	missing := uint64(0)
	for number := s.low + 1; number != s.high; number++ {
		if !e.seen(number) {
			missing++
		}
	}
	if missing == 0 {
		return protocol.NotDelivered
	}
	// Who is to be found among the missing: the probes in between, and those nearby
	// that may have come before or after.
	unanswered := uint64(0)
	first := s.before - min(s.before, reach-1)
	for sequence := first; sequence < min(s.after+reach, e.session.Window.Next()); sequence++ {
		slot := e.session.Window.Lookup(sequence)
		if slot == nil || !slot.Value.Numbered && !neverSent(slot) {
			unanswered++
		}
	}
	switch {
	case missing > unanswered:
		e.disordered = true // a number that no probe explains
	case missing < unanswered || s.fromStart || e.refused || e.overflow.credit > 0:
	case e.duplicated, e.windows.any && !e.canAsk && missing <= wire.WindowBits:
		// A second answer to another probe may be among them; where every answer has
		// a window, that would have shown it.
	default:
		return protocol.Delivered
	}
	return protocol.DeliveryUnknown
}

// neverSent reports whether a probe has never left our host.
func neverSent(slot *protocol.Slot) bool {
	return slot.Value.State == protocol.Lost && slot.Value.Cause == accounting.SendError
}
