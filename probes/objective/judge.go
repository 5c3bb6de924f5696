package objective

import (
	"math"
	"sync"
	"sync/atomic"
	"time"

	"vigia/probes/histogram"
)

// Kind is what a target's objective bounds.
type Kind uint8

// The kinds of objectives.
const (
	Delay    Kind = iota // a round trip between kernel stamps
	Jitter               // the difference of two consecutive ones, either way (RFC 3393, RFC 5481)
	NumKinds = iota
)

// String returns the kind as the label value objective.
func (k Kind) String() string { return [NumKinds]string{"delay", "jitter"}[k] }

// How an objective is learned; docs/adr/0028 has the arithmetic.
const (
	// lessonTime is how long samples are gathered at least, lessonSamples how many.
	lessonTime    = time.Hour
	lessonSamples = 100
	// lessonQuantile of them, times margin, is the objective.
	lessonQuantile = 0.99
	margin         = 2
	// Floor is the lowest objective that is learned: less is no harm to tenants, and
	// a host adds as much now and then though nothing is wrong with the path.
	Floor = time.Millisecond
)

// learned returns the objective that follows from a quantile in nanoseconds.
func learned(quantile int64) int64 {
	return roundUp(max(int64(Floor), margin*quantile))
}

// roundUp rounds up to two significant digits.
func roundUp(ns int64) int64 {
	step := int64(1)
	for ns/step >= 100 {
		step *= 10
	}
	return (ns + step - 1) / step * step
}

// Bounds are the objectives of a target by kind; 0 where there is none.
type Bounds [NumKinds]time.Duration

// Judge compares the samples of one target with its objectives. While an objective is
// not known it learns it, and judges nothing. Its counts are guarded by its owner, who calls
// Sample and Counts; all else may happen at the same time.
type Judge struct {
	book  *Book
	kinds [NumKinds]bound
}

// bound is one of the two objectives.
type bound struct {
	inForce     atomic.Int64 // nanoseconds; 0 while it is not known
	judged, bad uint64

	mu      sync.Mutex // guards what follows; samples take it only while there is something to learn
	set     int64      // by the operator; 0 when nobody did
	learned int64      // 0 while it is not known
	samples *histogram.Histogram
	began   time.Time // of the samples
}

// Sample takes a good sample in nanoseconds, not negative: a round trip, or the size of
// a variation.
func (j *Judge) Sample(k Kind, ns int64) {
	b := &j.kinds[k]
	limit := b.inForce.Load()
	if limit == 0 {
		j.learn(b, ns)
		return
	}
	b.judged++
	if ns > limit {
		b.bad++
	}
}

// Counts returns how many samples were judged, and how many of them were beyond the
// objective.
func (j *Judge) Counts(k Kind) (judged, bad uint64) {
	return j.kinds[k].judged, j.kinds[k].bad
}

// Objective returns the objective in force; 0 while it is not known.
func (j *Judge) Objective(k Kind) time.Duration { return time.Duration(j.kinds[k].inForce.Load()) }

func (j *Judge) learn(b *bound, ns int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.inForce.Load() != 0 {
		return // since a moment
	}
	now := j.book.now()
	if b.samples == nil {
		b.samples, b.began = j.book.layout.New(), now
	}
	b.samples.Observe(ns)
	if now.Sub(b.began) < lessonTime || b.samples.Count() < lessonSamples {
		return
	}
	b.learned = learned(min(b.samples.Quantile(lessonQuantile), math.MaxInt64/(10*margin)))
	b.samples = nil
	b.inForce.Store(b.learned)
	j.book.changed.Store(true)
}

// setBounds puts what the operator wants into force; where that is nothing, what was
// learned.
func (j *Judge) setBounds(bounds Bounds) {
	for k := range j.kinds {
		b := &j.kinds[k]
		b.mu.Lock()
		b.set = int64(bounds[k])
		b.apply()
		b.mu.Unlock()
	}
}

// setLearned takes what was learned before; zero values forget it.
func (j *Judge) setLearned(bounds Bounds) {
	for k := range j.kinds {
		b := &j.kinds[k]
		b.mu.Lock()
		b.learned, b.samples = int64(bounds[k]), nil
		b.apply()
		b.mu.Unlock()
	}
}

// learnedBounds returns what was learned.
func (j *Judge) learnedBounds() (bounds Bounds) {
	for k := range j.kinds {
		b := &j.kinds[k]
		b.mu.Lock()
		bounds[k] = time.Duration(b.learned)
		b.mu.Unlock()
	}
	return bounds
}

// apply puts into force what is set, or else was learned; mu is held.
func (b *bound) apply() {
	if b.set != 0 {
		b.samples = nil
		b.inForce.Store(b.set)
		return
	}
	b.inForce.Store(b.learned)
}
