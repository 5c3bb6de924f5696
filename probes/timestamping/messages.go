package timestamping

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// controlSize holds every control message that the sockets here ask for.
const controlSize = 256

// message is struct mmsghdr.
type message struct {
	header unix.Msghdr
	size   uint32
}

// messages is a batch for recvmmsg(2) or sendmmsg(2). Its memory is allocated
// once.
type messages struct {
	messages []message
	vectors  []unix.Iovec
	names    []Peer
	controls [][controlSize]byte
}

func newMessages(n int) *messages {
	m := &messages{
		messages: make([]message, n),
		vectors:  make([]unix.Iovec, n),
		names:    make([]Peer, n),
		controls: make([][controlSize]byte, n),
	}
	for i := range m.messages {
		h := &m.messages[i].header
		h.Iov = &m.vectors[i]
		h.SetIovlen(1)
		h.Name = (*byte)(unsafe.Pointer(&m.names[i].raw))
	}
	return m
}

// The calls below never block, so they are made without telling the runtime,
// which would wake its monitor thread for each.

// receive fills the batch. It returns 0 messages and no error when none waits.
func (m *messages) receive(fd, flags int) (int, error) {
	for i := range m.messages {
		h := &m.messages[i].header
		h.Namelen = uint32(unsafe.Sizeof(m.names[i].raw))
		h.Control = &m.controls[i][0]
		h.SetControllen(controlSize)
	}
	for {
		n, _, errno := unix.RawSyscall6(unix.SYS_RECVMMSG, uintptr(fd), uintptr(unsafe.Pointer(&m.messages[0])),
			uintptr(len(m.messages)), uintptr(flags|unix.MSG_DONTWAIT), 0, 0)
		switch {
		case errno == 0:
			return int(n), nil
		case errno == unix.EAGAIN:
			return 0, nil
		case errno == unix.EINTR:
			continue
		}
		return 0, errno
	}
}

// send sends messages from up to to and returns how many the kernel took. The
// error belongs to the first that it did not take; it is nil when the kernel
// stopped without saying why.
func (m *messages) send(fd, from, to int) (int, error) {
	for {
		n, _, errno := unix.RawSyscall6(unix.SYS_SENDMMSG, uintptr(fd), uintptr(unsafe.Pointer(&m.messages[from])),
			uintptr(to-from), unix.MSG_DONTWAIT, 0, 0)
		switch errno {
		case 0:
			return int(n), nil
		case unix.EINTR:
			continue
		}
		return 0, errno
	}
}

// control returns the control messages received with message i.
func (m *messages) control(i int) control {
	return control{rest: m.controls[i][:min(uint64(m.messages[i].header.Controllen), controlSize)]}
}

// control walks over control messages.
type control struct{ rest []byte }

// next returns the next control message; ok is false at the end and when the
// rest makes no sense.
func (c *control) next() (level, kind int, data []byte, ok bool) {
	if len(c.rest) < unix.SizeofCmsghdr {
		return 0, 0, nil, false
	}
	h := (*unix.Cmsghdr)(unsafe.Pointer(&c.rest[0]))
	size := uint64(h.Len)
	if size < unix.SizeofCmsghdr || size > uint64(len(c.rest)) {
		return 0, 0, nil, false
	}
	level, kind = int(h.Level), int(h.Type)
	data = c.rest[unix.CmsgLen(0):size]
	c.rest = c.rest[min(unix.CmsgSpace(int(size)-unix.CmsgLen(0)), len(c.rest)):]
	return level, kind, data, true
}
