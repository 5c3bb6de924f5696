package control

import "time"

// Timing of the receiver.
const (
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
	// short is the share of the wire from which it has no room: what is lost there, is lost
	// whoever sent it. Below it the queues lose only what is beyond the share of its own class.
	short = 0.985
	// fillingFor is how long a queue must fill without a pause to count as one that loses: TCP fills it in less, or more
	// slowly, and is slowed by it.
	fillingFor = 5 * Tick
	// floodShare is the share of a class that is lost when its senders do not adapt, and
	// floodFor how long they count as such. A flood that is held at its source loses nothing here, so that
	// nobody knows when it ends: for letGoFor its room comes back step by step, and for twice as long each time that it
	// floods again after that, within twice the time, at most for letGoMost.
	// One heap of losses may also be a processor that was away, and a neighbour's burst that begins slowly looks like harm
	// where a queue only fills. Who loses in fewer than floodTicks of a window, or loses nothing, counts as a flood for
	// suspectFor, and like any other if it does so again within floodFor.
	floodShare = 0.1
	floodTicks = 5
	floodFor   = 3 * time.Second
	suspectFor = 200 * time.Millisecond
	letGoFor   = 10 * time.Second
	letGoMost  = time.Minute
	// harmed is the share of what another class wants, and bought, below which it is harmed.
	harmed = 0.93
	// shortfall is how much less than it took before a class must have got of a wire without room, in ticks of that, for it
	// to count as harm while it is not known what it wants. Jitter is less, and who just ended shows within three ticks.
	shortfall = 4
	// growth is what others are left of what they take, to grow, and ramp how many times
	// more they are left of what they have grown by within a window.
	growth = 1.05
	ramp   = 4
	// growthBesideTCP is what others are left of what they take beside one that adapts, and grows what they take more from
	// one part of a window to the next if they grow: what varies without it is jitter.
	growthBesideTCP = 1.01
	grows           = 1.08
	// obeyed is how long after its first advice a class that still fills the wire has too much: what came before is
	// out of the window then.
	obeyed = 2 * samples * Tick
	// demandKnown is how long the wire must have had room before what classes take
	// counts as what they want, and demandOf how long that holds.
	demandKnown = 300 * time.Millisecond
	demandOf    = 10 * time.Second
	// demandFades is what is left of a peak after a tick, half of it after 0.7 s: who
	// comes in bursts wants its bursts.
	demandFades = 0.99
	// roomy is the share of LIM_IN below which the link has room.
	roomy = 0.95
	// While others use the link, advice is renewed again and again, so that senders need
	// not find out by flooding; what those that do not adapt may have comes back by
	// renewStep of LIM_IN for each renewInterval, and the others have it at once.
	renewInterval = 50 * time.Millisecond
	renewStep     = 0.075
	// pause is how long a class that takes nothing still counts as one that uses the link:
	// between two transfers of a job its room is not given to a flood.
	pause = 300 * time.Millisecond
	// A class that takes less than this share of what it was advised is not limited by it.
	renewFrom = 0.7
	// adviceEnds is when what senders were advised counts no more without renewal.
	adviceEnds = time.Second
)

// ClassConfig is what the receiver knows of a class.
type ClassConfig struct {
	Tenant                  string
	GuaranteeBytesPerSecond uint64 // to receive
}

// Congestion is a class whose senders must get a notice.
type Congestion struct {
	Class    uint32
	Config   ClassConfig
	Measured float64 // rate that arrives
	Dropped  float64 // of it
	Rate     float64 // that the class's senders may have together
	Since    time.Time
	First    bool // notice of this congestion
	Renewal  bool // nothing is lost: what was advised still holds, or changes
}

// Receiver decides, for one link, when senders must get a notice, and with what rate.
type Receiver struct {
	variant   Variant
	limit     float64 // LIM_IN, bytes per second
	threshold float64 // D, bytes per second
	classes   map[uint32]*window
	awake     []*window // of classes: those that do not rest
	learnt    int       // how often demand was learnt
	learntAt  time.Time
	lastTick  time.Time
	// awakeUntil: the link had room and is busy now, as far as is known without a window.
	awakeUntil time.Time
	roomSince  time.Time // of the wire; zero while it has none
	shortAt    time.Time // when it last had none
	// As of the last sample: what left of late, together, and until when some class needs every tick.
	leaving   float64
	busyUntil time.Time
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
		r.classes[id] = &window{id: id, config: config, absent: true}
	}
	r.wakeAll()
}

// Wake says that the link had room until now and was not sampled: nothing was lost,
// and the time that it was not looked at must not thin what is lost from now on.
func (r *Receiver) Wake(now time.Time) {
	r.awakeUntil, r.roomSince, r.leaving = now.Add(samples*Tick), time.Time{}, 0
	r.wakeAll()
	for _, w := range r.awake {
		w.forget()
	}
}

// Sample takes in the readings of one tick and returns the classes whose senders
// must get a notice now. It wants those of every class that may have moved since the last
// tick; a class that is not among them has its last one. now must carry a monotonic reading.
func (r *Receiver) Sample(now time.Time, moved []ClassReading) []Congestion {
	for i := range moved {
		r.take(&moved[i])
	}
	dt := now.Sub(r.lastTick).Seconds()
	first, before := r.lastTick.IsZero(), r.lastTick
	r.lastTick = now
	if first {
		dt = 0
	}
	var total, arrived, arriving float64
	r.leaving = 0
	for _, w := range r.awake {
		w.add(dt)
		came, left, _ := w.mean(samples)
		comes, leaves, _ := w.mean(samplesCongested)
		w.left, w.latest = left, leaves
		if came > 0.01*float64(w.config.GuaranteeBytesPerSecond) {
			if w.n == samples && w.usedAt.Before(before) { // else it is not known what was before
				w.beganAt = now
			}
			w.usedAt = now
		}
		total += left
		arrived += came
		arriving += comes
		r.leaving += leaves
		if leaves > 0.01*float64(w.config.GuaranteeBytesPerSecond) {
			w.leftAt = now
		}
		if leaves == 0 && now.Sub(w.leftAt) >= pause {
			w.lacking = 0 // it has ended by itself
		}
	}
	r.crowd(now, arrived)
	r.learn(now, arriving)
	var out []Congestion
	r.busyUntil = time.Time{}
	deprived := r.deprived(now)
	for _, w := range r.awake {
		if c, congested := r.judge(now, w, total, deprived); congested {
			out = append(out, c)
		}
		r.busyUntil = later(r.busyUntil, w.congestedUntil)
		if w.advised > 0 {
			r.busyUntil = later(r.busyUntil, w.advisedAt.Add(adviceEnds))
		}
	}
	r.rest(now)
	return out
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// wire returns the rate of the link itself.
func (r *Receiver) wire() float64 { return r.limit + 2*r.threshold }

// crowd finds who borrows and has too much though it was advised: over the whole window the wire was short on average.
func (r *Receiver) crowd(now time.Time, arrived float64) {
	if arrived < short*r.wire() {
		return
	}
	for _, w := range r.awake {
		came, _, _ := w.mean(samples)
		if w.advised > 0 && now.Sub(w.heldAt) >= obeyed && came > float64(w.config.GuaranteeBytesPerSecond) {
			w.crowdsAt = now
		}
	}
}

// learn takes what classes take for what they want once the wire has had room for a while. While it has none, they want
// at least that.
func (r *Receiver) learn(now time.Time, arriving float64) {
	switch {
	case arriving >= short*r.wire():
		r.roomSince, r.shortAt = time.Time{}, now
		for _, w := range r.awake {
			w.wantsAtLeast(now)
		}
	case r.roomSince.IsZero():
		r.roomSince = now
	case now.Sub(r.roomSince) >= demandKnown:
		r.learnt++
		r.learntAt = now
		for _, w := range r.awake {
			w.wants(now)
		}
	case now.Sub(r.roomSince) >= noticeInterval:
		for _, w := range r.awake {
			w.lacking = 0 // there is enough for all
		}
	}
}

// Busy reports whether anything was near to the limit at the last sample, so that every tick counts.
func (r *Receiver) Busy(now time.Time) bool {
	return now.Before(r.awakeUntil) || now.Before(r.busyUntil) || r.leaving > r.limit/2
}

// judge decides on one class; deprived tells whether another gets less than it did.
func (r *Receiver) judge(now time.Time, w *window, total float64, deprived bool) (Congestion, bool) {
	n, interval := samples, paperInterval
	if r.variant == Vigia {
		interval = noticeInterval
		if now.Before(w.congestedUntil) {
			n = samplesCongested
		}
	}
	arrived, left, lost := w.mean(n)
	over := lost
	if r.variant == Vigia && w.filling(samples) >= fillingFor { // its queue is long, and its senders do not adapt to it
		over = max(lost, arrived-left)
	}
	if w.n < n { // the link had room before: what is not in the window was not lost
		lost, over = lost*float64(w.n)/float64(n), over*float64(w.n)/float64(n)
	}
	deprives := deprived && w.takes()
	if deprives {
		w.flood(now)
	}
	ready := w.n >= samplesCongested && (r.variant == Vigia || w.n >= n)
	switch {
	case deprives && w.advised == 0: // however little of it is lost: several that flood share what is
	case !ready || over <= r.threshold || (r.variant == Vigia && (total < saturated*r.limit || w.within())):
		return r.renew(now, w)
	case !r.blames(now, w, arrived, lost) && r.variant == Vigia && now.Sub(r.shortAt) > noticeInterval:
		return r.renew(now, w) // it adapts, and its queue is enough
	}
	if now.After(w.congestedUntil) {
		w.since, w.notified = now.Add(-w.filling(n)), false
	}
	w.congestedUntil = now.Add(congestedFor)
	if now.Sub(w.advisedAt) < interval {
		return Congestion{}, false
	}
	c := Congestion{Class: w.id, Config: w.config, Measured: arrived, Dropped: lost, Since: w.since, First: !w.notified}
	if r.variant == Vigia {
		c.Rate = r.rate(now, w)
		r.remember(now, w, c.Rate)
	}
	w.advisedAt, w.notified = now, true
	return c, true
}

// renew renews the advice to a class that is limited by it and loses nothing of what others
// could have. Once it may have almost all, or takes less, it gets no more notices; one that
// adapts gets a last one that ends its limit, and of one that has flooded it grows at the sender.
func (r *Receiver) renew(now time.Time, w *window) (Congestion, bool) {
	since := now.Sub(w.advisedAt)
	if w.advised == 0 || since < renewInterval {
		return Congestion{}, false
	}
	arrived, _, _ := w.mean(samples)
	less := arrived < renewFrom*w.advised
	switch {
	case since > adviceEnds || (less && w.flooded(now) && since > steady): // the limit grows at the sender
		w.advised = 0
		return Congestion{}, false
	case less && w.flooded(now):
		return Congestion{}, false // it may only pause
	}
	rate := r.rate(now, w)
	if w.flooded(now) {
		steps := since.Seconds() / renewInterval.Seconds()
		rate = min(rate, w.advised+renewStep*steps*r.limit)
	}
	if w.advisedAt = now; rate >= roomy*r.limit || less {
		rate = 2 * r.limit // whatever it wants: at the sender no limit is left
	}
	r.remember(now, w, rate)
	return Congestion{Class: w.id, Config: w.config, Measured: arrived, Rate: rate, Renewal: true}, true
}

// remember keeps what a class was advised; one that may have almost all is not limited.
func (r *Receiver) remember(now time.Time, w *window, rate float64) {
	if rate >= roomy*r.limit {
		rate = 0
	} else if w.advised == 0 {
		w.heldAt = now
	}
	w.advised = rate
}
