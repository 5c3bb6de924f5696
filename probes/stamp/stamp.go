// Package stamp encodes and decodes the packets of the Simple Two-way Active
// Measurement Protocol: the unauthenticated base packets of RFC 8762 and the
// session identifier and TLVs of RFC 8972.
//
// Nothing here allocates: packets are read and written in the caller's buffers.
package stamp

import "encoding/binary"

const (
	// Port is the UDP port of a Session-Reflector (RFC 8762 section 4.1).
	Port = 862
	// BaseSize is the size of an unauthenticated packet without TLVs, in
	// bytes, the same in both directions (RFC 8762 sections 4.2.1 and 4.3.1).
	BaseSize = 44
	// MaxSize is the largest UDP payload over IPv4, in bytes.
	MaxSize = 65507
)

// Offsets of the fields in the unauthenticated packets. The reflector's packet
// starts like the sender's and goes on with what it copies from it.
const (
	offSequence       = 0
	offTimestamp      = 4
	offErrorEstimate  = 12
	offSSID           = 14
	offReceive        = 16
	offSenderSequence = 24
	offSenderStamp    = 28
	offSenderError    = 36
	offSenderTTL      = 40
)

// Request is a Session-Sender's packet (RFC 8762 section 4.2.1, with the
// session identifier of RFC 8972 section 3).
type Request struct {
	Sequence      uint32
	Timestamp     Timestamp
	ErrorEstimate ErrorEstimate
	SSID          uint16
}

// Put writes the request's fields into b, which must hold BaseSize bytes. It
// leaves the bytes that must be zero as they are.
func (r Request) Put(b []byte) {
	_ = b[BaseSize-1]
	binary.BigEndian.PutUint32(b[offSequence:], r.Sequence)
	binary.BigEndian.PutUint64(b[offTimestamp:], uint64(r.Timestamp))
	binary.BigEndian.PutUint16(b[offErrorEstimate:], uint16(r.ErrorEstimate))
	binary.BigEndian.PutUint16(b[offSSID:], r.SSID)
}

// ParseRequest reads a Session-Sender's packet. ok is false when b is too short.
func ParseRequest(b []byte) (r Request, ok bool) {
	if len(b) < BaseSize {
		return Request{}, false
	}
	return Request{
		Sequence:      binary.BigEndian.Uint32(b[offSequence:]),
		Timestamp:     Timestamp(binary.BigEndian.Uint64(b[offTimestamp:])),
		ErrorEstimate: ErrorEstimate(binary.BigEndian.Uint16(b[offErrorEstimate:])),
		SSID:          binary.BigEndian.Uint16(b[offSSID:]),
	}, true
}

// Reply is a Session-Reflector's packet (RFC 8762 section 4.3.1).
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

// Put writes the reply into the first BaseSize bytes of b, zeros included.
func (r Reply) Put(b []byte) {
	_ = b[BaseSize-1]
	binary.BigEndian.PutUint32(b[offSequence:], r.Sequence)
	binary.BigEndian.PutUint64(b[offTimestamp:], uint64(r.Timestamp))
	binary.BigEndian.PutUint16(b[offErrorEstimate:], uint16(r.ErrorEstimate))
	binary.BigEndian.PutUint16(b[offSSID:], r.SSID)
	binary.BigEndian.PutUint64(b[offReceive:], uint64(r.ReceiveTimestamp))
	binary.BigEndian.PutUint32(b[offSenderSequence:], r.SenderSequence)
	binary.BigEndian.PutUint64(b[offSenderStamp:], uint64(r.SenderTimestamp))
	binary.BigEndian.PutUint16(b[offSenderError:], uint16(r.SenderErrorEstimate))
	binary.BigEndian.PutUint16(b[offSenderError+2:], 0)
	binary.BigEndian.PutUint32(b[offSenderTTL:], uint32(r.SenderTTL)<<24)
}

// ParseReply reads a Session-Reflector's packet. ok is false when b is too short.
func ParseReply(b []byte) (r Reply, ok bool) {
	if len(b) < BaseSize {
		return Reply{}, false
	}
	return Reply{
		Sequence:            binary.BigEndian.Uint32(b[offSequence:]),
		Timestamp:           Timestamp(binary.BigEndian.Uint64(b[offTimestamp:])),
		ErrorEstimate:       ErrorEstimate(binary.BigEndian.Uint16(b[offErrorEstimate:])),
		SSID:                binary.BigEndian.Uint16(b[offSSID:]),
		ReceiveTimestamp:    Timestamp(binary.BigEndian.Uint64(b[offReceive:])),
		SenderSequence:      binary.BigEndian.Uint32(b[offSenderSequence:]),
		SenderTimestamp:     Timestamp(binary.BigEndian.Uint64(b[offSenderStamp:])),
		SenderErrorEstimate: ErrorEstimate(binary.BigEndian.Uint16(b[offSenderError:])),
		SenderTTL:           b[offSenderTTL],
	}, true
}

// PutTimestamp writes the Timestamp field alone, in either kind of packet, so
// that it can be taken as late as possible.
func PutTimestamp(b []byte, t Timestamp) {
	binary.BigEndian.PutUint64(b[offTimestamp:], uint64(t))
}
