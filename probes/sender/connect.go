package sender

import (
	"syscall"

	"golang.org/x/sys/unix"

	"vigia/probes/delay"
	"vigia/probes/timestamping"
)

// connect begins a connection. The probe that is under way on the socket, if any,
// has met its deadline and ends here.
func (e *engine) connect(s *session, intended int64) {
	k := s.socket
	now := e.clock.Update()
	e.disconnect(s)
	p := launch{session: s, intended: intended}
	e.beginProbe(&p, now)
	p.slot.Value = Probe{
		Sequence: p.slot.Sequence, Intended: intended, sentAt: now, Stamps: delay.Stamps{SentSteps: e.clock.Steps()},
	}
	if err := k.Connect(s.address); err != nil {
		e.failed(&p, err)
		return
	}
	s.attempt, s.attempted = p.slot.Sequence, true
	s.window.Handed(p.slot)
	s.series.launched = true
	s.series.recorder.Launched(now - intended)
	e.settle.setEarlier(s, onGrid(p.slot.Deadline+1))
}

// connected looks what became of the connection under way on the socket.
func (e *engine) connected(k *socket, at int64) {
	for _, s := range k.bySSID { // there is at most one
		if !s.attempted {
			return
		}
		state, err := k.Connection()
		switch {
		case err != nil:
			// Refused or unreachable: like an ICMP message, it is told, and
			// the deadline decides.
			if errno, ok := err.(syscall.Errno); ok {
				s.series.failErrno(errno, e.clock.Realtime(at))
			} else {
				s.series.fail(err, e.clock.Realtime(at))
			}
			e.disconnect(s)
		case state.Established:
			e.established(s, state, at)
		}
	}
}

// established takes the measurements of a connection that stands and resets it.
func (e *engine) established(s *session, state timestamping.Connection, at int64) {
	defer e.disconnect(s)
	slot := s.window.Lookup(s.attempt)
	if slot == nil {
		return
	}
	p := &slot.Value
	var stamp int64
	// The kernel measures the handshake. A SYN that was sent again says
	// nothing about the round trip.
	if state.RTT > 0 && state.Retransmits == 0 {
		p.Stamps.T1 = e.clock.Realtime(p.sentAt)
		p.Stamps.T4 = p.Stamps.T1 + int64(state.RTT)
		p.Stamps.Kernel |= delay.T1 | delay.T4
		stamp = p.Stamps.T4
	}
	if e.answer(s, s.attempt, stamp, at) {
		e.returned(s, slot, at)
	}
}

// disconnect ends what is under way on the session's socket.
func (e *engine) disconnect(s *session) {
	if !s.attempted || s.socket == nil {
		return
	}
	s.attempted = false
	if err := s.socket.Disconnect(); err != nil && err != error(unix.ENOTCONN) {
		e.logger.Error("cannot reset a connection", "socket", s.socket.key.String(), "err", err)
	}
}
