package protocol

import (
	"net/netip"
	"time"

	"vigia/probes/timestamping"
)

// Session is a session as its protocol sees it: the probes of one target from one socket
// to one address. The sender owns it; what a protocol may set is named.
type Session struct {
	// Host is the target's name or address, Netns the network namespace to send from,
	// Source what to bind to, as far as they are given.
	Host     string
	Netns    string
	Source   netip.AddrPort
	Port     uint16
	Size     int // of a probe in bytes
	DSCP     uint8
	Interval time.Duration
	Deadline time.Duration
	// Channel says how packets are sent. The sender's sockets are set up accordingly.
	Channel timestamping.Channel

	// Window has the probes that may still be answered.
	Window *Window
	// Address is where the probes go; not valid while the name is not resolved.
	Address netip.AddrPort
	// ID tells the session from others on its socket; 0 without one.
	ID uint16
	// Socket is nil while it is not open, and for sessions of Socketless protocols.
	Socket *timestamping.Socket
	// Hardware says that the device that the probes leave by stamps in hardware.
	Hardware bool
	// Ending says that all probes of a counted target are sent.
	Ending bool

	// MaxAnswer is the size of the largest answer in bytes. NewSession of Packets sets it.
	MaxAnswer int
	// State is what NewSession returned.
	State any

	// Wake has the session's Exchange asked again. Any goroutine may call it, but the
	// sender's; it waits until that has been done.
	Wake func()
	// Owner is the sender's.
	Owner any
}

// LossLocator is what a protocol keeps of a session when it can find out where a probe was
// lost.
type LossLocator interface {
	// Delivery says how far an unanswered probe came.
	Delivery(slot *Slot) Delivery
	// Overflowed attributes a probe that did not arrive to the other host, which has
	// reported such losses; false when it has not, or they are attributed already.
	Overflowed(sequence uint64) bool
	// AnswersNeeded is how many answers to later probes show for certain that a probe has
	// not arrived.
	AnswersNeeded() int
}

// Exchange carries out the probes of a session, one after the other. Its methods are
// called on the sender's thread and must not wait. What takes time belongs into a goroutine
// of its own, which calls Session.Wake when it is done.
type Exchange interface {
	// Begin begins a probe, which it must not keep. An error says that the probe
	// could not be sent.
	Begin(p *Probe) error
	// Ready is asked whenever something has happened to the socket, after Wake, and
	// before a probe is lost; ended is false while the probe is under way.
	Ready() (r Result, ended bool)
	// End gives up what is under way, if anything is, and makes ready for the next.
	End() error
}

// Result is the end of a probe in an Exchange.
type Result struct {
	// Err says why there is no answer. The deadline decides what becomes of the probe.
	Err error
	// RTT is the round-trip time as the kernel measured it; 0 when it did not.
	RTT time.Duration
	// At is when it ended, CLOCK_MONOTONIC in nanoseconds; 0 stands for now.
	At int64
	// Detail becomes Probe.Detail.
	Detail any
}
