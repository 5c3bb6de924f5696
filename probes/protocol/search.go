package protocol

import "vigia/probes/timestamping"

// Searcher is a Protocol whose probes can search the path MTU: they have any size, and
// nobody fragments them.
type Searcher interface {
	Protocol
	// NewSearch returns what makes the probes of a search and reads their answers. The
	// search has the socket to itself.
	NewSearch(s *timestamping.Socket, dscp uint8) Search
}

// MaxOverhead is how many bytes a received answer can have beside its payload: an IPv4
// header with options and the header of ICMP.
const MaxOverhead = 68

// Search makes the probes of a search of the path MTU and reads their answers.
type Search interface {
	// Request returns a probe with a payload of size bytes.
	Request(sequence uint32, size int) []byte
	// Parse reads what came from the other end; ok is false when it answers no probe of
	// this search.
	Parse(payload []byte) (a Arrivals, ok bool)
}

// Arrivals say which probes have arrived at the other end: the one that was answered, and
// Highest-i for each bit i of Mask.
type Arrivals struct {
	Sequence uint32
	Highest  uint32
	Mask     uint64
}
