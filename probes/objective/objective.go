// Package objective judges probes by objectives: of targets, set or learned, and of tenants.
//
// A Judge counts the samples of a target that are beyond its objectives of delay and
// jitter; rules make burn rates of these counts. A Watch follows tenants' objectives, as a
// share of good probes: those answered, and within the round-trip time agreed. One burns
// when its error budget is being spent many times faster than it lasts (multi-window burn
// rates, Google SRE workbook chapter 5); that stops bulk tests.
package objective

import (
	"sync"
	"time"
)

// Objective is what a tenant was promised.
type Objective struct {
	Tenant string
	Ratio  float64       // of good probes, below 1
	RTT    time.Duration // of a good probe at most
}

const (
	// window is what a burn is judged by, in seconds.
	window = 10
	// burnRate spends 2 % of a 30 days' budget in an hour.
	burnRate = 14.4
	// minBad probes are needed, so that a single loss at a low rate stops
	// nothing.
	minBad = 3
)

// Watch follows the objectives of all tenants.
type Watch struct {
	mu      sync.Mutex
	tenants map[string]*state
}

type state struct {
	objective Objective
	buckets   [window]bucket // by second
}

type bucket struct {
	second     int64
	total, bad uint64
}

// New returns a watch without objectives.
func New() *Watch { return &Watch{tenants: make(map[string]*state)} }

// Set replaces the objectives; what was seen of those that stay is kept.
func (w *Watch) Set(objectives []Objective) {
	w.mu.Lock()
	defer w.mu.Unlock()
	before := w.tenants
	w.tenants = make(map[string]*state)
	for _, o := range objectives {
		s := before[o.Tenant]
		if s == nil {
			s = &state{}
		}
		s.objective = o
		w.tenants[o.Tenant] = s
	}
}

// Probe takes the outcome of a probe of the tenant. A lost one has no round-trip
// time.
func (w *Watch) Probe(tenant string, answered bool, rtt time.Duration, now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.tenants[tenant]
	if s == nil {
		return
	}
	b := &s.buckets[now.Unix()%window]
	if b.second != now.Unix() {
		*b = bucket{second: now.Unix()}
	}
	b.total++
	if !answered || s.objective.RTT > 0 && rtt > s.objective.RTT {
		b.bad++
	}
}

// Burning returns a tenant whose objective burns, or nothing.
func (w *Watch) Burning(now time.Time) (tenant string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for name, s := range w.tenants {
		if (tenant == "" || name < tenant) && s.burns(now) {
			tenant = name
		}
	}
	return tenant
}

// State returns, for each tenant with an objective, whether it burns.
func (w *Watch) State(now time.Time) map[string]bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := make(map[string]bool, len(w.tenants))
	for name, s := range w.tenants {
		out[name] = s.burns(now)
	}
	return out
}

func (s *state) burns(now time.Time) bool {
	var total, bad uint64
	for i := range s.buckets {
		if b := &s.buckets[i]; now.Unix()-b.second < window {
			total += b.total
			bad += b.bad
		}
	}
	allowed := float64(total) * min(burnRate*(1-s.objective.Ratio), 1)
	return bad >= minBad && float64(bad) >= allowed
}
