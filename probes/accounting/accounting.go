// Package accounting decides what became of every probe, and adds it up: a probe
// is counted as sent in the same step as its outcome, so that at every moment
//
//	handed to the kernel + refused by it = received + lost + in flight
//
// where the left side is counted at the system call, the right side at the
// outcome, and what is in flight by looking.
package accounting

// Cause is why a probe was lost.
type Cause uint8

// The causes, in the order in which they are exported.
const (
	SendError         Cause = iota // the kernel refused to send it
	LocalOverflow                  // the answer found our receive buffer full
	ReflectorOverflow              // the probe found the reflector's receive buffer full
	Forward                        // lost on the way to the reflector
	Reverse                        // lost on the way back
	Unknown                        // nothing tells
	NumCauses         = iota
)

// String returns the cause as the label value cause.
func (c Cause) String() string {
	return [NumCauses]string{"send_error", "local_overflow", "reflector_overflow", "forward", "reverse", "unknown"}[c]
}

// InNetwork reports whether the probe was lost on its way, as far as is known, and not at a
// socket of either end.
func (c Cause) InNetwork() bool { return c >= Forward }

// Counts are the counters of one target.
type Counts struct {
	Sent     uint64 // received or lost
	Received uint64 // answered within the deadline
	Lost     [NumCauses]uint64

	Late      uint64 // answered after the deadline; lost as well (RFC 7680)
	Duplicate uint64 // answered again
	Reordered uint64 // answered after a later probe was answered (RFC 4737)
	Corrupt   uint64 // datagrams from the target that answer no probe
	Skipped   uint64 // not sent because the sender was late by a whole interval

	Handed  uint64 // taken by the kernel; counted at the system call
	Refused uint64 // refused by the kernel; counted at the system call
}

// LostTotal returns the losses of all causes.
func (c *Counts) LostTotal() uint64 {
	var sum uint64
	for _, n := range c.Lost {
		sum += n
	}
	return sum
}

// Mismatch returns how many probes are unaccounted for, given how many are in
// flight. It is 0 unless there is a mistake in the program.
func (c *Counts) Mismatch(inFlight uint64) int64 {
	return int64(c.Handed + c.Refused - c.Received - c.LostTotal() - inFlight)
}
