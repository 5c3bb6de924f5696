package bulk

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"vigia/probes/timestamping"
)

const (
	udpBuffer = 16 << 20
	udpBatch  = 64
	// quiet is how long nothing must arrive after the sender is done.
	quiet = 200 * time.Millisecond
	// lateness bounds the wait for that.
	lateness = 2 * time.Second
	// tick is the time between two bursts of a sender.
	tick = time.Millisecond
)

// A packet begins with the test's token, its sequence number and the send time in
// nanoseconds of the sender's monotonic clock, 64 bits each.
const headerSize = 24

// counter counts what arrives of a UDP test.
type counter struct {
	h    *testRequest
	from netip.Addr
	seen []uint64 // a bit for each packet
	r    report

	any         bool
	highest     uint64
	first, last int64   // arrivals, in nanoseconds
	transit     int64   // of the packet before, with the clocks' offset in it
	jitter      float64 // RFC 3550 section 6.4.1
}

func newCounter(h *testRequest, from netip.Addr) *counter {
	return &counter{h: h, from: from.Unmap(), seen: make([]uint64, (h.Packets+63)/64)}
}

// run counts until the sender is done and nothing more comes.
func (c *counter) run(ctx context.Context, s *timestamping.Socket, done <-chan error) error {
	inbox := timestamping.NewInbox(udpBatch, c.h.Size)
	var d timestamping.Datagram
	end := time.Now().Add(time.Duration(c.h.Duration) + controlTimeout)
	finished, lastArrival := time.Time{}, time.Now()
	for ctx.Err() == nil {
		n, err := inbox.Receive(s)
		if err != nil {
			return fmt.Errorf("receive: %w", err)
		}
		for i := range n {
			inbox.Datagram(i, &d)
			c.add(&d)
		}
		now := time.Now()
		if n > 0 {
			lastArrival = now
			continue
		}
		select {
		case err := <-done:
			if err != nil {
				return fmt.Errorf("the sender ended the test early: %w", err)
			}
			finished, done = now, nil
		default:
		}
		if !finished.IsZero() && (now.Sub(lastArrival) > quiet && now.Sub(finished) > quiet || now.Sub(finished) > lateness) {
			return nil
		}
		if now.After(end) {
			return errors.New("the sender did not say that it is done")
		}
		if err := poll(s.FD(), unix.POLLIN, 50*time.Millisecond); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// add counts one datagram.
func (c *counter) add(d *timestamping.Datagram) {
	if d.From.Addr().Unmap() != c.from || len(d.Payload) < headerSize || binary.BigEndian.Uint64(d.Payload) != c.h.Token {
		return
	}
	sequence := binary.BigEndian.Uint64(d.Payload[8:])
	if sequence >= uint64(c.h.Packets) {
		return
	}
	word, bit := &c.seen[sequence/64], uint64(1)<<(sequence%64)
	if *word&bit != 0 {
		c.r.Duplicate++
		return
	}
	*word |= bit
	c.r.Received++
	c.r.Bytes += uint64(len(d.Payload))
	arrival := d.Stamp
	if arrival == 0 {
		arrival = time.Now().UnixNano()
	}
	transit := arrival - int64(binary.BigEndian.Uint64(d.Payload[16:]))
	if !c.any {
		c.any, c.first, c.last, c.highest, c.transit = true, arrival, arrival, sequence, transit
		return
	}
	c.first, c.last = min(c.first, arrival), max(c.last, arrival)
	if sequence < c.highest {
		c.r.Reordered++
		return
	}
	c.highest = sequence
	step := transit - c.transit
	c.transit = transit
	c.jitter += (float64(max(step, -step)) - c.jitter) / 16
}

func (c *counter) report(s *timestamping.Socket) report {
	r := c.r
	r.Duration, r.Jitter = c.last-c.first, int64(c.jitter)
	if drops, err := s.Drops(); err == nil {
		r.Dropped = uint64(drops)
	}
	return r
}

// sendPackets sends the packets of a test at its rate until all are sent, ctx ends or the
// time is over. What the device does not take in time is refused, not sent later.
func (t *Target) sendPackets(ctx context.Context, s *timestamping.Socket, to netip.AddrPort, token uint64, o *Outcome) error {
	outbox := timestamping.NewOutbox(udpBatch)
	peer := timestamping.NewPeer(to)
	buffers := make([][]byte, udpBatch)
	for i := range buffers {
		buffers[i] = make([]byte, t.Size)
		binary.BigEndian.PutUint64(buffers[i], token)
	}
	total := t.packets()
	perSecond := float64(t.Rate) / float64(t.Size)
	begin := time.Now()
	next := 0
	for next < total {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		elapsed := time.Since(begin)
		due := min(int(elapsed.Seconds()*perSecond)+1, total)
		if elapsed > t.Duration+time.Second {
			o.Refused += uint64(total - next)
			return nil
		}
		if due <= next {
			time.Sleep(tick)
			continue
		}
		outbox.Reset()
		for i := range min(due-next, udpBatch) {
			binary.BigEndian.PutUint64(buffers[i][8:], uint64(next+i))
			binary.BigEndian.PutUint64(buffers[i][16:], uint64(time.Since(begin)))
			outbox.Add(&peer, buffers[i], 0, netip.Addr{})
		}
		n, err := outbox.Send(s, 0)
		next += n
		o.Packets += uint64(n)
		o.Sent += uint64(n * t.Size)
		switch {
		case n > 0 || err == nil:
		case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.ENOBUFS):
			if err := poll(s.FD(), unix.POLLOUT, tick); err != nil {
				return err
			}
		default:
			return fmt.Errorf("send: %w", err)
		}
	}
	return nil
}
