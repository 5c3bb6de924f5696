// Package protocol is the seam between the sender and the protocols of its probes.
//
// The sender keeps what all have in common: the schedule, the window of probes in
// flight, deadlines, sockets, batches, stamps and accounts. A protocol makes probes and
// reads what comes back. It is a package below this one and a row of the table in
// package registry, and there are two kinds:
//
//   - Packets: a probe is one datagram. The sender hands many of them to the kernel in
//     one system call and reads answers likewise; each socket has one Handler.
//   - All others carry out a probe on their own, in an Exchange: on a socket that the
//     sender keeps open for the session alone, or on whatever they have.
//
// What else a protocol can do it says by the further interfaces here: Keyed, Configurable,
// Searcher, Metered.
package protocol

import (
	"time"

	"vigia/internal/catalog"
	"vigia/probes/timestamping"
)

// Protocol is a protocol of probes, with the settings that it has for a target. Values
// are compared with ==: targets with equal protocols are probed in the same way. Its
// methods are called from several goroutines.
type Protocol interface {
	// Traits say what the protocol is like.
	Traits() Traits
	// CheckSize says what is wrong with the size of a class, in bytes, and what to
	// write instead; both are empty when nothing is.
	CheckSize(size int) (problem, fix string)
	// NewSession returns what the protocol keeps of a session whose parameters are
	// set: an Exchange, unless the protocol is one of Packets.
	NewSession(s *Session) any
}

// Flows says which flows, in the sense of a hash over addresses and ports, the probes of
// a target can belong to.
type Flows uint8

// The kinds of flows.
const (
	OneFlow   Flows = iota // no ports: always the same
	PortFlows              // one for each source port of the target
	NewFlows               // each probe is a new one
)

// Traits are what the rest of the program needs to know of a protocol.
type Traits struct {
	Name  string // in classes[].protocol
	Title string // as people write it
	Noun  string // a probe, as in "means nothing to a connection"

	Transport timestamping.Transport
	// Socketless protocols send by means of their own: the sender keeps no socket.
	Socketless bool
	// Port is where a target is probed when nobody says; 0 stands for a protocol
	// without ports.
	Port  uint16
	Flows Flows
	// Size is the size of a probe when nobody says, Sizes those that can be, for
	// people; empty where probes have no size.
	Size  int
	Sizes string
	// TwoWay says that the other end leaves time stamps, from which each way has
	// delays of its own.
	TwoWay bool
}

// HasSizes reports whether probes have a size.
func (t *Traits) HasSizes() bool { return t.Sizes != "" }

// Packets is a Protocol whose probes are one datagram each.
type Packets interface {
	Protocol
	// NewHandler returns the handler of a socket and its sessions.
	NewHandler(*LocalClock, *Table, *timestamping.Socket) Handler
}

// LocalClock is what the sender knows of this host; it changes now and then.
type LocalClock struct {
	// Error is how far our clock may be from true time, and Synchronized whether it
	// follows an external source.
	Error        time.Duration
	Synchronized bool
}

// Keyed is a Protocol that can authenticate its packets.
type Keyed interface {
	Protocol
	// LoadKeys returns the protocol with the keys of a file.
	LoadKeys(path string) (Protocol, error)
}

// Report reports what is wrong with a key of the configuration, named by its path below
// `options`: the value, what is wrong with it, and what to write instead.
type Report func(key string, value any, problem, fix string)

// Configurable is a Protocol with settings of its own: those below the key `options` of a
// class.
type Configurable interface {
	Protocol
	// Options returns a pointer to a struct with the defaults, whose fields have the
	// tags yaml and help.
	Options() any
	// Configure returns the protocol with options that were read into what Options
	// returned, or reports what is wrong with them.
	Configure(options any, report Report) Protocol
}

// Metered is a Protocol with metrics of its own beside those that all probes have. They
// are in the catalogue.
type Metered interface {
	Protocol
	// Metrics registers them, once.
	Metrics(f *catalog.Factory) Metrics
}

// Metrics takes what a protocol measures beside what all do. Labels are the values of
// src, dst, path, tenant and probe.
type Metrics interface {
	// Added makes the series of a new target.
	Added(labels []string)
	// Settled takes a probe of which nothing more can become known. It runs on the
	// sender's thread, and must not keep the Probe.
	Settled(labels []string, p *Probe)
	// Removed takes the series of a target away.
	Removed(labels []string)
}
