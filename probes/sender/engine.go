package sender

import (
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"

	"vigia/probes/delay"
	"vigia/probes/eventloop"
	"vigia/probes/protocol"
	"vigia/probes/resolver"
	"vigia/probes/sockets"
	"vigia/probes/timestamping"
)

const (
	// batch is how many packets one system call moves.
	batch = 64
	// maxRounds bounds how many batches are read from one socket before the
	// others get their turn.
	maxRounds = 16
	// minDatagram is the least size of a receive buffer, in bytes.
	minDatagram = 2048
	// clockErrorAge is how long our clock's error is used.
	clockErrorAge = int64(10 * time.Second)
	// readDelay is how long after the last probe its answer and send stamp are read at the
	// latest, in nanoseconds. The kernel has stamped them, so it is no part of any delay;
	// they are read with the next probe that is due before.
	readDelay = int64(50 * time.Millisecond)
	// burstReadDelay is the same after a whole batch, whose answers fill small buffers.
	burstReadDelay = int64(2 * time.Millisecond)
)

// Point is where a time stamp was taken, Source by what.
type (
	Point  uint8
	Source uint8
)

// The points and sources, in the order of their names.
const (
	TX Point = iota
	RX
	ReflectorRX
	ReflectorTX
	NumPoints = iota
)

// The sources.
const (
	Hardware Source = iota
	Kernel
	User
	NumSources = iota
)

// String returns the point as the label value point.
func (p Point) String() string {
	return [NumPoints]string{"tx", "rx", "reflector_rx", "reflector_tx"}[p]
}

// String returns the source as the label value source.
func (s Source) String() string {
	return [NumSources]string{"hardware", "kernel", "user"}[s]
}

// engine does the work. All of it runs on the loop's thread.
type engine struct {
	loop   *eventloop.Loop
	clock  *timestamping.Clock
	bound  Bound
	logger *slog.Logger

	series  map[Labels]*series
	sockets map[sockets.Key]*socket
	closed  map[sockets.Key]error // why a socket is not open
	tokens  []*socket             // by token; nil where one is free
	due     queue
	settle  queue

	outbox   *timestamping.Outbox
	inbox    *timestamping.Inbox
	reports  *timestamping.ErrorQueue
	datagram timestamping.Datagram
	report   timestamping.Report
	header   protocol.Header // of the answer at hand
	arrival  protocol.Arrival
	reading  protocol.Answer
	unsent   []*socket // with pending launches
	readDue  int64     // when sockets are read at the latest; 0 when nothing was sent since
	flushed  int       // packets of this wake-up

	localClock    protocol.LocalClock
	clockErrorDue int64 // when our clock's error is asked for again
	stamps        [NumPoints][NumSources]uint64
	stray         uint64
}

func newEngine(logger *slog.Logger, bound Bound) (*engine, error) {
	clock, err := timestamping.NewClock()
	if err != nil {
		return nil, err
	}
	loop, err := eventloop.New()
	if err != nil {
		return nil, err
	}
	return &engine{
		loop: loop, clock: clock, logger: logger, bound: bound,
		series: make(map[Labels]*series), sockets: make(map[sockets.Key]*socket),
		closed: make(map[sockets.Key]error),
		due:    queue{kind: dueQueue}, settle: queue{kind: settleQueue},
		outbox: timestamping.NewOutbox(batch), inbox: timestamping.NewInbox(batch, minDatagram),
		reports: timestamping.NewErrorQueue(batch),
	}, nil
}

// Ready handles one wake-up. What is due is sent first, since the rest can wait; then all
// that arrived is read, so that no answer that is there counts as missing; then deadlines.
func (e *engine) Ready(events []eventloop.Event) (wake int64) {
	now := e.clock.Update()
	for _, event := range events {
		if k := e.tokens[event.Token]; k != nil { // any change may be the end of an exchange
			e.progressAll(k, e.clock.Update())
		}
	}
	if e.readDue <= now {
		e.readDue = 0
	}
	e.transmitDue()
	e.read()
	e.settleDue(now)
	return e.nextWake(now)
}

// read reads what waits on the sockets of packets.
func (e *engine) read() {
	for range maxRounds {
		events, more, err := e.loop.Look()
		if err != nil {
			e.logger.Error("cannot read answers", "err", err)
			return
		}
		for _, event := range events {
			k := e.tokens[event.Token]
			if k == nil {
				continue
			}
			if event.Errors {
				e.readReports(k)
			}
			if event.Readable {
				e.receive(k)
			}
		}
		if !more {
			return
		}
	}
}

// nextWake returns when there is something to do next.
func (e *engine) nextWake(now int64) int64 {
	wake := e.due.at()
	if wake == 0 || e.readDue != 0 && e.readDue < wake {
		wake = e.readDue
	}
	e.postpone(wake, now)
	if settle := e.settle.at(); wake == 0 || settle != 0 && settle < wake {
		wake = settle
	}
	return wake
}

// postpone moves the deadlines that have been met by now out of the way: a wake-up before
// the next probe is worth its price only where something may be lost. until is 0 where
// there is no next probe.
func (e *engine) postpone(until, now int64) {
	for s := e.settle.first(); s != nil && (until == 0 || e.settle.at() < until) && !s.retired; s = e.settle.first() {
		at, ok := s.nextSettle(now)
		if !ok {
			e.settle.remove(s)
			continue
		}
		if at = onGrid(max(at, now+1)); at <= e.settle.at() {
			return
		}
		e.settle.set(s, at)
	}
}

// add starts a session; its socket and address may still be missing.
func (e *engine) add(s *session) {
	s.series.current = append(s.series.current, s)
	if s.exchange != nil {
		s.Wake = func() { e.wake(s) }
	}
	if k := e.socketFor(s); k != nil {
		e.adopt(k, s)
	}
	if s.MaxAnswer > e.inbox.Size() {
		e.inbox = timestamping.NewInbox(batch, s.MaxAnswer)
	}
	if s.Address.IsValid() || s.nameErr != nil {
		e.begin(s)
	}
}

// socketFor returns the session's socket, or nil while it is not open.
func (e *engine) socketFor(s *session) *socket {
	if s.target.Protocol.Traits().Socketless {
		return newSocket(sockets.Key{}, nil, 0, 1)
	}
	return e.sockets[s.target.key()]
}

// begin puts the session on the schedule, once.
func (e *engine) begin(s *session) {
	if s.timers[dueQueue].index >= 0 || s.finished || s.retired {
		return
	}
	s.next = s.target.start(e.clock.Now(), s.flowIndex)
	e.due.set(s, s.next)
}

// retire stops sending and keeps the session until nothing is in flight.
func (e *engine) retire(s *session) {
	s.retired = true
	e.due.remove(s)
	s.series.current = slices.DeleteFunc(s.series.current, func(o *session) bool { return o == s })
	s.series.retired = append(s.series.retired, s)
	e.settle.setEarlier(s, e.clock.Now())
}

// drop forgets the session with all that is in flight.
func (e *engine) drop(s *session) {
	s.retired = true
	e.due.remove(s)
	e.settle.remove(s)
	if s.socket != nil {
		e.endExchange(s)
		s.socket.forget(s)
	}
}

// remove takes a target away.
func (e *engine) remove(ser *series) {
	delete(e.series, ser.labels)
	for _, s := range slices.Concat(ser.retired, ser.current) {
		s.endRun()
		e.drop(s)
	}
	ser.recorder.Removed()
}

// attach starts to use a socket.
func (e *engine) attach(key sockets.Key, s *timestamping.Socket) {
	token := int32(0)
	for int(token) < len(e.tokens) && e.tokens[token] != nil {
		token++
	}
	if int(token) == len(e.tokens) {
		e.tokens = append(e.tokens, nil)
	}
	k := newSocket(key, s, token, uint16(rand.Uint32()))
	e.tokens[token], e.sockets[key] = k, k
	delete(e.closed, key)
	for _, ser := range e.series {
		for _, c := range ser.current {
			if c.socket == nil && c.target.key() == key {
				e.adopt(k, c)
			}
		}
	}
}

// adopt lets a session use a socket. The first says how the socket is watched: for
// datagrams that wait, or for anything that happens to it.
func (e *engine) adopt(k *socket, s *session) {
	if k.Socket != nil && !k.watched {
		add := e.loop.AddQuiet
		if s.exchange != nil {
			add = e.loop.AddChanges
		}
		if err := add(k.FD(), k.token); err != nil {
			e.logger.Error("cannot watch a socket", "socket", k.key.String(), "err", err)
			e.closed[k.key] = err
			return
		}
		k.watched = true
	}
	k.adopt(&e.localClock, s)
}

// detach stops using a socket. What is in flight on it will be lost.
func (e *engine) detach(key sockets.Key, reason error) {
	k := e.sockets[key]
	if k == nil {
		return
	}
	if k.watched {
		if err := e.loop.Remove(k.FD()); err != nil {
			e.logger.Error("cannot stop watching a socket", "socket", key.String(), "err", err)
		}
	}
	e.tokens[k.token] = nil
	delete(e.sockets, key)
	k.All(func(s *protocol.Session) bool {
		sessionOf(s).socket, s.Socket = nil, nil
		return true
	})
	e.closed[key] = reason
}

// setAddress takes the result of a look-up. A session whose address changes is
// replaced by another.
func (e *engine) setAddress(s *session, r resolver.Result) {
	switch {
	case r.Err != nil:
		if s.Address.IsValid() && s.socket != nil {
			s.socket.RemovePeer(&s.Session)
		}
		s.Address, s.nameErr = netip.AddrPort{}, r.Err
	case !s.Address.IsValid():
		s.setAddress(r.Address)
		if s.socket != nil {
			s.socket.AddPeer(&s.Session)
		}
	case s.Address.Addr() != r.Address:
		e.retire(s)
		successor := newSession(s.target, s.series)
		successor.launched, successor.flowIndex = s.launched, s.flowIndex
		successor.setAddress(r.Address)
		e.add(successor)
		return
	}
	e.begin(s)
}

// countStamps adds the sources of an answered probe's stamps.
func (e *engine) countStamps(p *protocol.Probe) {
	st := &p.Stamps
	add := func(point Point, bit delay.Points, by delay.Source) {
		source := User
		switch {
		case st.Kernel&bit != 0 && by == delay.Hardware:
			source = Hardware
		case st.Kernel&bit != 0:
			source = Kernel
		}
		e.stamps[point][source]++
	}
	add(TX, delay.T1, st.Source)
	add(RX, delay.T4, st.Source)
	if st.OneClock {
		return
	}
	add(ReflectorRX, delay.T2, st.Far)
	add(ReflectorTX, delay.T3, st.Far)
}
