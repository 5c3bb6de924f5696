// Package nldump reads answers of netlink(7) into one buffer that is used again and
// again: what is read at every scrape, or a hundred times a second, must not cost an
// allocation a message, nor two system calls a page. The kernel answers at once, so
// that reading blocks; to wait by Go's poller costs more than the answer.
package nldump

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sys/unix"

	"vigia/internal/netns"
)

const (
	// bufferSize is the most that the kernel fills at a time (netlink_recvmsg).
	bufferSize   = 32 << 10
	receiveLimit = int64(2e9) // ns; a dump needs no more than milliseconds a piece
)

// ErrShort means that a message ends before it should.
var ErrShort = errors.New("a netlink message is cut short")

// Socket is a netlink socket for dumps in one network namespace. It is opened when
// it is first used, and anew after an error. It may be used by several goroutines.
type Socket struct {
	netns  string
	family int

	mu      sync.Mutex
	fd      int // -1 while it is not open
	seq     uint32
	request []byte
	buffer  []byte
	closed  bool
}

// New returns a socket of a netlink family for the namespace given by name or
// path; empty means the process's own.
func New(nameOrPath string, family int) *Socket {
	return &Socket{netns: nameOrPath, family: family, fd: -1}
}

// Close closes the socket.
func (s *Socket) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	return s.hangUp()
}

func (s *Socket) hangUp() error {
	if s.fd < 0 {
		return nil
	}
	fd := s.fd
	s.fd = -1
	return unix.Close(fd)
}

func (s *Socket) open() error {
	if s.closed {
		return errors.New("the netlink socket is closed")
	}
	if s.fd >= 0 {
		return nil
	}
	err := netns.Do(s.netns, func() (err error) {
		s.fd, err = unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, s.family)
		return err
	})
	if err != nil {
		s.fd = -1
		return fmt.Errorf("open netlink socket in namespace %q: %w", s.netns, err)
	}
	limit := unix.NsecToTimeval(receiveLimit)
	if err := unix.SetsockoptTimeval(s.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &limit); err != nil {
		return fmt.Errorf("set up netlink socket: %w", err)
	}
	if s.buffer == nil {
		s.buffer = make([]byte, bufferSize)
	}
	return nil
}

// Dump asks for a dump and calls each with every message of the answer. The data
// are valid until each returns; an error from each ends the dump.
func (s *Socket) Dump(kind uint16, body []byte, each func(kind uint16, data []byte) error) error {
	return s.exchange(kind, unix.NLM_F_DUMP, body, each)
}

// Ask asks for one thing, and calls answer with the message that the kernel answers by.
// flags are those beside NLM_F_REQUEST. The data are valid until answer returns.
func (s *Socket) Ask(kind, flags uint16, body []byte, answer func(kind uint16, data []byte) error) error {
	return s.exchange(kind, flags, body, answer)
}

func (s *Socket) exchange(kind, flags uint16, body []byte, each func(kind uint16, data []byte) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.open()
	if err == nil {
		err = s.send(kind, flags, body)
	}
	if err == nil {
		err = s.receive(flags&unix.NLM_F_DUMP != unix.NLM_F_DUMP, each)
	}
	if err != nil {
		// What is left of the answer must not be taken for the next one.
		return errors.Join(err, s.hangUp())
	}
	return nil
}

func (s *Socket) send(kind, flags uint16, body []byte) error {
	s.seq++
	req := append(s.request[:0], make([]byte, unix.SizeofNlMsghdr)...)
	binary.NativeEndian.PutUint32(req, uint32(unix.SizeofNlMsghdr+len(body)))
	binary.NativeEndian.PutUint16(req[4:], kind)
	binary.NativeEndian.PutUint16(req[6:], unix.NLM_F_REQUEST|flags)
	binary.NativeEndian.PutUint32(req[8:], s.seq)
	s.request = append(req, body...)
	if _, err := unix.Write(s.fd, s.request); err != nil { // to the kernel, which is what a netlink socket is connected to
		return fmt.Errorf("send: %w", err)
	}
	return nil
}

// receive hands on an answer: one message, or all until the end of a dump.
func (s *Socket) receive(single bool, each func(kind uint16, data []byte) error) error {
	answered := false
	take := func(kind uint16, data []byte) error {
		answered = true
		return each(kind, data)
	}
	for {
		n, err := unix.Read(s.fd, s.buffer)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EAGAIN):
			return errors.New("the kernel does not go on with its answer")
		case err != nil:
			return fmt.Errorf("receive: %w", err)
		}
		if done, err := piece(s.buffer[:n], s.seq, take); err != nil || done || single && answered {
			return err
		}
	}
}

// piece hands on the messages of one piece of an answer; done tells that it was
// the last.
func piece(b []byte, seq uint32, each func(kind uint16, data []byte) error) (done bool, err error) {
	for len(b) > 0 {
		if len(b) < unix.SizeofNlMsghdr {
			return false, ErrShort
		}
		length := int(binary.NativeEndian.Uint32(b))
		if length < unix.SizeofNlMsghdr || length > len(b) {
			return false, ErrShort
		}
		kind, data := binary.NativeEndian.Uint16(b[4:]), b[unix.SizeofNlMsghdr:length]
		ours := binary.NativeEndian.Uint32(b[8:]) == seq
		b = b[min(len(b), (length+3)&^3):]
		if !ours {
			continue
		}
		switch kind {
		case unix.NLMSG_NOOP:
		case unix.NLMSG_DONE, unix.NLMSG_ERROR:
			return true, verdict(kind, data)
		default:
			if err := each(kind, data); err != nil {
				return false, err
			}
		}
	}
	return false, nil
}

// verdict reads the number that ends an answer.
func verdict(kind uint16, data []byte) error {
	if len(data) < 4 {
		if kind == unix.NLMSG_DONE {
			return nil // old kernels end without one
		}
		return ErrShort
	}
	if code := int32(binary.NativeEndian.Uint32(data)); code < 0 {
		return fmt.Errorf("the kernel refuses: %w", unix.Errno(-code))
	}
	return nil
}

// Attributes calls fn with each attribute of b, the flags in its type left out.
func Attributes(b []byte, fn func(kind uint16, value []byte)) error {
	for len(b) >= 4 {
		size := int(binary.NativeEndian.Uint16(b))
		if size < 4 || size > len(b) {
			return ErrShort
		}
		fn(binary.NativeEndian.Uint16(b[2:])&^uint16(unix.NLA_F_NESTED|unix.NLA_F_NET_BYTEORDER), b[4:size])
		b = b[min(len(b), (size+3)&^3):]
	}
	return nil
}
