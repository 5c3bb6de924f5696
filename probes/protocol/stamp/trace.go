package stamp

import (
	"encoding/binary"
	"math/rand/v2"
	"time"

	"vigia/probes/protocol"
	wire "vigia/probes/stamp"
)

var _ protocol.Tracer = Protocol{}

// traceRoom is what a packet of a trace has beside its base: a Class of Service TLV, which
// tells the DSCP that arrived, and what NewLayout puts before it.
const traceRoom = wire.FollowUpSize + wire.ReceivedWindowSize + wire.ClassOfServiceSize

// trace traces with STAMP packets. What nobody can guess is the time stamp, whose last bits are
// random: an answer returns it, and so does an ICMP message that quotes the packet.
type trace struct {
	layout wire.Layout
	keys   *wire.Keyring
	id     uint16
	packet []byte
	sent   []wire.Timestamp // by sequence number
}

// NewTrace returns what makes the packets of a trace.
func (p Protocol) NewTrace(s *protocol.Session, id uint16) protocol.Trace {
	mode := p.Keys.Mode()
	size := mode.BaseSize() + traceRoom
	if mode == wire.Authenticated {
		size += wire.HMACSize
	}
	t := &trace{keys: p.Keys.Keyring(), id: id}
	t.layout, _ = wire.NewLayout(mode, size)
	t.packet = t.layout.New(rand.Uint64())
	t.layout.PutService(t.packet, wire.ClassOfService{Wanted: s.DSCP})
	return t
}

// randomBits are the last bits of a time stamp, 2^-32 s each: about a quarter of a millisecond,
// which nobody needs to know here.
const randomBits = 1<<20 - 1

// Request returns the next packet.
func (t *trace) Request(sequence uint32) []byte {
	sent := wire.FromUnixNano(time.Now().UnixNano())&^randomBits | wire.Timestamp(rand.Uint64()&randomBits)
	t.sent = append(t.sent, sent)
	t.layout.Mode.PutRequest(t.packet, wire.Request{
		Sequence: sequence, Timestamp: sent, ErrorEstimate: wire.NewErrorEstimate(false, time.Second), SSID: t.id,
	})
	if t.keys != nil {
		t.keys.Sign(t.packet, 0)
	}
	return t.packet
}

func (t *trace) ours(sequence uint32, sent wire.Timestamp) bool {
	return uint64(sequence) < uint64(len(t.sent)) && t.sent[sequence] == sent
}

// Answered reads an answer.
func (t *trace) Answered(b []byte) (a protocol.Traced, ok bool) {
	mode := t.layout.Mode
	r, ok := mode.ParseReply(b)
	if !ok || !t.ours(r.SenderSequence, r.SenderTimestamp) {
		return a, false
	}
	a.Sequence, a.HopLimit = r.SenderSequence, r.SenderTTL
	if t.keys != nil {
		key, ok := t.keys.Verify(b)
		if !ok {
			return protocol.Traced{}, false
		}
		if !t.keys.VerifyTLVs(b, key) {
			return a, true
		}
	}
	tlvs := mode.TLVs(b)
	for tlv, whole := tlvs.Next(); tlv != nil && whole; tlv, whole = tlvs.Next() {
		if tlv.Type() != wire.TypeClassOfService || tlv.Flags() != 0 {
			continue
		}
		if c, ok := wire.ParseClassOfService(tlv); ok {
			a.DSCP, a.Seen = c.Received, true
		}
	}
	return a, true
}

// Quoted reads a quoted packet.
func (t *trace) Quoted(b []byte) (sequence uint32, q protocol.Quote) {
	mode := t.layout.Mode
	if len(b) < mode.SSIDOffset()+2 {
		return 0, protocol.QuotesLittle
	}
	sequence = binary.BigEndian.Uint32(b)
	if binary.BigEndian.Uint16(b[mode.SSIDOffset():]) != t.id || !t.ours(sequence, mode.Timestamp(b)) {
		return 0, protocol.QuotesAnother
	}
	return sequence, protocol.QuotesOurs
}
