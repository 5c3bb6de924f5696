package pathmtu

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"net/netip"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"vigia/internal/netns"
	"vigia/probes/protocol"
	"vigia/probes/sender"
	"vigia/probes/timestamping"
)

const (
	// maxDuration bounds a search.
	maxDuration = 2 * time.Minute
	// A probe is waited for until the class's deadline, and as soon as the
	// round-trip time is known for a multiple of that.
	leastWait  = 100 * time.Millisecond
	waitFactor = 4
	// controlProbes is how many small probes are sent after one that is missing, at
	// most.
	controlProbes = 3
	// pollInterval is how often a wait looks whether the search shall end.
	pollInterval = 100 * time.Millisecond
	batch        = 4
	sendSpace    = 1 << 20
)

// Search finds the path MTU from a target's socket address to the address that its
// host has. It opens a socket of its own, so the target's probes and what is counted
// of them are left alone.
func Search(ctx context.Context, t sender.Target, to netip.AddrPort, limits Limits) Result {
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, maxDuration)
	defer cancel()
	p, err := open(t, to, limits)
	if err != nil {
		return Result{Outcome: Failed, Err: err}
	}
	defer p.socket.Close()
	r := run(ctx, p, limits)
	r.Duration = time.Since(began)
	if errors.Is(r.Err, context.DeadlineExceeded) {
		r.Err = fmt.Errorf("not settled after %v", maxDuration)
	}
	return r
}

// prober is a link to the other end.
type prober struct {
	socket  *timestamping.Socket
	search  protocol.Search
	to      netip.AddrPort
	peer    timestamping.Peer
	tos     uint8
	headers int
	small   int           // size of the control probes
	wait    time.Duration // for an answer
	inbox   *timestamping.Inbox
	outbox  *timestamping.Outbox
	errors  *timestamping.ErrorQueue

	sent      []int // sizes by sequence number
	arrived   []bool
	rtt       time.Duration // the longest
	largest   int           // size that arrived
	reported  int           // since it was last asked for
	fitting   int           // probes that fit
	lost      int           // of these
	lastError error         // what was last said of a packet, other than its size
}

func open(t sender.Target, to netip.AddrPort, limits Limits) (*prober, error) {
	searcher, ok := t.Protocol.(protocol.Searcher)
	if !ok {
		return nil, fmt.Errorf("the path MTU cannot be searched with probes of protocol %s", t.Protocol.Traits().Name)
	}
	channel := t.Channel
	channel.DontFragment = true
	if channel.Priority != 0 {
		channel.TOS = t.DSCP << 2 // setting it with each packet would set another priority
	}
	local := t.Source.Addr()
	if !local.IsValid() {
		local = netip.IPv4Unspecified()
		if to.Addr().Is6() {
			local = netip.IPv6Unspecified()
		}
	}
	p := &prober{
		to: to, peer: timestamping.NewPeer(to), headers: Headers(to.Addr()), small: limits.Min, wait: t.Deadline,
		inbox:  timestamping.NewInbox(batch, limits.Max+protocol.MaxOverhead),
		outbox: timestamping.NewOutbox(1), errors: timestamping.NewErrorQueue(batch),
	}
	if channel.Priority == 0 {
		p.tos = t.DSCP << 2
	}
	err := netns.Do(t.Netns, func() (err error) {
		p.socket, err = timestamping.Open(timestamping.Options{
			Transport: t.Protocol.Traits().Transport, Channel: channel, Local: netip.AddrPortFrom(local, 0), ReportErrors: true,
			ReceiveBuffer: sendSpace, SendBuffer: sendSpace,
		})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("open a socket to search the path MTU: %w", err)
	}
	p.search = searcher.NewSearch(p.socket, t.DSCP)
	return p, nil
}

func (p *prober) packets() int           { return len(p.sent) }
func (p *prober) loss() (sent, lost int) { return p.fitting, p.lost }

func (p *prober) try(ctx context.Context, size int) attempt {
	known := size <= p.largest || size == p.small
	sequence, err := p.send(size)
	if err == nil {
		p.await(ctx, sequence)
	}
	if arrived := p.arrived[sequence]; known || arrived {
		p.count(arrived)
	}
	var a attempt
	for i := 0; i < controlProbes && !p.arrived[sequence] && !a.controlArrived && size > p.small && ctx.Err() == nil; i++ {
		var control int
		if control, err = p.send(p.small); err == nil {
			p.await(ctx, control)
		}
		a.controlArrived = p.arrived[control]
		p.count(a.controlArrived)
	}
	a.largest, a.err = p.largest, err
	if err == nil {
		a.err = p.lastError
	}
	a.reported, p.reported = p.reported, 0
	return a
}

// count counts a probe that fits.
func (p *prober) count(arrived bool) {
	p.fitting++
	if !arrived {
		p.lost++
	}
}

// send sends a probe. An error that waited at the socket belongs to an earlier
// one, so a failed send is repeated once those are read.
func (p *prober) send(size int) (sequence int, err error) {
	sequence = len(p.sent)
	p.sent, p.arrived = append(p.sent, size), append(p.arrived, false)
	packet := p.search.Request(uint32(sequence), size-p.headers)
	for range 2 {
		p.read(nil)
		p.outbox.Reset()
		p.outbox.Add(&p.peer, packet, p.tos, netip.Addr{})
		if _, err = p.outbox.Send(p.socket, 0); err == nil {
			return sequence, nil
		}
	}
	p.read(nil) // a refusal for the size tells the device's MTU
	return sequence, fmt.Errorf("send a packet of %d bytes: %w", size, err)
}

// await reads answers until one shows that the probe arrived, or it is too late.
func (p *prober) await(ctx context.Context, sequence int) {
	sent := time.Now()
	patience := p.wait
	if p.rtt > 0 {
		patience = min(max(leastWait, waitFactor*p.rtt), p.wait)
	}
	for ctx.Err() == nil {
		p.read(func(s int) {
			if s == sequence {
				p.rtt = max(p.rtt, time.Since(sent))
			}
		})
		left := patience - time.Since(sent)
		if p.arrived[sequence] || left <= 0 {
			return
		}
		fds := []unix.PollFd{{Fd: int32(p.socket.FD()), Events: unix.POLLIN}}
		_, _ = unix.Poll(fds, int(min(left, pollInterval)/time.Millisecond)+1)
	}
}

// read reads all that waits: answers, send stamps, and what is said of packets
// sent. answered may be nil.
func (p *prober) read(answered func(sequence int)) {
	var report timestamping.Report
	for n, err := p.errors.Receive(p.socket); n > 0 && err == nil; n, err = p.errors.Receive(p.socket) {
		for i := range n {
			switch ok := p.errors.Report(i, &report); {
			case !ok || report.Errno == 0:
			case report.Errno != syscall.EMSGSIZE:
				p.lastError = report.Errno
			case report.MTU > 0:
				p.reported = int(min(report.MTU, GreatestSize))
			}
		}
	}
	var d timestamping.Datagram
	for failures := 0; failures < 2; {
		n, err := p.inbox.Receive(p.socket)
		if err != nil { // of a packet sent before; the next call tells no more of it
			failures++
			continue
		}
		if n == 0 {
			return
		}
		for i := range n {
			p.inbox.Datagram(i, &d)
			a, ok := protocol.Arrivals{}, false
			if d.From == p.to && !d.Truncated {
				a, ok = p.search.Parse(d.Payload)
			}
			if ok {
				p.learn(&a)
				if answered != nil {
					answered(int(a.Sequence))
				}
			}
		}
	}
}

// learn marks what arrived.
func (p *prober) learn(a *protocol.Arrivals) {
	p.mark(int64(a.Sequence))
	for i := range int64(bits.Len64(a.Mask)) {
		if a.Mask&(1<<i) != 0 {
			p.mark(int64(a.Highest) - i)
		}
	}
}

func (p *prober) mark(sequence int64) {
	if sequence >= 0 && sequence < int64(len(p.sent)) {
		p.arrived[sequence] = true
		p.largest = max(p.largest, p.sent[sequence])
	}
}
