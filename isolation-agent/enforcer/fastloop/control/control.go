// Package control decides when the senders of a class must be limited, to which rate,
// and when a limit ends. It is pure: it does no I/O, reads no clock, takes no locks
// and starts nothing; whoever drives it (package fastloop, or a simulation) passes
// readings and the time. One goroutine at a time may use a value.
//
// Its parts, each with its state in one place so that it can be replaced alone:
// Receiver finds congested classes from the counters of their queues (its rate.go
// says what the senders of a class may have), Sources ranks who sends into a class,
// Advice tracks what one source was advised and answered, Sender keeps the limits
// that receivers asked this node for.
//
// Rates are in bytes per second throughout, amounts in bytes.
package control

import (
	"fmt"
	"time"
)

// Variant selects how senders are limited.
type Variant string

// The variants.
const (
	// Vigia limits what the source sends to the congested destination, at once to
	// the rate that the receiver advises, and never below the source's share of the guarantee.
	Vigia Variant = "vigia"
	// Paper halves the rate of the whole vport for every notice.
	Paper Variant = "paper"
)

// Tick is the time between two samples of a link that is busy.
const Tick = 10 * time.Millisecond

// MAC is a 48-bit MAC address.
type MAC [6]byte

func (m MAC) String() string {
	return fmt.Sprintf("%02x:%02x:%02x:%02x:%02x:%02x", m[0], m[1], m[2], m[3], m[4], m[5])
}

// Address is an IPv4 address, or an IPv6 address folded to 32 bits by exclusive or,
// in network order.
type Address [4]byte

func (a Address) String() string { return fmt.Sprintf("%d.%d.%d.%d", a[0], a[1], a[2], a[3]) }

// AllDestinations stands for whatever a port sends.
var AllDestinations Address
