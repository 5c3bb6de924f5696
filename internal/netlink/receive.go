package netlink

import (
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// ErrShort means that a message ends before it should.
var ErrShort = errors.New("a netlink message is cut short")

// errTruncated means that a piece of an answer was larger than the buffer, which has been
// made larger since.
var errTruncated = errors.New("the kernel's answer was larger than the buffer, which is larger from now on")

// Refusal is the error by which the kernel answers a request.
type Refusal struct {
	Errno  unix.Errno
	Reason string // in the kernel's words; often empty
}

func (r *Refusal) Error() string {
	if r.Reason != "" {
		return fmt.Sprintf("the kernel refuses: %s (%s)", r.Errno, r.Reason)
	}
	return "the kernel refuses: " + r.Errno.Error()
}

// Unwrap returns the number, so that errors.Is finds it.
func (r *Refusal) Unwrap() error { return r.Errno }

// receive hands on an answer: one message, or all until its end. over tells that nothing
// of it is left, handed that some of it was handed on.
func (s *Socket) receive(single bool, each func(kind uint16, data []byte) error) (over, handed bool, err error) {
	take := func(kind uint16, data []byte) error {
		handed = true
		return each(kind, data)
	}
	for {
		n, err := unix.Read(s.fd, s.buffer)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EAGAIN):
			return false, handed, errors.New("the kernel does not go on with its answer")
		case err != nil:
			return false, handed, fmt.Errorf("receive: %w", err)
		case truncated(s.buffer[:n], len(s.buffer)):
			s.buffer = make([]byte, min(2*len(s.buffer), maxBuffer))
			return false, handed, errTruncated
		}
		over, interrupted, err := piece(s.buffer[:n], s.seq, take)
		s.interrupted = s.interrupted || interrupted
		over = over || single && handed
		if err != nil || over {
			return over, handed, err
		}
	}
}

// truncated tells whether a piece that fills a buffer of so many bytes ends in the middle
// of a message. The kernel makes pieces of 32 KiB, but larger ones for a message that
// does not fit, such as that of an interface with hundreds of names or VFs.
func truncated(b []byte, size int) bool {
	if len(b) < size {
		return false
	}
	for len(b) >= unix.SizeofNlMsghdr {
		length := binary.NativeEndian.Uint32(b)
		if length < unix.SizeofNlMsghdr || length > maxBuffer {
			return false // nonsense, which piece refuses
		}
		if int(length) > len(b) {
			return true
		}
		b = b[min(len(b), align(int(length))):]
	}
	return len(b) > 0
}

// align rounds up to where the next message or attribute begins.
func align(n int) int { return (n + 3) &^ 3 }

// piece hands on the messages of one piece of an answer; done tells that it was
// the last, interrupted that what is listed has changed since the piece before.
func piece(b []byte, seq uint32, each func(kind uint16, data []byte) error) (done, interrupted bool, err error) {
	for len(b) > 0 {
		if len(b) < unix.SizeofNlMsghdr {
			return false, interrupted, ErrShort
		}
		length := int(binary.NativeEndian.Uint32(b))
		if length < unix.SizeofNlMsghdr || length > len(b) {
			return false, interrupted, ErrShort
		}
		kind, flags := binary.NativeEndian.Uint16(b[4:]), binary.NativeEndian.Uint16(b[6:])
		data := b[unix.SizeofNlMsghdr:length]
		ours := binary.NativeEndian.Uint32(b[8:]) == seq
		b = b[min(len(b), align(length)):]
		if !ours {
			continue
		}
		interrupted = interrupted || flags&unix.NLM_F_DUMP_INTR != 0
		switch kind {
		case unix.NLMSG_NOOP:
		case unix.NLMSG_DONE, unix.NLMSG_ERROR:
			return true, interrupted, verdict(kind, flags, data)
		default:
			if err := each(kind, data); err != nil {
				return false, interrupted, err
			}
		}
	}
	return false, interrupted, nil
}

// verdict reads the number that ends an answer, and the reason that may follow it.
func verdict(kind, flags uint16, data []byte) error {
	if len(data) < 4 {
		if kind == unix.NLMSG_DONE {
			return nil // old kernels end without one
		}
		return ErrShort
	}
	code := int32(binary.NativeEndian.Uint32(data))
	if code >= 0 {
		return nil
	}
	refused := &Refusal{Errno: unix.Errno(-code)}
	if flags&unix.NLM_F_ACK_TLVS != 0 {
		refused.Reason = reason(data[reasonAt(kind, flags, data):])
	}
	return refused
}

// reasonAt returns where a refusal's attributes begin: behind the number, and in an
// NLMSG_ERROR behind the request's header, and the rest of the request unless it was
// left out.
func reasonAt(kind, flags uint16, data []byte) int {
	const number = 4
	if kind == unix.NLMSG_DONE {
		return number
	}
	at := number + unix.SizeofNlMsghdr
	if flags&unix.NLM_F_CAPPED == 0 && len(data) >= at {
		at = number + align(max(unix.SizeofNlMsghdr, int(min(binary.NativeEndian.Uint32(data[number:]), maxBuffer))))
	}
	return min(at, len(data))
}

// reason finds NLMSGERR_ATTR_MSG. Attributes that are cut short have none.
func reason(b []byte) string {
	var err error
	for kind, value := range Attributes(b, 0, &err) {
		if kind == unix.NLMSGERR_ATTR_MSG {
			return Text(value)
		}
	}
	return ""
}
