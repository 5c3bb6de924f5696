package reflector

import (
	"net/netip"

	"vigia/probes/eventloop"
	"vigia/probes/sockets"
	"vigia/probes/stamp"
	"vigia/probes/timestamping"
)

// countRing is how many send stamps may be outstanding on a listener.
const countRing = 1024

// listener is an open socket that is answered on.
type listener struct {
	*timestamping.Socket
	key      sockets.Key
	id       uint32
	wildcard bool
	counters Counters
	keys     *stamp.Keyring // nil in unauthenticated mode
	count    uint32
	drops    uint32
	sent     [countRing]sentReply // by the kernel's count
}

// sentReply remembers whose answer the kernel knows by a count.
type sentReply struct {
	session    *session
	generation uint32
	count      uint32
	sequence   uint32
	steps      uint32 // of the clock before the request arrived
	hardware   bool   // the arrival time is the device's stamp
}

// reply is an answer that is about to be sent.
type reply struct {
	response
	stamped bool // the kernel stamped the arrival
}

func (r *Reflector) attach(key sockets.Key, s *timestamping.Socket, counters Counters) {
	token := 0
	for token < len(r.listeners) && r.listeners[token] != nil {
		token++
	}
	if token == len(r.listeners) {
		r.listeners = append(r.listeners, nil)
	}
	if err := r.loop.Add(s.FD(), int32(token)); err != nil {
		r.options.Logger.Error("cannot listen", "socket", key.String(), "err", err)
		return
	}
	r.nextID++
	r.listeners[token] = &listener{
		Socket: s, key: key, id: r.nextID, wildcard: key.Local.Addr().IsUnspecified(), counters: counters,
		keys: r.keys[key].Keyring(),
	}
}

func (r *Reflector) detach(key sockets.Key) {
	for i, l := range r.listeners {
		if l == nil || l.key != key {
			continue
		}
		if err := r.loop.Remove(l.FD()); err != nil {
			r.options.Logger.Error("cannot stop watching a socket", "socket", key.String(), "err", err)
		}
		r.listeners[i] = nil
	}
}

// Ready handles one wake-up.
func (r *Reflector) Ready(events []eventloop.Event) (wake int64) {
	r.steps = r.clock.Steps() // whatever arrived came after this
	now := r.clock.Update()
	if now >= r.estimateDue {
		bound, synchronized := r.options.Bound()
		r.responder.estimate = stamp.NewErrorEstimate(synchronized, bound)
		r.estimateDue = now + errorEstimateAge
	}
	for _, event := range events {
		l := r.listeners[event.Token]
		if l == nil {
			continue
		}
		if event.Errors {
			r.readReports(l)
		}
		if event.Readable {
			r.answer(l)
		}
	}
	if now >= r.dropsDue {
		r.readDrops()
		r.dropsDue = now + housekeeping
	}
	return r.dropsDue
}

// answer reads one batch and answers it. More that waits wakes the loop again.
func (r *Reflector) answer(l *listener) {
	n, err := r.inbox.Receive(l.Socket)
	if err != nil {
		r.options.Logger.Error("cannot receive", "socket", l.key.String(), "err", err)
		return
	}
	now := r.clock.Update()
	r.outbox.Reset()
	for i := range n {
		r.inbox.Datagram(i, &r.datagram)
		r.respond(l, i, &r.datagram, now)
	}
	if r.outbox.Len() > 0 {
		r.send(l)
		r.readReports(l)
	}
}

// respond turns one datagram into a reply in the outbox.
func (r *Reflector) respond(l *listener, i int, d *timestamping.Datagram, now int64) {
	if d.HasDrops {
		l.overflowed(d.Drops)
	}
	if d.Truncated || l.wildcard && !d.Local.IsValid() {
		l.counters.Rejected(Malformed)
		return
	}
	a := arrival{
		from: d.From, listener: l.id, keys: l.keys, ttl: d.TTL, tos: d.TOS, drops: d.Drops, received: d.Stamp, hardware: d.Hardware, now: now,
	}
	if l.key.Netns == "" { // whoever asks in a tenant's namespace has no business with ours
		a.networks = r.networks
	}
	if a.received == 0 {
		a.received = r.clock.Realtime(now)
	}
	response := r.responder.respond(d.Payload, &a)
	if response.reason != Malformed {
		l.counters.Received()
	}
	if response.reason != answered {
		l.counters.Rejected(response.reason)
		return
	}
	var local netip.Addr
	if l.wildcard {
		local = d.Local
	}
	at := r.outbox.Add(r.inbox.Peer(i), d.Payload, response.tos, local)
	r.replies[at] = reply{response: response, stamped: d.Stamp != 0}
}

// send sends the outbox. The time of sending is written as late as possible.
func (r *Reflector) send(l *listener) {
	total := r.outbox.Len()
	mode := stamp.Unauthenticated
	if l.keys != nil {
		mode = stamp.Authenticated
	}
	for i := range total {
		b := r.outbox.Payload(i)
		mode.PutTimestamp(b, stamp.FromUnixNano(r.clock.Realtime(r.clock.Now())))
		if l.keys != nil {
			l.keys.Sign(b, r.replies[i].key)
		}
	}
	for at := 0; at < total; {
		n, err := r.outbox.Send(l.Socket, at)
		for range n {
			r.handed(l, &r.replies[at])
			at++
		}
		if at == total {
			return
		}
		// The kernel may have counted the packet that it did not take, or not.
		r.recount(l)
		if n == 0 && err != nil {
			l.counters.Rejected(SendError)
			r.replies[at].session.arrivals.fail(r.replies[at].asked)
			at++
		}
	}
}

// handed notes what the kernel took. A send stamp is of use only together with
// the kernel's stamp of the arrival.
func (r *Reflector) handed(l *listener, p *reply) {
	l.counters.Reflected()
	e := &l.sent[l.count%countRing]
	*e = sentReply{}
	if p.followUp && p.stamped {
		*e = sentReply{
			session: p.session, generation: p.session.generation, count: l.count, sequence: p.sequence,
			steps: r.steps, hardware: p.hardware,
		}
	}
	l.count++
}

func (r *Reflector) recount(l *listener) {
	r.readReports(l)
	clear(l.sent[:])
	l.count = 0
	if err := l.RestartCount(); err != nil {
		r.options.Logger.Error("cannot restart the count of send stamps; some are lost", "socket", l.key.String(), "err", err)
	}
}

// readReports takes the send stamps of answers and queues them for the next
// answers of their sessions.
func (r *Reflector) readReports(l *listener) {
	for {
		n, err := r.reports.Receive(l.Socket)
		if err != nil {
			r.options.Logger.Error("cannot read the error queue", "socket", l.key.String(), "err", err)
			return
		}
		steps := r.stepsNow(n)
		for i := range n {
			if r.reports.Report(i, &r.report) && r.report.Errno == 0 {
				l.stamped(&r.report, steps)
			}
		}
		if n < r.reports.Len() {
			return
		}
	}
}

// stepsNow returns the clock's steps, read anew when there are stamps.
func (r *Reflector) stepsNow(n int) uint32 {
	if n > 0 {
		r.clock.Update()
	}
	return r.clock.Steps()
}

// stamped queues a send stamp of the same source as the answer's receive stamp, unless
// the clock was stepped since the probe arrived or the session is gone.
func (l *listener) stamped(report *timestamping.Report, steps uint32) {
	e := &l.sent[report.Count%countRing]
	s := e.session
	stamped, method := report.Stamp, stamp.SoftwareLocal
	if s != nil && e.hardware {
		stamped, method = report.Hardware, stamp.HardwareAssist
	}
	if s == nil || e.count != report.Count || stamped == 0 {
		return
	}
	e.session = nil
	if s.generation != e.generation || e.steps != steps {
		return
	}
	s.push(stamp.FollowUp{
		Sequence: e.sequence, Timestamp: stamp.FromUnixNano(stamped), Method: method,
	})
}

// readDrops reads the drop counters: they come with every datagram, but after the
// drops there may be none.
func (r *Reflector) readDrops() {
	for _, l := range r.listeners {
		if l == nil {
			continue
		}
		drops, err := l.Drops()
		if err != nil {
			r.options.Logger.Error("cannot read the drop counter", "socket", l.key.String(), "err", err)
			continue
		}
		l.overflowed(drops)
	}
}

func (l *listener) overflowed(drops uint32) {
	if more := int32(drops - l.drops); more > 0 {
		l.drops = drops
		l.counters.Overflowed(uint32(more))
	}
}
