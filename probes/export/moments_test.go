package export

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"vigia/probes/accounting"
	"vigia/probes/moment"
	"vigia/probes/sender"
)

// TestBadTargets are those that the fast page counts, and the operator's own, with the reason.
func TestBadTargets(t *testing.T) {
	lossy, own, slow, fine, once := aimedAt("b", "red"), aimedAt("c", "_infra"), aimedAt("d", "red"), aimedAt("e", "red"), aimedAt("f", "red")
	s := newSufferers(t, lossy, own, slow, fine, once)
	for _, l := range []sender.Labels{lossy, own} {
		s.settle(l, 50, lostBy(accounting.Forward))
	}
	s.settle(slow, 50, answered(4*time.Millisecond))
	s.settle(fine, 50, answered(time.Millisecond))
	s.settle(once, 50, answered(time.Millisecond))
	s.settle(once, 1, lostBy(accounting.Forward))
	bad := s.recorders.Bad(nil, time.Now())
	slices.SortFunc(bad, func(a, b moment.Harm) int { return a.Labels.Compare(&b.Labels) })
	if want := []moment.Harm{{Labels: lossy, Why: moment.Loss}, {Labels: own, Why: moment.Loss}, {Labels: slow, Why: moment.Slow}}; !slices.Equal(bad, want) {
		t.Errorf("%+v, want %+v", bad, want)
	}
	if bad = s.recorders.Bad(nil, time.Now().Add(time.Minute)); len(bad) != 0 {
		t.Errorf("a minute later: %+v", bad)
	}
}

// TestMomentsAreCounted begin at zero.
func TestMomentsAreCounted(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	m := NewMoments(factory(t, reg))
	m.Count(moment.TakenBad)
	m.Count(moment.TakenBad)
	m.Count(moment.TooSoon)
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := make(map[string]float64)
	for _, f := range families {
		for _, metric := range f.GetMetric() {
			got[f.GetName()+" "+metric.GetLabel()[0].GetValue()] = metric.GetCounter().GetValue()
		}
	}
	want := map[string]float64{
		"vigia_probe_moments_total bad": 2, "vigia_probe_moments_total busy": 0,
		"vigia_probe_moments_total good": 0, "vigia_probe_moments_total too_soon": 1,
	}
	if !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
