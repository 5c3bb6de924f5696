package app

import (
	"encoding/binary"
	"errors"
	"net"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"vigia/internal/netns"
)

// tally is an independent count: every frame with its Ethernet header and its tags.
type tally struct {
	frames, bytes, longest atomic.Uint64
}

func (y *tally) add(bytes int) {
	y.frames.Add(1)
	y.bytes.Add(uint64(bytes))
	if y.longest.Load() < uint64(bytes) {
		y.longest.Store(uint64(bytes))
	}
}

func (y *tally) read() flow { return flow{y.frames.Load(), y.bytes.Load()} }

// flow is what went one way.
type flow struct{ frames, bytes uint64 }

func (f flow) since(before flow) flow { return flow{f.frames - before.frames, f.bytes - before.bytes} }

// capture counts at a device, by a packet socket, what comes in and what goes out.
type capture struct {
	t         *testing.T
	fd        int
	in, out   tally
	got, lost uint64 // frames that came to the socket, and those of them that it had no room for
	stop      atomic.Bool
	done      chan struct{}
}

const (
	auxVLANValid = 1 << 4   // TP_STATUS_VLAN_VALID: the tag is kept beside the frame
	captureRoom  = 64 << 20 // bytes
	tagSize      = 4
)

func newCapture(t *testing.T, ns, device string) *capture {
	t.Helper()
	c := &capture{t: t, done: make(chan struct{})}
	const everything = unix.ETH_P_ALL<<8&0xff00 | unix.ETH_P_ALL>>8 // network byte order
	err := netns.Do(ns, func() (err error) {
		dev, err := net.InterfaceByName(device)
		if err != nil {
			return err
		}
		if c.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0); err != nil {
			return err
		}
		return errors.Join(
			unix.SetsockoptInt(c.fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, captureRoom),
			unix.SetsockoptInt(c.fd, unix.SOL_PACKET, unix.PACKET_AUXDATA, 1),
			unix.SetsockoptTimeval(c.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 50_000}),
			unix.Bind(c.fd, &unix.SockaddrLinklayer{Protocol: everything, Ifindex: dev.Index}),
		)
	})
	if err != nil {
		t.Fatal(err)
	}
	go c.run()
	t.Cleanup(c.end)
	return c
}

func (c *capture) run() {
	defer close(c.done)
	head, aux := make([]byte, 64), make([]byte, 256)
	for !c.stop.Load() {
		size, control, _, from, err := unix.Recvmsg(c.fd, head, aux, unix.MSG_TRUNC)
		if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return
		}
		if hasTagBeside(aux[:control]) {
			size += tagSize
		}
		if from.(*unix.SockaddrLinklayer).Pkttype == unix.PACKET_OUTGOING {
			c.out.add(size)
		} else {
			c.in.add(size)
		}
	}
}

// hasTagBeside reads struct tpacket_auxdata.
func hasTagBeside(control []byte) bool {
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil {
		return false
	}
	for _, m := range messages {
		if m.Header.Level == unix.SOL_PACKET && m.Header.Type == unix.PACKET_AUXDATA && len(m.Data) >= 4 {
			return binary.NativeEndian.Uint32(m.Data)&auxVLANValid != 0
		}
	}
	return false
}

// ask takes in what came to the socket since it was last asked.
func (c *capture) ask() {
	stats, err := unix.GetsockoptTpacketStats(c.fd, unix.SOL_PACKET, unix.PACKET_STATISTICS)
	if err != nil {
		c.t.Errorf("the capture does not say what it got: %v", err)
		return
	}
	c.got, c.lost = c.got+uint64(stats.Packets), c.lost+uint64(stats.Drops)
}

// caughtUp tells whether all that came to the socket is counted.
func (c *capture) caughtUp() bool {
	c.ask()
	return c.got-c.lost == c.in.frames.Load()+c.out.frames.Load()
}

func (c *capture) end() {
	c.stop.Store(true)
	<-c.done
	if c.ask(); c.lost != 0 {
		c.t.Errorf("the capture itself lost %d of %d frames", c.lost, c.got)
	}
	unix.Close(c.fd)
}
