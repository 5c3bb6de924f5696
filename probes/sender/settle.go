package sender

import "vigia/probes/protocol"

// settleDue settles what has passed its deadline. now was taken before the
// sockets were read.
func (e *engine) settleDue(now int64) {
	for s := e.settle.first(); s != nil && e.settle.at() <= now; s = e.settle.first() {
		e.settleSession(s, now)
	}
}

// settleSession settles the session's overdue probes and queues it for the next
// deadline.
func (e *engine) settleSession(s *session, now int64) {
	// An answer that waits in the socket's buffer has arrived: only what has
	// not by then is lost.
	until := now
	if s.exchange != nil && s.socket != nil {
		e.progress(s, now)
	}
	if k := s.socket; k != nil {
		if k.readUntil < now {
			e.receive(k)
			until = min(now, k.readUntil)
		}
		e.updateDrops(s, until)
	}
	for slot := s.Window.Overdue(until); slot != nil; slot = s.Window.Overdue(until) {
		if e.awaitsEvidence(s, slot, until) {
			break
		}
		cause := e.cause(s, slot)
		s.Window.Lose(slot, cause)
		e.lost(s, slot, cause)
	}
	e.settleStamps(s, now)
	s.endRuns()
	if at, ok := s.nextSettle(until); ok {
		e.settle.set(s, onGrid(max(at, now+1)))
		return
	}
	e.settle.remove(s)
	if s.retired {
		e.discard(s)
	}
}

// updateDrops reads the drop counter where a probe is about to be lost, unless it was
// read since the socket was: the counter also comes with every datagram, but after the
// drops there may be none.
func (e *engine) updateDrops(s *session, until int64) {
	if s.socket.dropsReadAt >= s.socket.readUntil || s.Window.Overdue(until) == nil {
		return
	}
	if s.exchange != nil {
		return // what is dropped there is no answer to a probe
	}
	drops, err := s.socket.Drops()
	if err != nil {
		e.logger.Error("cannot read the drop counter", "socket", s.socket.key.String(), "err", err)
		return
	}
	s.socket.drops.note(drops)
	s.socket.dropsReadAt = s.socket.readUntil
}

// settleStamps gives up waiting for stamps that are overdue.
func (e *engine) settleStamps(s *session, now int64) {
	for slot := s.oldestWaiting(); slot != nil && settleBy(s, slot) < now; slot = s.oldestWaiting() {
		e.finish(s, slot)
	}
}

// oldestWaiting returns the oldest probe that waits for stamps, unless an older
// one is in flight.
func (s *session) oldestWaiting() *protocol.Slot {
	for ; s.settled < s.Window.Next(); s.settled++ {
		slot := s.Window.Lookup(s.settled)
		if slot == nil {
			continue
		}
		switch slot.Value.State {
		case protocol.Waiting:
			return slot
		case protocol.InFlight:
			return nil
		}
	}
	return nil
}

// nextSettle returns the earliest time at which something must be settled. What is
// overdue by now waits for evidence.
func (s *session) nextSettle(now int64) (at int64, ok bool) {
	at, ok = s.Window.Deadline()
	if at < now {
		at += s.grace
	}
	at++
	if slot := s.oldestWaiting(); slot != nil {
		if by := settleBy(s, slot) + 1; !ok || by < at {
			return by, true
		}
	}
	return at, ok
}

// discard forgets a retired session of which nothing is left.
func (e *engine) discard(s *session) {
	s.endRun()
	e.drop(s)
	ser := s.series
	for i, r := range ser.retired {
		if r == s {
			ser.retired = append(ser.retired[:i], ser.retired[i+1:]...)
			return
		}
	}
}
