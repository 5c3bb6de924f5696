package background

import (
	"errors"
	"maps"
	"math"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"vigia/probes/accounting"
	"vigia/probes/protocol"
)

// newMeter returns a meter with a registry of its own.
func newMeter(t *testing.T) (*Meter, *prometheus.Registry) {
	t.Helper()
	reg := prometheus.NewPedanticRegistry()
	m := &Meter{
		Failed:   prometheus.NewCounterVec(prometheus.CounterOpts{Name: "failed"}, []string{"dst", "failure"}),
		Seconds:  prometheus.NewCounterVec(prometheus.CounterOpts{Name: "seconds"}, []string{"dst", "phase"}),
		Failures: []string{Unsent, Timeout, "odd"}, Phases: []string{"one", "two"},
		Gauges: []*prometheus.GaugeVec{
			prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "first"}, []string{"dst"}),
			prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "second"}, []string{"dst"}),
		},
	}
	reg.MustRegister(m.Failed, m.Seconds, m.Gauges[0], m.Gauges[1])
	return m, reg
}

// values returns what a target has, without zeros.
func values(t *testing.T, reg *prometheus.Registry, dst string) (found map[string]float64, series int) {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	found = make(map[string]float64)
	for _, f := range families {
		for _, m := range f.Metric {
			own, key := false, f.GetName()
			for _, l := range m.Label {
				own = own || l.GetName() == "dst" && l.GetValue() == dst
				if l.GetName() != "dst" {
					key += " " + l.GetValue()
				}
			}
			if !own {
				continue
			}
			series++
			if v := m.GetCounter().GetValue() + m.GetGauge().GetValue(); v != 0 {
				found[key] = v
			}
		}
	}
	return found, series
}

func TestProbesAreCounted(t *testing.T) {
	failed := Outcome{Values: []float64{500, math.NaN()}}
	failed.Fail("odd", errors.New("odd"))
	good := &Outcome{Phases: []time.Duration{time.Second, 2 * time.Second}, Values: []float64{200, 7}}
	for name, tc := range map[string]struct {
		probe protocol.Probe
		want  map[string]float64
	}{
		"success":      {protocol.Probe{State: protocol.Answered, Detail: good}, map[string]float64{"seconds one": 1, "seconds two": 2, "first": 200, "second": 7}},
		"failure":      {protocol.Probe{State: protocol.Lost, Cause: accounting.Unknown, Detail: &failed}, map[string]float64{"failed odd": 1, "first": 500}},
		"late success": {protocol.Probe{State: protocol.Lost, Cause: accounting.Unknown, Detail: good}, map[string]float64{"failed timeout": 1, "first": 200, "second": 7}},
		"no answer":    {protocol.Probe{State: protocol.Lost, Cause: accounting.Unknown}, map[string]float64{"failed timeout": 1}},
		"no address":   {protocol.Probe{State: protocol.Lost, Cause: accounting.SendError}, map[string]float64{"failed send": 1}},
	} {
		m, reg := newMeter(t)
		m.Added([]string{"a"})
		m.Added([]string{"b"})
		if _, n := values(t, reg, "a"); n != 5 {
			t.Errorf("%s: a new target has %d series, want 3 failures and 2 phases", name, n)
		}
		m.Settled([]string{"a"}, &tc.probe)
		if got, _ := values(t, reg, "a"); !maps.Equal(got, tc.want) {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
		if got, _ := values(t, reg, "b"); len(got) != 0 {
			t.Errorf("%s: another target has %v", name, got)
		}
		m.Removed([]string{"a"})
		if got, n := values(t, reg, "a"); n != 0 {
			t.Errorf("%s: after the target is gone: %v", name, got)
		}
	}
}
