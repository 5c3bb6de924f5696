package sender

import (
	"encoding/binary"
	"net/netip"
	"syscall"

	"vigia/probes/accounting"
	"vigia/probes/delay"
	"vigia/probes/stamp"
	"vigia/probes/timestamping"
)

// receive reads what waits on a socket.
func (e *engine) receive(k *socket) {
	if k.key.Protocol == timestamping.TCP {
		now := e.clock.Update()
		e.connected(k, now)
		k.drained = now
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
			k.drained = before
			return
		}
	}
}

// arrived handles one datagram, read at the given monotonic time.
func (e *engine) arrived(k *socket, d *timestamping.Datagram, at int64) {
	if d.HasDrops {
		k.drops.note(d.Drops)
	}
	if k.key.Protocol == timestamping.ICMP {
		e.echoed(k, d, at)
		return
	}
	mode := k.mode(d.From)
	reply, ok := mode.ParseReply(d.Payload)
	s, ours := k.match(d.From, &reply)
	switch {
	case !ours:
		e.stray++
	case s == nil || !ok || d.Truncated || s.layout.Mode != mode:
		e.corrupt(k, s, d.From)
	default:
		e.reply(s, d, &reply, at)
	}
}

// corrupt counts a datagram that comes from a target and answers none of its
// probes. When its session is damaged, too, the first target at that address has
// it.
func (e *engine) corrupt(k *socket, s *session, from netip.AddrPort) {
	if s == nil {
		s = k.byPeer[from][0]
	}
	s.series.counts.Corrupt++
}

// reply handles a reply that belongs to the session.
func (e *engine) reply(s *session, d *timestamping.Datagram, r *stamp.Reply, at int64) {
	sequence, sent := s.window.Expand(r.SenderSequence)
	slot := s.window.Lookup(sequence)
	if !sent || slot != nil && (slot.Value.echo != r.SenderTimestamp || !s.intact(d.Payload)) {
		s.series.counts.Corrupt++
		return
	}
	if s.keys != nil {
		key, ok := s.keys.Verify(d.Payload)
		if !ok {
			s.series.counts.Corrupt++
			return
		}
		e.told = told{}
		if s.keys.VerifyTLVs(d.Payload, key) {
			e.told.read(s, d.Payload)
		}
	} else {
		e.told = told{}
		e.told.read(s, d.Payload)
	}
	if e.answer(s, sequence, d.Stamp, at) {
		e.received(s, slot, d, r, at, e.told.knowsFollowUp)
		s.compareDSCP(d.TOS>>2, &e.told)
	}
	s.learn(sequence, r, &e.told)
	if e.told.followUp.Timestamp != 0 {
		e.completed(s, &e.told.followUp, r.ErrorEstimate.Format())
	}
}

// compareDSCP counts changes of the DSCP on either way. On the way back only a
// reflector that knows the TLV can be trusted to have used the one asked for.
func (s *session) compareDSCP(got uint8, t *told) {
	if !t.hasService {
		return
	}
	if t.service.Received != s.target.DSCP {
		s.series.rewritten[delay.Forward]++
	}
	if !t.service.Refused && got != s.target.DSCP {
		s.series.rewritten[delay.Reverse]++
	}
}

// answer settles the probe with an answer that was read at the monotonic time at
// and has the kernel's stamp, or 0; it reports whether the probe is received.
func (e *engine) answer(s *session, sequence uint64, stamp, at int64) bool {
	slot := s.window.Lookup(sequence)
	arrival := at
	if slot != nil && stamp != 0 && slot.Value.Stamps.SentSteps == e.clock.Steps() {
		arrival = min(at, e.clock.Monotonic(stamp))
	}
	switch s.window.Answer(sequence, arrival) {
	case accounting.Received:
		return true
	case accounting.Overdue:
		e.lost(s, slot, accounting.Unknown)
	}
	return false
}

// received takes the measurements of an answered probe. Without a follow-up from
// the reflector its stamps will not become better than they are.
func (e *engine) received(s *session, slot *slot, d *timestamping.Datagram, r *stamp.Reply, at int64, followUp bool) {
	p := &slot.Value
	p.State, p.Application = Waiting, at-p.Intended
	p.reflected = r.Sequence
	p.ErrorBound = e.errorBound(r.ErrorEstimate)
	s.series.errorBound = p.ErrorBound
	format := r.ErrorEstimate.Format()
	p.Stamps.ReceivedSteps = e.clock.Steps()
	near := e.clock.Realtime(at)
	p.Stamps.T2 = r.ReceiveTimestamp.UnixNano(format, near)
	p.Stamps.T3 = r.Timestamp.UnixNano(format, near)
	p.Stamps.T4 = near
	if d.Stamp != 0 {
		p.Stamps.T4 = d.Stamp
		p.Stamps.Kernel |= delay.T4
	}
	p.Stamps.Device4 = d.Hardware
	s.waiting++
	s.series.answered = at
	s.reflected[uint64(r.Sequence)%uint64(len(s.reflected))] = slot.Sequence + 1
	s.series.recorder.Received(p)
	if !followUp || d.Stamp == 0 {
		e.finish(s, slot)
		return
	}
	e.settle.setEarlier(s, onGrid(p.settleBy(s)+1))
}

// errorBound returns how far our clock and the reflector's may be apart, or -1.
func (e *engine) errorBound(theirs stamp.ErrorEstimate) int64 {
	if !e.estimate.Synchronized() || !theirs.Synchronized() {
		return -1
	}
	return int64((e.estimate.Seconds() + theirs.Seconds()) * 1e9)
}

// settleBy returns the time until which an answered probe waits for its stamps.
func (p *Probe) settleBy(s *session) int64 { return p.sentAt + int64(s.target.patience()) }

// told is what the TLVs of an answer say.
type told struct {
	followUp       stamp.FollowUp
	window         stamp.ReceivedWindow
	service        stamp.ClassOfService
	measurement    stamp.DirectMeasurement
	knowsFollowUp  bool // whether or not it had something to say
	hasWindow      bool
	hasService     bool
	hasMeasurement bool
}

// read takes the TLVs that the reflector knew.
func (t *told) read(s *session, payload []byte) {
	if s.layout.FollowUp == 0 {
		return // a request without TLVs
	}
	tlvs := s.layout.Mode.TLVs(payload)
	for v, whole := tlvs.Next(); v != nil && whole; v, whole = tlvs.Next() {
		if v.Flags() != 0 {
			continue
		}
		switch v.Type() {
		case stamp.TypeFollowUp:
			t.followUp, t.knowsFollowUp = stamp.ParseFollowUp(v)
		case stamp.TypeReceivedWindow:
			t.window, t.hasWindow = stamp.ParseReceivedWindow(v)
		case stamp.TypeClassOfService:
			t.service, t.hasService = stamp.ParseClassOfService(v)
		case stamp.TypeDirectMeasurement:
			t.measurement, t.hasMeasurement = stamp.ParseDirectMeasurement(v)
		}
	}
}

// completed puts the reflector's send stamp of an earlier answer where it
// belongs. A reflector that follows up stamps arrivals in the same way.
func (e *engine) completed(s *session, f *stamp.FollowUp, format stamp.Format) {
	slot := s.reflectedSlot(f.Sequence)
	if slot == nil {
		return
	}
	p := &slot.Value
	p.Stamps.T3 = f.Timestamp.UnixNano(format, p.Stamps.T3)
	switch f.Method {
	case stamp.SoftwareLocal:
		p.Stamps.Kernel |= delay.T2 | delay.T3
	case stamp.HardwareAssist:
		p.Stamps.Kernel |= delay.T2 | delay.T3
		p.Stamps.Far = delay.Hardware
	default:
		return // no stamp that could be compared
	}
	if p.complete(s) {
		e.finish(s, slot)
	}
}

// complete reports whether all stamps of an answered probe are there that its delay is
// taken from.
func (p *Probe) complete(s *session) bool {
	st := &p.Stamps
	if st.Kernel&delay.T3 == 0 || st.Kernel&delay.T1 == 0 {
		return false
	}
	return !s.hardware || st.Device4 == 0 || st.Device1 != 0 || st.Far != delay.Hardware && !st.OneClock
}

// finish closes the record of an answered probe and compares it with its
// neighbours.
func (e *engine) finish(s *session, slot *slot) {
	p := &slot.Value
	p.State = Answered
	s.waiting--
	p.Stamps.Choose(s.hardware)
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
			vary(s, before, p)
		}
	}
	if after := s.good(slot.Sequence + 1); after != nil {
		vary(s, p, after)
	}
}

// admit keeps a good sample out whose stamps are of another source than those of the
// target's statistics, until there are only such.
func (s *session) admit(p *Probe) {
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
func (s *session) good(sequence uint64) *Probe {
	slot := s.window.Lookup(sequence)
	if slot == nil || slot.Value.State != Answered || slot.Value.Verdict != delay.Good {
		return nil
	}
	return &slot.Value
}

func vary(s *session, before, p *Probe) {
	if v, ok := delay.Variation(&before.Stamps, &p.Stamps); ok {
		s.series.recorder.Varied(v)
	}
}

// readReports reads a socket's error queue: send stamps and ICMP errors.
func (e *engine) readReports(k *socket) {
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
	case p.Stamps.SentSteps == e.clock.Steps() && r.Stamp < e.clock.Realtime(p.sentAt):
		// A stamp from before the probe was made is of another packet, from
		// before the counts were restarted.
		return
	default:
		p.Stamps.T1 = r.Stamp
		p.Stamps.Kernel |= delay.T1
	}
	if p.State == Waiting && p.complete(s) {
		e.finish(s, slot)
	}
}

// unreachable notes what an ICMP message says about a target. Its probe is lost
// at the deadline like any other: the message does not prove that it was.
func (e *engine) unreachable(k *socket, r *timestamping.Report) {
	now := e.clock.Realtime(e.clock.Now())
	if at := k.mode(r.To).SSIDOffset(); len(r.Payload) >= at+2 {
		ssid := binary.BigEndian.Uint16(r.Payload[at:])
		if s := k.bySSID[ssid]; s != nil && s.address == r.To {
			s.series.failErrno(r.Errno, now)
			return
		}
	}
	for _, s := range k.byPeer[r.To] {
		s.series.failErrno(syscall.Errno(r.Errno), now)
	}
}
