package control

import "time"

// Reading is what a class's queue and classifier have counted so far, in bytes.
type Reading struct {
	Arrived uint64 // at the queue
	Left    uint64 // it
	Waiting uint64 // in it
}

// lost returns the bytes that the queue refused.
func (r Reading) lost() uint64 {
	if gone := r.Left + r.Waiting; r.Arrived > gone {
		return r.Arrived - gone
	}
	return 0
}

// ClassReading is a reading of one class.
type ClassReading struct {
	ID uint32
	Reading
	Absent bool // the class is not there, and nothing is known of it
}

const countedAnew = 64 << 10 // bytes

type sample struct {
	arrived, left, lost float64 // bytes
	dt                  float64 // seconds
}

// window holds the last samples of a class.
type window struct {
	id      uint32 // of its class
	config  ClassConfig
	reading Reading // as of now
	absent  bool    // there is none
	resting bool    // see Receiver.rest
	learnt  int     // Receiver.learnt when it went to rest
	last    Reading // as of the last sample
	ahead   uint64  // bytes that had left, by their count, before any of them were counted to arrive
	started bool
	ring    [samples]sample
	sum     sample // of the last n
	next    int
	n       int
	left    float64 // rate over all samples, as of the last one
	latest  float64 // the same over samplesCongested
	// congestedUntil: decisions look at fewer samples until then.
	congestedUntil time.Time
	since          time.Time     // first sign of the present congestion
	advisedAt      time.Time     // when its senders were last sent advice
	notified       bool          // in the present congestion
	advised        float64       // what its senders may have together since then; 0 = anything
	heldAt         time.Time     // since when they have been
	demand         float64       // the most that it took of late while the link had room
	demandAt       time.Time     // when that was last seen; zero = never
	least          float64       // what it wants at least, also while that is not known
	leastAt        time.Time     // when that was last seen
	lacking        float64       // what it has got less of late, on a wire without room, in ticks of what it wants
	usedAt         time.Time     // when it last took more than next to nothing
	beganAt        time.Time     // when it did so for the first time after a window of nothing
	leftAt         time.Time     // the same of what left it, over samplesCongested
	floodAt        time.Time     // when it last lost as much as one who adapts never loses, or harmed another
	letGo          time.Duration // for how long after that it is let go step by step
	suspectAt      time.Time     // when it did so for a moment, and not within floodFor after the last time
	crowdsAt       time.Time     // when the wire was last short though its senders were advised
}

// filling returns for how long, at most n samples, more has arrived than left.
func (w *window) filling(n int) time.Duration {
	var seconds float64
	for i := range min(n, w.n) {
		s := &w.ring[(w.next-1-i+2*samples)%samples]
		if s.lost == 0 && s.arrived <= s.left {
			break
		}
		seconds += s.dt
	}
	return time.Duration(seconds * float64(time.Second))
}

// losing returns in how many samples much of what arrived was lost.
func (w *window) losing() (ticks int) {
	for i := range w.n {
		if s := &w.ring[(w.next-1-i+2*samples)%samples]; s.lost > 0 && s.lost >= floodShare*s.arrived {
			ticks++
		}
	}
	return ticks
}

// forget drops the samples: what comes next is no news.
func (w *window) forget() { w.n, w.sum, w.started = 0, sample{}, false }

// add takes a sample of so many seconds until the present reading.
func (w *window) add(dt float64) {
	r := w.reading
	if w.absent {
		w.forget()
		return
	}
	if !w.started {
		w.last, w.started, w.ahead = r, true, 0
		// A class outlives the enforcer, and its arrivals may be counted anew. What arrives between two
		// readings is no more than this.
		if gone := r.Left + r.Waiting; gone > r.Arrived+countedAnew {
			w.ahead = gone - r.Arrived
		}
		return
	}
	s := sample{dt: dt}
	if r.Arrived >= w.last.Arrived && r.Left >= w.last.Left {
		s.arrived, s.left = float64(r.Arrived-w.last.Arrived), float64(r.Left-w.last.Left)
		if was, is := w.lost(w.last), w.lost(r); is > was {
			s.lost = float64(is - was)
		}
	}
	w.last = r
	w.put(s)
}

// lost is what the class has lost until a reading, since its arrivals are counted.
func (w *window) lost(r Reading) uint64 {
	r.Arrived += w.ahead
	return r.lost()
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

// grows tells whether the class takes more and more through the window, in each part of it than in the one before.
func (w *window) grows() bool {
	if w.n < samples {
		return true // it has just begun
	}
	var parts [samples / samplesCongested]float64 // the latest first
	for i := range parts {
		for j := range samplesCongested {
			parts[i] += w.ring[(w.next-1-i*samplesCongested-j+2*samples)%samples].left
		}
	}
	for i := 1; i < len(parts); i++ {
		if parts[i-1] < grows*parts[i] {
			return false
		}
	}
	return true
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
