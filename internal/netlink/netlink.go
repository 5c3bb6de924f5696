// Package netlink speaks netlink(7): dumps, single questions, changes with
// acknowledgements, notifications, and the attributes that all of them carry.
//
// What is read at every scrape, or a hundred times a second, must not cost an
// allocation a message nor two system calls a page. So answers are read into one
// buffer that is used again and again, and reading blocks: the kernel answers at once,
// and to wait by Go's poller costs more than the answer (ADR 0025).
package netlink

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sys/unix"

	"vigia/internal/netns"
)

const (
	// bufferSize is what the kernel fills at a time in a dump (netlink_recvmsg), unless a
	// single message is larger; maxBuffer is the most that a buffer grows to then.
	bufferSize   = 32 << 10
	maxBuffer    = 1 << 20
	receiveLimit = int64(2e9) // ns; an answer needs no more than milliseconds a piece
	// snapshotTries is how often a list is begun that changes while it is read, which takes milliseconds.
	snapshotTries = 10
)

// ErrInterrupted means that a list changed during each of several dumps of it: what was there all the time may be
// missing, or be there twice.
var ErrInterrupted = errors.New("the list changed each time while the kernel told it")

// Socket is a netlink socket in one network namespace. It is opened anew after an error
// that leaves the rest of an answer unread. It may be used by several goroutines.
type Socket struct {
	netns  string
	family int

	mu          sync.Mutex
	fd          int // -1 while it is not open
	seq         uint32
	request     []byte
	buffer      []byte
	interrupted bool // the kernel said so of the answer that is being read, or was read last
	closed      bool
}

// New returns a socket of a netlink family (unix.NETLINK_ROUTE) for the namespace given
// by name or path; empty means the process's own. It is opened when it is first used.
func New(nameOrPath string, family int) *Socket {
	return &Socket{netns: nameOrPath, family: family, fd: -1}
}

// Open does what New does and opens the socket at once.
func Open(nameOrPath string, family int) (*Socket, error) {
	s := New(nameOrPath, family)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.open(); err != nil {
		return nil, err
	}
	return s, nil
}

// Close closes the socket, for good.
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
	fd, err := socket(s.netns, s.family, 0)
	if err != nil {
		return err
	}
	limit := unix.NsecToTimeval(receiveLimit)
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &limit); err != nil {
		return errors.Join(fmt.Errorf("set up netlink socket: %w", err), unix.Close(fd))
	}
	// Refusals with a reason in words, and without the request in them. Kernels before
	// Linux 4.12 know neither, which is no reason to fail.
	for _, option := range []int{unix.NETLINK_EXT_ACK, unix.NETLINK_CAP_ACK} {
		_ = unix.SetsockoptInt(fd, unix.SOL_NETLINK, option, 1)
	}
	s.fd = fd
	if s.buffer == nil {
		s.buffer = make([]byte, bufferSize)
	}
	return nil
}

// socket opens a netlink socket in a namespace. Flags go beside SOCK_CLOEXEC.
func socket(nameOrPath string, family, flags int) (fd int, err error) {
	err = netns.Do(nameOrPath, func() (err error) {
		fd, err = unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|flags, family)
		return err
	})
	if err != nil {
		return -1, fmt.Errorf("open netlink socket in namespace %q: %w", nameOrPath, err)
	}
	return fd, nil
}

// Dump asks for a dump and calls each with every message of the answer, its header cut
// off. The data are valid until each returns; an error from each ends the dump. It must
// not use the socket.
func (s *Socket) Dump(kind uint16, body []byte, each func(kind uint16, data []byte) error) error {
	_, err := s.exchange(kind, unix.NLM_F_DUMP, body, each)
	return err
}

// Snapshot is Dump for a list that is wanted as it was at one moment. The kernel says when it changed between two pieces
// of the answer (NLM_F_DUMP_INTR), and then all of it is asked for again. begin is called before each try, to forget
// what each had until then. It returns ErrInterrupted when no try was whole.
func (s *Socket) Snapshot(kind uint16, body []byte, begin func(), each func(kind uint16, data []byte) error) error {
	for range snapshotTries {
		begin()
		if interrupted, err := s.exchange(kind, unix.NLM_F_DUMP, body, each); err != nil || !interrupted {
			return err
		}
	}
	return ErrInterrupted
}

// Ask asks for one thing, and calls answer with the message that the kernel answers by.
// flags are those beside NLM_F_REQUEST. The data are valid until answer returns, which
// must not use the socket.
func (s *Socket) Ask(kind, flags uint16, body []byte, answer func(kind uint16, data []byte) error) error {
	_, err := s.exchange(kind, flags, body, answer)
	return err
}

// Change has the kernel change something and waits until it has, or refuses. flags are
// those beside NLM_F_REQUEST and NLM_F_ACK.
func (s *Socket) Change(kind, flags uint16, body []byte) error {
	_, err := s.exchange(kind, flags|unix.NLM_F_ACK, body, func(uint16, []byte) error { return nil })
	return err
}

func (s *Socket) exchange(kind, flags uint16, body []byte, each func(kind uint16, data []byte) error) (interrupted bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		size := len(s.buffer)
		over, handed, err := s.attempt(kind, flags, body, each)
		if over {
			return s.interrupted, err
		}
		// What is left of the answer must not be taken for the next one.
		err = errors.Join(err, s.hangUp())
		if !errors.Is(err, errTruncated) || handed || len(s.buffer) == size {
			return s.interrupted, err
		}
	}
}

// attempt sends a request and hands on the answer; over and handed are those of receive.
func (s *Socket) attempt(kind, flags uint16, body []byte, each func(kind uint16, data []byte) error) (over, handed bool, err error) {
	if err := s.open(); err != nil {
		return false, false, err
	}
	s.interrupted = false
	if err := s.send(kind, flags, body); err != nil {
		return false, false, err
	}
	single := flags&unix.NLM_F_DUMP != unix.NLM_F_DUMP && flags&unix.NLM_F_ACK == 0
	return s.receive(single, each)
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
