package control

import "time"

// rate returns what the senders of a congested class may have together: what the others
// leave, each with room to grow, and never less than the guarantee. What the others lost to
// a flood cannot be seen in what they still carry: beside one they are left what they wanted
// before, as far as they bought it, and all of that while nobody knows what they want.
func (r *Receiver) rate(now time.Time, w *window) float64 {
	var others float64
	for _, o := range r.awake {
		if o != w {
			others += o.keeps(now, w)
		}
	}
	return max(float64(w.config.GuaranteeBytesPerSecond), r.limit-others)
}

// keeps returns what is left to a class beside another one that is congested. Beside one that adapts, and borrows what
// others leave, their jitter is no growth, and until its next advice they have the headroom of the link to grow into.
func (w *window) keeps(now time.Time, congested *window) float64 {
	left, latest := w.left, w.latest
	guarantee := float64(w.config.GuaranteeBytesPerSecond)
	more, grown, floods := growth, max(0, latest-left), congested.floods(now)
	if !floods {
		if more = growthBesideTCP; !w.grows() {
			grown = 0
		}
	}
	if now.Sub(w.usedAt) >= pause || left >= 0.98*guarantee {
		return more * left
	}
	own := more*left + ramp*grown
	if floods && !w.knows(now) {
		own = guarantee
	} else if floods || congested.crowds(now) {
		own = max(own, more*w.demand)
	}
	return min(own, max(guarantee, more*left))
}

// harms tells whether, while a class loses something, another gets less than it is known to
// want of what it bought, in the last ticks too. Who has just begun takes less for a while, whatever others do.
func (r *Receiver) harms(now time.Time, w *window) bool {
	for _, o := range r.awake {
		if o == w || now.Sub(o.usedAt) >= pause || now.Sub(o.beganAt) < samples*Tick || !o.knows(now) {
			continue
		}
		if max(o.left, o.latest) < harmed*min(o.demand, float64(o.config.GuaranteeBytesPerSecond)) {
			return true
		}
	}
	return false
}

// deprived returns whether some class got less of a wire without room than it took before, of what it bought, and still
// tries.
func (r *Receiver) deprived(now time.Time) bool {
	if r.variant != Vigia || now.Sub(r.shortAt) > noticeInterval {
		return false
	}
	for _, w := range r.awake {
		if w.lacking >= shortfall && w.latest > 0 && w.lacks() {
			return true
		}
	}
	return false
}

// takes tells whether a class takes more than it bought.
func (w *window) takes() bool {
	return w.n >= samplesCongested && min(w.left, w.latest) > float64(w.config.GuaranteeBytesPerSecond)
}

// wantsAtLeast takes what a class gets of a wire without room for the least that it wants, and adds up what it gets less
// than that. What comes in bursts of a few ticks is judged by its mean.
func (w *window) wantsAtLeast(now time.Time) {
	if took := min(w.left, w.latest); took >= w.least || (took > 0 && now.Sub(w.leastAt) >= demandOf) {
		w.least, w.leastAt = took, now
	}
	switch {
	case !w.lacks():
		w.lacking = 0
	case w.latest > 0: // else it has ended by itself, or waits for a time-out
		w.lacking += max(0, 1-w.latest/w.bought())
	}
}

// wants takes what a class gets of a wire with room for what it wants. It wants its bursts, too.
func (w *window) wants(now time.Time) {
	w.least = max(min(w.left, w.latest), w.least*demandFades)
	w.demand = max(w.left, w.demand*demandFades, w.least)
	w.demandAt, w.leastAt, w.lacking = now, now, 0
}

// bought returns the least that a class wants of what it bought.
func (w *window) bought() float64 {
	return min(w.least, float64(w.config.GuaranteeBytesPerSecond))
}

// lacks tells whether a class gets less than that.
func (w *window) lacks() bool {
	return max(w.left, w.latest) < harmed*w.bought()
}

// within tells whether what arrives for the class is no more than what it bought: nobody is told
// to send less than that. What its queue refused then came in a burst, or late.
func (w *window) within() bool {
	arrived, _, _ := w.mean(samples)
	return arrived <= float64(w.config.GuaranteeBytesPerSecond)
}

// knows tells whether it is known what the class wants.
func (w *window) knows(now time.Time) bool {
	return !w.demandAt.IsZero() && now.Sub(w.demandAt) < demandOf
}

// blames takes in what a class that has too much loses and does to others, and tells whether any of it is a sign of a flood.
func (r *Receiver) blames(now time.Time, w *window, arrived, lost float64) bool {
	harms := r.harms(now, w)
	switch {
	case harms && lost > r.threshold:
		w.flood(now)
	case harms || lost >= floodShare*arrived:
		w.suspect(now)
	default:
		return false
	}
	return true
}

// suspect takes in that as much of the class is lost as one who adapts never loses, or that it harms another: for long, for
// the second time, or once.
func (w *window) suspect(now time.Time) {
	since := now.Sub(w.suspectAt)
	again := since >= (samples+floodTicks)*Tick && since < floodFor // nothing of the first time is in the window
	switch {
	case again || w.losing() >= floodTicks || now.Sub(w.floodAt) < 2*w.letGo:
		w.flood(now)
	case since >= floodFor:
		w.suspectAt = now
	}
}

// flood takes in that the class floods.
func (w *window) flood(now time.Time) {
	switch since := now.Sub(w.floodAt); {
	case since >= 2*max(w.letGo, letGoFor):
		w.letGo = letGoFor
	case since >= w.letGo: // it was let go
		w.letGo = min(2*w.letGo, letGoMost)
	}
	w.floodAt = now
}

// floods tells whether so much of the class is lost that its senders do not adapt.
func (w *window) floods(now time.Time) bool {
	return now.Sub(w.floodAt) < floodFor || now.Sub(w.suspectAt) < suspectFor
}

// flooded tells whether it has flooded of late, and may do so again once it is let go.
func (w *window) flooded(now time.Time) bool {
	return now.Sub(w.floodAt) < w.letGo || now.Sub(w.suspectAt) < suspectFor
}

// crowds tells whether what the class borrows still fills the wire now and then, though it was advised.
func (w *window) crowds(now time.Time) bool {
	return !w.crowdsAt.IsZero() && now.Sub(w.crowdsAt) < floodFor
}
