// Package connect probes by opening TCP connections, which the other kernel accepts, and
// resetting them as soon as they stand.
package connect

import (
	"golang.org/x/sys/unix"

	"vigia/probes/protocol"
	"vigia/probes/timestamping"
)

// Name is the protocol's name in the configuration.
const Name = "tcp-connect"

// defaultPort is where discovered nodes are probed when the configuration does not say: the
// port that their firewalls open for STAMP.
const defaultPort = 862

// Protocol is TCP connect.
type Protocol struct{}

var _ protocol.Protocol = Protocol{}

// Traits say what the protocol is like.
func (Protocol) Traits() protocol.Traits {
	return protocol.Traits{
		Name: Name, Title: "TCP connect", Noun: "a connection", Transport: timestamping.TCP, Port: defaultPort,
		Flows: protocol.NewFlows,
	}
}

// CheckSize accepts any size: connections have none.
func (Protocol) CheckSize(int) (problem, fix string) { return "", "" }

// exchange opens one connection after the other.
type exchange struct {
	session *protocol.Session
	open    bool // a connection is under way
}

// NewSession returns the exchange of a session.
func (Protocol) NewSession(s *protocol.Session) any { return &exchange{session: s} }

// Begin begins a connection.
func (x *exchange) Begin(*protocol.Probe) error {
	if err := x.session.Socket.Connect(x.session.Address); err != nil {
		return err
	}
	x.open = true
	return nil
}

// Ready looks what became of the connection. The kernel measures the handshake; a SYN that
// was sent again says nothing about the round trip.
func (x *exchange) Ready() (r protocol.Result, ended bool) {
	if !x.open {
		return r, false
	}
	c, err := x.session.Socket.Connection()
	switch {
	case err != nil:
		return protocol.Result{Err: err}, true
	case !c.Established:
		return r, false
	case c.Retransmits == 0:
		r.RTT = c.RTT
	}
	return r, true
}

// End resets the connection.
func (x *exchange) End() error {
	if !x.open || x.session.Socket == nil {
		return nil
	}
	x.open = false
	if err := x.session.Socket.Disconnect(); err != nil && err != error(unix.ENOTCONN) {
		return err
	}
	return nil
}
