package netlink

import (
	"encoding/binary"
	"errors"
	"math"

	"golang.org/x/sys/unix"
)

// errLong means that a value does not fit into an attribute, whose size has 16 bits.
var errLong = errors.New("a netlink attribute is longer than 65535 bytes")

// Encoder writes attributes behind a message's own header.
type Encoder struct {
	b   []byte
	err error
}

// NewEncoder returns an encoder that writes behind a header, whose memory it may take.
func NewEncoder(header []byte) *Encoder { return &Encoder{b: header} }

// Encode returns header and attributes, or what was wrong with one of them.
func (e *Encoder) Encode() ([]byte, error) {
	if e.err != nil {
		return nil, e.err
	}
	return e.b, nil
}

// Bytes writes a value as it is.
func (e *Encoder) Bytes(kind uint16, value []byte) {
	at := e.begin(kind)
	e.b = append(e.b, value...)
	e.end(at)
}

// String writes a text and its NUL.
func (e *Encoder) String(kind uint16, value string) {
	at := e.begin(kind)
	e.b = append(append(e.b, value...), 0)
	e.end(at)
}

// Uint32 writes a number in the machine's byte order.
func (e *Encoder) Uint32(kind uint16, value uint32) {
	at := e.begin(kind)
	e.b = binary.NativeEndian.AppendUint32(e.b, value)
	e.end(at)
}

// Uint64 writes a number in the machine's byte order.
func (e *Encoder) Uint64(kind uint16, value uint64) {
	at := e.begin(kind)
	e.b = binary.NativeEndian.AppendUint64(e.b, value)
	e.end(at)
}

// Nested writes an attribute that holds those that fill writes.
func (e *Encoder) Nested(kind uint16, fill func()) {
	at := e.begin(kind | unix.NLA_F_NESTED)
	fill()
	e.end(at)
}

// begin writes an attribute's header and returns where it is.
func (e *Encoder) begin(kind uint16) int {
	at := len(e.b)
	e.b = binary.NativeEndian.AppendUint16(e.b, 0)
	e.b = binary.NativeEndian.AppendUint16(e.b, kind)
	return at
}

// end writes the size of the attribute that began there, and fills up to the next.
func (e *Encoder) end(at int) {
	size := len(e.b) - at
	if size > math.MaxUint16 {
		e.err = errLong
		size = 0
	}
	binary.NativeEndian.PutUint16(e.b[at:], uint16(size))
	for len(e.b)%4 != 0 {
		e.b = append(e.b, 0)
	}
}
