package echo

import (
	"encoding/binary"
	"math/rand/v2"

	"vigia/probes/icmp"
	"vigia/probes/protocol"
	"vigia/probes/timestamping"
)

var _ protocol.Tracer = Protocol{}

// trace traces with echo requests. What nobody can guess is the nonce in the payload: an
// answer returns it, and so does an ICMP error that quotes the packet.
type trace struct {
	socket *timestamping.Socket
	id     uint16
	v6     bool
	packet []byte
	nonces []uint64 // by sequence number
}

// NewTrace returns what makes the packets of a trace.
func (Protocol) NewTrace(s *protocol.Session, id uint16) protocol.Trace {
	v6 := s.Address.Addr().Is6()
	return &trace{socket: s.Socket, id: id, v6: v6, packet: icmp.New(defaultSize, v6, uint64(id))}
}

// Request returns the next packet.
func (t *trace) Request(sequence uint32) []byte {
	t.nonces = append(t.nonces, rand.Uint64())
	icmp.Probe{ID: t.socket.Local().Port(), SSID: t.id, Sequence: sequence, Nonce: t.nonces[sequence]}.Put(t.packet)
	return t.packet
}

func (t *trace) ours(p *icmp.Probe) bool {
	return p.SSID == t.id && uint64(p.Sequence) < uint64(len(t.nonces)) && t.nonces[p.Sequence] == p.Nonce
}

// Answered reads an answer. The other kernel does not tell what it saw.
func (t *trace) Answered(b []byte) (a protocol.Traced, ok bool) {
	if t.socket.Raw() && !t.v6 {
		b = icmp.StripIPv4(b)
	}
	p, ok := icmp.ParseReply(b, t.v6)
	return protocol.Traced{Sequence: p.Sequence}, ok && t.ours(&p)
}

// Quoted reads a quoted packet.
func (t *trace) Quoted(b []byte) (sequence uint32, q protocol.Quote) {
	if len(b) < icmp.HeaderSize+icmp.MinSize {
		return 0, protocol.QuotesLittle
	}
	be := binary.BigEndian
	p := icmp.Probe{
		SSID: be.Uint16(b[icmp.HeaderSize:]), Sequence: be.Uint32(b[icmp.HeaderSize+4:]), Nonce: be.Uint64(b[icmp.HeaderSize+8:]),
	}
	if !t.ours(&p) {
		return 0, protocol.QuotesAnother
	}
	return p.Sequence, protocol.QuotesOurs
}
