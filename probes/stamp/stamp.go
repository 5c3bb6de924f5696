// Package stamp encodes and decodes the packets of the Simple Two-way Active
// Measurement Protocol: the base packets of RFC 8762 in both modes, and the
// session identifier and TLVs of RFC 8972.
//
// Nothing here allocates per packet: packets are read and written in the caller's
// buffers.
package stamp

import "encoding/binary"

const (
	// Port is the UDP port of a Session-Reflector (RFC 8762 section 4.1).
	Port = 862
	// BaseSize is the size of an unauthenticated packet without TLVs, in
	// bytes, the same in both directions (RFC 8762 sections 4.2.1 and 4.3.1).
	BaseSize = 44
	// AuthenticatedSize is the same of an authenticated packet (RFC 8762
	// sections 4.2.2 and 4.3.2).
	AuthenticatedSize = 112
	// LightSize is the size of a TWAMP-Light reflector's packet (RFC 5357
	// section 4.2.1), and of a sender's that pads for symmetry (RFC 6038
	// section 5.1.4): a STAMP packet without the last three zeros.
	LightSize = 41
	// MaxSize is the largest UDP payload over IPv4, in bytes.
	MaxSize = 65507
)

// Mode is how packets are protected. Both ends of a session are configured with
// the same (RFC 8762 section 4).
type Mode uint8

// The modes.
const (
	Unauthenticated Mode = iota
	Authenticated
	numModes = iota
)

// offsets say where the fields are. The reflector's packet starts like the
// sender's and goes on with what it copies from it.
type offsets struct {
	base, least                                 int
	timestamp, estimate, ssid, receive          int
	senderSequence, senderStamp, senderEstimate int
	senderTTL                                   int
}

var layouts = [numModes]offsets{
	Unauthenticated: {
		base: BaseSize, least: LightSize, timestamp: 4, estimate: 12, ssid: 14, receive: 16,
		senderSequence: 24, senderStamp: 28, senderEstimate: 36, senderTTL: 40,
	},
	Authenticated: {
		base: AuthenticatedSize, least: AuthenticatedSize, timestamp: 16, estimate: 24, ssid: 26, receive: 32,
		senderSequence: 48, senderStamp: 64, senderEstimate: 72, senderTTL: 80,
	},
}

// BaseSize returns the size of a packet without TLVs in bytes.
func (m Mode) BaseSize() int { return layouts[m].base }

// Request is a Session-Sender's packet (RFC 8762 section 4.2, with the session
// identifier of RFC 8972 section 3).
type Request struct {
	Sequence      uint32
	Timestamp     Timestamp
	ErrorEstimate ErrorEstimate
	SSID          uint16
}

// Put writes the request's fields into an unauthenticated packet.
func (r Request) Put(b []byte) { Unauthenticated.PutRequest(b, r) }

// PutRequest writes the request's fields into b, which must hold the base packet.
// It leaves the bytes that must be zero, and the HMAC, as they are.
func (m Mode) PutRequest(b []byte, r Request) {
	o := &layouts[m]
	_ = b[o.base-1]
	binary.BigEndian.PutUint32(b, r.Sequence)
	binary.BigEndian.PutUint64(b[o.timestamp:], uint64(r.Timestamp))
	binary.BigEndian.PutUint16(b[o.estimate:], uint16(r.ErrorEstimate))
	binary.BigEndian.PutUint16(b[o.ssid:], r.SSID)
}

// ParseRequest reads an unauthenticated request.
func ParseRequest(b []byte) (Request, bool) { return Unauthenticated.ParseRequest(b) }

// ParseRequest reads a Session-Sender's packet. ok is false when b is too short.
// What is too short for STAMP but not for TWAMP Light has padding where the
// session identifier would be.
func (m Mode) ParseRequest(b []byte) (r Request, ok bool) {
	o := &layouts[m]
	if len(b) < o.least {
		return Request{}, false
	}
	r = Request{
		Sequence:      binary.BigEndian.Uint32(b),
		Timestamp:     Timestamp(binary.BigEndian.Uint64(b[o.timestamp:])),
		ErrorEstimate: ErrorEstimate(binary.BigEndian.Uint16(b[o.estimate:])),
	}
	if len(b) >= o.base {
		r.SSID = binary.BigEndian.Uint16(b[o.ssid:])
	}
	return r, true
}

// Reply is a Session-Reflector's packet (RFC 8762 section 4.3).
type Reply struct {
	Sequence            uint32 // the reflector's own count when it is stateful
	Timestamp           Timestamp
	ErrorEstimate       ErrorEstimate
	SSID                uint16
	ReceiveTimestamp    Timestamp
	SenderSequence      uint32
	SenderTimestamp     Timestamp
	SenderErrorEstimate ErrorEstimate
	SenderTTL           uint8
}

// Put writes the reply into an unauthenticated packet.
func (r Reply) Put(b []byte) { Unauthenticated.PutReply(b, r) }

// PutReply writes the reply into the base packet at the start of b, zeros
// included, without the HMAC.
func (m Mode) PutReply(b []byte, r Reply) {
	o := &layouts[m]
	end := min(len(b), o.base-m.hmacSize())
	clear(b[4:end])
	binary.BigEndian.PutUint32(b, r.Sequence)
	binary.BigEndian.PutUint64(b[o.timestamp:], uint64(r.Timestamp))
	binary.BigEndian.PutUint16(b[o.estimate:], uint16(r.ErrorEstimate))
	binary.BigEndian.PutUint16(b[o.ssid:], r.SSID)
	binary.BigEndian.PutUint64(b[o.receive:], uint64(r.ReceiveTimestamp))
	binary.BigEndian.PutUint32(b[o.senderSequence:], r.SenderSequence)
	binary.BigEndian.PutUint64(b[o.senderStamp:], uint64(r.SenderTimestamp))
	binary.BigEndian.PutUint16(b[o.senderEstimate:], uint16(r.SenderErrorEstimate))
	b[o.senderTTL] = r.SenderTTL
}

// ParseReply reads an unauthenticated reply.
func ParseReply(b []byte) (Reply, bool) { return Unauthenticated.ParseReply(b) }

// ParseReply reads a Session-Reflector's packet. ok is false when b is too short.
func (m Mode) ParseReply(b []byte) (r Reply, ok bool) {
	o := &layouts[m]
	if len(b) < o.least {
		return Reply{}, false
	}
	return Reply{
		Sequence:            binary.BigEndian.Uint32(b),
		Timestamp:           Timestamp(binary.BigEndian.Uint64(b[o.timestamp:])),
		ErrorEstimate:       ErrorEstimate(binary.BigEndian.Uint16(b[o.estimate:])),
		SSID:                binary.BigEndian.Uint16(b[o.ssid:]),
		ReceiveTimestamp:    Timestamp(binary.BigEndian.Uint64(b[o.receive:])),
		SenderSequence:      binary.BigEndian.Uint32(b[o.senderSequence:]),
		SenderTimestamp:     Timestamp(binary.BigEndian.Uint64(b[o.senderStamp:])),
		SenderErrorEstimate: ErrorEstimate(binary.BigEndian.Uint16(b[o.senderEstimate:])),
		SenderTTL:           b[o.senderTTL],
	}, true
}

// PutReceiveTimestamp writes the Receive Timestamp field of a reply alone.
func (m Mode) PutReceiveTimestamp(b []byte, t Timestamp) {
	binary.BigEndian.PutUint64(b[layouts[m].receive:], uint64(t))
}

// PutTimestamp writes the Timestamp field alone, in either kind of packet, so
// that it can be taken as late as possible.
func (m Mode) PutTimestamp(b []byte, t Timestamp) {
	binary.BigEndian.PutUint64(b[layouts[m].timestamp:], uint64(t))
}

// Timestamp reads the Timestamp field alone, of either kind of packet or the start of one
// that reaches as far.
func (m Mode) Timestamp(b []byte) Timestamp {
	return Timestamp(binary.BigEndian.Uint64(b[layouts[m].timestamp:]))
}

// SSIDOffset is where the session identifier is in a packet of the mode.
func (m Mode) SSIDOffset() int { return layouts[m].ssid }
