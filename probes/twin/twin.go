// Package twin pairs probes that were sent at the same moment on two paths, and
// takes the difference of their delays: what the overlay costs over the underlay
// beneath it. Drifts of load, temperature and clocks meet both alike and cancel
// out, so a difference shows that no comparison of two averages would.
package twin

import (
	"slices"
	"sync"

	"vigia/probes/delay"
	"vigia/probes/protocol"
	"vigia/probes/sender"
)

// Observer takes the differences of one target.
type Observer interface {
	// Taxed is called with the target's delay minus its twin's, in nanoseconds.
	Taxed(ns int64)
}

// Pairs matches the probes of all groups of twins.
type Pairs struct {
	mu     sync.Mutex
	groups map[sender.Labels]*group // by the label of each member
}

// group are targets that are probed at the same moment. The first is the one that
// the others are compared with.
type group struct {
	members  []sender.Labels
	interval int64
	rounds   []round // by time
}

// round is one moment.
type round struct {
	at      int64
	samples []sample // one for each member
}

type sample struct {
	known    bool
	took     int64
	by       measure
	observer Observer
}

// measure is by what a delay is known. Delays are compared with others of the same.
type measure struct {
	exchange bool         // by what it took an application, since the exchange left no stamps
	source   delay.Source // of the stamps, where there are some
}

// delayOf returns how long a probe took, and by what that is known; ok is false where it says nothing of the path.
func delayOf(p *protocol.Probe) (ns int64, by measure, ok bool) {
	switch {
	case p.State != protocol.Answered:
		return 0, by, false
	case p.Verdict == delay.Good:
		return p.Stamps.RTT(), measure{source: p.Stamps.Source}, true
	case p.ByExchange && p.Stamps.Kernel&(delay.T1|delay.T4) == 0:
		return p.Application, measure{exchange: true}, true
	}
	return 0, by, false
}

// New returns an empty set of groups.
func New() *Pairs { return &Pairs{groups: make(map[sender.Labels]*group)} }

// Set replaces the groups. One that has the same members keeps what it knows.
func (p *Pairs) Set(targets []sender.Target) {
	fresh := make(map[sender.Labels]*group) // by the label of the first
	for i := range targets {
		t := &targets[i]
		if t.Twin.Size == 0 || t.Paused {
			continue
		}
		g := fresh[t.Twin.Group]
		if g == nil {
			g = newGroup(t)
			fresh[t.Twin.Group] = g
		}
		g.members[t.Twin.Rank] = t.Labels
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	before := p.groups
	p.groups = make(map[sender.Labels]*group)
	for first, g := range fresh {
		if old := before[first]; old != nil && old.same(g) {
			g = old
		}
		for _, l := range g.members {
			p.groups[l] = g
		}
	}
}

// minRounds is the least number of moments to remember.
const minRounds = 16

func newGroup(t *sender.Target) *group {
	size := int(t.Twin.Size)
	// The samples of a moment are complete within the deadline and two more
	// intervals.
	g := &group{
		members: make([]sender.Labels, size), interval: int64(t.Interval),
		rounds: make([]round, minRounds+int(2*t.Deadline/t.Interval)),
	}
	for i := range g.rounds {
		g.rounds[i].samples = make([]sample, size)
	}
	return g
}

func (g *group) same(o *group) bool {
	return g.interval == o.interval && len(g.rounds) == len(o.rounds) && slices.Equal(g.members, o.members)
}

// Compared reports whether the target is one that is compared with another.
func (p *Pairs) Compared(l sender.Labels) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	g := p.groups[l]
	return g != nil && g.members[0] != l
}

// Settled takes a probe of which everything is known. Delays between kernel stamps are compared, and those
// that applications see of questions and requests, which have no stamps.
func (p *Pairs) Settled(l sender.Labels, probe *protocol.Probe, o Observer) {
	took, by, ok := delayOf(probe)
	if !ok {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	g := p.groups[l]
	if g == nil {
		return
	}
	rank := slices.Index(g.members, l)
	r := &g.rounds[uint64(probe.Intended/g.interval)%uint64(len(g.rounds))]
	if r.at != probe.Intended {
		r.at = probe.Intended
		clear(r.samples)
	}
	r.samples[rank] = sample{known: true, took: took, by: by, observer: o}
	first := &r.samples[0]
	switch {
	case rank > 0 && first.known && first.by == by:
		o.Taxed(took - first.took)
	case rank == 0:
		for i := range r.samples[1:] {
			if s := &r.samples[1+i]; s.known && s.by == first.by {
				s.observer.Taxed(s.took - first.took)
			}
		}
	}
}
