package export

import (
	"errors"
	"log/slog"
	"net/netip"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"vigia/internal/catalog"
	"vigia/probes/clockerror"
	"vigia/probes/health"
	"vigia/probes/objective"
	"vigia/probes/protocol"
	"vigia/probes/sender"
	"vigia/probes/settings"
	"vigia/probes/twin"
)

// unprobed is a target that was never probed, on a host of which nothing is known.
type unprobed struct{ target sender.Target }

// Snapshot returns the target.
func (q unprobed) Snapshot(to []sender.Status) ([]sender.Status, sender.Totals, error) {
	return append(to, sender.Status{Target: q.target}), sender.Totals{}, nil
}

// Read knows nothing.
func (unprobed) Read() clockerror.Reading { return clockerror.Reading{} }

// Reading knows nothing.
func (unprobed) Reading() health.Reading {
	return health.Reading{CPUPressure: -1, Steal: -1, ThrottledSeconds: -1}
}

// Unfit, Busy, Kernel and Application find nothing wrong.
func (unprobed) Unfit(health.Reason) bool                { return false }
func (unprobed) Busy() time.Duration                     { return 0 }
func (unprobed) Kernel() (health.Reason, bool)           { return 0, false }
func (unprobed) Application(int64) (health.Reason, bool) { return 0, false }

// SeriesPerTarget counts the series, native histograms being one each, that a target of a
// protocol has.
func SeriesPerTarget(p protocol.Protocol) (count int, err error) {
	c, err := catalog.Load()
	if err != nil {
		return 0, err
	}
	traits := p.Traits()
	target := sender.Target{
		Labels:   sender.Labels{Src: "a", Dst: "b", Path: "p", Tenant: "t", Probe: "c"},
		Protocol: p, Host: netip.IPv4Unspecified().String(), Port: traits.Port, Size: traits.Size,
		Interval: time.Second, Deadline: time.Second,
	}
	reg := prometheus.NewRegistry()
	factory := c.NewFactory("probe", reg)
	host, objectives := unprobed{target}, objective.New()
	book := objective.NewBook("", slog.New(slog.DiscardHandler))
	book.Set([]objective.Target{{Labels: target.Labels, Bounds: objective.Bounds{time.Second, time.Second}}})
	recorders := NewRecorders(factory, reg, Context{Host: host, Objectives: objectives, Judges: book, Twins: twin.New()}, []protocol.Protocol{p})
	recorders.New(target)
	reg.MustRegister(NewCollector(factory, Sources{
		Targets: host, Recorders: recorders, Host: host, Clock: host, Objectives: objectives,
		Paths: func() []settings.Path { return nil },
	}))
	families, err := reg.Gather()
	if err != nil {
		return 0, err
	}
	for _, f := range families {
		for _, m := range f.Metric {
			for _, l := range m.Label {
				if l.GetName() == "dst" {
					count++
				}
			}
		}
	}
	if count == 0 {
		return 0, errors.New("a target has no series")
	}
	return count, nil
}
