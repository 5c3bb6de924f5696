package control

import (
	"math"
	"time"
)

// A class rests while nothing of it moves. Most classes of a node do at any time, and a tick costs
// what those cost that do not: it looks at no others.

// rest lets the classes rest of which nothing that a decision looks at can change by itself.
func (r *Receiver) rest(now time.Time) {
	awake := r.awake[:0]
	for _, w := range r.awake {
		if w.resting = w.still(now); w.resting {
			w.learnt = r.learnt
			continue
		}
		awake = append(awake, w)
	}
	clear(r.awake[len(awake):])
	r.awake = awake
}

// still tells whether a window is full of nothing, and the class neither counts as one that uses
// the link nor has been advised.
func (w *window) still(now time.Time) bool {
	return w.n == samples && w.sum.arrived+w.sum.left+w.sum.lost == 0 && w.last.Waiting == 0 &&
		w.advised == 0 && !now.Before(w.congestedUntil) && now.Sub(w.usedAt) >= pause
}

// take takes in a reading, and wakes its class.
func (r *Receiver) take(c *ClassReading) {
	w := r.classes[c.ID]
	if w == nil {
		return
	}
	w.reading, w.absent = c.Reading, c.Absent
	if w.resting {
		r.wake(w)
		r.awake = append(r.awake, w)
	}
}

// wake makes up for what a class would have learnt while it rested: that it wants nothing.
func (r *Receiver) wake(w *window) {
	if times := r.learnt - w.learnt; times > 0 {
		left := math.Pow(demandFades, float64(times))
		w.least *= left
		w.demand = max(w.demand*left, w.least)
		w.demandAt, w.leastAt = r.learntAt, r.learntAt
	}
	w.resting = false
}

// wakeAll ends every rest.
func (r *Receiver) wakeAll() {
	r.awake = r.awake[:0]
	for _, w := range r.classes {
		if w.resting {
			r.wake(w)
		}
		r.awake = append(r.awake, w)
	}
}
