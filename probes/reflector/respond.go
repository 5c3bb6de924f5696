package reflector

import (
	"net/netip"
	"slices"

	"vigia/probes/stamp"
)

// Reason is why a datagram is not answered.
type Reason uint8

// The reasons.
const (
	answered Reason = iota
	Malformed
	NotAllowed
	RateLimited
	SendError
	numReasons = iota
)

// String returns the reason as the label value reason.
func (r Reason) String() string {
	return [numReasons]string{"answered", "malformed", "not_allowed", "rate_limited", "send_error"}[r]
}

// responder turns requests into replies. It does no input or output.
type responder struct {
	allow    []netip.Prefix
	ports    []uint16 // of our own listeners
	sessions *sessionTable
	limiter  *limiter
	estimate stamp.ErrorEstimate
}

// arrival is what is known of a request beside its bytes.
type arrival struct {
	from     netip.AddrPort
	listener uint32
	ttl      uint8
	received int64 // in nanoseconds since 1970
	now      int64 // CLOCK_MONOTONIC
}

// response is what is to be done about a request.
type response struct {
	reason   Reason
	session  *session
	sequence uint32 // the reflector's
	followUp bool   // the sender asked for the send stamp
}

// respond makes the reply in place of the request in b, with the same size. Only
// the time of sending is left to be written. When the reason is not answered, b
// is as it was.
func (r *responder) respond(b []byte, a *arrival) response {
	request, ok := stamp.ParseRequest(b)
	if !ok || a.from.Port() == 0 {
		return response{reason: Malformed}
	}
	if !r.allowed(a.from) {
		return response{reason: NotAllowed}
	}
	if !r.limiter.allow(a.from.Addr(), a.now) {
		return response{reason: RateLimited}
	}
	s := r.sessions.get(newSessionKey(a.from, request.SSID, a.listener), a.now)
	reply := stamp.Reply{
		Sequence: s.next, ErrorEstimate: r.estimate, SSID: request.SSID,
		ReceiveTimestamp: stamp.FromUnixNano(a.received), SenderSequence: request.Sequence,
		SenderTimestamp: request.Timestamp, SenderErrorEstimate: request.ErrorEstimate, SenderTTL: a.ttl,
	}
	s.next++
	reply.Put(b)
	return response{session: s, sequence: reply.Sequence, followUp: reflectTLVs(b, s)}
}

// allowed reports whether a source may be answered. What comes from a
// reflector's port is an answer, and answering it would go on for ever.
func (r *responder) allowed(from netip.AddrPort) bool {
	if from.Port() == stamp.Port || slices.Contains(r.ports, from.Port()) {
		return false
	}
	for _, p := range r.allow {
		if p.Contains(from.Addr()) {
			return true
		}
	}
	return false
}

// reflectTLVs sets the flags of the TLVs as RFC 8972 section 4 asks and fills in
// the follow-up; it returns whether there was one to fill in.
func reflectTLVs(b []byte, s *session) (followUp bool) {
	tlvs := stamp.PacketTLVs(b)
	for t, whole := tlvs.Next(); t != nil; t, whole = tlvs.Next() {
		switch {
		case !whole:
			t.SetFlags(known(t.Type()) | stamp.Malformed)
		case t.Type() == stamp.TypeExtraPadding:
			t.SetFlags(0)
		case t.Type() == stamp.TypeFollowUp:
			if _, ok := stamp.ParseFollowUp(t); !ok {
				t.SetFlags(stamp.Malformed)
				continue
			}
			if followUp {
				stamp.FollowUp{}.Put(t) // one is enough
			} else {
				s.pop().Put(t)
			}
			t.SetFlags(0)
			followUp = true
		default:
			t.SetFlags(stamp.Unrecognized)
		}
	}
	return followUp
}

// known returns the flags that a TLV of the type starts from.
func known(t stamp.Type) stamp.Flags {
	if t == stamp.TypeExtraPadding || t == stamp.TypeFollowUp {
		return 0
	}
	return stamp.Unrecognized
}
