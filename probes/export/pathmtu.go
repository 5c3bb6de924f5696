package export

import (
	"fmt"
	"log/slog"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"vigia/internal/catalog"
	"vigia/probes/pathmtu"
	"vigia/probes/sender"
)

// PathMTUs export what searches of path MTUs find.
type PathMTUs struct {
	logger        *slog.Logger
	mtu, searches *catalog.Series
	hidden        func(sender.Labels) bool

	mu      sync.Mutex
	targets map[sender.Labels]bool
	last    map[sender.Labels]PathMTU
	counts  map[sender.Labels]map[pathmtu.Outcome]float64
}

// PathMTU is what is known of a target's path.
type PathMTU struct {
	Bytes   int             // 0 until a search has found it
	atMax   bool            // the path may carry more
	outcome pathmtu.Outcome // of the last search
}

// String says it to people.
func (p PathMTU) String() string {
	switch {
	case p.Bytes == 0:
		return string(p.outcome)
	case p.atMax:
		return fmt.Sprintf("%d or more", p.Bytes)
	case p.outcome != pathmtu.Found:
		return fmt.Sprintf("%d; last search: %s", p.Bytes, p.outcome)
	}
	return fmt.Sprint(p.Bytes)
}

// Known returns what is known of a target's path; ok is false where it is not searched.
func (m *PathMTUs) Known(l sender.Labels) (p PathMTU, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.targets[l] {
		return p, false
	}
	if p, ok = m.last[l]; !ok {
		p.outcome = "searching"
	}
	return p, true
}

// NewPathMTUs registers the metrics. Targets that are hidden have no series at the moment.
func NewPathMTUs(f *catalog.Factory, reg prometheus.Registerer, logger *slog.Logger, hidden func(sender.Labels) bool) *PathMTUs {
	m := &PathMTUs{
		logger: logger, hidden: hidden,
		mtu: f.Series("vigia_probe_path_mtu_bytes"), searches: f.Series("vigia_probe_path_mtu_searches_total"),
		targets: make(map[sender.Labels]bool), last: make(map[sender.Labels]PathMTU),
		counts: make(map[sender.Labels]map[pathmtu.Outcome]float64),
	}
	reg.MustRegister(m)
	return m
}

// Set says which targets are searched. What is known of others is forgotten.
func (m *PathMTUs) Set(wanted map[sender.Labels]bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for l := range m.targets {
		if !wanted[l] {
			delete(m.last, l)
			delete(m.counts, l)
		}
	}
	for l := range wanted {
		if m.counts[l] == nil {
			m.counts[l] = make(map[pathmtu.Outcome]float64)
		}
	}
	m.targets = wanted
}

// Describe lists the families.
func (m *PathMTUs) Describe(out chan<- *prometheus.Desc) {
	out <- m.mtu.Desc()
	out <- m.searches.Desc()
}

// Collect exports what is known of every target; counters begin at zero.
func (m *PathMTUs) Collect(out chan<- prometheus.Metric) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for l := range m.targets {
		if m.hidden(l) {
			continue
		}
		values := labelValues(l)
		if known := m.last[l]; known.Bytes > 0 {
			out <- m.mtu.Sample(float64(known.Bytes), values...)
		}
		for _, o := range pathmtu.Outcomes() {
			out <- m.searches.Sample(m.counts[l][o], append(values[:len(values):len(values)], string(o))...)
		}
	}
}

// Done takes the result of a search. One that did not find anything leaves what is
// known as it is.
func (m *PathMTUs) Done(t *sender.Target, r *pathmtu.Result) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.targets[t.Labels] {
		return
	}
	m.counts[t.Labels][r.Outcome]++
	known := m.last[t.Labels]
	known.outcome = r.Outcome
	if r.Outcome == pathmtu.Found {
		known.Bytes, known.atMax = r.MTU, r.AtMax
	}
	m.last[t.Labels] = known
	if r.Outcome == pathmtu.Found {
		return
	}
	m.logger.Info("cannot find a path MTU", "dst", t.Labels.Dst, "path", t.Labels.Path, "tenant", t.Labels.Tenant,
		"probe", t.Labels.Probe, "outcome", r.Outcome, "packets", r.Probes, "err", r.Err)
}
