package export

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"vigia/internal/catalog"
	"vigia/probes/clockerror"
	"vigia/probes/delay"
	"vigia/probes/health"
	"vigia/probes/objective"
	"vigia/probes/protocol"
	"vigia/probes/sender"
	"vigia/probes/twin"
)

// about returns what is exported of a family, by the words of its labels that are not the
// target's.
func about(got map[string]float64, family, dst string) map[string]float64 {
	out := make(map[string]float64)
	for key, v := range got {
		words := strings.Fields(key)
		if words[0] != family {
			continue
		}
		kind, ours := "", false
		for _, w := range words[1:] {
			if w == "delay" || w == "jitter" {
				kind = w
			}
			ours = ours || w == dst
		}
		if ours {
			out[kind] = v
		}
	}
	return out
}

func answered(rtt time.Duration) *protocol.Probe {
	return &protocol.Probe{State: protocol.Answered, ErrorBound: -1, Stamps: delay.Stamps{T4: int64(rtt)}}
}

// TestSamplesAreJudged by the objectives of the target, 3 ms and 2 ms: the good ones, taken
// while the host was fit, and variations only if it was at both ends.
func TestSamplesAreJudged(t *testing.T) {
	m := &measured{unfit: make(map[health.Reason]bool), clock: clockerror.Reading{}}
	learning := stampTarget()
	learning.Labels.Dst = "learning"
	m.status = []sender.Status{{Target: stampTarget(), ErrorBound: -1}, {Target: learning, ErrorBound: -1}}
	reg, recorders := collected(t, m, objective.New())
	rec, fresh := recorders.New(stampTarget()), recorders.New(learning)
	vary := func(d time.Duration) {
		rec.Varied([delay.NumDirections]int64{1e9, 1e9, int64(d)})
	}
	rec.Settled(answered(time.Millisecond))
	rec.Settled(answered(3 * time.Millisecond))
	vary(2 * time.Millisecond)
	rec.Settled(answered(4 * time.Millisecond)) // slow
	vary(3 * time.Millisecond)                  // unsteady
	rec.Settled(answered(time.Millisecond))
	vary(-3 * time.Millisecond) // unsteady
	for _, p := range []*protocol.Probe{
		{State: protocol.Lost},
		{State: protocol.Answered, Verdict: delay.ClockStep, Stamps: delay.Stamps{T4: 1e9}},
		{State: protocol.Answered, Verdict: delay.NoKernelStamp, Stamps: delay.Stamps{T4: 1e9}},
	} {
		rec.Settled(p)
	}
	m.unfit[health.Steal] = true
	rec.Settled(answered(time.Second))
	vary(time.Second)
	m.unfit[health.Steal] = false
	rec.Settled(answered(time.Millisecond))
	vary(-time.Second)
	rec.Settled(answered(time.Millisecond))
	vary(0)
	fresh.Settled(answered(time.Second))

	got := values(t, reg)
	for family, want := range map[string]map[string]float64{
		"vigia_probe_judged_total":      {"delay": 6, "jitter": 4},
		"vigia_probe_slow_total":        {"": 1},
		"vigia_probe_unsteady_total":    {"": 2},
		"vigia_probe_objective_seconds": {"delay": 0.003, "jitter": 0.002},
	} {
		have := about(got, family, stampTarget().Labels.Dst)
		if len(have) != len(want) {
			t.Errorf("%s: %v, want %v", family, have, want)
		}
		for kind, v := range want {
			if have[kind] != v {
				t.Errorf("%s %s: %v, want %v", family, kind, have[kind], v)
			}
		}
	}
	// Of one that learns, nothing was judged, and its objectives are not known.
	if have := about(got, "vigia_probe_judged_total", "learning"); len(have) != 0 {
		t.Errorf("judged while learning: %v", have)
	}
	if have := about(got, "vigia_probe_objective_seconds", "learning"); len(have) != 0 {
		t.Errorf("objectives while learning: %v", have)
	}
}

// BenchmarkSettled is what the recorder of a target costs for each answered probe.
func BenchmarkSettled(b *testing.B) {
	rec := benchRecorder(b)
	p := answered(time.Millisecond)
	p.Stamps.T2, p.Stamps.T3 = 1000, 2000
	b.ReportAllocs()
	for b.Loop() {
		rec.Settled(p)
		rec.Varied([delay.NumDirections]int64{1000, 1000, 2000})
	}
}

func benchRecorder(b *testing.B) sender.Recorder {
	b.Helper()
	c, err := catalog.Load()
	if err != nil {
		b.Fatal(err)
	}
	reg := prometheus.NewRegistry()
	target := stampTarget()
	book := newBook(objective.Target{Labels: target.Labels, Bounds: objective.Bounds{3 * time.Millisecond, 2 * time.Millisecond}})
	judges := Context{Host: health.New(b.TempDir()), Objectives: objective.New(), Judges: book, Twins: twin.New()}
	rec := NewRecorders(c.NewFactory("probe", reg), reg, judges, nil).New(target)
	for range 10 {
		rec.Settled(answered(time.Millisecond))
	}
	return rec
}
