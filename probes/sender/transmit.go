package sender

import (
	"errors"
	"net/netip"
	"syscall"

	"golang.org/x/sys/unix"

	"vigia/probes/accounting"
	"vigia/probes/delay"
	"vigia/probes/protocol"
)

// maxClosings bounds the probes that fetch the follow-up of the last.
const maxClosings = 8

// transmitDue sends every probe that is due.
func (e *engine) transmitDue() {
	now := e.clock.Now()
	e.flushed = 0
	for s := e.due.first(); s != nil && s.next <= now; s = e.due.first() {
		intended := s.advance(now)
		e.due.set(s, s.next)
		e.launch(s, intended)
	}
	for i, k := range e.unsent {
		e.flush(k)
		e.unsent[i] = nil
	}
	e.unsent = e.unsent[:0]
	switch {
	case e.flushed >= batch:
		e.readDue = e.clock.Now() + burstReadDelay
	case e.flushed > 0:
		e.readDue = e.clock.Now() + readDelay
	}
}

// launch queues a probe for sending, or refuses it where that is impossible.
func (e *engine) launch(s *session, intended int64) {
	closing := s.done()
	if closing && !e.closing(s) {
		return
	}
	if !closing {
		s.launched++
	}
	k := s.socket
	if k == nil || !s.Address.IsValid() {
		e.refuse(s, intended)
		return
	}
	if s.exchange != nil {
		e.exchange(s, intended)
		return
	}
	if len(k.pending) == 0 {
		e.unsent = append(e.unsent, k)
	}
	k.pending = append(k.pending, launch{session: s, intended: intended, closing: closing})
	if len(k.pending) == batch || s.target.Twin.Size > 0 {
		e.flush(k) // twins leave in their order, at the same moment
	}
}

// closing reports whether a counted target that has sent all its probes needs one
// more packet to fetch a follow-up, and ends it when all is settled.
func (e *engine) closing(s *session) bool {
	if s.idle() {
		s.finished = true
		e.due.remove(s)
		s.series.recorder.Finished()
		return false
	}
	if s.waiting == 0 && !s.lastProbesMissing() || s.closings == maxClosings || s.socket == nil || !s.Address.IsValid() {
		return false
	}
	s.closings++
	return true
}

// maxEvidenceClosings bounds the closing probes that only find out what became of the
// last ones.
const maxEvidenceClosings = 4

// lastProbesMissing reports whether the last probes of a counted target are in flight and
// another probe may tell what became of them.
func (s *session) lastProbesMissing() bool {
	oldest := s.Window.Oldest()
	if s.locator == nil || oldest == nil || s.closings >= maxEvidenceClosings {
		return false
	}
	// The last is known the latest: what is known of the oldest says nothing of it.
	for sequence := oldest.Sequence; sequence < s.Window.Next(); sequence++ {
		slot := s.Window.Lookup(sequence)
		if slot != nil && slot.Value.State == protocol.InFlight && s.delivery(slot) == protocol.DeliveryUnknown {
			return true
		}
	}
	return false
}

// refuse accounts for a probe that cannot even be handed to the kernel.
func (e *engine) refuse(s *session, intended int64) {
	now := e.clock.Now()
	slot := s.Window.Begin(now + int64(s.target.Deadline))
	slot.Value = protocol.Probe{Sequence: slot.Sequence, Intended: intended, SentAt: now, Sent: e.clock.Realtime(now)}
	s.series.launched = true
	s.series.recorder.Launched(now - intended)
	reason := s.nameErr
	if s.socket == nil {
		reason = e.closed[s.target.key()]
	}
	s.series.fail(reason, e.clock.Realtime(now))
	e.refused(s, slot)
}

func (e *engine) refused(s *session, slot *protocol.Slot) {
	s.Window.Refused(slot)
	e.lost(s, slot, accounting.SendError)
}

// flush sends what is pending on a socket in one system call, or a few when the
// kernel refuses something.
func (e *engine) flush(k *socket) {
	if len(k.pending) == 0 {
		return
	}
	e.prepare(k)
	retried := false
	for at := 0; at < len(k.pending); {
		n, err := e.outbox.Send(k.Socket, at)
		for range n {
			e.handed(k, &k.pending[at])
			at++
		}
		if at == len(k.pending) {
			break
		}
		// The kernel may have counted the packet that it did not take, or not.
		e.recount(k)
		switch {
		case n > 0:
			retried = false // the next call says what is wrong with the next
		case isPending(err) && !retried:
			// Perhaps an ICMP message about another packet: it fails one
			// call and is gone.
			retried = true
		default:
			e.failed(&k.pending[at], err)
			at++
			retried = false
		}
	}
	e.flushed += len(k.pending)
	clear(k.pending)
	k.pending = k.pending[:0]
	if k.stampsDue() {
		e.readReports(k)
	}
}

// prepare writes the pending packets. Their user-space send stamps are as late as
// they can be.
func (e *engine) prepare(k *socket) {
	now := e.clock.Update()
	if now >= e.clockErrorDue {
		e.localClock.Error, e.localClock.Synchronized = e.bound()
		e.clockErrorDue = now + clockErrorAge
	}
	e.outbox.Reset()
	for i := range k.pending {
		p := &k.pending[i]
		s := p.session
		state := e.beginProbe(p, now)
		s.Ending = s.done()
		sentAt := e.clock.Now()
		p.slot.Value = protocol.Probe{
			Sequence: p.slot.Sequence, Intended: p.intended, SentAt: sentAt, Sent: e.clock.Realtime(sentAt), State: state, Drops: k.drops.seen,
			Stamps: delay.Stamps{SentSteps: e.clock.Steps()},
		}
		packet := k.handler.Write(&s.Session, &p.slot.Value)
		e.outbox.Add(&s.peer, packet, s.target.tos(), netip.Addr{})
	}
}

// beginProbe takes the next slot of the session's window. The window is large
// enough for the probe that was in it to be settled long ago; after a stall it may
// not be.
func (e *engine) beginProbe(p *launch, now int64) protocol.State {
	s := p.session
	if old := s.Window.Recycled(); old != nil {
		if s.Window.Lose(old, accounting.Unknown) {
			e.lost(s, old, accounting.Unknown)
		}
		if old.Value.State == protocol.Waiting {
			e.finish(s, old)
		}
	}
	if p.closing {
		p.slot = s.Window.BeginUncounted()
		return protocol.Closing
	}
	p.slot = s.Window.Begin(now + int64(s.target.Deadline))
	return protocol.InFlight
}

// handed accounts for a packet that the kernel took.
func (e *engine) handed(k *socket, p *launch) {
	k.handed(p.session, p.slot.Sequence)
	if p.closing {
		return
	}
	s := p.session
	s.Window.Handed(p.slot)
	s.series.launched = true
	s.series.recorder.Launched(p.slot.Value.SentAt - p.intended)
	e.settle.setEarlier(s, onGrid(p.slot.Deadline+1))
}

// failed accounts for a packet that the kernel refused.
func (e *engine) failed(p *launch, err error) {
	s := p.session
	now := e.clock.Realtime(e.clock.Now())
	var errno syscall.Errno
	if errors.As(err, &errno) {
		s.series.failErrno(errno, now)
	} else {
		s.series.fail(err, now)
	}
	if p.closing {
		return
	}
	s.series.launched = true
	s.series.recorder.Launched(p.slot.Value.SentAt - p.intended)
	e.refused(s, p.slot)
}

// recount makes our count of packets and the kernel's agree again.
func (e *engine) recount(k *socket) {
	e.readReports(k)
	if err := k.recount(); err != nil {
		e.logger.Error("cannot restart the count of send stamps; some are lost", "socket", k.key.String(), "err", err)
	}
}

// isPending reports whether an error may come from an ICMP message that arrived
// about another packet (net/ipv4/icmp.c, icmp_err_convert).
func isPending(err error) bool {
	for _, e := range [...]syscall.Errno{
		unix.ECONNREFUSED, unix.EHOSTUNREACH, unix.ENETUNREACH, unix.ENOPROTOOPT,
		unix.EMSGSIZE, unix.EOPNOTSUPP, unix.EHOSTDOWN, unix.ENONET, unix.EACCES, unix.EPROTO,
	} {
		if err == error(e) {
			return true
		}
	}
	return false
}

// lost records a probe that was settled as lost.
func (e *engine) lost(s *session, slot *protocol.Slot, cause accounting.Cause) {
	p := &slot.Value
	p.State, p.Cause = protocol.Lost, cause
	s.series.recorder.Settled(p)
}
