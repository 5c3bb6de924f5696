package timestamping

import (
	"net/netip"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// errorPayload is how much is read of a packet that an ICMP message quotes.
const errorPayload = 64

// ErrorQueue reads a socket's error queue in batches: send stamps, and what ICMP
// says about packets sent.
type ErrorQueue struct {
	*messages
	buffer []byte
}

// Report is one entry of an error queue.
type Report struct {
	// Stamp is the kernel's send stamp in nanoseconds of CLOCK_REALTIME, Hardware
	// the device's in nanoseconds of its own clock, and Count the number of the
	// packet since the count was restarted. One of the stamps is 0; if both are,
	// the entry is an error.
	Stamp, Hardware int64
	Count           uint32
	// Errno and To say what happened to a packet sent to To; Payload is the
	// start of that packet's payload as far as it was quoted, valid until the
	// next Receive.
	Errno   syscall.Errno
	To      netip.AddrPort
	Payload []byte
	// From says whose ICMP message it is, and Type and Code what it says (RFC 792, RFC
	// 4443); not valid when the error is of this host. ICMPv6 tells which of the two.
	From       netip.Addr
	ICMPv6     bool
	Type, Code uint8
	// Arrived is the kernel's stamp of the message in nanoseconds of CLOCK_REALTIME; 0
	// when there is none.
	Arrived int64
	// MTU is what a packet may have at most, in bytes with the IP header, when
	// Errno is EMSGSIZE: of the device here, or as an ICMP message claims.
	MTU uint32
}

// The messages that a packet's hop limit was used up (RFC 792, RFC 4443), code 0 each.
const (
	timeExceeded   = 11
	timeExceededV6 = 3
)

// HopsExceeded reports whether an ICMP message says that the packet's hop limit was used up.
func (r *Report) HopsExceeded() bool {
	return r.From.IsValid() && r.Code == 0 && (r.Type == timeExceeded && !r.ICMPv6 || r.Type == timeExceededV6 && r.ICMPv6)
}

// NewErrorQueue returns a reader of n entries a batch.
func NewErrorQueue(n int) *ErrorQueue {
	q := &ErrorQueue{messages: newMessages(n), buffer: make([]byte, n*errorPayload)}
	for i := range q.vectors {
		q.vectors[i].Base = &q.buffer[i*errorPayload]
		q.vectors[i].SetLen(errorPayload)
	}
	return q
}

// Len returns the number of entries that one batch holds.
func (q *ErrorQueue) Len() int { return len(q.messages.messages) }

// Receive reads a batch; 0 means that the queue is empty.
func (q *ErrorQueue) Receive(s *Socket) (int, error) { return q.receive(s.fd, unix.MSG_ERRQUEUE) }

// Report reads entry i of the last batch into r; ok is false when it is neither
// a stamp nor an error of a packet.
func (q *ErrorQueue) Report(i int, r *Report) (ok bool) {
	*r = Report{}
	var stamp, hardware int64
	c := q.control(i)
	for level, kind, data, more := c.next(); more; level, kind, data, more = c.next() {
		switch {
		case level == unix.SOL_SOCKET && kind == unix.SO_TIMESTAMPING:
			stamp, hardware = readStamps(data)
		case (level == unix.IPPROTO_IP && kind == unix.IP_RECVERR ||
			level == unix.IPPROTO_IPV6 && kind == unix.IPV6_RECVERR) && len(data) >= int(unsafe.Sizeof(unix.SockExtendedErr{})):
			extended := (*unix.SockExtendedErr)(unsafe.Pointer(&data[0]))
			ok = q.readExtended(i, extended, r) || ok
			r.From = offender(extended, data[unsafe.Sizeof(*extended):])
		}
	}
	if r.Errno == 0 {
		r.Stamp, r.Hardware = stamp, hardware
		return ok && (stamp != 0 || hardware != 0)
	}
	r.Arrived = stamp
	return ok
}

// offender reads who sent an ICMP message: the address that follows what it says
// (SO_EE_OFFENDER of ip(7)).
func offender(e *unix.SockExtendedErr, rest []byte) netip.Addr {
	switch {
	case e.Origin == unix.SO_EE_ORIGIN_ICMP && len(rest) >= unix.SizeofSockaddrInet4:
		return netip.AddrFrom4((*unix.RawSockaddrInet4)(unsafe.Pointer(&rest[0])).Addr)
	case e.Origin == unix.SO_EE_ORIGIN_ICMP6 && len(rest) >= unix.SizeofSockaddrInet6:
		return netip.AddrFrom16((*unix.RawSockaddrInet6)(unsafe.Pointer(&rest[0])).Addr)
	}
	return netip.Addr{}
}

func (q *ErrorQueue) readExtended(i int, e *unix.SockExtendedErr, r *Report) bool {
	switch e.Origin {
	case unix.SO_EE_ORIGIN_TIMESTAMPING:
		r.Count = e.Data
		return e.Info == unix.SCM_TSTAMP_SND
	case unix.SO_EE_ORIGIN_ICMP, unix.SO_EE_ORIGIN_ICMP6, unix.SO_EE_ORIGIN_LOCAL:
		r.Errno = syscall.Errno(e.Errno)
		r.To = q.names[i].AddrPort()
		r.ICMPv6, r.Type, r.Code = e.Origin == unix.SO_EE_ORIGIN_ICMP6, e.Type, e.Code
		if r.Errno == syscall.EMSGSIZE {
			r.MTU = e.Info
		}
		start := i * errorPayload
		r.Payload = q.buffer[start : start+min(int(q.messages.messages[i].size), errorPayload)]
		return r.Errno != 0
	}
	return false
}
