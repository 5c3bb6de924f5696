package limits

import (
	"errors"
	"time"

	"github.com/google/uuid"

	"vigia/internal/ports"
	"vigia/isolation-agent/enforcer/contract"
)

// Mechanism limits what a port sends, in the kernel or in a device. A row of the
// table that Config.Mechanisms is makes it one that limits are put by; package
// mechanismtest has what each must do.
//
// Calls come from one goroutine at a time.
type Mechanism interface {
	// Apply puts a limit on a port for so long, or renews the one with the same ID,
	// whose age and counters go on. ErrUnsuited has the next mechanism of the table
	// tried. On error nothing new is in force.
	Apply(t Target, l Limit, ttl time.Duration) error
	// Read returns the limit that this mechanism has in force on a port, as the kernel
	// or the device has it: ErrNone without one, ErrNotAttached if none would be
	// enforced there now.
	Read(port *ports.Port) (State, error)
	// Remove ends this mechanism's limit on a port now, and frees what it took. It
	// leaves limits of other mechanisms alone. Without a limit it changes nothing.
	Remove(port *ports.Port) error
	// Expires reports whether a limit ends by itself when its time is over, also when this
	// process is dead. The limits of a mechanism that cannot are ended by Limits, and when a
	// new process finds them without knowing when they end.
	Expires() bool
}

// Row is a row of the table of mechanisms.
type Row struct {
	Name      string // in logs
	Mechanism Mechanism
}

// Errors of a Mechanism.
var (
	ErrNone        = errors.New("no limit is in force")
	ErrNotAttached = errors.New("nothing on the port would enforce a limit")
	ErrUnsuited    = errors.New("the mechanism cannot hold this limit on this port now")
)

// Protocol is what a limit is on.
type Protocol string

// The protocols.
const (
	UDP        Protocol = "udp" // fragments included
	Everything Protocol = "all" // that the port sends
)

// Limit is what a port is limited to.
type Limit struct {
	ID                uuid.UUID // of the action that it belongs to
	Protocol          Protocol
	BytesPerSecond    uint64 // 0 drops
	BurstBytes        uint64 // 0 if BytesPerSecond is 0
	PacketsPerSecond  uint64 // 0 = any number
	NewFlowsPerSecond uint64 // 0 = any number
}

// State is a limit that is in force, as read back.
type State struct {
	Limit
	ExpiresIn      time.Duration // 0 if that is not known
	Age            time.Duration // since it was first set
	Shaped         bool          // what exceeds BytesPerSecond waits, and is not dropped at once
	PolicedBytes   uint64        // dropped by it since it was first set
	PolicedPackets uint64
	WholePort      bool // the mechanism knows no protocols: everything that the port sends is held to BytesPerSecond
	// Stale: a process that is gone put it another way than this one would; it is in
	// force, but has to be applied anew.
	Stale bool
}

// Target is where a limit goes.
type Target struct {
	Port     ports.Port
	Contract *contract.Contract // that holds for the port; nil if there is none any more
	Age      time.Duration      // for which the limit has been in force
}
