package sender

import (
	"syscall"

	"vigia/probes/accounting"
	"vigia/probes/delay"
	"vigia/probes/protocol"
	"vigia/probes/timestamping"
)

// receive reads what waits on a socket.
func (e *engine) receive(k *socket) {
	if k.handler == nil {
		now := e.clock.Update()
		e.progressAll(k, now)
		k.readUntil = now
		return
	}
	for range maxRounds {
		before := e.clock.Now()
		n, err := e.inbox.Receive(k.Socket)
		if err != nil { // an ICMP message; the error queue has more about it
			e.readReports(k)
			continue
		}
		at := e.clock.Update()
		for i := range n {
			e.inbox.Datagram(i, &e.datagram)
			e.arrived(k, &e.datagram, at)
		}
		if n < e.inbox.Len() {
			k.readUntil = before
			return
		}
	}
}

// arrived handles one datagram, read at the given monotonic time.
func (e *engine) arrived(k *socket, d *timestamping.Datagram, at int64) {
	if d.HasDrops {
		k.drops.note(d.Drops)
	}
	e.header = protocol.Header{}
	reading := k.handler.Header(d, &e.header)
	if reading == protocol.Foreign {
		return
	}
	s, ours := k.Match(d.From, &e.header)
	switch {
	case s == nil && k.traced(d):
	case !ours:
		e.stray++
	case s == nil:
		// When the session is damaged, too, the first target at that address has it.
		sessionOf(k.Peers(d.From)[0]).series.counts.Corrupt++
	case reading == protocol.Damaged || d.Truncated:
		sessionOf(s).series.counts.Corrupt++
	default:
		e.reply(k, sessionOf(s), d, at)
	}
}

// reply handles an answer that belongs to the session.
func (e *engine) reply(k *socket, s *session, d *timestamping.Datagram, at int64) {
	sequence, sent := s.Window.Expand(e.header.Sequence)
	slot := s.Window.Lookup(sequence)
	e.arrival = protocol.Arrival{Datagram: d, At: at, Realtime: e.clock.Realtime(at)}
	e.reading = protocol.Answer{}
	if !sent || slot != nil && slot.Value.Nonce != e.header.Nonce || !k.handler.Read(&s.Session, &e.arrival, &e.reading) {
		s.series.counts.Corrupt++
		return
	}
	if e.answer(s, sequence, d.Stamp, at) {
		st := &slot.Value.Stamps
		if d.Stamp != 0 {
			st.T4 = d.Stamp
			st.Kernel |= delay.T4
		} else {
			st.T4 = e.arrival.Realtime
		}
		st.Device4 = d.Hardware
		e.received(s, slot, at, &e.reading)
	}
	s.Ending = s.done()
	if earlier := k.handler.Learn(&s.Session, sequence); earlier != nil && earlier.Value.Complete(s.Hardware) {
		e.finish(s, earlier)
	}
}

// answer settles the probe with an answer that was read at the monotonic time at
// and has the kernel's stamp, or 0; it reports whether the probe is received.
func (e *engine) answer(s *session, sequence uint64, stamp, at int64) bool {
	slot := s.Window.Lookup(sequence)
	arrival := at
	if slot != nil && stamp != 0 && slot.Value.Stamps.SentSteps == e.clock.Steps() {
		arrival = min(at, e.clock.Monotonic(stamp))
	}
	switch s.Window.Answer(sequence, arrival) {
	case accounting.Received:
		return true
	case accounting.Overdue:
		e.lost(s, slot, accounting.Unknown)
	}
	return false
}

// received takes the measurements of an answered probe, whose stamp of arrival is there.
func (e *engine) received(s *session, slot *protocol.Slot, at int64, a *protocol.Answer) {
	p := &slot.Value
	p.State, p.ReadAt = protocol.Waiting, at
	p.Stamps.ReceivedSteps = e.clock.Steps()
	if a.OneClock {
		p.Stamps.OneClock = true
		p.Stamps.Kernel |= delay.T2 | delay.T3
		p.ErrorBound = -1
	} else {
		p.Stamps.T2, p.Stamps.T3 = a.T2, a.T3
		p.ErrorBound = a.ErrorBound
	}
	for direction, rewritten := range a.Rewritten {
		if rewritten {
			s.series.rewritten[direction]++
		}
	}
	s.series.errorBound = p.ErrorBound
	s.series.answered = at
	s.waiting++
	if !a.Incomplete || p.Stamps.Kernel&delay.T4 == 0 || p.Complete(s.Hardware) {
		e.finish(s, slot)
		return
	}
	e.settle.setEarlier(s, onGrid(settleBy(s, slot)+1))
}

// settleBy returns the time until which an answered probe waits for its stamps.
func settleBy(s *session, slot *protocol.Slot) int64 {
	return slot.Value.SentAt + int64(s.target.stampWait())
}

// finish closes the record of an answered probe and compares it with its
// neighbours.
func (e *engine) finish(s *session, slot *protocol.Slot) {
	p := &slot.Value
	p.State = protocol.Answered
	s.waiting--
	p.Split(e.clock.Realtime(p.ReadAt))
	p.Stamps.Choose(s.Hardware)
	p.Verdict = p.Stamps.Verdict()
	e.countStamps(p)
	s.admit(p)
	if p.Verdict == delay.Good {
		s.series.jitter.Add(p.Stamps.RTT())
	} else {
		s.series.quarantined[p.Verdict]++
	}
	s.series.recorder.Settled(p)
	if p.Verdict != delay.Good {
		return
	}
	if slot.Sequence > 0 {
		if before := s.good(slot.Sequence - 1); before != nil {
			reportVariation(s, before, p)
		}
	}
	if after := s.good(slot.Sequence + 1); after != nil {
		reportVariation(s, p, after)
	}
}

// admit keeps a good sample out whose stamps are of another source than those of the
// target's statistics, until there are only such.
func (s *session) admit(p *protocol.Probe) {
	if p.Verdict != delay.Good {
		return
	}
	ok, changed := s.series.admission.Admit(p.Stamps.Source)
	if !ok {
		p.Verdict = delay.MixedSource
	}
	if changed {
		s.series.jitter = delay.Jitter{}
		s.series.recorder.SourceChanged()
	}
}

// good returns the probe if its record is closed and its stamps are good.
func (s *session) good(sequence uint64) *protocol.Probe {
	slot := s.Window.Lookup(sequence)
	if slot == nil || slot.Value.State != protocol.Answered || slot.Value.Verdict != delay.Good {
		return nil
	}
	return &slot.Value
}

func reportVariation(s *session, before, p *protocol.Probe) {
	if v, ok := delay.Variation(&before.Stamps, &p.Stamps); ok {
		s.series.recorder.Varied(v)
	}
}

// readReports reads a socket's error queue: send stamps and ICMP errors.
func (e *engine) readReports(k *socket) {
	k.stampsRead = k.count
	for range maxRounds {
		n, err := e.reports.Receive(k.Socket)
		if err != nil {
			e.logger.Error("cannot read the error queue", "socket", k.key.String(), "err", err)
			return
		}
		for i := range n {
			if !e.reports.Report(i, &e.report) {
				continue
			}
			if e.report.Errno != 0 {
				e.unreachable(k, &e.report)
				continue
			}
			e.stamped(k, &e.report)
		}
		if n < e.reports.Len() {
			return
		}
	}
}

// stamped takes a send stamp.
func (e *engine) stamped(k *socket, r *timestamping.Report) {
	source := delay.Kernel
	if r.Hardware != 0 {
		source = delay.Hardware
	}
	s, slot := k.takeSent(r.Count, source)
	if slot == nil {
		return
	}
	p := &slot.Value
	switch {
	case source == delay.Hardware:
		p.Stamps.Device1 = r.Hardware
	case p.Stamps.SentSteps == e.clock.Steps() && r.Stamp < e.clock.Realtime(p.SentAt):
		// A stamp from before the probe was made is of another packet, from
		// before the counts were restarted.
		return
	default:
		p.Stamps.T1 = r.Stamp
		p.Stamps.Kernel |= delay.T1
	}
	if p.State == protocol.Waiting && p.Complete(s.Hardware) {
		e.finish(s, slot)
	}
}

// unreachable notes what an ICMP message says about a target. Its probe is lost
// at the deadline like any other: the message does not prove that it was.
func (e *engine) unreachable(k *socket, r *timestamping.Report) {
	if k.tracedReport(r) {
		return
	}
	now := e.clock.Realtime(e.clock.Now())
	if id, ok := k.handler.QuotedID(r.To, r.Payload); ok {
		if s := k.ByID(id); s != nil && s.Address == r.To {
			sessionOf(s).series.failErrno(r.Errno, now)
			return
		}
	}
	for _, s := range k.Peers(r.To) {
		sessionOf(s).series.failErrno(syscall.Errno(r.Errno), now)
	}
}
