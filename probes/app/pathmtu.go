package app

import (
	"fmt"
	"log/slog"
	"net/netip"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"vigia/internal/catalog"
	"vigia/probes/pathmtu"
	"vigia/probes/sender"
)

// pathMTUMetrics exports what searches of path MTUs find.
type pathMTUMetrics struct {
	logger   *slog.Logger
	mtu      *prometheus.GaugeVec
	searches *prometheus.CounterVec

	mu      sync.Mutex
	targets map[sender.Labels]bool
	last    map[sender.Labels]pathMTU
}

// pathMTU is what is known of a target's path.
type pathMTU struct {
	bytes   int             // 0 until a search has found it
	atMax   bool            // the path may carry more
	outcome pathmtu.Outcome // of the last search
}

// String says it to people.
func (p pathMTU) String() string {
	switch {
	case p.bytes == 0:
		return string(p.outcome)
	case p.atMax:
		return fmt.Sprintf("%d or more", p.bytes)
	case p.outcome != pathmtu.Found:
		return fmt.Sprintf("%d; last search: %s", p.bytes, p.outcome)
	}
	return fmt.Sprint(p.bytes)
}

// known returns what is known of a target's path; ok is false where it is not searched.
func (m *pathMTUMetrics) known(l sender.Labels) (p pathMTU, ok bool) {
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

func newPathMTUMetrics(f *catalog.Factory, logger *slog.Logger) *pathMTUMetrics {
	return &pathMTUMetrics{
		logger: logger, mtu: f.Gauge("vigia_probe_path_mtu_bytes"),
		searches: f.Counter("vigia_probe_path_mtu_searches_total"),
		targets:  make(map[sender.Labels]bool), last: make(map[sender.Labels]pathMTU),
	}
}

// set makes the counters of new targets, at zero, and takes the series of removed
// ones away.
func (m *pathMTUMetrics) set(wanted map[sender.Labels]bool) {
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

// done takes the result of a search. One that did not find anything leaves what is
// known as it is.
func (m *pathMTUMetrics) done(t *sender.Target, r *pathmtu.Result) {
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
		known.bytes, known.atMax = r.MTU, r.AtMax
	}
	m.last[t.Labels] = known
	if r.Outcome == pathmtu.Found {
		m.mtu.WithLabelValues(values...).Set(float64(r.MTU))
		return
	}
	m.logger.Info("path MTU was not found", "dst", t.Labels.Dst, "path", t.Labels.Path, "tenant", t.Labels.Tenant,
		"probe", t.Labels.Probe, "outcome", r.Outcome, "packets", r.Probes, "err", r.Err)
}

// setPathMTU puts the searches among the targets into force. Paused targets keep
// their series and are not searched.
func (s *service) setPathMTU(targets []sender.Target) {
	wanted := make(map[sender.Labels]bool)
	var tasks []pathmtu.Task
	for i := range targets {
		plan, ok := s.settings.PathMTU[targets[i].Labels.Probe]
		if !ok {
			continue
		}
		wanted[targets[i].Labels] = true
		if !targets[i].Paused {
			tasks = append(tasks, pathmtu.Task{Target: targets[i], Plan: plan})
		}
	}
	s.pathMTUs.set(wanted)
	s.searches.Set(tasks)
}

// address returns where a target's probes go.
func (s *service) address(t *sender.Target) (netip.AddrPort, error) {
	if ip, err := netip.ParseAddr(t.Host); err == nil {
		return netip.AddrPortFrom(ip, t.Port), nil
	}
	status, _, err := s.sender.Snapshot(nil)
	if err != nil {
		return netip.AddrPort{}, err
	}
	for i := range status {
		if status[i].Target.Labels == t.Labels && status[i].Address.IsValid() {
			return status[i].Address, nil
		}
	}
	return netip.AddrPort{}, fmt.Errorf("%s has no address yet", t.Host)
}
