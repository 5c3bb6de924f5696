package sender

import (
	"syscall"
	"time"

	"vigia/probes/delay"
	"vigia/probes/protocol"
)

// exchange begins a probe that its protocol carries out. The one that is under way, if
// any, has met its deadline and ends here; what it has come to is taken in before, since a
// loop that was starved may not have looked yet.
func (e *engine) exchange(s *session, intended int64) {
	now := e.clock.Update()
	s.socket.All(func(o *protocol.Session) bool { // one more while the target is replaced
		e.progress(sessionOf(o), now)
		e.endExchange(sessionOf(o))
		return true
	})
	p := launch{session: s, intended: intended}
	e.beginProbe(&p, now)
	p.slot.Value = protocol.Probe{
		Sequence: p.slot.Sequence, Intended: intended, SentAt: now, Sent: e.clock.Realtime(now), ByExchange: true,
		Stamps: delay.Stamps{SentSteps: e.clock.Steps()},
	}
	if err := s.exchange.Begin(&p.slot.Value); err != nil {
		e.failed(&p, err)
		return
	}
	s.exchangeSequence, s.exchanging = p.slot.Sequence, true
	s.Window.Handed(p.slot)
	s.series.launched = true
	s.series.recorder.Launched(now - intended)
	e.settle.setEarlier(s, onGrid(p.slot.Deadline+1))
}

// progress looks what became of the exchange under way.
func (e *engine) progress(s *session, at int64) {
	if !s.exchanging {
		return
	}
	r, ended := s.exchange.Ready()
	if !ended {
		return
	}
	defer e.endExchange(s)
	slot := s.Window.Lookup(s.exchangeSequence)
	if slot == nil {
		return
	}
	slot.Value.Detail = r.Detail
	if r.Err != nil {
		// Like an ICMP message, it is noted, and the deadline decides.
		if errno, ok := r.Err.(syscall.Errno); ok {
			s.series.failErrno(errno, e.clock.Realtime(at))
		} else {
			s.series.fail(r.Err, e.clock.Realtime(at))
		}
		return
	}
	if r.At != 0 {
		at = r.At
	}
	e.exchanged(s, slot, r.RTT, at)
}

// progressAll looks what became of the exchanges of a socket's sessions.
func (e *engine) progressAll(k *socket, at int64) {
	k.All(func(s *protocol.Session) bool {
		e.progress(sessionOf(s), at)
		return true
	})
}

// exchanged takes the measurements of an exchange that has succeeded.
func (e *engine) exchanged(s *session, slot *protocol.Slot, rtt time.Duration, at int64) {
	st := &slot.Value.Stamps
	var stamp int64
	if rtt > 0 {
		st.T1 = slot.Value.Sent
		st.T4 = st.T1 + int64(rtt)
		st.Kernel |= delay.T1 | delay.T4
		stamp = st.T4
	}
	if e.answer(s, s.exchangeSequence, stamp, at) {
		e.received(s, slot, at, &protocol.Answer{OneClock: true, Incomplete: true})
	}
}

// endExchange gives up what is under way.
func (e *engine) endExchange(s *session) {
	if !s.exchanging || s.socket == nil {
		return
	}
	s.exchanging = false
	if err := s.exchange.End(); err != nil {
		e.logger.Error("cannot end a probe", "socket", s.socket.key.String(), "err", err)
	}
}

// wake looks what became of the exchange of a session whose protocol asks for it. Any goroutine but the sender's may
// call it.
func (e *engine) wake(s *session) {
	e.do(func() {
		if s.socket != nil {
			e.progress(s, e.clock.Update())
		}
	})
}
