package sender

import (
	"bytes"
	"net/netip"
	"syscall"

	"vigia/probes/accounting"
	"vigia/probes/delay"
	"vigia/probes/icmp"
	"vigia/probes/stamp"
	"vigia/probes/timestamping"
)

type slot = accounting.Slot[Probe]

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
	trouble     trouble
	target      Target
	current     []*session // one per source port; none while paused
	retired     []*session // only wait for what is in flight
}

// trouble is the last thing that went wrong with a target.
type trouble struct {
	err error
	at  int64 // CLOCK_REALTIME
}

// session is a STAMP session: probes of one target from one socket to one
// address.
type session struct {
	target  Target
	series  *series
	window  *accounting.Window[Probe]
	layout  stamp.Layout
	keys    *stamp.Keyring // nil in unauthenticated mode
	packet  []byte
	padding []byte
	// hardware tells that the device that the probes leave by stamps in hardware.
	hardware bool

	socket  *socket // nil while it is not open
	ssid    uint16
	address netip.AddrPort // not valid while unresolved
	peer    timestamping.Peer
	nameErr error // why address is not valid; nil before the first look-up

	turn     int   // among the source ports of the target
	next     int64 // when the next probe is due
	launched uint64
	closings int // probes sent after the last, to fetch its follow-up
	finished bool
	retired  bool

	attempt   uint64 // sequence number of the connection under way
	attempted bool   // one is

	settled   uint64   // no probe below it waits for stamps
	waiting   int      // answered probes that do
	reflected []uint64 // sequence number + 1 by the reflector's sequence number

	ways  ways
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
	ses := &session{target: t, series: s, window: accounting.NewWindow[Probe](nil, t.capacity())}
	if s != nil {
		ses.window.Adopt(&s.counts)
	}
	if t.Channel.Protocol == timestamping.UDP {
		ses.keys, ses.grace = t.Keys.Keyring(), t.grace()
		ses.layout, _ = stamp.NewLayout(t.Keys.Mode(), t.Size)
		ses.packet = ses.layout.New(uint64(t.Size)<<32 | uint64(t.Port))
		ses.layout.PutService(ses.packet, stamp.ClassOfService{Wanted: t.DSCP})
		ses.padding = bytes.Clone(ses.layout.PaddingOf(ses.packet))
	}
	ring := accounting.MinCapacity
	for ring < t.capacity() {
		ring *= 2
	}
	ses.reflected = make([]uint64, ring)
	for i := range ses.timers {
		ses.timers[i].index = -1
	}
	return ses
}

// setAddress sets where the probes go.
func (s *session) setAddress(a netip.Addr) {
	s.address = netip.AddrPortFrom(a, s.target.Port)
	s.peer = timestamping.NewPeer(s.address)
	s.nameErr = nil
	if s.target.Channel.Protocol == timestamping.ICMP {
		s.packet = icmp.New(s.target.Size, a.Is6(), uint64(s.target.Size))
	}
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

// echoes reports whether a reply returns the time stamp of a probe of this
// session.
func (s *session) echoes(r *stamp.Reply) bool {
	sequence, ok := s.window.Expand(r.SenderSequence)
	if !ok {
		return false
	}
	slot := s.window.Lookup(sequence)
	return slot != nil && slot.Value.echo == r.SenderTimestamp
}

// intact reports whether a reply brings the padding back unchanged. A reflector
// that does not know the padding TLV may do with it what it likes; one that does
// returns the TLV with its flags cleared.
func (s *session) intact(reply []byte) bool {
	if len(reply) > s.layout.Size {
		return false
	}
	got := s.layout.PaddingOf(reply)
	if len(got) == 0 {
		return true
	}
	t := stamp.TLV(reply[s.layout.Size-len(got)-stamp.TLVHeaderSize:])
	return t.Type() != stamp.TypeExtraPadding || t.Flags() != 0 || bytes.Equal(got, s.padding)
}

// reflectedSlot returns the probe that the reflector answered under its sequence
// number, if it still waits for its stamps.
func (s *session) reflectedSlot(sequence uint32) *slot {
	entry := s.reflected[uint64(sequence)%uint64(len(s.reflected))]
	if entry == 0 {
		return nil
	}
	slot := s.window.Lookup(entry - 1)
	if slot == nil || slot.Value.State != Waiting || slot.Value.reflected != sequence {
		return nil
	}
	return slot
}

// quiet reports whether nothing is in flight and nothing waits for stamps.
func (s *session) quiet() bool {
	_, flying := s.window.Deadline()
	return !flying && s.waiting == 0
}

// fail remembers what went wrong.
func (s *series) fail(err error, realtime int64) { s.trouble = trouble{err: err, at: realtime} }

// failErrno does the same without allocating for an error that repeats.
func (s *series) failErrno(errno syscall.Errno, realtime int64) {
	if s.trouble.err != error(errno) {
		s.trouble.err = errno
	}
	s.trouble.at = realtime
}
