package control

import "time"

const (
	// Without an answer for so long, or without effect after so many rounds, a
	// peer is unresponsive, and somebody else must act.
	answerTimeout = 300 * time.Millisecond
	roundsAllowed = 3
	// floorRests is how long nothing is repeated to a source that has confirmed to
	// be at its floor.
	floorRests = 500 * time.Millisecond
	// again within so long of the last notice, a congestion is the same one.
	sameEpisode = time.Second
	// A rate that has changed by less than this factor is repeated only so often.
	changedBy      = 1.03
	repeatInterval = 250 * time.Millisecond
	// forgetAdvice is when a source that got no more notices is forgotten.
	forgetAdvice = 30 * time.Second
	// widened is how long more than one source is asked for in its place, because what
	// was asked for it had no effect.
	widened = 10 * time.Second
)

// AdviceKey names a source as notices do: by the node that it is on, its tenant, its MAC
// address and where it sends to.
type AdviceKey struct {
	Node   string
	Tenant string
	From   MAC     // zero = all ports of the tenant on the node
	To     Address // AllDestinations = whatever it sends
}

// Wider returns what is asked for when the key has no effect: the whole port, then all ports
// of the tenant on that node; false if it is that already.
func (k AdviceKey) Wider() (AdviceKey, bool) {
	switch {
	case k.To != AllDestinations:
		k.To = AllDestinations
	case k.From != (MAC{}):
		k.From = MAC{}
	default:
		return k, false
	}
	return k, true
}

// Advice is what the enforcer of a source was last advised, and what it answered.
type Advice struct {
	rate        float64 // 0 = none
	sentAt      time.Time
	sequence    uint64    // of the notice
	congestedAt time.Time // when it was last sent because of drops
	episodeAt   time.Time // when the first notice of the present congestion was sent
	unanswered  int       // notices since the last answer
	rounds      int       // of the present congestion
	severity    uint8
	// What was acknowledged.
	ackRate float64
	ackAt   time.Time
	atFloor bool
	// widenedAt is since when a wider key is asked for.
	widenedAt time.Time
}

// Severity is the severity of the next notice: it goes up with every third notice of a
// congestion and down with every second of calm, and slows the sender's recovery.
func (a *Advice) Severity() uint8 { return a.severity }

// Next decides whether a source of a congested class gets a notice now, and with what
// rate: 0 for none. sources is how many the class has.
func (a *Advice) Next(now time.Time, v Variant, c *Congestion, s *Share, sources int) (rate float64, due bool) {
	if v == Paper {
		return 0, true
	}
	floor := float64(c.Config.GuaranteeBytesPerSecond) / float64(max(sources, 1))
	rate = max(floor, c.Rate*s.Share)
	switch {
	case a.atFloor && now.Sub(a.ackAt) < floorRests && rate >= a.ackRate*0.99 && !(c.Renewal && rate > a.ackRate*changedBy):
		return 0, false // it does what it can
	case c.Renewal && now.Sub(a.sentAt) < repeatInterval && rate < a.rate*changedBy && rate > a.rate/changedBy:
		return 0, false // it knows
	}
	return rate, true
}

// Silent reports whether the source's enforcer does not answer. heard is when it last said
// anything.
func (a *Advice) Silent(now, heard time.Time) bool {
	return a.unanswered >= roundsAllowed && now.Sub(a.episodeAt) > answerTimeout && now.Sub(heard) > answerTimeout
}

// Idle reports whether the source's enforcer answers without effect: measured is the rate
// that arrives from the source.
func (a *Advice) Idle(now time.Time, measured float64) bool {
	return a.rounds >= 2*roundsAllowed && a.rate > 0 && measured > 2*max(a.rate, a.ackRate) && now.Sub(a.episodeAt) > answerTimeout
}

// Widened reports whether a wider key is asked for in place of the source, and does so from
// now on if its enforcer refuses, or answers without effect. Who does not answer at all would
// not answer that either.
func (a *Advice) Widened(now time.Time, measured float64) bool {
	if a.unanswered < roundsAllowed && a.Idle(now, measured) {
		a.widenedAt = now
	}
	return !a.widenedAt.IsZero() && now.Sub(a.widenedAt) < widened
}

// Congested counts a notice that is sent because of drops.
func (a *Advice) Congested(now time.Time) {
	if now.Sub(a.congestedAt) > sameEpisode {
		a.episodeAt, a.rounds = now, 0
		if calm := int(now.Sub(a.congestedAt) / time.Second); !a.congestedAt.IsZero() {
			a.severity = uint8(max(1, int(a.severity)-calm))
		}
	}
	a.congestedAt = now
	a.rounds++
	if a.rounds%3 == 0 && a.severity < maxSeverity {
		a.severity++
	}
	a.unanswered++
}

// Sent takes in that a notice with that sequence number left.
func (a *Advice) Sent(now time.Time, rate float64, sequence uint64) {
	a.rate, a.sentAt, a.sequence = rate, now, sequence
}

// Acknowledged takes in the rate that the source's enforcer says is in force.
func (a *Advice) Acknowledged(now time.Time, rate float64, atFloor bool) {
	a.unanswered, a.ackRate, a.ackAt, a.atFloor = 0, rate, now, atFloor
}

// Refused takes in that the source's enforcer does not do it: it does not know the source, or
// the destination, as this node does. It has answered; more than the source is asked for next.
func (a *Advice) Refused(now time.Time) { a.unanswered, a.widenedAt = 0, now }

// RoundTrip returns how long ago the notice was sent that an answer is to; false if
// another one was sent since.
func (a *Advice) RoundTrip(now time.Time, sequence uint64) (time.Duration, bool) {
	return now.Sub(a.sentAt), sequence == a.sequence
}

// Advices are what all sources were advised.
type Advices struct {
	bySource map[AdviceKey]*Advice
}

// NewAdvices returns advices to nobody.
func NewAdvices() *Advices { return &Advices{bySource: map[AdviceKey]*Advice{}} }

// Len returns how many sources were advised.
func (a *Advices) Len() int { return len(a.bySource) }

// Get returns what a source was advised; nil if nothing.
func (a *Advices) Get(key AdviceKey) *Advice { return a.bySource[key] }

// Begin returns the advice to a source for the next notice. A renewal needs advice
// that still counts: without it nil is returned.
func (a *Advices) Begin(now time.Time, key AdviceKey, renewal bool) *Advice {
	advice := a.bySource[key]
	if renewal && (advice == nil || now.Sub(advice.sentAt) > adviceEnds) {
		return nil
	}
	if advice == nil {
		advice = &Advice{severity: 1}
		a.bySource[key] = advice
	}
	return advice
}

// Forget forgets sources that have got no notice for long.
func (a *Advices) Forget(now time.Time) {
	for key, advice := range a.bySource {
		if now.Sub(advice.sentAt) > forgetAdvice {
			delete(a.bySource, key)
		}
	}
}
