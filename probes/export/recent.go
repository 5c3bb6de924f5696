package export

import (
	"slices"
	"strings"
	"time"

	"vigia/internal/catalog"
	"vigia/internal/exposition"
	"vigia/probes/protocol"
	"vigia/probes/sender"
)

const (
	// recentSeconds are counted one by one: ten whole ones and the present.
	recentSeconds = 11
	// minRecent is of how many probes a ratio is made at least.
	minRecent = 10
	// minLost is how many a target must lose to be bad: where few are sent, one alone is a
	// large share, and happens on a healthy path.
	minLost = 2
	// allowedSlow is the share of round trips that an objective allows beyond it.
	allowedSlow = 0.01
	// maxRecentTargets have series on the fast page, two each, fewer while the node votes:
	// maxFast is how many series there are at most.
	maxRecentTargets = 4
	maxFast          = 1 + 2*maxRecentTargets
	// maxVotes are for nodes that cannot be reached.
	maxVotes = 4
	// staysBy is how much worse a target must be to take the place of one that is on the page:
	// alerts wait for a series to stay for some seconds.
	staysBy = 1.25
)

// outcomes are what became of probes.
type outcomes struct {
	settled uint32
	lost    uint32 // of those, in the network
	judged  uint32 // good round trips while there was an objective
	slow    uint32 // of those, beyond it
}

func (o *outcomes) add(p outcomes) {
	o.settled += p.settled
	o.lost += p.lost
	o.judged += p.judged
	o.slow += p.slow
}

// loss returns the share of probes that was lost in the network.
func (o *outcomes) loss() float64 { return float64(o.lost) / float64(o.settled) }

// slowness returns the share of round trips that took too long; ok is false while there are
// too few to tell.
func (o *outcomes) slowness() (ratio float64, ok bool) {
	if o.judged < minRecent {
		return 0, false
	}
	return float64(o.slow) / float64(o.judged), true
}

// bad reports whether the target lost more than one, or was slower than its objective allows.
func (o *outcomes) bad() bool {
	slow, _ := o.slowness()
	return o.settled >= minRecent && (o.lost >= minLost || slow > allowedSlow)
}

// recent counts the outcomes of a target's last seconds.
type recent struct {
	seconds [recentSeconds]struct {
		number int64
		outcomes
	}
	harm int64 // the last second with a probe that was lost or slow
	// unpaged keeps a target of the operator's own off the fast page: nobody isolates a tenant
	// for that.
	unpaged bool
}

// newRecent returns the counts of a new target.
func newRecent(l sender.Labels) *recent {
	return &recent{harm: -recentSeconds, unpaged: strings.HasPrefix(l.Tenant, "_")}
}

// count takes outcomes of a second. Seconds are numbered from 1.
func (r *recent) count(second int64, o outcomes) {
	s := &r.seconds[second%recentSeconds]
	if s.number != second {
		s.number, s.outcomes = second, outcomes{}
	}
	s.add(o)
	if o.lost > 0 || o.slow > 0 {
		r.harm = second
	}
}

// sum returns the outcomes of the last seconds; zero, without a look, when none was bad.
func (r *recent) sum(second int64) (sum outcomes) {
	if second-r.harm >= recentSeconds {
		return sum
	}
	for i := range r.seconds {
		if s := &r.seconds[i]; s.number > second-recentSeconds && s.number <= second {
			sum.add(s.outcomes)
		}
	}
	return sum
}

// second returns the number of the second that a time is in.
func (r *Recorders) second(now time.Time) int64 { return 1 + int64(now.Sub(r.began)/time.Second) }

// countRecent counts a settled probe; mu is held. limit is the target's objective of delay
// in nanoseconds if the probe's round trip is good enough to be judged, else 0.
func (r *recorder) countRecent(p *protocol.Probe, now time.Time, limit int64) {
	o := outcomes{settled: 1}
	switch {
	case p.State == protocol.Lost && p.Cause.InNetwork():
		o.lost = 1
	case limit > 0:
		o.judged = 1
		if p.Stamps.RTT() > limit {
			o.slow = 1
		}
	}
	r.recent.count(r.owner.second(now), o)
}

// Fast makes the probe's fast page: the targets of tenants that suffer now.
type Fast struct {
	recorders *Recorders
	shown     map[sender.Labels]bool // on the page that was made last
	suffering []sufferer             // memory for the next page

	loss, slow, bad *exposition.Family
	votes           votes
}

// NewFast returns the page of what the recorders saw.
func NewFast(f *catalog.Factory, r *Recorders) *Fast {
	return &Fast{
		recorders: r,
		shown:     make(map[sender.Labels]bool, maxRecentTargets),
		loss:      exposition.NewFamily(f.OnFastPage("vigia_probe_recent_loss_ratio")),
		slow:      exposition.NewFamily(f.OnFastPage("vigia_probe_recent_slow_ratio")),
		bad:       exposition.NewFamily(f.OnFastPage("vigia_probe_recent_bad_targets")),
		votes:     newVotes(f),
	}
}

// Write emits how many targets suffer, what the node says of nodes that it cannot reach, and of
// the worst targets two series each: nine series at most.
func (f *Fast) Write(out *exposition.Page, now time.Time) {
	f.suffering = f.recorders.suffering(f.suffering[:0], now, f.shown)
	out.Emit(f.bad, float64(len(f.suffering)))
	said := f.recorders.Votes(maxVotes)
	f.votes.emit(out, said)
	worst := worstOf(f.suffering, (maxFast-1-len(said))/2)
	clear(f.shown)
	for _, t := range worst {
		f.shown[t.labels] = true
		values := labelValues(t.labels)
		out.Emit(f.loss, t.loss(), values...)
		if slow, ok := t.slowness(); ok {
			out.Emit(f.slow, slow, values...)
		}
	}
}

// sufferer is a target that is bad now.
type sufferer struct {
	labels sender.Labels
	outcomes
	weight float64
}

// suffering appends the targets that are bad now. Those that were shown weigh more.
func (r *Recorders) suffering(to []sufferer, now time.Time, shown map[sender.Labels]bool) []sufferer {
	second := r.second(now)
	r.mu.Lock()
	defer r.mu.Unlock()
	for l, rec := range r.targets {
		if rec.recent.unpaged {
			continue
		}
		rec.mu.Lock()
		sum := rec.recent.sum(second)
		rec.mu.Unlock()
		if !sum.bad() {
			continue
		}
		slow, _ := sum.slowness()
		s := sufferer{labels: l, outcomes: sum, weight: sum.loss() + slow}
		if shown[l] {
			s.weight *= staysBy
		}
		to = append(to, s)
	}
	return to
}

// worstOf returns those that have series: of each tenant the worst one before any second
// one, so that nobody hides another's by harming many of their own.
func worstOf(all []sufferer, most int) (worst []*sufferer) {
	for len(worst) < min(len(all), most) {
		var next *sufferer
		fewest := 0
		for i := range all {
			s := &all[i]
			if slices.Contains(worst, s) {
				continue
			}
			theirs := 0
			for _, w := range worst {
				if w.labels.Tenant == s.labels.Tenant {
					theirs++
				}
			}
			if next == nil || theirs < fewest || theirs == fewest && s.worse(next) {
				next, fewest = s, theirs
			}
		}
		worst = append(worst, next)
	}
	return worst
}

func (s *sufferer) worse(than *sufferer) bool {
	return s.weight > than.weight || s.weight == than.weight && s.labels.Compare(&than.labels) < 0
}
