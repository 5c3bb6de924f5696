package protocol

// Tracer is a Protocol whose packets can trace the hops of a session's own flow: they look
// like its probes to whoever chooses a way by addresses and ports, and like those of another
// session to the other end.
type Tracer interface {
	Protocol
	// NewTrace returns what makes the packets of a trace and reads what comes back. They
	// carry an identifier that no session of the socket has.
	NewTrace(s *Session, id uint16) Trace
}

// Trace makes the packets of one trace and reads what comes back. It is called on the
// sender's thread.
type Trace interface {
	// Request returns the next packet; sequence numbers begin with 0.
	Request(sequence uint32) []byte
	// Answered reads an answer of the other end; ok is false for one that returns nothing
	// that was sent.
	Answered(payload []byte) (a Traced, ok bool)
	// Quoted reads the packet of ours, or what there is of it, that an ICMP message quotes.
	Quoted(payload []byte) (sequence uint32, q Quote)
}

// Traced is what an answer to a packet of a trace says.
type Traced struct {
	Sequence uint32
	// HopLimit is what the packet had when it arrived at the other end, DSCP what it had
	// there; unless Seen, the other end does not tell.
	HopLimit, DSCP uint8
	Seen           bool
}

// Quote says whether an ICMP message quotes a packet of a trace.
type Quote uint8

// The quotes.
const (
	QuotesAnother Quote = iota // a packet, but none of this trace
	QuotesLittle               // too little to tell: RFC 792 asks for no more than the UDP header
	QuotesOurs                 // a packet of this trace, with its secret
)
