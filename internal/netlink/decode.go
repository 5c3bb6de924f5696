package netlink

import (
	"bytes"
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// Decoder reads attributes one after the other:
//
//	for a := netlink.Attributes(data, unix.SizeofIfInfomsg, &err); a.Next(); {
//		switch a.Kind() { ... }
//	}
//
// What is cut short ends the loop and sets the error that the decoder was made with. A
// decoder needs no memory of its own.
type Decoder struct {
	rest, value []byte
	kind        uint16
	err         *error
}

// Attributes returns a decoder of the attributes that follow a message's own header of
// so many bytes. It sets *err when data are too short, now or later.
func Attributes(data []byte, header int, err *error) Decoder {
	if len(data) < header {
		*err = ErrShort
		return Decoder{err: err}
	}
	return Decoder{rest: data[header:], err: err}
}

// Next goes on to the next attribute; false when there is none, or after an error.
func (d *Decoder) Next() bool {
	if len(d.rest) < unix.SizeofNlAttr || *d.err != nil {
		return false
	}
	size := int(binary.NativeEndian.Uint16(d.rest))
	if size < unix.SizeofNlAttr || size > len(d.rest) {
		*d.err = ErrShort
		return false
	}
	d.kind = binary.NativeEndian.Uint16(d.rest[2:]) &^ uint16(unix.NLA_F_NESTED|unix.NLA_F_NET_BYTEORDER)
	d.value = d.rest[unix.SizeofNlAttr:size]
	d.rest = d.rest[min(len(d.rest), align(size)):]
	return true
}

// Kind returns the attribute's type, without the flags in it.
func (d *Decoder) Kind() uint16 { return d.kind }

// Bytes returns the attribute's value, which is part of the message.
func (d *Decoder) Bytes() []byte { return d.value }

// AtLeast returns the attribute's value if it has so many bytes; otherwise nil, and
// sets the error.
func (d *Decoder) AtLeast(size int) []byte {
	if len(d.value) < size {
		*d.err = ErrShort
		return nil
	}
	return d.value
}

// Uint16 returns a number in the machine's byte order.
func (d *Decoder) Uint16() uint16 {
	if b := d.AtLeast(2); b != nil {
		return binary.NativeEndian.Uint16(b)
	}
	return 0
}

// Uint32 returns a number in the machine's byte order.
func (d *Decoder) Uint32() uint32 { return Uint32(d.AtLeast(4), 0) }

// Uint64 returns a number in the machine's byte order.
func (d *Decoder) Uint64() uint64 { return Uint64(d.AtLeast(8), 0) }

// String returns a text, up to its NUL.
func (d *Decoder) String() string { return Text(d.value) }

// Nested returns a decoder of the attributes inside this one. What is wrong there is
// wrong here.
func (d *Decoder) Nested() Decoder { return Decoder{rest: d.value, err: d.err} }

// Uint32 returns the number that a structure has at an offset, in the machine's byte
// order; 0 where the structure ends before it, as those of older kernels do.
func Uint32(b []byte, at int) uint32 {
	if len(b) < at+4 {
		return 0
	}
	return binary.NativeEndian.Uint32(b[at:])
}

// Uint64 does what Uint32 does, for 64 bits.
func Uint64(b []byte, at int) uint64 {
	if len(b) < at+8 {
		return 0
	}
	return binary.NativeEndian.Uint64(b[at:])
}

// Text returns what stands before the first NUL.
func Text(b []byte) string {
	b, _, _ = bytes.Cut(b, []byte{0})
	return string(b)
}
