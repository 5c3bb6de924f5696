package background

import (
	"math"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"vigia/probes/accounting"
	"vigia/probes/protocol"
)

// Outcome is what a probe found. It is the probe's Detail, unless the probe had no time to
// find anything.
type Outcome struct {
	// Err says why the probe is no success, and Failure which kind of failure that is: one of
	// the Meter's. Both are empty for a success.
	Err     error
	Failure string
	// Phases is how long each phase took, in the order of the Meter's. Those that were not
	// reached are 0.
	Phases []time.Duration
	// Values are of the Meter's gauges, in their order; NaN where nothing is known.
	Values []float64
}

// Fail makes the outcome a failure.
func (o *Outcome) Fail(kind string, err error) { o.Failure, o.Err = kind, err }

// The failures that every protocol has.
const (
	// Unsent is a probe that could not even begin.
	Unsent = "send"
	// Timeout is a probe that had not ended at its deadline.
	Timeout = "timeout"
)

// Meter exports outcomes of the probes of a protocol.
type Meter struct {
	Failed   *prometheus.CounterVec // by failure
	Seconds  *prometheus.CounterVec // by phase
	Failures []string
	Phases   []string
	Gauges   []*prometheus.GaugeVec
}

// Added makes the series of a new target: a first failure is an increase.
func (m *Meter) Added(labels []string) {
	for _, failure := range m.Failures {
		m.Failed.WithLabelValues(with(labels, failure)...)
	}
	for _, phase := range m.Phases {
		m.Seconds.WithLabelValues(with(labels, phase)...)
	}
}

// Settled counts a probe.
func (m *Meter) Settled(labels []string, p *protocol.Probe) {
	o, ok := p.Detail.(*Outcome)
	switch {
	case p.State == protocol.Lost && p.Cause == accounting.SendError:
		m.Failed.WithLabelValues(with(labels, Unsent)...).Inc()
	case !ok || p.State == protocol.Lost && o.Failure == "":
		m.Failed.WithLabelValues(with(labels, Timeout)...).Inc()
	case o.Failure != "":
		m.Failed.WithLabelValues(with(labels, o.Failure)...).Inc()
	default:
		for i, took := range o.Phases {
			m.Seconds.WithLabelValues(with(labels, m.Phases[i])...).Add(took.Seconds())
		}
	}
	if !ok {
		return
	}
	for i, v := range o.Values {
		if !math.IsNaN(v) {
			m.Gauges[i].WithLabelValues(labels...).Set(v)
		}
	}
}

// Removed takes the series of a target away.
func (m *Meter) Removed(labels []string) {
	for _, failure := range m.Failures {
		m.Failed.DeleteLabelValues(with(labels, failure)...)
	}
	for _, phase := range m.Phases {
		m.Seconds.DeleteLabelValues(with(labels, phase)...)
	}
	for _, g := range m.Gauges {
		g.DeleteLabelValues(labels...)
	}
}

func with(labels []string, value string) []string {
	return append(labels[:len(labels):len(labels)], value)
}
