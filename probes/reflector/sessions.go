package reflector

import (
	"encoding/binary"
	"hash/maphash"
	"net/netip"

	"vigia/probes/stamp"
)

const (
	// associativity is how many entries share a hash. When all are taken the one used
	// least recently makes room.
	associativity = 4
	// sessionSets and sourceSets bound the tables: 16384 sessions, 4096 sources.
	sessionSets = 4096
	sourceSets  = 1024
	// sessionIdle is how long a silent session keeps its sequence number (the
	// REFWAIT of RFC 5357 section 4.2).
	sessionIdle = 900 * second
	second      = int64(1e9)
	// followUps is how many send stamps of a session may wait for the next
	// answers: each answer takes one with it. After a stall on the path several
	// probes arrive at once, before the first answer has its stamp.
	followUps = 8
)

// sessionKey identifies a STAMP session at a reflector (RFC 8972 section 3).
type sessionKey struct {
	source   [16]byte
	port     uint16
	ssid     uint16
	listener uint32
}

func newSessionKey(source netip.AddrPort, ssid uint16, listener uint32) sessionKey {
	return sessionKey{source: source.Addr().As16(), port: source.Port(), ssid: ssid, listener: listener}
}

func (k *sessionKey) hash(seed maphash.Seed) uint64 {
	var b [24]byte
	copy(b[:], k.source[:])
	binary.NativeEndian.PutUint16(b[16:], k.port)
	binary.NativeEndian.PutUint16(b[18:], k.ssid)
	binary.NativeEndian.PutUint32(b[20:], k.listener)
	return maphash.Bytes(seed, b[:])
}

// session is what the reflector remembers of a STAMP session: its own sequence
// number, and when its last answers really left.
type session struct {
	key        sessionKey
	used       int64  // CLOCK_MONOTONIC; 0 for a free entry
	generation uint32 // of the entry: how often it was taken
	next       uint32 // sequence number of the next answer
	arrivals   arrivals
	waiting    [followUps]stamp.FollowUp
	first, n   int // the waiting follow-ups are a ring
}

// push queues a follow-up; the oldest gives way when there are too many.
func (s *session) push(f stamp.FollowUp) {
	if s.n == followUps {
		s.first = (s.first + 1) % followUps
		s.n--
	}
	s.waiting[(s.first+s.n)%followUps] = f
	s.n++
}

// pop returns the oldest follow-up, or zeros when none waits.
func (s *session) pop() stamp.FollowUp {
	if s.n == 0 {
		return stamp.FollowUp{}
	}
	f := s.waiting[s.first]
	s.first = (s.first + 1) % followUps
	s.n--
	return f
}

// arrivals are what a session's probes tell about the way to here.
type arrivals struct {
	window   stamp.ReceivedWindow
	any      bool
	received uint32 // packets
	unsent   uint32 // answers that the kernel refused
	refused  uint32 // probes over the rate since the last arrival
	drops    uint32 // the listener's, at the last arrival
}

// restartDistance is how far behind a sequence number must be to be the start of
// another run of numbers rather than a straggler.
const restartDistance = 1024

// add takes note of a probe; drops are those of the listener before it was queued.
// Probes that are missing before it were lost to the full buffer as far as there
// were drops in between.
func (a *arrivals) add(sequence, drops uint32) {
	a.received++
	ahead := int32(sequence - a.window.Highest)
	w := &a.window
	switch {
	case !a.any || ahead < -restartDistance:
		a.any, w.Highest, w.Mask = true, sequence, 1
	case ahead > 0:
		missing := uint32(ahead - 1)
		missing -= min(missing, a.refused)
		w.Overflowed += min(missing, drops-a.drops)
		w.Highest, w.Mask = sequence, w.Mask<<ahead|1
	case ahead > -stamp.WindowBits:
		w.Mask |= 1 << -ahead
	}
	a.drops, a.refused = drops, 0
}

// refuse takes note of a probe over the rate.
func (a *arrivals) refuse() {
	a.refused++
	a.window.Overflowed++
}

// fail takes note of an answer that our kernel refused: the path did not lose it.
func (a *arrivals) fail(sequence uint32) {
	a.unsent++
	a.window.Overflowed++
	if back := a.window.Highest - sequence; back < stamp.WindowBits {
		a.window.Mask &^= 1 << back
	}
}

// sessionTable holds a bounded number of sessions.
type sessionTable struct {
	seed maphash.Seed
	sets [][associativity]session
}

func newSessionTable(sets int) *sessionTable {
	return &sessionTable{seed: maphash.MakeSeed(), sets: make([][associativity]session, sets)}
}

// get returns the session, a new one if it is not known or was silent for long.
func (t *sessionTable) get(key sessionKey, now int64) *session {
	set := &t.sets[key.hash(t.seed)%uint64(len(t.sets))]
	victim := &set[0]
	for i := range set {
		s := &set[i]
		if s.used != 0 && s.key == key && now-s.used < sessionIdle {
			s.used = now
			return s
		}
		if s.used < victim.used {
			victim = s
		}
	}
	*victim = session{key: key, used: now, generation: victim.generation + 1}
	return victim
}

// find returns the session if it is known.
func (t *sessionTable) find(key sessionKey) *session {
	set := &t.sets[key.hash(t.seed)%uint64(len(t.sets))]
	for i := range set {
		if set[i].used != 0 && set[i].key == key {
			return &set[i]
		}
	}
	return nil
}

// limiter is a bounded table of token buckets by source address.
type limiter struct {
	seed  maphash.Seed
	rate  float64 // tokens per nanosecond
	burst float64
	sets  [][associativity]bucket
}

type bucket struct {
	source [16]byte
	used   int64
	tokens float64
}

// minBurst is the least number of packets that may come at once.
const minBurst = 16

// burstFraction is the burst as a fraction of a second's packets.
const burstFraction = 10

func newLimiter(sets int) *limiter {
	return &limiter{seed: maphash.MakeSeed(), sets: make([][associativity]bucket, sets)}
}

// setRate sets the packets per second and source.
func (l *limiter) setRate(perSecond int) {
	l.rate = float64(perSecond) / float64(second)
	l.burst = max(float64(perSecond)/burstFraction, minBurst)
}

// allow takes a token of the source; false means that it has none left.
func (l *limiter) allow(source netip.Addr, now int64) bool {
	key := source.As16()
	set := &l.sets[maphash.Bytes(l.seed, key[:])%uint64(len(l.sets))]
	b := &set[0]
	for i := range set {
		if set[i].used != 0 && set[i].source == key {
			b = &set[i]
			break
		}
		if set[i].used < b.used {
			b = &set[i]
		}
	}
	if b.used == 0 || b.source != key {
		*b = bucket{source: key, tokens: l.burst}
	} else {
		b.tokens = min(l.burst, b.tokens+float64(now-b.used)*l.rate)
	}
	b.used = now
	if b.tokens < 1 {
		return false
	}
	b.tokens--
	return true
}
