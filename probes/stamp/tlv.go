package stamp

import "encoding/binary"

// Type is the type of a TLV (RFC 8972 section 5.1).
type Type uint8

// The TLV types in use here.
const (
	TypeExtraPadding Type = 1
	TypeFollowUp     Type = 7
)

// Flags are the flags of a TLV (RFC 8972 section 4). A sender sends
// Unrecognized alone; a reflector clears it in the TLVs that it knows.
type Flags uint8

// The flags, from the most significant bit.
const (
	Unrecognized Flags = 0x80
	Malformed    Flags = 0x40
	NoIntegrity  Flags = 0x20
)

const (
	// TLVHeaderSize is the size of flags, type and length in bytes.
	TLVHeaderSize = 4
	// MaxTLVs is how many TLVs of one packet are looked at. Every further
	// byte is passed through unread, so that a packet of empty TLVs costs no
	// more than any other.
	MaxTLVs = 16

	followUpValueSize = 16
	// FollowUpSize is the size of a whole Follow-Up Telemetry TLV in bytes.
	FollowUpSize = TLVHeaderSize + followUpValueSize
)

// TLV is a view of one TLV, header included, in its packet.
type TLV []byte

// Flags returns the flags.
func (t TLV) Flags() Flags { return Flags(t[0]) }

// SetFlags writes the flags.
func (t TLV) SetFlags(f Flags) { t[0] = byte(f) }

// Type returns the type.
func (t TLV) Type() Type { return Type(t[1]) }

// Value returns the bytes after the header.
func (t TLV) Value() []byte { return t[TLVHeaderSize:] }

// TLVs walks over the TLVs of a packet.
type TLVs struct {
	rest []byte
	left int
}

// PacketTLVs returns the TLVs of the packet b, request or reply.
func PacketTLVs(b []byte) TLVs {
	if len(b) < BaseSize {
		return TLVs{}
	}
	return TLVs{rest: b[BaseSize:], left: MaxTLVs}
}

// Next returns the next TLV. whole is false when its length reaches beyond the
// packet; the TLV then holds what is there and is the last. It is nil at the
// end and when fewer bytes than a header are left.
func (w *TLVs) Next() (t TLV, whole bool) {
	if w.left == 0 || len(w.rest) < TLVHeaderSize {
		return nil, false
	}
	w.left--
	size := TLVHeaderSize + int(binary.BigEndian.Uint16(w.rest[2:]))
	if size > len(w.rest) {
		t, w.rest = TLV(w.rest), nil
		return t, false
	}
	t, w.rest = TLV(w.rest[:size]), w.rest[size:]
	return t, true
}

// FollowUp is the value of a Follow-Up Telemetry TLV (RFC 8972 section 4.7):
// when the reflector's packet with the given sequence number really left.
type FollowUp struct {
	Sequence  uint32
	Timestamp Timestamp // zero: none known
	Method    Method
}

// Method says how a time stamp was obtained (RFC 8972 section 5.3).
type Method uint8

// The registered methods.
const (
	HardwareAssist Method = 1
	SoftwareLocal  Method = 2
	ControlPlane   Method = 3
)

// ParseFollowUp reads a Follow-Up Telemetry TLV. ok is false when its length
// is wrong.
func ParseFollowUp(t TLV) (f FollowUp, ok bool) {
	v := t.Value()
	if len(v) != followUpValueSize {
		return FollowUp{}, false
	}
	return FollowUp{
		Sequence:  binary.BigEndian.Uint32(v),
		Timestamp: Timestamp(binary.BigEndian.Uint64(v[4:])),
		Method:    Method(v[12]),
	}, true
}

// Put writes the value into a Follow-Up Telemetry TLV of the right length.
func (f FollowUp) Put(t TLV) {
	v := t.Value()
	_ = v[followUpValueSize-1]
	binary.BigEndian.PutUint32(v, f.Sequence)
	binary.BigEndian.PutUint64(v[4:], uint64(f.Timestamp))
	binary.BigEndian.PutUint32(v[12:], uint32(f.Method)<<24)
}

// putHeader writes a TLV's header as a sender sends it.
func putHeader(b []byte, t Type, length int) {
	b[0], b[1] = byte(Unrecognized), byte(t)
	binary.BigEndian.PutUint16(b[2:], uint16(length))
}
