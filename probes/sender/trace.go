package sender

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"syscall"

	"vigia/probes/protocol"
	"vigia/probes/timestamping"
)

const (
	// maxTraces is how many traces a socket knows at a time, those among them that have ended
	// as long as there is room: what comes back to them late is no stray datagram.
	maxTraces = 16
	// maxTracePackets bounds the packets of a trace, maxTraceReplies what is kept of what
	// comes back until it is read.
	maxTracePackets = 256
	maxTraceReplies = 512
)

// Trace sends packets of a target's own flow with hop limits of their own, from the socket of
// its probes: everything that chooses a way by addresses, ports, mark or class takes them for
// such. It is used from one goroutine at a time, not the sender's; each call takes the
// sender's thread for one packet at most, and waits for its turn. Neither the probes' accounts
// nor their stamps have any part of it.
type Trace struct {
	engine *engine
	target Target // of the flow
	from   netip.AddrPort
	to     netip.AddrPort

	// On the sender's thread.
	socket  *socket
	session *session
	maker   protocol.Trace
	outbox  *timestamping.Outbox
	peer    timestamping.Peer
	sent    []int64 // when each packet left, CLOCK_REALTIME
	replies []TraceReply
	ended   bool
}

// TraceReply is what came back to a packet of a trace.
type TraceReply struct {
	Sequence uint32
	From     netip.Addr // who sent it
	// RTT is from our send call to the kernel's stamp of the arrival, in nanoseconds.
	RTT int64
	// Answered says that it is the answer of the other end, which is in Far. All else is an
	// ICMP message: Type and Code are those of its version.
	Answered bool
	Far      protocol.Traced
	// DSCP is what the answer had when it arrived here.
	DSCP       uint8
	ICMPv6     bool
	Type, Code uint8
	Errno      syscall.Errno
	MTU        uint32 // of a message that says that a packet is too large
	// Verified says that the message quotes what only those on the way have seen. Others
	// quote too little to tell: they are put down to the last packet.
	Verified bool
}

// ErrNoTrace says that a target's protocol cannot trace hops.
var ErrNoTrace = errors.New("its protocol cannot trace hops")

// Trace begins a trace of a target's flow: that of its source port with the longest present run
// of losses. End must follow.
func (s *Sender) Trace(l Labels) (t *Trace, err error) {
	doErr := s.engine.loop.Do(func() { t, err = s.engine.beginTrace(l) })
	if doErr != nil {
		return nil, doErr
	}
	return t, err
}

func (e *engine) beginTrace(l Labels) (*Trace, error) {
	ser := e.series[l]
	if ser == nil || len(ser.current) == 0 {
		return nil, errors.New("it is not probed")
	}
	worst := ser.current[0]
	for _, s := range ser.current[1:] {
		if s.run > worst.run {
			worst = s
		}
	}
	maker, ok := worst.target.Protocol.(protocol.Tracer)
	switch {
	case !ok:
		return nil, ErrNoTrace
	case worst.socket == nil:
		return nil, errors.New("its socket is not open")
	case !worst.Address.IsValid():
		return nil, errors.New("its name has no address")
	case !worst.socket.roomForTrace():
		return nil, fmt.Errorf("its socket has %d traces already", maxTraces)
	}
	id, ok := worst.socket.Reserve()
	if !ok {
		return nil, errors.New("its socket has no identifier left")
	}
	t := &Trace{
		engine: e, target: worst.target, from: worst.Socket.Local(), to: worst.Address, socket: worst.socket, session: worst,
		maker: maker.NewTrace(&worst.Session, id), outbox: timestamping.NewOutbox(1), peer: worst.peer,
	}
	t.socket.traces = append(t.socket.traces, t)
	return t, nil
}

// Flow returns the addresses and ports of the flow, as far as the socket is bound to them; the
// port of an ICMP socket is its identifier.
func (t *Trace) Flow() (from, to netip.AddrPort) { return t.from, t.to }

// DSCP returns what packets leave with.
func (t *Trace) DSCP() uint8 { return t.target.DSCP }

// open returns why nothing can be sent any more, or nil.
func (t *Trace) open() error {
	if t.engine.sockets[t.socket.key] != t.socket {
		return errors.New("its socket was closed")
	}
	return nil
}

// Send sends a packet with a hop limit, 0 for the usual one, and returns its number.
func (t *Trace) Send(hopLimit uint8) (sequence uint32, err error) {
	doErr := t.engine.loop.Do(func() {
		if err = t.open(); err == nil {
			sequence, err = t.send(hopLimit)
		}
	})
	return sequence, errors.Join(doErr, err)
}

func (t *Trace) send(hopLimit uint8) (uint32, error) {
	if len(t.sent) == maxTracePackets {
		return 0, fmt.Errorf("a trace has at most %d packets", maxTracePackets)
	}
	sequence := uint32(len(t.sent))
	packet := t.maker.Request(sequence)
	t.outbox.Reset()
	t.outbox.Trace(t.outbox.Add(&t.peer, packet, t.session.target.tos(), netip.Addr{}), hopLimit)
	t.sent = append(t.sent, t.engine.clock.Realtime(t.engine.clock.Update()))
	_, err := t.outbox.Send(t.socket.Socket, 0)
	if isPending(err) { // an error of an earlier packet fails one call and is gone
		_, err = t.outbox.Send(t.socket.Socket, 0)
	}
	if err != nil {
		return sequence, fmt.Errorf("send a packet: %w", err)
	}
	return sequence, nil
}

// Read reads what waits on the socket, for the probes as well, and appends what came back to
// this trace since the last call.
func (t *Trace) Read(to []TraceReply) ([]TraceReply, error) {
	var err error
	doErr := t.engine.loop.Do(func() {
		if err = t.open(); err == nil {
			t.engine.readReports(t.socket)
			t.engine.receive(t.socket)
		}
		to = append(to, t.replies...)
		t.replies = t.replies[:0]
	})
	return to, errors.Join(doErr, err)
}

// End ends the trace. It must not be used any more.
func (t *Trace) End() {
	t.engine.do(func() { t.ended, t.replies = true, nil })
}

// roomForTrace reports whether there can be another trace, for which the oldest that has ended
// may have to go.
func (k *socket) roomForTrace() bool {
	if len(k.traces) < maxTraces {
		return true
	}
	oldest := slices.IndexFunc(k.traces, func(t *Trace) bool { return t.ended })
	if oldest < 0 {
		return false
	}
	k.traces = slices.Delete(k.traces, oldest, oldest+1)
	return true
}

func (t *Trace) add(r TraceReply, arrived int64) {
	if t.ended || len(t.replies) == maxTraceReplies {
		return
	}
	if arrived == 0 {
		arrived = t.engine.clock.Realtime(t.engine.clock.Now())
	}
	r.RTT = max(arrived-t.sent[r.Sequence], 0)
	t.replies = append(t.replies, r)
}

// traced reports whether a datagram that answers no probe answers a packet of a trace.
func (k *socket) traced(d *timestamping.Datagram) bool {
	for _, t := range k.traces {
		if d.From != t.to {
			continue
		}
		if a, ok := t.maker.Answered(d.Payload); ok {
			t.add(TraceReply{Sequence: a.Sequence, From: d.From.Addr(), Answered: true, Far: a, DSCP: d.TOS >> 2, Verified: true}, d.Stamp)
			return true
		}
	}
	return false
}

// tracedReport reports whether an error is about a packet of a trace.
func (k *socket) tracedReport(r *timestamping.Report) bool {
	for _, t := range k.traces {
		if r.To != t.to || len(t.sent) == 0 {
			continue
		}
		sequence, quote := t.maker.Quoted(r.Payload)
		if quote == protocol.QuotesAnother || quote == protocol.QuotesLittle && (t.ended || !r.HopsExceeded()) {
			continue
		}
		if quote == protocol.QuotesLittle {
			sequence = uint32(len(t.sent) - 1)
		}
		t.add(TraceReply{
			Sequence: sequence, From: r.From, ICMPv6: r.ICMPv6, Type: r.Type, Code: r.Code, Errno: r.Errno, MTU: r.MTU,
			Verified: quote == protocol.QuotesOurs,
		}, r.Arrived)
		return true
	}
	return false
}
