package stamp

import (
	"encoding/binary"
	"net/netip"
	"time"

	"vigia/probes/delay"
	"vigia/probes/protocol"
	wire "vigia/probes/stamp"
	"vigia/probes/timestamping"
)

// handler makes the packets of a socket's sessions and reads their answers.
type handler struct {
	env   *protocol.LocalClock
	table *protocol.Table

	// Of our clock, made of env when that has changed.
	estimate     wire.ErrorEstimate
	clockError   time.Duration
	synchronized bool

	// Of the answer that was read last.
	mode  wire.Mode
	reply wire.Reply
	tlvs  tlvAnswers
}

// NewHandler returns the handler of a socket.
func (Protocol) NewHandler(env *protocol.LocalClock, table *protocol.Table, _ *timestamping.Socket) protocol.Handler {
	h := &handler{env: env, table: table, clockError: -1}
	h.updateEstimate()
	return h
}

func (h *handler) updateEstimate() {
	if h.clockError != h.env.Error || h.synchronized != h.env.Synchronized {
		h.clockError, h.synchronized = h.env.Error, h.env.Synchronized
		h.estimate = wire.NewErrorEstimate(h.synchronized, h.clockError)
	}
}

// Write writes a probe into the session's packet.
func (h *handler) Write(s *protocol.Session, p *protocol.Probe) []byte {
	ses := s.State.(*session)
	h.updateEstimate()
	if ses.hardware != s.Hardware {
		ses.hardware = s.Hardware
		ses.layout.AskHardware(ses.packet, s.Hardware)
	}
	if ses.evidence.canAsk {
		ses.layout.AskForWindow(ses.packet, ses.evidence.takeAsk(p.Sequence))
	}
	sent := wire.FromUnixNano(p.Sent)
	p.Nonce = uint64(sent)
	ses.layout.PutMeasurement(ses.packet, uint32(p.Sequence)+1)
	ses.layout.Mode.PutRequest(ses.packet, wire.Request{
		Sequence: uint32(p.Sequence), Timestamp: sent, ErrorEstimate: h.estimate, SSID: s.ID,
	})
	if ses.keys != nil {
		ses.keys.Sign(ses.packet, 0)
	}
	return ses.packet
}

// Header reads which probe a datagram answers.
func (h *handler) Header(d *timestamping.Datagram, header *protocol.Header) protocol.Reading {
	var ok bool
	h.mode = wire.Unauthenticated
	h.reply, ok = h.mode.ParseReply(d.Payload)
	if s := h.table.ByID(h.reply.SSID); s == nil || s.Address != d.From || modeOf(s) != h.mode {
		// A reflector has one mode for all sessions of an address.
		if peers := h.table.Peers(d.From); len(peers) > 0 && modeOf(peers[0]) != h.mode {
			h.mode = modeOf(peers[0])
			h.reply, ok = h.mode.ParseReply(d.Payload)
		}
	}
	if !ok {
		return protocol.Damaged
	}
	// A reflector that knows nothing of identifiers returns zeros there (RFC 8762).
	*header = protocol.Header{
		ID: h.reply.SSID, Anonymous: h.reply.SSID == 0, Sequence: h.reply.SenderSequence, Nonce: uint64(h.reply.SenderTimestamp),
	}
	return protocol.Readable
}

func modeOf(s *protocol.Session) wire.Mode { return s.State.(*session).layout.Mode }

// Read checks an answer and takes its stamps. What no key vouches for is not read.
func (h *handler) Read(s *protocol.Session, a *protocol.Arrival, answer *protocol.Answer) bool {
	ses := s.State.(*session)
	if ses.layout.Mode != h.mode || !ses.intact(a.Payload) {
		return false
	}
	h.tlvs = tlvAnswers{}
	if ses.keys != nil {
		key, ok := ses.keys.Verify(a.Payload)
		if !ok {
			return false
		}
		if ses.keys.VerifyTLVs(a.Payload, key) {
			h.tlvs.read(ses, a.Payload)
		}
	} else {
		h.tlvs.read(ses, a.Payload)
	}
	r := &h.reply
	format := r.ErrorEstimate.Format()
	answer.T2 = r.ReceiveTimestamp.UnixNano(format, a.Realtime)
	answer.T3 = r.Timestamp.UnixNano(format, a.Realtime)
	answer.ErrorBound = h.errorBound(r.ErrorEstimate)
	// Without a follow-up the stamps will not become better than they are.
	answer.Incomplete = h.tlvs.knowsFollowUp
	answer.Rewritten = h.tlvs.rewritten(s.DSCP, a.TOS>>2)
	return true
}

// errorBound returns how far our clock and the reflector's may be apart, or -1.
func (h *handler) errorBound(theirs wire.ErrorEstimate) int64 {
	if !h.estimate.Synchronized() || !theirs.Synchronized() {
		return -1
	}
	return int64((h.estimate.Seconds() + theirs.Seconds()) * 1e9)
}

// Learn takes what the answer tells of the way that other probes went, and the
// reflector's send stamp of an earlier answer.
func (h *handler) Learn(s *protocol.Session, sequence uint64) *protocol.Slot {
	ses := s.State.(*session)
	ses.evidence.learn(sequence, h.reply.Sequence, &h.tlvs, s.Ending)
	if h.tlvs.followUp.Timestamp == 0 {
		return nil
	}
	return ses.complete(&h.tlvs.followUp, h.reply.ErrorEstimate.Format())
}

// complete puts the reflector's send stamp of an earlier answer where it belongs, and
// returns its probe. A reflector that follows up stamps arrivals in the same way.
func (ses *session) complete(f *wire.FollowUp, format wire.Format) *protocol.Slot {
	slot := ses.evidence.answeredAs(f.Sequence)
	if slot == nil || slot.Value.State != protocol.Waiting {
		return nil
	}
	st := &slot.Value.Stamps
	st.T3 = f.Timestamp.UnixNano(format, st.T3)
	switch f.Method {
	case wire.SoftwareLocal:
		st.Kernel |= delay.T2 | delay.T3
	case wire.HardwareAssist:
		st.Kernel |= delay.T2 | delay.T3
		st.Far = delay.Hardware
	default:
		return nil // no stamp that could be compared
	}
	return slot
}

// QuotedID reads the session's identifier from a probe.
func (h *handler) QuotedID(to netip.AddrPort, packet []byte) (id uint16, ok bool) {
	mode := wire.Unauthenticated
	if peers := h.table.Peers(to); len(peers) > 0 {
		mode = modeOf(peers[0])
	}
	at := mode.SSIDOffset()
	if len(packet) < at+2 {
		return 0, false
	}
	return binary.BigEndian.Uint16(packet[at:]), true
}

// tlvAnswers is what the TLVs of an answer say.
type tlvAnswers struct {
	followUp       wire.FollowUp
	window         wire.ReceivedWindow
	service        wire.ClassOfService
	measurement    wire.DirectMeasurement
	knowsFollowUp  bool // whether or not it had something to say
	hasWindow      bool
	hasService     bool
	hasMeasurement bool
}

// read takes the TLVs that the reflector knew.
func (t *tlvAnswers) read(ses *session, payload []byte) {
	if ses.layout.FollowUp == 0 {
		return // a request without TLVs
	}
	tlvs := ses.layout.Mode.TLVs(payload)
	for v, whole := tlvs.Next(); v != nil && whole; v, whole = tlvs.Next() {
		if v.Flags() != 0 {
			continue
		}
		switch v.Type() {
		case wire.TypeFollowUp:
			t.followUp, t.knowsFollowUp = wire.ParseFollowUp(v)
		case wire.TypeReceivedWindow:
			t.window, t.hasWindow = wire.ParseReceivedWindow(v)
		case wire.TypeClassOfService:
			t.service, t.hasService = wire.ParseClassOfService(v)
		case wire.TypeDirectMeasurement:
			t.measurement, t.hasMeasurement = wire.ParseDirectMeasurement(v)
		}
	}
}

// rewritten says on which way the DSCP was changed, when the answer arrived with got. On
// the way back only a reflector that knows the TLV can be trusted to have used the one
// asked for.
func (t *tlvAnswers) rewritten(sent, got uint8) (on [delay.RoundTrip]bool) {
	if !t.hasService {
		return on
	}
	on[delay.Forward] = t.service.Received != sent
	on[delay.Reverse] = !t.service.Refused && got != sent
	return on
}
