package timestamping

import (
	"fmt"
	"net/netip"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Connection is the state of a TCP socket.
type Connection struct {
	Established bool
	RTT         time.Duration // of the handshake, measured by the kernel to the microsecond
	Retransmits uint32        // of the SYN
}

// tcpEstablished is TCP_ESTABLISHED, tcpSynSent TCP_SYN_SENT (include/net/tcp_states.h).
const (
	tcpEstablished = 1
	tcpSynSent     = 2
)

// Connect begins to connect a TCP socket; nil means that it is under way.
func (s *Socket) Connect(to netip.AddrPort) error {
	peer := NewPeer(to)
	_, _, errno := unix.RawSyscall(unix.SYS_CONNECT, uintptr(s.fd), uintptr(unsafe.Pointer(&peer.raw)), uintptr(peer.size))
	if errno != 0 && errno != unix.EINPROGRESS {
		return errno
	}
	return nil
}

// Disconnect resets the connection and makes the socket ready for another, with
// another source port if none was asked for (connect(2), AF_UNSPEC).
func (s *Socket) Disconnect() error {
	var none unix.RawSockaddr
	none.Family = unix.AF_UNSPEC
	_, _, errno := unix.RawSyscall(unix.SYS_CONNECT, uintptr(s.fd), uintptr(unsafe.Pointer(&none)), unsafe.Sizeof(none))
	if errno != 0 {
		return errno
	}
	_ = s.takeError() // that it was reset
	return nil
}

// takeError returns the socket's error and clears it.
func (s *Socket) takeError() error {
	value, err := unix.GetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_ERROR)
	if err != nil {
		return fmt.Errorf("read SO_ERROR: %w", err)
	}
	if value != 0 {
		return unix.Errno(value)
	}
	return nil
}

// Connection returns the state of a TCP socket: established, under way, or broken
// by an error, which a call returns once.
func (s *Socket) Connection() (Connection, error) {
	info, err := unix.GetsockoptTCPInfo(s.fd, unix.IPPROTO_TCP, unix.TCP_INFO)
	if err != nil {
		return Connection{}, fmt.Errorf("read TCP_INFO: %w", err)
	}
	c := Connection{RTT: time.Duration(info.Rtt) * time.Microsecond, Retransmits: info.Total_retrans}
	// The peer may have closed or reset it already: then there is an RTT.
	c.Established = info.State == tcpEstablished || info.State != tcpSynSent && info.Rtt > 0
	if c.Established {
		return c, nil
	}
	return c, s.takeError()
}
