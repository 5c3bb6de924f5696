package protocol

import (
	"net/netip"

	"vigia/probes/delay"
	"vigia/probes/timestamping"
)

// Handler makes the packets of a socket's sessions and reads their answers. It is called
// on the sender's thread.
type Handler interface {
	// Write sets what must come back with the answer, and returns the probe's packet.
	// It may be the same memory each time: one session has one packet at a time.
	Write(s *Session, p *Probe) []byte
	// Header reads from a datagram which probe it answers.
	Header(d *timestamping.Datagram, h *Header) Reading
	// Read reads the rest of the datagram that Header read last, which answers a probe of
	// the session; false when it is damaged.
	Read(s *Session, a *Arrival, answer *Answer) bool
	// Learn takes what that answer, to the probe with the sequence number, tells of
	// other probes, after the sender has settled the one that it answers. It returns an
	// earlier probe that has got stamps by it, or nil.
	Learn(s *Session, sequence uint64) *Slot
	// QuotedID reads the session's identifier from the packet of ours, sent to the
	// address, with which an ICMP message begins.
	QuotedID(to netip.AddrPort, packet []byte) (id uint16, ok bool)
}

// Reading is what a Handler makes of a datagram at first sight.
type Reading uint8

// The readings.
const (
	Readable Reading = iota
	Damaged
	Foreign // not meant for this socket
)

// Header is what an answer says of its probe.
type Header struct {
	ID        uint16 // of the session
	Anonymous bool   // the answer has no identifier: its nonce alone tells the session
	Sequence  uint32 // the low 32 bits
	Nonce     uint64
}

// Arrival is a datagram that arrived, and when it was read.
type Arrival struct {
	*timestamping.Datagram
	At       int64 // CLOCK_MONOTONIC in nanoseconds
	Realtime int64 // the same, CLOCK_REALTIME
}

// Answer is what an answer says of its probe's delay.
type Answer struct {
	// T2 and T3 are the other end's stamps, in nanoseconds since 1970. OneClock says
	// that it leaves none.
	T2, T3   int64
	OneClock bool
	// Incomplete says that better stamps may still come.
	Incomplete bool
	// ErrorBound is Probe.ErrorBound.
	ErrorBound int64
	// Rewritten says on which way the packet's DSCP was changed.
	Rewritten [delay.RoundTrip]bool
}
