package protocol

import (
	"vigia/probes/accounting"
	"vigia/probes/delay"
)

// Probe is the record of one probe.
type Probe struct {
	Sequence    uint64
	Intended    int64 // when it was due, CLOCK_MONOTONIC in nanoseconds
	SentAt      int64 // when it was sent or refused, CLOCK_MONOTONIC
	Sent        int64 // the same, CLOCK_REALTIME
	ReadAt      int64 // when its answer was read, or its Exchange ended, CLOCK_MONOTONIC
	Application int64 // what an application's request would have taken, in nanoseconds; see Split
	Own         Own   // what we added before and after that, of packets
	ByExchange  bool  // an Exchange carried it out
	State       State
	Cause       accounting.Cause // of a loss
	Verdict     delay.Verdict    // on an answered probe's stamps
	Stamps      delay.Stamps
	// ErrorBound is how far our clock and the other end's may be apart, in
	// nanoseconds; negative while either does not know.
	ErrorBound int64

	// Nonce comes back with the answer; one that does not bring it answers no probe.
	Nonce uint64
	// Numbered says that an answer came, under the Number that the other end gave it.
	Number   uint32
	Numbered bool
	// Delivery is what is known so far of how far an unanswered probe came.
	Delivery Delivery
	// Drops is the socket's drop counter when the probe was sent.
	Drops uint32
	// Detail is what an Exchange found out beside the delay, for the protocol's own
	// metrics.
	Detail any
}

// Own is the time that an answered probe spent in our own hands, in nanoseconds.
type Own struct {
	Known bool
	Send  int64 // from handing it to the kernel to the kernel's send stamp
	Read  int64 // from the kernel's receive stamp to the read of the answer
}

// Split tells the time that an answered probe took for an application from the time that
// we took for ourselves. realtime is ReadAt on CLOCK_REALTIME.
//
// Between the kernel's stamps of both its ends an application's request takes
// the way there, what the other end does, and the way back; before and after there is only
// our own work and waking. The four parts, Lag, Own.Send, Application and Own.Read, add up to
// the time from Intended to ReadAt. Without the stamps Application is the time from the
// sending to the read, our waking included.
func (p *Probe) Split(realtime int64) {
	const both = delay.T1 | delay.T4
	st := &p.Stamps
	p.Application, p.Own = p.ReadAt-p.SentAt, Own{}
	if st.Kernel&both != both || st.SentSteps != st.ReceivedSteps || st.T4 < st.T1 {
		return
	}
	p.Application = st.T4 - st.T1
	if !p.ByExchange { // the kernel tells how long an exchange took, and not when
		p.Own = Own{Known: true, Send: st.T1 - p.Sent, Read: realtime - st.T4}
	}
}

// ApplicationKnown reports whether Application is free of our own waking, or that of an
// exchange, which is all that it has.
func (p *Probe) ApplicationKnown() bool { return p.Own.Known || p.ByExchange }

// Lag returns how much later than it was due the probe was sent, in nanoseconds.
func (p *Probe) Lag() int64 { return p.SentAt - p.Intended }

// Complete reports whether all stamps of an answered probe are there that its delay is
// taken from; hardware says whether the device's are wanted.
func (p *Probe) Complete(hardware bool) bool {
	st := &p.Stamps
	if st.Kernel&delay.T3 == 0 || st.Kernel&delay.T1 == 0 {
		return false
	}
	return !hardware || st.Device4 == 0 || st.Device1 != 0 || st.Far != delay.Hardware && !st.OneClock
}

// State is how far a probe has come.
type State uint8

// The states.
const (
	InFlight State = iota
	Waiting        // answered; not all stamps are there
	Answered
	Lost
	Closing // sent after the last of a counted target, for what its answer tells
)

// Delivery is how far an unanswered probe came.
type Delivery uint8

// How far it came.
const (
	DeliveryUnknown Delivery = iota
	Delivered                // at the other end, which has answered it
	NotDelivered             // at the other end
)

// Slot is a probe in the window of its session.
type Slot = accounting.Slot[Probe]

// Window holds the probes of a session.
type Window = accounting.Window[Probe]
