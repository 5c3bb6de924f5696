package timestamping

import (
	"net/netip"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Outbox sends datagrams in batches.
type Outbox struct {
	*messages
	used int
}

// NewOutbox returns an outbox for n datagrams.
func NewOutbox(n int) *Outbox { return &Outbox{messages: newMessages(n)} }

// Reset empties the outbox.
func (o *Outbox) Reset() { o.used = 0 }

// Len returns the number of datagrams in the outbox.
func (o *Outbox) Len() int { return o.used }

// Add appends a datagram and returns its index. The payload is read when it is
// sent. A tos of 0 leaves the socket's; a local address that is not valid leaves
// the choice of the source to the kernel.
func (o *Outbox) Add(to *Peer, payload []byte, tos uint8, local netip.Addr) int {
	i := o.used
	o.used++
	o.names[i] = *to
	h := &o.messages.messages[i].header
	h.Namelen = to.size
	o.vectors[i].Base = unsafe.SliceData(payload)
	o.vectors[i].SetLen(len(payload))
	c := appender{buffer: o.controls[i][:]}
	v6 := to.raw.Family == unix.AF_INET6
	if tos != 0 && v6 {
		*(*int32)(c.add(unix.IPPROTO_IPV6, unix.IPV6_TCLASS, 4)) = int32(tos)
	} else if tos != 0 {
		*(*int32)(c.add(unix.IPPROTO_IP, unix.IP_TOS, 4)) = int32(tos)
	}
	if local.IsValid() && v6 {
		info := (*unix.Inet6Pktinfo)(c.add(unix.IPPROTO_IPV6, unix.IPV6_PKTINFO, unix.SizeofInet6Pktinfo))
		*info = unix.Inet6Pktinfo{Addr: local.As16()}
	} else if local.IsValid() {
		info := (*unix.Inet4Pktinfo)(c.add(unix.IPPROTO_IP, unix.IP_PKTINFO, unix.SizeofInet4Pktinfo))
		*info = unix.Inet4Pktinfo{Spec_dst: local.As4()}
	}
	h.Control = nil
	if c.used > 0 {
		h.Control = &o.controls[i][0]
	}
	h.SetControllen(c.used)
	return i
}

// Trace makes datagram i one that traces hops: it has this hop limit, the socket's if that is
// 0, and gets no send stamp, which keeps it out of the count of those (RestartCount).
func (o *Outbox) Trace(i int, hopLimit uint8) {
	h := &o.messages.messages[i].header
	c := appender{buffer: o.controls[i][:], used: int(h.Controllen)}
	*(*uint32)(c.add(unix.SOL_SOCKET, unix.SO_TIMESTAMPING, 4)) = 0
	if hopLimit != 0 && o.names[i].raw.Family == unix.AF_INET6 {
		*(*int32)(c.add(unix.IPPROTO_IPV6, unix.IPV6_HOPLIMIT, 4)) = int32(hopLimit)
	} else if hopLimit != 0 {
		*(*int32)(c.add(unix.IPPROTO_IP, unix.IP_TTL, 4)) = int32(hopLimit)
	}
	h.Control = &o.controls[i][0]
	h.SetControllen(c.used)
}

// Payload returns the payload of datagram i.
func (o *Outbox) Payload(i int) []byte {
	return unsafe.Slice(o.vectors[i].Base, int(o.vectors[i].Len))
}

// Send sends the datagrams from index from on and returns how many the kernel
// took. When it is not all, the next one failed, with the error if the kernel
// told it.
func (o *Outbox) Send(s *Socket, from int) (int, error) {
	return o.send(s.fd, from, o.used)
}

// appender builds control messages.
type appender struct {
	buffer []byte
	used   int
}

func (a *appender) add(level, kind, size int) unsafe.Pointer {
	h := (*unix.Cmsghdr)(unsafe.Pointer(&a.buffer[a.used]))
	h.Level, h.Type = int32(level), int32(kind)
	h.SetLen(unix.CmsgLen(size))
	data := unsafe.Pointer(&a.buffer[a.used+unix.CmsgLen(0)])
	a.used += unix.CmsgSpace(size)
	return data
}
