// Package fastloop keeps tenants' guarantees within milliseconds.
//
// On the receiving node it watches the queues of the ingress scheduler every 10 ms.
// Traffic that does not adapt shows as drops above D, half of the headroom; its
// senders' enforcers are told to hold it back at its source. On the sending node it
// puts the limit into the kernel, where it ends by itself, and lets go of it in
// linear steps. The scheme is Gatekeeper's (Rodrigues et al., WIOV 2011) with an
// explicit rate, per destination, and authenticated; Variant Paper is the original.
package fastloop

import (
	"time"
)

// Variant selects how senders are held back.
type Variant string

// The variants.
const (
	// Vigia limits what the source sends to the congested destination, at once to
	// the rate that the receiver advises, and never below the source's share of the guarantee.
	Vigia Variant = "vigia"
	// Paper halves the rate of the whole vport for every notice.
	Paper Variant = "paper"
)

// Timing of the loop.
const (
	Tick = 10 * time.Millisecond
	// samples is how many ticks a decision looks back over, and how many once the
	// class is known to be congested.
	samples          = 10
	samplesCongested = 3
	// noticeInterval is the least time between notices to one source.
	noticeInterval = 50 * time.Millisecond
	// paperInterval is the same for the plain variant: a full window of new samples.
	paperInterval = samples * Tick
	// saturated is the share of LIM_IN from which the link counts as full.
	saturated = 0.97
	// congestedFor is how long a class counts as congested after its drops ended.
	congestedFor = 500 * time.Millisecond
	// demandKnown is how long the link must have had room before what classes take
	// counts as what they want, and demandOf how long that holds.
	demandKnown = time.Second
	demandOf    = 10 * demandKnown
	// demandFades is what is left of a peak after a tick, half of it after 0.7 s: who
	// comes in bursts wants its bursts.
	demandFades = 0.99
	// roomy is the share of LIM_IN below which the link has room.
	roomy = 0.95
	// While others use the link, a class that was told is told again and again, so
	// that its senders need not find out by flooding; what it may have comes back by
	// renewStep of LIM_IN for each renewInterval.
	renewInterval = 100 * time.Millisecond
	renewStep     = 0.15
	// pause is how long a class that takes nothing still counts as one that uses the link:
	// between two transfers of a job its room is not given away.
	pause = 300 * time.Millisecond
	// A class that takes less than this share of what it may have is not held by it.
	renewFrom = 0.7
	// forgetHeld is when what senders were told counts no more.
	forgetHeld = time.Second
)

// Reading is what a class's queue and classifier have counted so far, in bytes.
type Reading struct {
	Arrived uint64 // at the queue
	Left    uint64 // it
	Waiting uint64 // in it
}

// lost returns the bytes that the queue refused, and those that wait beyond what it
// is meant to hold: it counts packets, and a super-frame is one of them.
func (r Reading) lost(queue uint64) uint64 {
	if queue != 0 {
		r.Waiting = min(r.Waiting, queue)
	}
	if gone := r.Left + r.Waiting; r.Arrived > gone {
		return r.Arrived - gone
	}
	return 0
}

// ClassConfig is what the receiver knows of a class.
type ClassConfig struct {
	Tenant    string
	Guarantee uint64 // to receive, bytes per second
	Queue     uint64 // bytes that its queue is meant to hold; 0 = any number
}

// Congestion is a class whose senders must be told.
type Congestion struct {
	Class    uint32
	Config   ClassConfig
	Measured float64 // bytes per second that arrive
	Dropped  float64 // of it
	Rate     float64 // that the class's senders may have together
	Since    time.Time
	First    bool // notice of this congestion
	Renewal  bool // nothing is lost: what was told still holds, or changes
}

type sample struct {
	arrived, left, lost float64 // bytes
	dt                  float64 // seconds
}

// window holds the last samples of a class.
type window struct {
	config  ClassConfig
	last    Reading
	started bool
	ring    [samples]sample
	sum     sample // of the last n
	next    int
	n       int
	// congestedUntil: decisions look at fewer samples until then.
	congestedUntil time.Time
	since          time.Time // first sign of the present congestion
	advised        time.Time // when its senders were last told
	told           bool      // in the present congestion
	held           float64   // what its senders may have together since then; 0 = anything
	demand         float64   // the most that it took of late while the link had room
	demandAt       time.Time // when that was last seen; zero = never
	usedAt         time.Time // when it last took more than next to nothing
}

// content tells whether a class takes what it is known to want.
func (w *window) content(now time.Time, takes float64) bool {
	return !w.demandAt.IsZero() && now.Sub(w.demandAt) < demandOf && takes >= 0.9*w.demand && takes <= 1.1*w.demand
}

// dropping returns for how long, at most n samples, something has been lost.
func (w *window) dropping(n int) time.Duration {
	var seconds float64
	for i := range min(n, w.n) {
		s := &w.ring[(w.next-1-i+2*samples)%samples]
		if s.lost == 0 {
			break
		}
		seconds += s.dt
	}
	return time.Duration(seconds * float64(time.Second))
}

func (w *window) add(r Reading, dt float64) {
	if !w.started {
		w.last, w.started = r, true
		return
	}
	s := sample{dt: dt}
	if r.Arrived >= w.last.Arrived && r.Left >= w.last.Left {
		s.arrived, s.left = float64(r.Arrived-w.last.Arrived), float64(r.Left-w.last.Left)
		if was, is := w.last.lost(w.config.Queue), r.lost(w.config.Queue); is > was {
			s.lost = float64(is - was)
		}
	}
	w.last = r
	w.put(s)
}

// put takes a sample in the place of the oldest.
func (w *window) put(s sample) {
	if w.n == samples {
		w.sum.add(&w.ring[w.next], -1)
	}
	w.ring[w.next] = s
	w.sum.add(&s, 1)
	w.next = (w.next + 1) % samples
	w.n = min(w.n+1, samples)
	if w.next == 0 && w.n == samples { // what rounding leaves behind must not pile up
		w.sum = sample{}
		for i := range w.ring {
			w.sum.add(&w.ring[i], 1)
		}
	}
}

func (s *sample) add(o *sample, times float64) {
	s.arrived += times * o.arrived
	s.left += times * o.left
	s.lost += times * o.lost
	s.dt += times * o.dt
}

// mean returns arrival, departure and drop rates over the last n samples.
func (w *window) mean(n int) (arrived, left, lost float64) {
	sum := w.sum
	if n < w.n && sum.arrived+sum.left > 0 { // else the latest of them are nothing, too
		sum = sample{}
		for i := range n {
			sum.add(&w.ring[(w.next-1-i+samples)%samples], 1)
		}
	}
	if sum.dt == 0 {
		return 0, 0, 0
	}
	return sum.arrived / sum.dt, sum.left / sum.dt, sum.lost / sum.dt
}

// Receiver decides, for one link, when senders must be told, and what. It does no I/O.
type Receiver struct {
	variant   Variant
	limit     float64 // LIM_IN, bytes per second
	threshold float64 // D, bytes per second
	classes   map[uint32]*window
	lastTick  time.Time
	// awakeUntil: the link had room and is busy now, as far as is known without a window.
	awakeUntil time.Time
	roomSince  time.Time // zero while it has none
}

// NewReceiver returns a receiver for a link with that LIM_IN and D.
func NewReceiver(variant Variant, limit, threshold uint64) *Receiver {
	return &Receiver{variant: variant, limit: float64(limit), threshold: float64(threshold), classes: map[uint32]*window{}}
}

// SetClasses says which classes there are. What is known of those that stay is kept.
func (r *Receiver) SetClasses(classes map[uint32]ClassConfig) {
	for id := range r.classes {
		if _, stays := classes[id]; !stays {
			delete(r.classes, id)
		}
	}
	for id, config := range classes {
		if w := r.classes[id]; w != nil {
			w.config = config
			continue
		}
		r.classes[id] = &window{config: config}
	}
}

// Wake tells that the link had room until now and was not sampled: nothing was lost,
// and the time that it was not looked at must not thin what is lost from now on.
func (r *Receiver) Wake(now time.Time) {
	r.awakeUntil, r.roomSince = now.Add(samples*Tick), time.Time{}
	for _, w := range r.classes {
		w.n, w.sum, w.started = 0, sample{}, false
	}
}

// Sample takes in the readings of one tick and returns the classes whose senders
// must be told now. now must carry a monotonic reading.
func (r *Receiver) Sample(now time.Time, readings map[uint32]Reading) []Congestion {
	dt := now.Sub(r.lastTick).Seconds()
	first := r.lastTick.IsZero()
	r.lastTick = now
	for id, w := range r.classes {
		if reading, ok := readings[id]; ok {
			if first {
				dt = 0
			}
			w.add(reading, dt)
		}
		if arrived, _, _ := w.mean(samples); arrived > 0.01*float64(w.config.Guarantee) {
			w.usedAt = now
		}
	}
	var total float64
	for _, w := range r.classes {
		_, left, _ := w.mean(samples)
		total += left
	}
	r.learn(now, total)
	var out []Congestion
	for id, w := range r.classes {
		if c, congested := r.judge(now, id, w, total); congested {
			out = append(out, c)
		}
	}
	return out
}

// learn takes what classes take for what they want once the link has had room for a while.
func (r *Receiver) learn(now time.Time, total float64) {
	switch {
	case total >= roomy*r.limit:
		r.roomSince = time.Time{}
	case r.roomSince.IsZero():
		r.roomSince = now
	case now.Sub(r.roomSince) >= demandKnown:
		for _, w := range r.classes {
			_, left, _ := w.mean(samples)
			w.demand, w.demandAt = max(left, w.demand*demandFades), now
		}
	}
}

// Busy tells whether anything is near to the limit, so that every tick counts.
func (r *Receiver) Busy(now time.Time) bool {
	if now.Before(r.awakeUntil) {
		return true
	}
	var total float64
	for _, w := range r.classes {
		if now.Before(w.congestedUntil) || (w.held > 0 && now.Sub(w.advised) < forgetHeld) {
			return true
		}
		_, left, _ := w.mean(samplesCongested)
		total += left
	}
	return total > r.limit/2
}

func (r *Receiver) judge(now time.Time, id uint32, w *window, total float64) (Congestion, bool) {
	n, interval := samples, paperInterval
	if r.variant == Vigia {
		interval = noticeInterval
		if now.Before(w.congestedUntil) {
			n = samplesCongested
		}
	}
	arrived, _, lost := w.mean(n)
	if w.n < n { // the link had room before: what is not in the window was not lost
		lost *= float64(w.n) / float64(n)
	}
	ready := w.n >= samplesCongested && (r.variant == Vigia || w.n >= n)
	if !ready || lost <= r.threshold || (r.variant == Vigia && total < saturated*r.limit) {
		return r.renew(now, id, w)
	}
	if now.After(w.congestedUntil) {
		w.since, w.told = now.Add(-w.dropping(n)), false
	}
	w.congestedUntil = now.Add(congestedFor)
	if now.Sub(w.advised) < interval {
		return Congestion{}, false
	}
	c := Congestion{Class: id, Config: w.config, Measured: arrived, Dropped: lost, Since: w.since, First: !w.told}
	if r.variant == Vigia {
		c.Rate = r.advise(now, id, w)
		r.hold(w, c.Rate)
	}
	w.advised, w.told = now, true
	return c, true
}

// renew tells a class that is held, and loses nothing, what it may have now. Once it
// may have almost all, or takes less, it is told no more.
func (r *Receiver) renew(now time.Time, id uint32, w *window) (Congestion, bool) {
	since := now.Sub(w.advised)
	if w.held == 0 || since < renewInterval {
		return Congestion{}, false
	}
	arrived, _, _ := w.mean(samples)
	if since > forgetHeld || arrived < renewFrom*w.held {
		w.held = 0
		return Congestion{}, false
	}
	steps := since.Seconds() / renewInterval.Seconds()
	rate := min(r.advise(now, id, w), w.held+renewStep*steps*r.limit)
	if w.advised = now; rate >= roomy*r.limit {
		rate = 2 * r.limit // whatever it wants: at the sender no limit is left
	}
	r.hold(w, rate)
	return Congestion{Class: id, Config: w.config, Measured: arrived, Rate: rate, Renewal: true}, true
}

func (r *Receiver) hold(w *window, rate float64) {
	if w.held = rate; rate >= roomy*r.limit {
		w.held = 0
	}
}

// advise returns what the senders of a congested class may have together. While
// another class that is in use gets less than its guarantee, that is the guarantee:
// a TCP sender must be given the room that it would grow into. Otherwise, and once
// the other is known to want no more, it is what the others leave, with a tenth of
// theirs for growth.
func (r *Receiver) advise(now time.Time, id uint32, w *window) float64 {
	guarantee := float64(w.config.Guarantee)
	var others float64
	for other, o := range r.classes {
		if other == id {
			continue
		}
		_, left, _ := o.mean(samples)
		if now.Sub(o.usedAt) < pause && left < 0.98*float64(o.config.Guarantee) && !o.content(now, left) {
			return guarantee
		}
		others += left
	}
	return max(guarantee, r.limit-1.1*others)
}
