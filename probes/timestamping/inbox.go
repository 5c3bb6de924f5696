package timestamping

import (
	"encoding/binary"
	"net/netip"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Inbox receives datagrams in batches.
type Inbox struct {
	*messages
	buffer []byte
	size   int // bytes of one datagram
}

// Datagram is one received datagram. Payload is valid until the next Receive.
type Datagram struct {
	Payload []byte
	From    netip.AddrPort
	// Stamp is the kernel's receive stamp in nanoseconds of CLOCK_REALTIME; 0
	// when there is none.
	Stamp int64
	// Hardware is the device's receive stamp in nanoseconds of its own clock; 0
	// when there is none.
	Hardware int64
	// Drops is the socket's drop counter when the datagram was queued, if
	// HasDrops (the kernel leaves it out while it is 0).
	Drops    uint32
	HasDrops bool
	// TTL, TOS and Local are set when the socket reports the header. Local is
	// not valid when the datagram was sent to a broadcast or multicast address.
	TTL   uint8
	TOS   uint8
	Local netip.Addr
	// Truncated tells that the datagram was larger than the inbox's size.
	Truncated bool
}

// NewInbox returns an inbox for n datagrams a batch of at most size bytes each.
func NewInbox(n, size int) *Inbox {
	in := &Inbox{messages: newMessages(n), buffer: make([]byte, n*size), size: size}
	for i := range in.vectors {
		in.vectors[i].Base = &in.buffer[i*size]
		in.vectors[i].SetLen(size)
	}
	return in
}

// Size returns the largest datagram that fits, in bytes.
func (in *Inbox) Size() int { return in.size }

// Len returns the number of datagrams that one batch holds.
func (in *Inbox) Len() int { return len(in.messages.messages) }

// Receive reads a batch; 0 means that nothing waits.
func (in *Inbox) Receive(s *Socket) (int, error) { return in.receive(s.fd, 0) }

// Datagram reads datagram i of the last batch into d.
func (in *Inbox) Datagram(i int, d *Datagram) {
	m := &in.messages.messages[i]
	start := i * in.size
	*d = Datagram{
		Payload:   in.buffer[start : start+min(int(m.size), in.size)],
		From:      in.names[i].AddrPort(),
		Truncated: m.header.Flags&unix.MSG_TRUNC != 0,
	}
	c := in.control(i)
	for level, kind, data, ok := c.next(); ok; level, kind, data, ok = c.next() {
		d.read(level, kind, data)
	}
}

// Peer returns the raw sender address of datagram i of the last batch.
func (in *Inbox) Peer(i int) *Peer {
	p := &in.names[i]
	p.size = in.messages.messages[i].header.Namelen
	return p
}

func (d *Datagram) read(level, kind int, data []byte) {
	switch {
	case level == unix.SOL_SOCKET && kind == unix.SO_TIMESTAMPING:
		d.Stamp, d.Hardware = readStamps(data)
	case level == unix.SOL_SOCKET && kind == unix.SO_RXQ_OVFL && len(data) >= 4:
		d.Drops, d.HasDrops = binary.NativeEndian.Uint32(data), true
	case (level == unix.IPPROTO_IP && kind == unix.IP_TTL ||
		level == unix.IPPROTO_IPV6 && kind == unix.IPV6_HOPLIMIT) && len(data) >= 4:
		d.TTL = uint8(binary.NativeEndian.Uint32(data))
	case level == unix.IPPROTO_IP && kind == unix.IP_TOS && len(data) >= 1:
		d.TOS = data[0]
	case level == unix.IPPROTO_IPV6 && kind == unix.IPV6_TCLASS && len(data) >= 4:
		d.TOS = uint8(binary.NativeEndian.Uint32(data))
	case level == unix.IPPROTO_IP && kind == unix.IP_PKTINFO && len(data) >= unix.SizeofInet4Pktinfo:
		d.Local = localOf((*unix.Inet4Pktinfo)(unsafe.Pointer(&data[0])))
	case level == unix.IPPROTO_IPV6 && kind == unix.IPV6_PKTINFO && len(data) >= unix.SizeofInet6Pktinfo:
		if a := netip.AddrFrom16((*unix.Inet6Pktinfo)(unsafe.Pointer(&data[0])).Addr); !a.IsMulticast() {
			d.Local = a
		}
	}
}

// localOf returns the local address that a datagram was sent to, or nothing
// when it was sent to a broadcast or multicast address.
func localOf(info *unix.Inet4Pktinfo) netip.Addr {
	if info.Addr != info.Spec_dst {
		return netip.Addr{}
	}
	return netip.AddrFrom4(info.Addr)
}

// readStamps reads struct scm_timestamping: the kernel's stamp is the first of three
// and the device's the last; zero when there is none.
func readStamps(data []byte) (software, hardware int64) {
	const size = int(unsafe.Sizeof(unix.Timespec{}))
	if len(data) >= size {
		software = (*unix.Timespec)(unsafe.Pointer(&data[0])).Nano()
	}
	if len(data) >= 3*size {
		hardware = (*unix.Timespec)(unsafe.Pointer(&data[2*size])).Nano()
	}
	return software, hardware
}
