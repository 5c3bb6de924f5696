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
	Application int64 // from Intended to the read of its answer, in nanoseconds
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
