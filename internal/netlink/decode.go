package netlink

import (
	"bytes"
	"encoding/binary"
	"iter"

	"golang.org/x/sys/unix"
)

// Attributes hands out the attributes that follow a message's own header of so many bytes,
// by their type, the flags in it left out; the values are part of the message:
//
//	for kind, value := range netlink.Attributes(data, unix.SizeofIfInfomsg, &err) {
//		switch kind { ... }
//	}
//
// What is cut short ends the loop and sets *err. Nested attributes are those of a value,
// without a header. A loop costs no memory in a function that has a name; a loop within
// another, or within a function literal, does: where speed matters, give it a name.
func Attributes(data []byte, header int, err *error) iter.Seq2[uint16, []byte] {
	return func(yield func(kind uint16, value []byte) bool) {
		if len(data) < header {
			*err = ErrShort
			return
		}
		for rest := data[header:]; len(rest) >= unix.SizeofNlAttr; {
			size := int(binary.NativeEndian.Uint16(rest))
			if size < unix.SizeofNlAttr || size > len(rest) {
				*err = ErrShort
				return
			}
			kind := binary.NativeEndian.Uint16(rest[2:]) &^ uint16(unix.NLA_F_NESTED|unix.NLA_F_NET_BYTEORDER)
			if !yield(kind, rest[unix.SizeofNlAttr:size]) {
				return
			}
			rest = rest[min(len(rest), align(size)):]
		}
	}
}

// Uint16 returns the number that a value or structure has at an offset, in the machine's
// byte order; 0 where it ends before that, as structures of older kernels do.
func Uint16(b []byte, at int) uint16 {
	if len(b) < at+2 {
		return 0
	}
	return binary.NativeEndian.Uint16(b[at:])
}

// Uint32 does what Uint16 does, for 32 bits.
func Uint32(b []byte, at int) uint32 {
	if len(b) < at+4 {
		return 0
	}
	return binary.NativeEndian.Uint32(b[at:])
}

// Uint64 does what Uint16 does, for 64 bits.
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
