package sender

import (
	"net/netip"
	"syscall"

	"vigia/probes/accounting"
	"vigia/probes/delay"
	"vigia/probes/protocol"
	"vigia/probes/timestamping"
)

// series is what a target keeps over a change of its address or parameters.
type series struct {
	labels      Labels
	counts      accounting.Counts
	recorder    Recorder
	jitter      delay.Jitter
	admission   delay.Admission
	quarantined [delay.NumVerdicts]uint64
	rewritten   [2]uint64 // DSCP, by delay.Direction
	errorBound  int64     // of the last answered probe
	answered    int64     // when the last answer was read, CLOCK_MONOTONIC
	launched    bool
	lastError   lastError
	target      Target
	current     []*session // one per source port; none while paused
	retired     []*session // only wait for what is in flight
}

// lastError is the last thing that went wrong with a target.
type lastError struct {
	err error
	at  int64 // CLOCK_REALTIME
}

// session is probes of one target from one socket to one address.
type session struct {
	protocol.Session
	target   Target
	series   *series
	locator  protocol.LossLocator // nil when nobody knows where a probe was lost
	exchange protocol.Exchange    // nil when probes are sent in batches

	socket  *socket // nil while it is not open
	peer    timestamping.Peer
	nameErr error // why Address is not valid; nil before the first look-up

	flowIndex int   // among the source ports of the target
	next      int64 // when the next probe is due
	launched  uint64
	closings  int // probes sent after the last, for what their answers tell
	finished  bool
	retired   bool

	exchangeSequence uint64 // sequence number of the exchange under way
	exchanging       bool   // one is

	settled uint64 // no probe below it waits for stamps
	waiting int    // answered probes that do

	grace int64  // after the deadline, for evidence of where a probe was lost
	runs  uint64 // no probe below it can still change the run of losses
	run   uint64 // length of the present run of losses

	timers [numQueues]timer
}

// timer is the session's place in a queue.
type timer struct {
	at    int64
	index int // -1 when not queued
}

func newSession(t Target, s *series) *session {
	ses := &session{target: t, series: s, Session: protocol.Session{
		Host: t.Host, Netns: t.Netns, Source: t.Source, Port: t.Port, Size: t.Size, DSCP: t.DSCP,
		Interval: t.Interval, Deadline: t.Deadline, Channel: t.Channel,
		Window: accounting.NewWindow[protocol.Probe](nil, t.capacity()),
	}}
	if s != nil {
		ses.Window.Adopt(&s.counts)
	}
	ses.Owner = ses
	ses.State = t.Protocol.NewSession(&ses.Session)
	ses.exchange, _ = ses.State.(protocol.Exchange)
	if ses.locator, _ = ses.State.(protocol.LossLocator); ses.locator != nil {
		ses.grace = t.grace(ses.locator.AnswersNeeded())
	}
	for i := range ses.timers {
		ses.timers[i].index = -1
	}
	return ses
}

// sessionOf returns the sender's side of a session.
func sessionOf(s *protocol.Session) *session { return s.Owner.(*session) }

// setAddress sets where the probes go.
func (s *session) setAddress(a netip.Addr) {
	s.Address = netip.AddrPortFrom(a, s.target.Port)
	s.peer = timestamping.NewPeer(s.Address)
	s.nameErr = nil
}

// delivery says how far an unanswered probe came.
func (s *session) delivery(slot *protocol.Slot) protocol.Delivery {
	if s.locator == nil {
		return protocol.DeliveryUnknown
	}
	return s.locator.Delivery(slot)
}

// advance returns when the probe that is due was meant to be sent, and moves on
// to the next. Those that are overdue by a whole interval are skipped and counted:
// the schedule never catches up in a burst. The one that is sent keeps its time,
// so that its lag and its delay tell of the whole stall.
func (s *session) advance(now int64) (intended int64) {
	intended = s.next
	interval := s.interval()
	missed := max(now-intended, 0) / interval
	if !s.done() {
		s.series.counts.Skipped += uint64(missed)
	}
	s.next = intended + (missed+1)*interval
	return intended
}

// closingInterval is the time between the probes that fetch the last follow-up.
const closingInterval = int64(20e6)

func (s *session) interval() int64 {
	if s.done() {
		return min(int64(s.target.Interval), closingInterval)
	}
	return int64(s.target.Interval)
}

// done reports whether a counted target has sent all its probes.
func (s *session) done() bool { return s.target.Count > 0 && s.launched >= s.target.Count }

// idle reports whether nothing is in flight and nothing waits for stamps.
func (s *session) idle() bool {
	_, flying := s.Window.Deadline()
	return !flying && s.waiting == 0
}

// fail remembers what went wrong.
func (s *series) fail(err error, realtime int64) { s.lastError = lastError{err: err, at: realtime} }

// failErrno does the same without allocating for an error that repeats.
func (s *series) failErrno(errno syscall.Errno, realtime int64) {
	if s.lastError.err != error(errno) {
		s.lastError.err = errno
	}
	s.lastError.at = realtime
}
