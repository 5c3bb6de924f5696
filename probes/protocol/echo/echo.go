// Package echo probes with ICMP echo requests (RFC 792, RFC 4443), which the other kernel
// answers. The wire format is in vigia/probes/icmp.
package echo

import (
	"fmt"
	"net/netip"

	"vigia/probes/icmp"
	"vigia/probes/protocol"
	"vigia/probes/timestamping"
)

// Name is the protocol's name in the configuration.
const Name = "icmp"

// defaultSize is what ping(8) sends.
const defaultSize = 56

// Protocol is ICMP echo.
type Protocol struct{}

var (
	_ protocol.Packets  = Protocol{}
	_ protocol.Searcher = Protocol{}
)

// Traits say what the protocol is like.
func (Protocol) Traits() protocol.Traits {
	return protocol.Traits{
		Name: Name, Title: "ICMP", Noun: "an ICMP echo", Transport: timestamping.ICMP, Flows: protocol.OneFlow,
		Size: defaultSize, Sizes: fmt.Sprintf("%d to %d", icmp.MinSize, icmp.MaxSize),
	}
}

// CheckSize says what is wrong with the size of a probe, and what to write instead.
func (Protocol) CheckSize(size int) (problem, fix string) {
	if size < icmp.MinSize || size > icmp.MaxSize {
		return "is not a possible size of an ICMP probe", fmt.Sprintf("write %d to %d bytes of payload", icmp.MinSize, icmp.MaxSize)
	}
	return "", ""
}

// session is what is kept of a session.
type session struct {
	packet []byte // nil until the family of the address is known
}

// NewSession returns what is kept of a session.
func (Protocol) NewSession(s *protocol.Session) any {
	s.MaxAnswer = s.Size + protocol.MaxOverhead
	return &session{}
}

// handler makes the packets of a socket's sessions and reads their answers.
type handler struct {
	table  *protocol.Table
	socket *timestamping.Socket
	v6     bool
	packet []byte // that Header read last, without an IP header
}

// NewHandler returns the handler of a socket.
func (Protocol) NewHandler(_ *protocol.LocalClock, table *protocol.Table, socket *timestamping.Socket) protocol.Handler {
	return &handler{table: table, socket: socket, v6: socket.Local().Addr().Is6()}
}

// Write writes a probe into the session's packet.
func (h *handler) Write(s *protocol.Session, p *protocol.Probe) []byte {
	ses := s.State.(*session)
	if ses.packet == nil {
		ses.packet = icmp.New(s.Size, h.v6, uint64(s.Size))
	}
	p.Nonce = uint64(p.Sent)
	icmp.Probe{ID: h.socket.Local().Port(), SSID: s.ID, Sequence: uint32(p.Sequence), Nonce: p.Nonce}.Put(ses.packet)
	return ses.packet
}

// Header reads which probe a datagram answers.
func (h *handler) Header(d *timestamping.Datagram, header *protocol.Header) protocol.Reading {
	h.packet = d.Payload
	if h.socket.Raw() && !h.v6 {
		h.packet = icmp.StripIPv4(h.packet)
	}
	// A raw socket receives the answers to others, too.
	if id, ok := icmp.ID(h.packet); ok && id != h.socket.Local().Port() {
		return protocol.Foreign
	}
	r, ok := icmp.ParseReply(h.packet, h.v6)
	if !ok {
		return protocol.Damaged
	}
	*header = protocol.Header{ID: r.SSID, Sequence: r.Sequence, Nonce: r.Nonce}
	return protocol.Readable
}

// Read checks an answer. The other kernel leaves no stamps in it.
func (h *handler) Read(s *protocol.Session, _ *protocol.Arrival, answer *protocol.Answer) bool {
	answer.OneClock, answer.Incomplete = true, true
	return icmp.Intact(s.State.(*session).packet, h.packet)
}

// Learn learns nothing: an answer says nothing of other probes.
func (*handler) Learn(*protocol.Session, uint64) *protocol.Slot { return nil }

// QuotedID reads the session's identifier from a probe.
func (*handler) QuotedID(_ netip.AddrPort, packet []byte) (id uint16, ok bool) {
	return icmp.SSID(packet)
}
