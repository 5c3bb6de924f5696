// Command bareloop sends probes and reads answers and stamps with the fewest system calls
// that do: sendmmsg, recvmmsg, recvmmsg of the error queue, and a sleep a tick. What it
// takes is the floor beneath vigia-probe, which decides about every one of them besides.
package main

import (
	"encoding/binary"
	"encoding/json"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	port    = 862 // of STAMP (RFC 8762)
	size    = 64  // bytes of a probe
	control = 128 // bytes of control messages
	room    = 256 // answers read at once

	// patience is how long what is under way at the end is waited for, at most.
	patience = 20 * time.Second
)

// mmsghdr is the kernel's struct mmsghdr.
type mmsghdr struct {
	hdr unix.Msghdr
	len uint32
	_   [4]byte
}

// messages are buffers that one system call fills or sends.
type messages struct {
	headers  []mmsghdr
	vectors  []unix.Iovec
	data     []byte
	names    []unix.RawSockaddrInet4
	controls []byte
}

func newMessages(n int, withControl bool) *messages {
	m := &messages{make([]mmsghdr, n), make([]unix.Iovec, n), make([]byte, n*size), make([]unix.RawSockaddrInet4, n), make([]byte, n*control)}
	for i := range n {
		m.vectors[i] = unix.Iovec{Base: &m.data[i*size], Len: size}
		h := &m.headers[i].hdr
		h.Name, h.Namelen = (*byte)(unsafe.Pointer(&m.names[i])), uint32(unsafe.Sizeof(m.names[i]))
		h.Iov, h.Iovlen = &m.vectors[i], 1
		if withControl {
			h.Control = &m.controls[i*control]
		}
	}
	return m
}

// receive reads what is there and returns how many messages were, and how many had stamps.
func (m *messages) receive(fd, flags int) (n, stamped int) {
	for i := range m.headers {
		m.headers[i].hdr.Namelen = uint32(unsafe.Sizeof(m.names[i]))
		m.headers[i].hdr.SetControllen(control)
	}
	got, _, errno := unix.Syscall6(unix.SYS_RECVMMSG, uintptr(fd), uintptr(unsafe.Pointer(&m.headers[0])), uintptr(len(m.headers)), uintptr(flags|unix.MSG_DONTWAIT), 0, 0)
	if errno != 0 {
		return 0, 0
	}
	for i := range int(got) {
		c := m.controls[i*control:]
		if m.headers[i].hdr.Controllen >= unix.SizeofCmsghdr && binary.NativeEndian.Uint32(c[12:]) == unix.SCM_TIMESTAMPING {
			stamped++
		}
	}
	return int(got), stamped
}

// outcome is what is printed.
type outcome struct {
	Sent     int     `json:"sent"`
	Answered int     `json:"answered"`
	Stamped  int     `json:"stamped"` // answers with a stamp of the kernel
	SentAt   int     `json:"sent_at"` // send stamps of the kernel
	CPU      float64 `json:"cpu_seconds"`
}

func main() {
	batch := flag.Int("batch", 10, "probes that leave together")
	tick := flag.Duration("tick", time.Millisecond, "between two batches")
	seconds := flag.Float64("seconds", 6, "how long")
	flag.Parse()
	got, err := probe(*batch, *tick, *seconds, flag.Args())
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(got)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "cannot probe:", err)
		os.Exit(1)
	}
}

// probe sends batches to the targets in turn and reads what comes back.
func probe(batch int, tick time.Duration, seconds float64, targets []string) (got outcome, err error) {
	if batch < 1 || tick <= 0 || len(targets) == 0 {
		return got, fmt.Errorf("batch %d, tick %v, %d targets: all have to be more than 0", batch, tick, len(targets))
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	fd, err := socket()
	if err != nil {
		return got, err
	}
	defer unix.Close(fd)
	rounds, err := batches(batch, targets)
	if err != nil {
		return got, err
	}
	answers, stamps := newMessages(room, true), newMessages(room, true)
	started := cpu()
	next := time.Now()
	for end := next.Add(time.Duration(seconds * float64(time.Second))); next.Before(end); next = next.Add(tick) {
		if wait := time.Until(next); wait > 0 {
			pause := unix.NsecToTimespec(wait.Nanoseconds())
			_ = unix.Nanosleep(&pause, nil)
		}
		out := rounds[got.Sent/batch%len(rounds)]
		for i := range out.headers {
			binary.BigEndian.PutUint32(out.data[i*size:], uint32(got.Sent+i))
		}
		sent, _, errno := unix.Syscall6(unix.SYS_SENDMMSG, uintptr(fd), uintptr(unsafe.Pointer(&out.headers[0])), uintptr(batch), 0, 0, 0)
		if errno != 0 {
			return got, fmt.Errorf("send: %w", errno)
		}
		got.Sent += int(sent)
		got.read(fd, answers, stamps)
	}
	got.CPU = (cpu() - started).Seconds()
	// What is under way is not paid for.
	for end := time.Now().Add(patience); (got.Answered < got.Sent || got.SentAt < got.Sent) && time.Now().Before(end); {
		time.Sleep(10 * time.Millisecond)
		got.read(fd, answers, stamps)
	}
	return got, nil
}

func (o *outcome) read(fd int, answers, stamps *messages) {
	n, stamped := answers.receive(fd, 0)
	o.Answered, o.Stamped = o.Answered+n, o.Stamped+stamped
	_, sentAt := stamps.receive(fd, unix.MSG_ERRQUEUE)
	o.SentAt += sentAt
}

// socket returns a UDP socket with the kernel's stamps of sending and of receiving.
func socket() (int, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("socket: %w", err)
	}
	flags := unix.SOF_TIMESTAMPING_TX_SOFTWARE | unix.SOF_TIMESTAMPING_RX_SOFTWARE | unix.SOF_TIMESTAMPING_SOFTWARE |
		unix.SOF_TIMESTAMPING_OPT_ID | unix.SOF_TIMESTAMPING_OPT_TSONLY | unix.SOF_TIMESTAMPING_OPT_CMSG
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TIMESTAMPING, flags); err != nil {
		unix.Close(fd)
		return -1, fmt.Errorf("SO_TIMESTAMPING: %w", err)
	}
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 4<<20)
	return fd, nil
}

// batches returns what is sent in turn: every target has its place in one of them.
func batches(batch int, targets []string) ([]*messages, error) {
	var out []*messages
	for at := 0; at < len(targets); at += batch {
		m := newMessages(batch, false)
		for i := range batch {
			address, err := netip.ParseAddr(targets[(at+i)%len(targets)])
			if err != nil || !address.Is4() {
				return nil, fmt.Errorf("target %q is no IPv4 address", targets[(at+i)%len(targets)])
			}
			m.names[i] = unix.RawSockaddrInet4{Family: unix.AF_INET, Port: port>>8 | port<<8&0xff00, Addr: address.As4()}
		}
		out = append(out, m)
	}
	return out, nil
}

// cpu returns what this process has run for.
func cpu() time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
