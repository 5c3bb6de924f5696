package stamp

import "encoding/binary"

// Type is the type of a TLV (RFC 8972 section 5.1).
type Type uint8

// The TLV types in use here.
const (
	TypeExtraPadding      Type = 1
	TypeClassOfService    Type = 4
	TypeDirectMeasurement Type = 5
	TypeFollowUp          Type = 7
	TypeHMAC              Type = 8
	// TypeReceivedWindow is ours, from the range for private use (RFC 8972
	// section 5.1): which of the last probes reached the reflector.
	TypeReceivedWindow Type = 252
	// TypeNetworks is ours as well: where the reflector is in networks beside the one that it
	// is asked in.
	TypeNetworks Type = 253
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

	followUpValueSize    = 16
	windowValueSize      = 16
	serviceValueSize     = 4
	measurementValueSize = 12

	// The sizes of whole TLVs in bytes.
	FollowUpSize          = TLVHeaderSize + followUpValueSize
	ReceivedWindowSize    = TLVHeaderSize + windowValueSize
	ClassOfServiceSize    = TLVHeaderSize + serviceValueSize
	DirectMeasurementSize = TLVHeaderSize + measurementValueSize
	HMACSize              = TLVHeaderSize + hmacSize
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

// TLVs returns the TLVs of the packet b, request or reply.
func (m Mode) TLVs(b []byte) TLVs {
	if len(b) < m.BaseSize() {
		return TLVs{}
	}
	return TLVs{rest: b[m.BaseSize():], left: MaxTLVs}
}

// More reports whether bytes are left that Next has not returned.
func (w *TLVs) More() bool { return len(w.rest) > 0 }

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

// WindowBits is how many probes a Received Window tells of.
const WindowBits = 64

// ReceivedWindow is the value of our Received Window TLV: 32 bits of sequence
// number, 64 bits of window, 32 bits of count. A sender sends zeros.
type ReceivedWindow struct {
	// Highest is the highest of the sender's sequence numbers that arrived, and
	// bit i of Mask tells whether Highest-i did.
	Highest uint32
	Mask    uint64
	// Overflowed counts the session's probes that were lost to the reflector
	// itself, not to the path: receive buffer full, rate exceeded, answer refused
	// by its kernel.
	Overflowed uint32
}

// ParseReceivedWindow reads a Received Window TLV. ok is false when its length is
// wrong.
func ParseReceivedWindow(t TLV) (w ReceivedWindow, ok bool) {
	v := t.Value()
	if len(v) != windowValueSize {
		return ReceivedWindow{}, false
	}
	return ReceivedWindow{
		Highest: binary.BigEndian.Uint32(v), Mask: binary.BigEndian.Uint64(v[4:]),
		Overflowed: binary.BigEndian.Uint32(v[12:]),
	}, true
}

// Put writes the value into a Received Window TLV of the right length.
func (w ReceivedWindow) Put(t TLV) {
	v := t.Value()
	_ = v[windowValueSize-1]
	binary.BigEndian.PutUint32(v, w.Highest)
	binary.BigEndian.PutUint64(v[4:], w.Mask)
	binary.BigEndian.PutUint32(v[12:], w.Overflowed)
}

// ClassOfService is the value of a Class of Service TLV (RFC 8972 section 4.4).
type ClassOfService struct {
	Wanted   uint8 // DSCP1: what the answer shall have
	Received uint8 // DSCP2: what the probe had when it arrived
	ECN      uint8 // what the probe had when it arrived
	Refused  bool  // RP: the answer has another DSCP than the one wanted
}

// ParseClassOfService reads a Class of Service TLV. ok is false when its length is
// wrong.
func ParseClassOfService(t TLV) (c ClassOfService, ok bool) {
	v := t.Value()
	if len(v) != serviceValueSize {
		return ClassOfService{}, false
	}
	bits := binary.BigEndian.Uint16(v)
	return ClassOfService{
		Wanted: uint8(bits >> 10), Received: uint8(bits>>4) & 0x3f, ECN: uint8(bits>>2) & 3, Refused: bits&3 != 0,
	}, true
}

// Put writes the value into a Class of Service TLV of the right length.
func (c ClassOfService) Put(t TLV) {
	bits := uint16(c.Wanted)<<10 | uint16(c.Received&0x3f)<<4 | uint16(c.ECN&3)<<2
	if c.Refused {
		bits |= 1
	}
	binary.BigEndian.PutUint32(t.Value(), uint32(bits)<<16)
}

// DirectMeasurement is the value of a Direct Measurement TLV (RFC 8972 section
// 4.5). We count the packets of the session itself.
type DirectMeasurement struct {
	SenderTX, ReflectorRX, ReflectorTX uint32
}

// ParseDirectMeasurement reads a Direct Measurement TLV. ok is false when its
// length is wrong.
func ParseDirectMeasurement(t TLV) (d DirectMeasurement, ok bool) {
	v := t.Value()
	if len(v) != measurementValueSize {
		return DirectMeasurement{}, false
	}
	return DirectMeasurement{
		SenderTX: binary.BigEndian.Uint32(v), ReflectorRX: binary.BigEndian.Uint32(v[4:]),
		ReflectorTX: binary.BigEndian.Uint32(v[8:]),
	}, true
}

// Put writes the value into a Direct Measurement TLV of the right length.
func (d DirectMeasurement) Put(t TLV) {
	v := t.Value()
	_ = v[measurementValueSize-1]
	binary.BigEndian.PutUint32(v, d.SenderTX)
	binary.BigEndian.PutUint32(v[4:], d.ReflectorRX)
	binary.BigEndian.PutUint32(v[8:], d.ReflectorTX)
}

// putHeader writes a TLV's header as a sender sends it.
func putHeader(b []byte, t Type, length int) {
	b[0], b[1] = byte(Unrecognized), byte(t)
	binary.BigEndian.PutUint16(b[2:], uint16(length))
}
