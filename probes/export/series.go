package export

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"vigia/internal/catalog"
	"vigia/probes/clockerror"
	"vigia/probes/delay"
	"vigia/probes/health"
	"vigia/probes/objective"
	"vigia/probes/pathmtu"
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

// Costs are how many series a pair has at most, by the name of its protocol.
type Costs struct{ atMost map[string]int }

// NewCosts counts them.
func NewCosts(protocols []protocol.Protocol) (*Costs, error) {
	c := &Costs{atMost: make(map[string]int)}
	for _, p := range protocols {
		n, err := seriesOf(p, everything)
		if err != nil {
			return nil, fmt.Errorf("count the series of %s: %w", p.Traits().Name, err)
		}
		c.atMost[p.Traits().Name] = n
	}
	return c, nil
}

// Of returns how many series, native histograms being one each, a pair of a protocol has at
// most, with those of searches of its path MTU or without.
func (c *Costs) Of(p protocol.Protocol, searched bool) int {
	n := c.atMost[p.Traits().Name]
	if searched {
		n += SeriesOfSearches()
	}
	return n
}

// SeriesOfSearches counts the series of a target whose path MTU is searched: the value, and
// the searches by outcome.
func SeriesOfSearches() int { return 1 + len(pathmtu.Outcomes()) }

// SeriesPerTarget counts the series, native histograms being one each, that a target of a
// protocol has.
func SeriesPerTarget(p protocol.Protocol) (int, error) { return seriesOf(p, usual) }

// SeriesPerTargetAtMost counts those that it can have.
func SeriesPerTargetAtMost(p protocol.Protocol) (int, error) { return seriesOf(p, everything) }

// SeriesPerNode counts the series that are exported for the pairs of a node together: those of
// every zone, path and class, and those of the node alone.
func SeriesPerNode(p protocol.Protocol, groups int) (int, error) {
	r, err := newSample(p)
	if err != nil {
		return 0, err
	}
	members := make(map[sender.Labels]Member)
	for i := range groups {
		l := r.target.Labels
		l.Path = fmt.Sprint("path", i)
		members[l] = Member{Site: &Site{}}
	}
	r.recorders.SetMesh(Membership{Members: members})
	families, err := r.registry.Gather()
	if err != nil {
		return 0, err
	}
	count := 0
	for _, f := range families {
		if strings.HasPrefix(f.GetName(), "vigia_probe_mesh_") {
			count += len(f.Metric)
		}
	}
	return count, nil
}

// extent says which series of a target are counted.
type extent bool

const (
	usual      extent = false
	everything extent = true // a target that can have any series has it
)

// sample is a target whose series are counted.
type sample struct {
	target    sender.Target
	registry  *prometheus.Registry
	recorders *Recorders
	recorder  *recorder
}

func newSample(p protocol.Protocol) (*sample, error) {
	c, err := catalog.Load()
	if err != nil {
		return nil, err
	}
	traits := p.Traits()
	s := &sample{registry: prometheus.NewRegistry(), target: sender.Target{
		Labels:   sender.Labels{Src: "a", Dst: "b", Path: "p", Tenant: "t", Probe: "c"},
		Protocol: p, Host: netip.IPv4Unspecified().String(), Port: traits.Port, Size: traits.Size,
		Interval: time.Second, Deadline: time.Second,
	}}
	factory := c.NewFactory("probe", s.registry)
	host, objectives := unprobed{s.target}, objective.New()
	book := objective.NewBook("", slog.New(slog.DiscardHandler))
	book.Set([]objective.Target{{Labels: s.target.Labels, Bounds: objective.Bounds{time.Second, time.Second}}})
	s.recorders = NewRecorders(factory, s.registry, Context{Host: host, Objectives: objectives, Judges: book, Twins: twin.New()}, []protocol.Protocol{p})
	s.recorder = s.recorders.New(s.target).(*recorder)
	s.registry.MustRegister(NewCollector(factory, Sources{
		Targets: host, Recorders: s.recorders, Host: host, Clock: host, Objectives: objectives,
		Paths: func() []settings.Path { return nil },
	}))
	return s, nil
}

func seriesOf(p protocol.Protocol, of extent) (count int, err error) {
	s, err := newSample(p)
	if err != nil {
		return 0, err
	}
	if of == everything {
		s.recorders.ShowAll(true)
		for i := range s.recorder.series {
			s.recorder.observe(i, 0)
		}
	}
	families, err := s.registry.Gather()
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
	if of == everything {
		count += 1 + int(delay.RoundTrip) // the coverage, and the clocks' error by direction
	}
	return count, nil
}
