package timestamping

import (
	"errors"
	"fmt"
	"math/rand/v2"
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
	// hardwareFlags ask for hardware stamps beside those, a report of its own for
	// each of the two of a packet sent.
	hardwareFlags = unix.SOF_TIMESTAMPING_TX_HARDWARE | unix.SOF_TIMESTAMPING_RX_HARDWARE |
		unix.SOF_TIMESTAMPING_RAW_HARDWARE | unix.SOF_TIMESTAMPING_OPT_TX_SWHW
)

// Transport is what a socket carries.
type Transport uint8

// The transports. ICMP sockets are unprivileged ones (net.ipv4.ping_group_range)
// where the system allows it, and raw otherwise, which needs CAP_NET_RAW. TCP
// sockets connect and are reset; the kernel does not stamp their packets.
const (
	UDP Transport = iota
	ICMP
	TCP
	numTransports = iota
)

// String returns the name of the transport.
func (t Transport) String() string { return [numTransports]string{"UDP", "ICMP", "TCP"}[t] }

// Channel says how the packets of a socket are sent.
type Channel struct {
	Device string // to bind to; empty for any
	Mark   uint32 // SO_MARK; needs CAP_NET_ADMIN or, since Linux 5.17, CAP_NET_RAW
	// Priority is SO_PRIORITY, which a VLAN device maps to the priority code
	// point (egress-qos-map).
	Priority uint8
	// TOS is the type of service of all packets of the socket; where Outbox.Add
	// is given one as well, that one wins, and with it its own priority.
	TOS uint8
	// DontFragment forbids fragments, here and on the way (IP_PMTUDISC_PROBE).
	DontFragment bool
	// Instance tells sockets apart that are alike in everything else.
	Instance string
}

// Options say how a socket is opened.
type Options struct {
	Transport Transport
	Channel
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
	// ReportTOS makes it report the DSCP alone.
	ReportTOS bool
}

// Socket is an open socket. It is used from one goroutine at a time.
type Socket struct {
	fd        int
	transport Transport
	raw       bool
	hardware  bool
	local     netip.AddrPort
}

// Open opens a socket in the network namespace of the calling thread.
func Open(o Options) (*Socket, error) {
	family := unix.AF_INET
	if o.Local.Addr().Is6() {
		family = unix.AF_INET6
	}
	s, err := create(family, o.Transport)
	if err != nil {
		return nil, fmt.Errorf("open %s socket for %s: %w", o.Transport, o.Local, err)
	}
	if err := s.configure(o); err != nil {
		unix.Close(s.fd)
		return nil, err
	}
	return s, nil
}

// create makes the socket.
func create(family int, t Transport) (*Socket, error) {
	const flags = unix.SOCK_NONBLOCK | unix.SOCK_CLOEXEC
	kind, protocol := unix.SOCK_DGRAM, 0
	switch {
	case t == TCP:
		kind = unix.SOCK_STREAM
	case t == ICMP && family == unix.AF_INET6:
		protocol = unix.IPPROTO_ICMPV6
	case t == ICMP:
		protocol = unix.IPPROTO_ICMP
	}
	fd, err := unix.Socket(family, kind|flags, protocol)
	if err == nil || t != ICMP {
		return &Socket{fd: fd, transport: t}, err
	}
	fd, rawErr := unix.Socket(family, unix.SOCK_RAW|flags, protocol)
	if rawErr != nil {
		return nil, fmt.Errorf("%w; give it CAP_NET_RAW, or put its group into net.ipv4.ping_group_range", rawErr)
	}
	return &Socket{fd: fd, transport: t, raw: true}, nil
}

func (s *Socket) configure(o Options) error {
	if err := s.setOptions(o); err != nil {
		return err
	}
	if err := s.setChannel(o); err != nil {
		return err
	}
	// Stamps are asked for before the address is taken, so that the very
	// first packet has one.
	if s.transport != TCP {
		if err := s.setStamps(stampFlagsCounted); err != nil {
			return err
		}
	}
	if err := unix.Bind(s.fd, sockaddr(o.Local)); err != nil {
		return fmt.Errorf("bind %s socket to %s: %w%s", o.Transport, o.Local, err, bindFix(err))
	}
	name, err := unix.Getsockname(s.fd)
	if err != nil {
		return fmt.Errorf("read the address of the %s socket on %s: %w", o.Transport, o.Local, err)
	}
	s.local = addrPort(name)
	if s.raw {
		s.local = netip.AddrPortFrom(s.local.Addr(), uint16(rand.Uint32()))
	}
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
	if s.transport == TCP {
		// A port is chosen with each connection, for the whole address pair.
		options = []socketOption{{unix.IPPROTO_IP, unix.IP_BIND_ADDRESS_NO_PORT, "IP_BIND_ADDRESS_NO_PORT"}}
	}
	v6 := o.Local.Addr().Is6()
	if v6 && !s.raw {
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
	if o.ReportTOS && !o.ReportHeader && v6 {
		options = append(options, socketOption{unix.IPPROTO_IPV6, unix.IPV6_RECVTCLASS, "IPV6_RECVTCLASS"})
	} else if o.ReportTOS && !o.ReportHeader {
		options = append(options, socketOption{unix.IPPROTO_IP, unix.IP_RECVTOS, "IP_RECVTOS"})
	}
	for _, opt := range options {
		if err := unix.SetsockoptInt(s.fd, opt.level, opt.name, 1); err != nil {
			return fmt.Errorf("set %s on the %s socket for %s: %w", opt.what, s.transport, o.Local, err)
		}
	}
	if err := s.setBuffer(unix.SO_RCVBUFFORCE, unix.SO_RCVBUF, o.ReceiveBuffer); err != nil {
		return err
	}
	return s.setBuffer(unix.SO_SNDBUFFORCE, unix.SO_SNDBUF, o.SendBuffer)
}

// setChannel sets how packets are sent.
func (s *Socket) setChannel(o Options) error {
	v6 := o.Local.Addr().Is6()
	if err := o.Set(s.fd, v6); err != nil {
		return fmt.Errorf("on the %s socket for %s: %w", s.transport, o.Local, err)
	}
	if s.raw {
		return s.filterEchoReplies(v6)
	}
	return nil
}

// Set sets how the packets of any socket, of IPv6 or not, are sent.
func (c *Channel) Set(fd int, v6 bool) error {
	if c.Device != "" {
		if err := unix.BindToDevice(fd, c.Device); err != nil {
			return fmt.Errorf("set device %s: %w", c.Device, err)
		}
	}
	tos, discover, level := unix.IP_TOS, unix.IP_MTU_DISCOVER, unix.IPPROTO_IP
	if v6 {
		tos, discover, level = unix.IPV6_TCLASS, unix.IPV6_MTU_DISCOVER, unix.IPPROTO_IPV6
	}
	for _, option := range []struct {
		wanted             bool
		what               string
		level, name, value int
	}{
		{c.Mark != 0, "mark (needs CAP_NET_ADMIN)", unix.SOL_SOCKET, unix.SO_MARK, int(c.Mark)},
		{c.TOS != 0, "the type of service", level, tos, int(c.TOS)},
		// After the type of service, which sets one, too.
		{c.Priority != 0, "priority (7 needs CAP_NET_ADMIN)", unix.SOL_SOCKET, unix.SO_PRIORITY, int(c.Priority)},
		{c.DontFragment, "don't fragment", level, discover, unix.IP_PMTUDISC_PROBE},
	} {
		if !option.wanted {
			continue
		}
		if err := unix.SetsockoptInt(fd, option.level, option.name, option.value); err != nil {
			return fmt.Errorf("set %s: %w", option.what, err)
		}
	}
	return nil
}

// icmpFilter is the option ICMP_FILTER of level SOL_RAW, include/uapi/linux/icmp.h.
const icmpFilter = 1

const (
	echoReply   = 0   // RFC 792
	echoReplyV6 = 129 // RFC 4443
)

// filterEchoReplies keeps all but echo replies from a raw socket.
func (s *Socket) filterEchoReplies(v6 bool) error {
	if !v6 {
		blocked := uint32(1) << echoReply
		if err := unix.SetsockoptInt(s.fd, unix.SOL_RAW, icmpFilter, int(^blocked)); err != nil {
			return fmt.Errorf("set ICMP_FILTER: %w", err)
		}
		return nil
	}
	var f unix.ICMPv6Filter
	for i := range f.Data {
		f.Data[i] = ^uint32(0)
	}
	f.Data[echoReplyV6/32] &^= 1 << (echoReplyV6 % 32)
	if err := unix.SetsockoptICMPv6Filter(s.fd, unix.IPPROTO_ICMPV6, unix.ICMPV6_FILTER, &f); err != nil {
		return fmt.Errorf("set ICMPV6_FILTER: %w", err)
	}
	return nil
}

// setBuffer sets a buffer's size, beyond the system's limit where allowed.
func (s *Socket) setBuffer(force, plain, size int) error {
	if size == 0 || unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, force, size) == nil {
		return nil
	}
	if err := unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, plain, size); err != nil {
		return fmt.Errorf("set the buffer of a %s socket to %d bytes: %w", s.transport, size, err)
	}
	return nil
}

// SetHardware asks for hardware stamps beside those of the kernel, or for these alone.
// It is for sockets whose packets go through a device that has its stamps switched on.
func (s *Socket) SetHardware(on bool) error {
	if s.hardware == on || s.transport == TCP {
		return nil
	}
	s.hardware = on
	return s.setStamps(stampFlagsCounted) // does not restart the count: it goes on
}

// Hardware reports whether hardware stamps are asked for.
func (s *Socket) Hardware() bool { return s.hardware }

func (s *Socket) setStamps(flags int) error {
	if s.hardware {
		flags |= hardwareFlags
	}
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

// Raw reports whether received IPv4 packets come with their IP header.
func (s *Socket) Raw() bool { return s.raw }

// Local returns the bound address. The port of an ICMP socket is the identifier
// of its echo requests.
func (s *Socket) Local() netip.AddrPort { return s.local }

// Close closes the socket. To close it again does nothing: its number may be another file's by then.
func (s *Socket) Close() error {
	if s.fd < 0 {
		return nil
	}
	fd := s.fd
	s.fd = -1
	return unix.Close(fd)
}

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
	_, _, errno := unix.RawSyscall6(unix.SYS_GETSOCKOPT, uintptr(s.fd), unix.SOL_SOCKET, unix.SO_MEMINFO,
		uintptr(unsafe.Pointer(&info)), uintptr(unsafe.Pointer(&size)), 0)
	if errno != 0 {
		return 0, fmt.Errorf("read SO_MEMINFO: %w", errno)
	}
	return info[memInfoDrops], nil
}
