// Package background carries out probes outside of the sender's thread: those that may
// have to wait, for a connection or for what an application answers.
package background

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"vigia/internal/netns"
	"vigia/probes/protocol"
	"vigia/probes/timestamping"
)

// Work carries out a probe. It returns soon after ctx has ended, which ends with the probe.
type Work func(ctx context.Context, to *Endpoint) Outcome

// New returns the exchange of a session whose probes are carried out by work.
func New(s *protocol.Session, work Work) protocol.Exchange { return &exchange{session: s, work: work} }

// exchange carries out one probe at a time.
type exchange struct {
	session *protocol.Session
	work    Work
	current *attempt // of the sender's thread alone
}

// attempt is one probe.
type attempt struct {
	cancel context.CancelFunc

	mu     sync.Mutex
	result *protocol.Result
}

// Begin lets a goroutine carry out the probe.
func (x *exchange) Begin(*protocol.Probe) error {
	s := x.session
	channel := s.Channel
	channel.TOS = s.DSCP << 2
	to := &Endpoint{Netns: s.Netns, Source: s.Source, Address: s.Address, Channel: channel}
	ctx, cancel := context.WithTimeout(context.Background(), s.Deadline)
	a := &attempt{cancel: cancel}
	x.current = a
	wake := s.Wake
	go func() {
		o := x.work(ctx, to)
		r := protocol.Result{Err: o.Err, At: monotonic(), Detail: &o}
		if ctx.Err() != nil && o.Err != nil {
			r.Detail = nil // it failed because there was no time left
		}
		cancel()
		a.mu.Lock()
		a.result = &r
		a.mu.Unlock()
		wake()
	}()
	return nil
}

// Ready looks whether the goroutine has ended.
func (x *exchange) Ready() (r protocol.Result, ended bool) {
	if x.current == nil {
		return r, false
	}
	x.current.mu.Lock()
	defer x.current.mu.Unlock()
	if x.current.result == nil {
		return r, false
	}
	return *x.current.result, true
}

// End gives up what is under way. Its goroutine ends by itself, and nobody asks for what it
// found.
func (x *exchange) End() error {
	if x.current != nil {
		x.current.cancel()
		x.current = nil
	}
	return nil
}

// monotonic returns CLOCK_MONOTONIC in nanoseconds; 0, which stands for now, should the
// kernel refuse to tell.
func monotonic() int64 {
	var ts unix.Timespec
	if unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts) != nil {
		return 0
	}
	return ts.Nano()
}

// Endpoint is where a probe goes, from where, and how.
type Endpoint struct {
	Netns   string
	Source  netip.AddrPort
	Address netip.AddrPort
	Channel timestamping.Channel
}

// Dial opens a connection; network is tcp or udp.
func (e *Endpoint) Dial(ctx context.Context, network string) (conn net.Conn, err error) {
	d := net.Dialer{Control: e.control, KeepAlive: -1}
	if e.Source.IsValid() {
		local := netip.AddrPortFrom(e.Source.Addr(), 0)
		d.LocalAddr = net.TCPAddrFromAddrPort(local)
		if network == "udp" {
			d.LocalAddr = net.UDPAddrFromAddrPort(local)
		}
	}
	err = netns.Do(e.Netns, func() error {
		conn, err = d.DialContext(ctx, network, e.Address.String())
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", e.Address, err)
	}
	return conn, nil
}

// control sets how packets are sent, before the first leaves.
func (e *Endpoint) control(_, _ string, raw syscall.RawConn) error {
	var failed error
	err := raw.Control(func(fd uintptr) { failed = e.Channel.Set(int(fd), e.Address.Addr().Is6()) })
	return errors.Join(err, failed)
}
