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
	Unauthenticated
	SendError
	numReasons = iota
)

// String returns the reason as the label value reason.
func (r Reason) String() string {
	return [numReasons]string{"answered", "malformed", "not_allowed", "rate_limited", "unauthenticated", "send_error"}[r]
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
	keys     *stamp.Keyring // nil in unauthenticated mode
	ttl, tos uint8
	drops    uint32 // of the listener, when the request was queued; what was read since is too new
	received int64  // in nanoseconds since 1970
	hardware int64  // the device's stamp of the arrival, on its own clock; 0 without
	now      int64  // CLOCK_MONOTONIC
	networks []stamp.Network
}

// mode returns the listener's mode.
func (a *arrival) mode() stamp.Mode {
	if a.keys == nil {
		return stamp.Unauthenticated
	}
	return stamp.Authenticated
}

// response is what is to be done about a request.
type response struct {
	reason   Reason
	session  *session
	sequence uint32 // the reflector's
	asked    uint32 // the sender's
	key      int    // that signs the answer
	tos      uint8  // of the answer
	followUp bool   // the sender asked for the send stamp
	hardware bool   // the arrival time is the device's stamp, and so must be the departure
}

// dscpMask leaves the ECN bits out: they belong to the path, not to the sender.
const dscpMask = 0xfc

// respond makes the reply in place of the request in b, with the same size. Only
// the time of sending and the HMACs are left to be written. When the reason is not
// answered, b is as it was.
func (r *responder) respond(b []byte, a *arrival) response {
	mode := a.mode()
	request, ok := mode.ParseRequest(b)
	if !ok || a.from.Port() == 0 {
		return response{reason: Malformed}
	}
	if !r.allowed(a.from) {
		return response{reason: NotAllowed}
	}
	session := newSessionKey(a.from, request.SSID, a.listener)
	if !r.limiter.allow(a.from.Addr(), a.now) {
		if s := r.sessions.find(session); s != nil {
			s.arrivals.refuse()
		}
		return response{reason: RateLimited}
	}
	key, intact := 0, true
	if a.keys != nil {
		if key, ok = a.keys.Verify(b); !ok {
			return response{reason: Unauthenticated}
		}
		intact = a.keys.VerifyTLVs(b, key)
	}
	s := r.sessions.get(session, a.now)
	s.arrivals.add(request.Sequence, a.drops)
	reply := stamp.Reply{
		Sequence: s.next, ErrorEstimate: r.estimate, SSID: request.SSID,
		ReceiveTimestamp: stamp.FromUnixNano(a.received), SenderSequence: request.Sequence,
		SenderTimestamp: request.Timestamp, SenderErrorEstimate: request.ErrorEstimate, SenderTTL: a.ttl,
	}
	s.next++
	res := response{session: s, sequence: reply.Sequence, asked: request.Sequence, key: key, tos: a.tos & dscpMask}
	mode.PutReply(b, reply)
	if !intact {
		flagTLVs(mode.TLVs(b))
		return res
	}
	res.reflectTLVs(mode.TLVs(b), a)
	if res.hardware {
		mode.PutReceiveTimestamp(b, stamp.FromUnixNano(a.hardware))
	}
	return res
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

// flagTLVs says of every TLV that its integrity is in doubt; nothing else is done
// with them (RFC 8972 section 4.8).
func flagTLVs(tlvs stamp.TLVs) {
	for t, whole := tlvs.Next(); t != nil; t, whole = tlvs.Next() {
		flags := stamp.NoIntegrity
		if !whole {
			flags |= stamp.Malformed
		}
		t.SetFlags(flags)
	}
}

// reflectTLVs sets the flags of the TLVs as RFC 8972 section 4 asks and fills in
// what the sender wants to know.
func (r *response) reflectTLVs(tlvs stamp.TLVs, a *arrival) {
	for t, whole := tlvs.Next(); t != nil; t, whole = tlvs.Next() {
		switch {
		case !whole:
			t.SetFlags(known(t.Type(), a) | stamp.Malformed)
		case known(t.Type(), a) != 0:
			t.SetFlags(stamp.Unrecognized)
		case r.fill(t, a):
			t.SetFlags(0)
		default:
			t.SetFlags(stamp.Malformed)
		}
	}
}

// fill answers one TLV of a known type; it returns false when its length is wrong.
func (r *response) fill(t stamp.TLV, a *arrival) (ok bool) {
	s := r.session
	switch t.Type() {
	case stamp.TypeFollowUp:
		f, ok := stamp.ParseFollowUp(t)
		if !ok {
			return false
		}
		if r.followUp {
			stamp.FollowUp{}.Put(t) // one is enough
			return true
		}
		r.followUp, r.hardware = true, f.Method == stamp.HardwareAssist && a.hardware != 0
		s.pop().Put(t)
	case stamp.TypeReceivedWindow:
		if _, ok = stamp.ParseReceivedWindow(t); ok {
			s.arrivals.window.Put(t)
		}
		return ok
	case stamp.TypeClassOfService:
		c, ok := stamp.ParseClassOfService(t)
		if ok {
			stamp.ClassOfService{Wanted: c.Wanted, Received: a.tos >> 2, ECN: a.tos & 3}.Put(t)
			r.tos = c.Wanted << 2
		}
		return ok
	case stamp.TypeNetworks:
		return stamp.PutNetworks(t, a.networks)
	case stamp.TypeDirectMeasurement:
		d, ok := stamp.ParseDirectMeasurement(t)
		if ok {
			d.ReflectorRX, d.ReflectorTX = s.arrivals.received, s.next-s.arrivals.unsent
			d.Put(t)
		}
		return ok
	}
	return true
}

// known returns the flags that a TLV of the type starts from.
func known(t stamp.Type, a *arrival) stamp.Flags {
	switch t {
	case stamp.TypeExtraPadding, stamp.TypeFollowUp, stamp.TypeReceivedWindow, stamp.TypeClassOfService,
		stamp.TypeDirectMeasurement, stamp.TypeNetworks:
		return 0
	case stamp.TypeHMAC:
		if a.keys != nil {
			return 0
		}
	}
	return stamp.Unrecognized
}
