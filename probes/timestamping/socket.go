// Package timestamping has UDP sockets whose packets the kernel stamps on both
// ways (SO_TIMESTAMPING), with batched system calls and nothing allocated per
// packet.
package timestamping

import (
	"errors"
	"fmt"
	"net/netip"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Software stamps in both directions; the send stamps carry the count of the
// packet instead of the packet (Documentation/networking/timestamping.rst).
const (
	stampFlags = unix.SOF_TIMESTAMPING_TX_SOFTWARE | unix.SOF_TIMESTAMPING_RX_SOFTWARE |
		unix.SOF_TIMESTAMPING_SOFTWARE | unix.SOF_TIMESTAMPING_OPT_TSONLY
	stampFlagsCounted = stampFlags | unix.SOF_TIMESTAMPING_OPT_ID
)

// Options say how a socket is opened.
type Options struct {
	// Local is the address to bind; port 0 lets the kernel choose one.
	Local netip.AddrPort
	// ReceiveBuffer and SendBuffer are sizes in bytes. What the system's
	// limits refuse is cut to them, unless CAP_NET_ADMIN lifts them.
	ReceiveBuffer, SendBuffer int
	// ReportErrors makes the kernel report what ICMP and the local queues say
	// about packets sent (IP_RECVERR).
	ReportErrors bool
	// ReportHeader makes it report TTL, DSCP and local address of packets
	// received.
	ReportHeader bool
}

// Socket is an open UDP socket. It is used from one goroutine at a time.
type Socket struct {
	fd    int
	local netip.AddrPort
}

// Open opens a socket in the network namespace of the calling thread.
func Open(o Options) (*Socket, error) {
	family := unix.AF_INET
	if o.Local.Addr().Is6() {
		family = unix.AF_INET6
	}
	fd, err := unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open UDP socket for %s: %w", o.Local, err)
	}
	s := &Socket{fd: fd}
	if err := s.configure(o); err != nil {
		unix.Close(fd)
		return nil, err
	}
	return s, nil
}

func (s *Socket) configure(o Options) error {
	if err := s.setOptions(o); err != nil {
		return err
	}
	// Stamps are asked for before the address is taken, so that the very
	// first packet has one.
	if err := s.setStamps(stampFlagsCounted); err != nil {
		return err
	}
	if err := unix.Bind(s.fd, sockaddr(o.Local)); err != nil {
		return fmt.Errorf("bind UDP socket to %s: %w%s", o.Local, err, bindFix(err))
	}
	name, err := unix.Getsockname(s.fd)
	if err != nil {
		return fmt.Errorf("read the address of the UDP socket on %s: %w", o.Local, err)
	}
	s.local = addrPort(name)
	return nil
}

// bindFix says what to do about an error of bind(2).
func bindFix(err error) string {
	switch {
	case errors.Is(err, unix.EADDRINUSE):
		return "; stop the process that holds it (ss -lunp) or choose another port"
	case errors.Is(err, unix.EACCES):
		return "; ports below 1024 need CAP_NET_BIND_SERVICE"
	case errors.Is(err, unix.EADDRNOTAVAIL):
		return "; give this address to a device or correct it"
	}
	return ""
}

type socketOption struct {
	level, name int
	what        string
}

func (s *Socket) setOptions(o Options) error {
	options := []socketOption{{unix.SOL_SOCKET, unix.SO_RXQ_OVFL, "SO_RXQ_OVFL"}}
	v6 := o.Local.Addr().Is6()
	if v6 {
		options = append(options, socketOption{unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, "IPV6_V6ONLY"})
	}
	if o.ReportErrors && v6 {
		options = append(options, socketOption{unix.IPPROTO_IPV6, unix.IPV6_RECVERR, "IPV6_RECVERR"})
	} else if o.ReportErrors {
		options = append(options, socketOption{unix.IPPROTO_IP, unix.IP_RECVERR, "IP_RECVERR"})
	}
	if o.ReportHeader && v6 {
		options = append(options,
			socketOption{unix.IPPROTO_IPV6, unix.IPV6_RECVHOPLIMIT, "IPV6_RECVHOPLIMIT"},
			socketOption{unix.IPPROTO_IPV6, unix.IPV6_RECVTCLASS, "IPV6_RECVTCLASS"},
			socketOption{unix.IPPROTO_IPV6, unix.IPV6_RECVPKTINFO, "IPV6_RECVPKTINFO"})
	} else if o.ReportHeader {
		options = append(options,
			socketOption{unix.IPPROTO_IP, unix.IP_RECVTTL, "IP_RECVTTL"},
			socketOption{unix.IPPROTO_IP, unix.IP_RECVTOS, "IP_RECVTOS"},
			socketOption{unix.IPPROTO_IP, unix.IP_PKTINFO, "IP_PKTINFO"})
	}
	for _, opt := range options {
		if err := unix.SetsockoptInt(s.fd, opt.level, opt.name, 1); err != nil {
			return fmt.Errorf("set %s on the UDP socket for %s: %w", opt.what, o.Local, err)
		}
	}
	if err := s.setBuffer(unix.SO_RCVBUFFORCE, unix.SO_RCVBUF, o.ReceiveBuffer); err != nil {
		return err
	}
	return s.setBuffer(unix.SO_SNDBUFFORCE, unix.SO_SNDBUF, o.SendBuffer)
}

// setBuffer sets a buffer's size, beyond the system's limit where allowed.
func (s *Socket) setBuffer(force, plain, size int) error {
	if size == 0 || unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, force, size) == nil {
		return nil
	}
	if err := unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, plain, size); err != nil {
		return fmt.Errorf("set the buffer of a UDP socket to %d bytes: %w", size, err)
	}
	return nil
}

func (s *Socket) setStamps(flags int) error {
	if err := unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_TIMESTAMPING, flags); err != nil {
		return fmt.Errorf("set SO_TIMESTAMPING: %w", err)
	}
	return nil
}

// RestartCount makes the kernel count packets from 0 again. A failed send may or
// may not have been counted, depending on where in the kernel it failed, so the
// count is only known again after this.
func (s *Socket) RestartCount() error {
	if err := s.setStamps(stampFlags); err != nil {
		return err
	}
	return s.setStamps(stampFlagsCounted)
}

// FD returns the file descriptor.
func (s *Socket) FD() int { return s.fd }

// Local returns the bound address.
func (s *Socket) Local() netip.AddrPort { return s.local }

// Close closes the socket.
func (s *Socket) Close() error { return unix.Close(s.fd) }

const (
	memInfoFields = 9 // struct of SO_MEMINFO, include/uapi/linux/sock_diag.h
	memInfoDrops  = 8 // SK_MEMINFO_DROPS
)

// Drops returns how many datagrams the kernel dropped at this socket since it
// was opened, mostly because its buffer was full: the counter that SO_RXQ_OVFL
// attaches to received packets, readable without one.
func (s *Socket) Drops() (uint32, error) {
	var info [memInfoFields]uint32
	size := uint32(unsafe.Sizeof(info))
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(s.fd), unix.SOL_SOCKET, unix.SO_MEMINFO,
		uintptr(unsafe.Pointer(&info)), uintptr(unsafe.Pointer(&size)), 0)
	if errno != 0 {
		return 0, fmt.Errorf("read SO_MEMINFO: %w", errno)
	}
	return info[memInfoDrops], nil
}
