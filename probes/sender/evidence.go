package sender

import (
	"time"

	"vigia/probes/accounting"
	"vigia/probes/stamp"
)

// evidence says how far an unanswered probe came.
type evidence uint8

const (
	nothing evidence = iota
	reached          // the reflector has answered it
	missed           // it has not arrived at the reflector
)

// ways is what a session knows of the two ways from the reflector's counters.
//
// Three sources tell them apart, the later ones better: a stateful reflector's
// sequence number counts its answers, so the numbers of two answers tell how many
// of the probes between them were answered (RFC 8762 section 4.3); the Direct
// Measurement TLV has the same count where answers were refused in between; the
// Received Window TLV, which is ours, names the last 64 probes that arrived.
type ways struct {
	stateful bool // the reflector's numbers are its own, not copies of ours
	any      bool
	sequence uint64 // the highest that was answered
	answers  uint32 // the reflector's count with it

	overflowed uint32 // as last reported
	credit     uint32 // of that, not attributed to a loss yet
	creditUpTo uint64 // the credit is for probes up to this
	asking     bool   // the next probe shall ask for the received window
	asked      uint64 // sequence number of the last that did
}

const (
	// persistent is how many answers must overtake a probe before it is asked
	// after, so that mere reordering costs nothing.
	persistent = 3
	// slow is from which interval on one answer is enough.
	slow = 100 * time.Millisecond

	// graceSlack is the time for the next answer to come, maxGrace the longest
	// time that a loss may be held back for it.
	graceSlack = 100 * time.Millisecond
	maxGrace   = 5 * time.Second
)

// grace returns how long after its deadline an unanswered probe waits for evidence
// of where it was lost: until the answer of the next probe, if that takes longer
// than the deadline.
func (t *Target) grace() int64 {
	g := t.Interval + min(graceSlack, t.Deadline) - t.Deadline
	if g <= 0 || g > maxGrace {
		return 0
	}
	return int64(g)
}

// hopeful reports whether an overdue probe should wait for evidence.
func (e *engine) hopeful(s *session, slot *slot, now int64) bool {
	return slot.Value.evidence == nothing && now <= slot.Deadline+s.grace && s.grace > 0 &&
		s.socket != nil && !s.retired && !s.done()
}

// cause says why a probe was lost.
func (e *engine) cause(s *session, slot *slot) accounting.Cause {
	if slot.Value.evidence == missed {
		if s.ways.spend(slot.Sequence) {
			return accounting.ReflectorOverflow
		}
		return accounting.Forward
	}
	if s.socket != nil && s.socket.drops.take(slot.Value.drops) {
		return accounting.LocalOverflow
	}
	if slot.Value.evidence == reached {
		return accounting.Reverse
	}
	return accounting.Unknown
}

// spend attributes a loss to the reflector's host, if it owned up to one by then.
func (w *ways) spend(sequence uint64) bool {
	if sequence > w.creditUpTo {
		w.credit = 0
	}
	if w.credit == 0 {
		return false
	}
	w.credit--
	return true
}

// learn takes what an answer tells about the probes before it.
func (s *session) learn(sequence uint64, r *stamp.Reply, t *told) {
	w := &s.ways
	answers := r.Sequence
	if t.hasMeasurement {
		answers = t.measurement.ReflectorTX
	}
	if t.hasWindow || t.hasMeasurement || t.followUp.Timestamp != 0 || r.Sequence != uint32(sequence) {
		w.stateful = true
	}
	if t.hasWindow {
		s.learnWindow(&t.window)
	}
	switch {
	case w.any && w.stateful && sequence > w.sequence+1:
		s.bracket(w.sequence+1, sequence, answers-w.answers-1)
	case !w.any && r.Sequence == 0:
		s.bracket(0, sequence, 0) // the reflector's first answer
	}
	if !w.any || sequence > w.sequence || sequence == w.sequence && int32(answers-w.answers) > 0 {
		w.any, w.sequence, w.answers = true, sequence, answers
	}
	s.wonder(sequence)
}

// bracket marks the probes in flight from first to before last, of which the
// reflector has answered so many. Which of them it was does not show when it was
// some; then the oldest are taken to be the answered ones, and the numbers are
// right all the same.
func (s *session) bracket(first, last uint64, answered uint32) {
	if answered > 1<<31 {
		return // counted from the start again
	}
	first = max(first, s.window.Remembered())
	for sequence := first; sequence < last && answered > 0; sequence++ {
		if slot := s.window.Lookup(sequence); slot != nil && slot.Value.answeredFor() {
			answered--
		}
	}
	for sequence := first; sequence < last; sequence++ {
		slot := s.window.Lookup(sequence)
		if slot == nil || slot.Value.State != InFlight || slot.Value.judged {
			continue
		}
		if answered > 0 {
			slot.Value.evidence = reached
			answered--
		} else {
			slot.Value.evidence = missed
		}
	}
}

// answeredFor reports whether it is certain that the reflector has answered the
// probe.
func (p *Probe) answeredFor() bool {
	return p.State == Waiting || p.State == Answered || p.State == InFlight && p.judged && p.evidence == reached
}

// learnWindow takes the reflector's received window.
func (s *session) learnWindow(w *stamp.ReceivedWindow) {
	highest, ok := s.window.Expand(w.Highest)
	if !ok {
		return
	}
	if more := w.Overflowed - s.ways.overflowed; int32(more) > 0 {
		s.ways.credit += more
		s.ways.creditUpTo = highest
	} else if more != 0 {
		s.ways.credit = 0 // the reflector began anew
	}
	s.ways.overflowed = w.Overflowed
	oldest := s.window.Oldest()
	if oldest == nil {
		return
	}
	for sequence := max(oldest.Sequence, highest-min(highest, stamp.WindowBits-1)); sequence <= highest; sequence++ {
		slot := s.window.Lookup(sequence)
		switch {
		case slot == nil || slot.Value.State != InFlight:
		case w.Mask>>(highest-sequence)&1 != 0:
			slot.Value.evidence, slot.Value.judged = reached, true
		default:
			slot.Value.evidence, slot.Value.judged = missed, true
		}
	}
}

// wonder lets the next probe ask for the received window when probes are missing
// and there is no room to ask with every one.
func (s *session) wonder(sequence uint64) {
	if !s.layout.CanAsk() || sequence < s.ways.asked {
		return
	}
	oldest := s.window.Oldest()
	if oldest == nil {
		return
	}
	overtaken := uint64(persistent)
	if s.target.Interval >= slow || s.done() {
		overtaken = 1
	}
	for at := max(oldest.Sequence, sequence-min(sequence, stamp.WindowBits-1)); at+overtaken <= sequence; at++ {
		if slot := s.window.Lookup(at); slot != nil && slot.Value.State == InFlight && !slot.Value.judged {
			s.ways.asking = true
			return
		}
	}
}

// ask lets the probe ask for the received window, if it shall.
func (s *session) ask(p *Probe) {
	if s.ways.asking {
		s.layout.Ask(s.packet, true)
		s.ways.asking, s.ways.asked = false, p.Sequence
		return
	}
	if s.layout.CanAsk() {
		s.layout.Ask(s.packet, false)
	}
}

// endRuns follows the run of losses up to the first probe that is in flight.
func (s *session) endRuns() {
	s.runs = max(s.runs, s.window.Remembered())
	for ; s.runs < s.window.Next(); s.runs++ {
		slot := s.window.Lookup(s.runs)
		if slot == nil {
			continue
		}
		switch p := &slot.Value; p.State {
		case InFlight:
			return
		case Lost:
			if p.Cause != accounting.SendError && p.Cause != accounting.LocalOverflow {
				s.run++
			}
		case Waiting, Answered:
			s.endRun()
		}
	}
}

func (s *session) endRun() {
	if s.run > 0 {
		s.series.recorder.Burst(s.run)
		s.run = 0
	}
}
