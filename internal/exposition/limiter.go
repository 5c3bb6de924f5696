package exposition

import (
	"slices"
	"strings"

	"vigia/internal/catalog"
)

// OverflowPort is the port under which ports without series of their own are
// summed, tenant by tenant.
const OverflowPort = "_overflow"

// Limiter bounds how many ports have series of their own. Ports keep their place
// until they are gone: the others are summed under OverflowPort, so that sums by
// tenant stay complete. The sums of counters only grow, whichever ports come, go
// or move between the two.
type Limiter struct {
	max      int
	ports    []string // as of the last time
	admitted map[string]bool
	pooled   map[string]bool
	pools    map[poolKey]*pool
	last     map[poolKey]reading
	round    uint64
}

// poolKey is a family and the values of its labels.
type poolKey struct {
	family *Family
	labels string
}

type pool struct {
	labels []string
	value  float64
	seen   bool // in this round
}

type reading struct {
	value float64
	round uint64
}

// NewLimiter lets at most that many ports have series of their own.
func NewLimiter(ports int) *Limiter {
	return &Limiter{
		max: ports, admitted: make(map[string]bool), pooled: make(map[string]bool),
		pools: make(map[poolKey]*pool), last: make(map[poolKey]reading),
	}
}

// Admit says which ports there are, before a page is filled, and returns how
// many of them have no series of their own.
func (l *Limiter) Admit(ports []string) int {
	if slices.Equal(ports, l.ports) {
		return len(l.pooled)
	}
	l.ports = slices.Clone(ports)
	present := make(map[string]bool, len(ports))
	for _, p := range ports {
		present[p] = true
	}
	for p := range l.admitted {
		if !present[p] {
			delete(l.admitted, p)
		}
	}
	clear(l.pooled)
	for _, p := range ports {
		switch {
		case l.admitted[p]:
		case len(l.admitted) < l.max:
			l.admitted[p] = true
		default:
			l.pooled[p] = true
		}
	}
	return len(l.pooled)
}

func (l *Limiter) begin() {
	l.round++
	for _, p := range l.pools {
		p.seen = false
	}
}

// take keeps a sample of a port without series of its own and returns true.
func (l *Limiter) take(f *Family, value float64, labels []string) bool {
	if !l.pooled[labels[f.port]] {
		return false
	}
	if strings.HasSuffix(f.metric.Name, "_info") {
		return true // an identity cannot be summed
	}
	own := poolKey{f, strings.Join(labels, "\xff")}
	summed := slices.Clone(labels)
	summed[f.port] = OverflowPort
	key := poolKey{f, strings.Join(summed, "\xff")}
	p := l.pools[key]
	if p == nil {
		p = &pool{labels: summed}
		l.pools[key] = p
	}
	if f.metric.Type == catalog.Counter {
		// What a counter has counted before it was first seen is history,
		// no traffic of now: only growth is added.
		if before, ok := l.last[own]; ok && value >= before.value {
			p.value += value - before.value
		} else if ok {
			p.value += value
		}
		l.last[own] = reading{value, l.round}
	} else if !p.seen || value > p.value {
		p.value = value
	}
	p.seen = true
	return true
}

// flush writes the sums. A counter stays when its ports are gone; a gauge, which
// is the largest of its ports, goes with them.
func (l *Limiter) flush(write func(f *Family, value float64, labels []string)) {
	for key, p := range l.pools {
		if key.family.metric.Type == catalog.Counter || p.seen {
			write(key.family, p.value, p.labels)
		} else {
			delete(l.pools, key)
		}
	}
	for key, r := range l.last {
		if r.round != l.round {
			delete(l.last, key)
		}
	}
}
