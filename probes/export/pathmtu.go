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
	logger   *slog.Logger
	mtu      *prometheus.GaugeVec
	searches *prometheus.CounterVec

	mu      sync.Mutex
	targets map[sender.Labels]bool
	last    map[sender.Labels]PathMTU
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

// NewPathMTUs registers the metrics.
func NewPathMTUs(f *catalog.Factory, logger *slog.Logger) *PathMTUs {
	return &PathMTUs{
		logger: logger, mtu: f.Gauge("vigia_probe_path_mtu_bytes"),
		searches: f.Counter("vigia_probe_path_mtu_searches_total"),
		targets:  make(map[sender.Labels]bool), last: make(map[sender.Labels]PathMTU),
	}
}

// Set makes the counters of new targets, at zero, and takes the series of removed
// ones away.
func (m *PathMTUs) Set(wanted map[sender.Labels]bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for l := range m.targets {
		if wanted[l] {
			continue
		}
		delete(m.last, l)
		values := labelValues(l)
		m.mtu.DeleteLabelValues(values...)
		for _, o := range pathmtu.Outcomes() {
			m.searches.DeleteLabelValues(append(values, string(o))...)
		}
	}
	for l := range wanted {
		for _, o := range pathmtu.Outcomes() {
			m.searches.WithLabelValues(append(labelValues(l), string(o))...)
		}
	}
	m.targets = wanted
}

// Done takes the result of a search. One that did not find anything leaves what is
// known as it is.
func (m *PathMTUs) Done(t *sender.Target, r *pathmtu.Result) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.targets[t.Labels] {
		return
	}
	values := labelValues(t.Labels)
	m.searches.WithLabelValues(append(values, string(r.Outcome))...).Inc()
	known := m.last[t.Labels]
	known.outcome = r.Outcome
	if r.Outcome == pathmtu.Found {
		known.Bytes, known.atMax = r.MTU, r.AtMax
	}
	m.last[t.Labels] = known
	if r.Outcome == pathmtu.Found {
		m.mtu.WithLabelValues(values...).Set(float64(r.MTU))
		return
	}
	m.logger.Info("cannot find a path MTU", "dst", t.Labels.Dst, "path", t.Labels.Path, "tenant", t.Labels.Tenant,
		"probe", t.Labels.Probe, "outcome", r.Outcome, "packets", r.Probes, "err", r.Err)
}
