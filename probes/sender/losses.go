package sender

import (
	"time"

	"vigia/probes/accounting"
	"vigia/probes/protocol"
)

const (
	// graceSlack is the time for the next answer to come, maxGrace the longest
	// time that a loss may be held back for it.
	graceSlack = 100 * time.Millisecond
	maxGrace   = 5 * time.Second
)

// grace returns how long after its deadline an unanswered probe waits for evidence
// of where it was lost: until the answers of as many later probes as it takes, if that is
// longer than the deadline.
func (t *Target) grace(answers int) int64 {
	g := time.Duration(answers)*t.Interval + min(graceSlack, t.Deadline) - t.Deadline
	if g <= 0 || g > maxGrace {
		return 0
	}
	return int64(g)
}

// awaitsEvidence reports whether an overdue probe should wait for evidence.
func (e *engine) awaitsEvidence(s *session, slot *protocol.Slot, now int64) bool {
	return s.grace > 0 && now <= slot.Deadline+s.grace && s.socket != nil && !s.retired && !s.done() &&
		s.delivery(slot) == protocol.DeliveryUnknown
}

// cause says why a probe was lost.
func (e *engine) cause(s *session, slot *protocol.Slot) accounting.Cause {
	where := s.delivery(slot)
	if where == protocol.NotDelivered {
		if s.locator.Overflowed(slot.Sequence) {
			return accounting.ReflectorOverflow
		}
		return accounting.Forward
	}
	if s.socket != nil && s.socket.drops.take(slot.Value.Drops) {
		return accounting.LocalOverflow
	}
	if where == protocol.Delivered {
		return accounting.Reverse
	}
	return accounting.Unknown
}

// endRuns follows the run of losses up to the first probe that is in flight.
func (s *session) endRuns() {
	s.runs = max(s.runs, s.Window.Remembered())
	for ; s.runs < s.Window.Next(); s.runs++ {
		slot := s.Window.Lookup(s.runs)
		if slot == nil {
			continue
		}
		switch p := &slot.Value; p.State {
		case protocol.InFlight:
			return
		case protocol.Lost:
			if p.Cause != accounting.SendError && p.Cause != accounting.LocalOverflow {
				s.run++
			}
		case protocol.Waiting, protocol.Answered:
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
