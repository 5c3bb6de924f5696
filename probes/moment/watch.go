package moment

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"vigia/probes/sender"
)

// Bounds of all records together.
const (
	// concurrent is how many records of bad paths are made at a time.
	concurrent = 2
	// tick is how often paths are looked at.
	tick = time.Second
	// goodEvery is the least time between two records of good paths, the first ones of targets;
	// renewEvery that between two that are made anew: each takes up to 20 ms of a processor, both
	// ends together, and an older one is nearly as good to compare with.
	goodEvery  = 10 * time.Second
	renewEvery = time.Minute
	// settled is how long a target must have been probed, and good, before a good record
	// is made of it.
	settled = 30 * time.Second
	// maxGood is how many targets have a good record.
	maxGood = 1024
)

// Config says how often records are made and how many are kept.
type Config struct {
	Disabled bool
	// Interval is the least time between two records of a bad target, GoodInterval that
	// between two of a good one.
	Interval, GoodInterval time.Duration
	Keep                   int // records of bad targets
}

// The defaults.
const (
	DefaultInterval     = 5 * time.Minute
	DefaultGoodInterval = time.Hour
	DefaultKeep         = 100
)

// Result is what became of an occasion to make a record.
type Result string

// The results.
const (
	TakenBad  Result = "bad"      // made of a bad target
	TakenGood Result = "good"     // made of a good one
	Busy      Result = "busy"     // not made: the target was good again before others were complete
	TooSoon   Result = "too_soon" // not made: the last one of the target was less than the interval ago
)

// Results returns all results.
func Results() []Result { return []Result{TakenBad, TakenGood, Busy, TooSoon} }

// Harm is a target that is bad now.
type Harm struct {
	Labels sender.Labels
	Why    Why
}

// Options configure a Watch.
type Options struct {
	Sources
	// Bad appends the targets that are bad now: export.Recorders.
	Bad func(to []Harm, now time.Time) []Harm
	// Count counts a result; nil counts nothing.
	Count func(Result)
	// State is the file that keeps records over a restart; empty for none.
	State  string
	Logger *slog.Logger
}

// Watch makes a record whenever a target turns bad, and of good ones now and then.
type Watch struct {
	options Options
	slots   sync.WaitGroup

	mu       sync.Mutex
	config   Config
	targets  map[sender.Labels]*watched
	running  int // records of bad targets under way
	goodAt   time.Time
	goodBusy bool
	moments  []*Moment // of bad targets, the oldest first
	good     map[sender.Labels]*Moment
	kept     map[sender.Labels]*Moment // good ones of before a restart, until there are new ones
	dirty    time.Time                 // since when what is kept differs from the file; zero if it does not
}

// watched is what is known of a target.
type watched struct {
	target  sender.Target
	since   time.Time // when it turned bad; zero while it is good
	decided bool      // of this time: a record is made, or will not be
	lastBad time.Time // when its last record was begun
	calm    time.Time // since when it has been good
	tried   time.Time // when its last good record was begun
}

// job is a record to be made.
type job struct {
	target sender.Target
	why    Why
}

// New returns a watch without targets.
func New(o Options) *Watch {
	if o.Count == nil {
		o.Count = func(Result) {}
	}
	w := &Watch{
		options: o, config: Config{Interval: DefaultInterval, GoodInterval: DefaultGoodInterval, Keep: DefaultKeep},
		targets: make(map[sender.Labels]*watched), good: make(map[sender.Labels]*Moment), kept: make(map[sender.Labels]*Moment),
	}
	w.restore(time.Now())
	return w
}

// Configure puts a configuration into force. Records that are beyond what is kept now are gone.
func (w *Watch) Configure(c Config) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.config = c
	w.moments = slices.Delete(w.moments, 0, max(len(w.moments)-c.Keep, 0))
}

// Set replaces the targets. Records of those that are gone stay, and their good ones go.
func (w *Watch) Set(targets []sender.Target) {
	w.mu.Lock()
	defer w.mu.Unlock()
	before, now := w.targets, time.Now()
	w.targets = make(map[sender.Labels]*watched, len(targets))
	for i := range targets {
		t := targets[i]
		if t.Paused {
			continue
		}
		one := before[t.Labels]
		if one == nil || one.target != t {
			delete(w.good, t.Labels) // of what it was before
			if one != nil {
				delete(w.kept, t.Labels)
			}
			one = &watched{target: t, calm: now}
			if m := w.kept[t.Labels]; m != nil {
				one.tried = m.Time
			}
		}
		w.targets[t.Labels] = one
	}
	for l := range w.good {
		if w.targets[l] == nil {
			delete(w.good, l)
		}
	}
}

// Run watches until ctx ends.
func (w *Watch) Run(ctx context.Context) {
	defer w.save(time.Time{})
	defer w.slots.Wait()
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	var bad []Harm
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		now := time.Now()
		bad = w.options.Bad(bad[:0], now)
		for _, j := range w.step(bad, now) {
			w.slots.Go(func() { w.make(ctx, j) })
		}
		w.save(now)
	}
}

// step takes who is bad now, and returns the records to make.
func (w *Watch) step(bad []Harm, now time.Time) (jobs []job) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.config.Disabled {
		return nil
	}
	is := make(map[sender.Labels]bool, len(bad))
	for _, h := range bad {
		is[h.Labels] = true
		if t := w.targets[h.Labels]; t != nil {
			if j, ok := w.turned(t, h.Why, now); ok {
				jobs = append(jobs, j)
			}
		}
	}
	for l, t := range w.targets {
		if t.since.IsZero() || is[l] {
			continue
		}
		if !t.decided {
			w.options.Count(Busy)
		}
		t.since, t.decided, t.calm = time.Time{}, false, now
	}
	if w.running == 0 {
		if j, ok := w.nextGood(now); ok {
			jobs = append(jobs, j)
		}
	}
	return jobs
}

// turned decides whether a record is made of a bad target now.
func (w *Watch) turned(t *watched, why Why, now time.Time) (j job, ok bool) {
	if t.since.IsZero() {
		t.since = now
	}
	switch {
	case t.decided:
		return j, false
	case !t.lastBad.IsZero() && now.Sub(t.lastBad) < w.config.Interval:
		t.decided = true
		w.options.Count(TooSoon)
		return j, false
	case w.running == concurrent:
		return j, false // at the next look, if it is still bad
	}
	w.running++
	t.decided, t.lastBad = true, now
	return job{target: t.target, why: why}, true
}

// nextGood returns the good target whose last good record is the oldest.
func (w *Watch) nextGood(now time.Time) (j job, ok bool) {
	since := now.Sub(w.goodAt)
	if w.goodBusy || since < goodEvery {
		return j, false
	}
	var next *watched
	for l, t := range w.targets {
		switch {
		case !t.since.IsZero() || now.Sub(t.calm) < settled:
		case !t.tried.IsZero() && now.Sub(t.tried) < w.config.GoodInterval:
		case w.good[l] == nil && len(w.good) >= maxGood:
		case since < renewEvery && w.hasGood(l, now):
		case next == nil || t.tried.Before(next.tried) || t.tried.Equal(next.tried) && l.Compare(&next.target.Labels) < 0:
			next = t
		}
	}
	if next == nil {
		return j, false
	}
	next.tried, w.goodAt, w.goodBusy = now, now, true
	return job{target: next.target, why: Good}, true
}

// make makes a record and keeps it.
func (w *Watch) make(ctx context.Context, j job) {
	m := w.options.take(ctx, j.target, j.why)
	w.mu.Lock()
	defer w.mu.Unlock()
	if j.why == Good {
		w.goodBusy = false
	} else {
		w.running--
	}
	if ctx.Err() == nil {
		w.keep(m, j)
	}
}

// keep keeps a record; mu is held. A good one whose target has turned bad meanwhile, or has
// changed, is none.
func (w *Watch) keep(m *Moment, j job) {
	l := j.target.Labels
	if j.why != Good {
		m.LastGood = w.lastGood(m)
		w.moments = append(w.moments, m)
		w.moments = slices.Delete(w.moments, 0, max(len(w.moments)-w.config.Keep, 0))
		w.options.Count(TakenBad)
		w.differs()
		return
	}
	if t := w.targets[l]; t != nil && t.target == j.target && t.since.IsZero() && len(m.Outcomes.Lost) == 0 {
		w.good[l] = m
		delete(w.kept, l)
		w.options.Count(TakenGood)
		w.differs()
	}
}

// Records returns the last bad records of the targets that are wanted, the newest first, and
// the last good record of these targets, at most limit of each.
func (w *Watch) Records(wanted func(sender.Labels) bool, limit int) (bad, good []*Moment) {
	w.mu.Lock()
	defer w.mu.Unlock()
	bad, good = []*Moment{}, []*Moment{}
	for _, m := range slices.Backward(w.moments) {
		if len(bad) < limit && wanted(m.Labels()) {
			bad = append(bad, m)
		}
	}
	for _, of := range []map[sender.Labels]*Moment{w.good, w.kept} {
		for l, m := range of {
			if wanted(l) && w.targets[l] != nil {
				good = append(good, m)
			}
		}
	}
	slices.SortFunc(good, func(a, b *Moment) int {
		x, y := a.Labels(), b.Labels()
		return x.Compare(&y)
	})
	return bad, good[:min(len(good), limit)]
}
