package export

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"vigia/internal/exposition"
	"vigia/probes/accounting"
	"vigia/probes/delay"
	"vigia/probes/health"
	"vigia/probes/objective"
	"vigia/probes/protocol"
	"vigia/probes/sender"
	"vigia/probes/twin"
)

// sufferers are many targets, all of which have an objective of 3 ms but those
// whose destination begins with "learning".
type sufferers struct {
	t         *testing.T
	host      *measured
	recorders *Recorders
	fast      *Fast
}

func newSufferers(t *testing.T, targets ...sender.Labels) *sufferers {
	t.Helper()
	s := &sufferers{t: t, host: &measured{unfit: make(map[health.Reason]bool)}}
	var judged []objective.Target
	for _, l := range targets {
		if !strings.HasPrefix(l.Dst, "learning") {
			judged = append(judged, objective.Target{Labels: l, Bounds: objective.Bounds{3 * time.Millisecond, time.Second}})
		}
	}
	reg := prometheus.NewPedanticRegistry()
	f := factory(t, reg)
	s.recorders = NewRecorders(f, reg, Context{Host: s.host, Objectives: objective.New(), Judges: newBook(judged...), Twins: twin.New()}, nil)
	s.fast = NewFast(f, s.recorders)
	for _, l := range targets {
		target := stampTarget()
		target.Labels = l
		s.recorders.New(target)
	}
	return s
}

func aimedAt(dst, tenant string) sender.Labels {
	return sender.Labels{Src: "a", Dst: dst, Path: "p", Tenant: tenant, Probe: "c"}
}

// settle has probes of a target settled now.
func (s *sufferers) settle(l sender.Labels, n int, p *protocol.Probe) {
	s.t.Helper()
	for range n {
		s.recorders.targets[l].Settled(p)
	}
}

// page returns the series of the page as it is now, by name, dst and tenant.
func (s *sufferers) page() map[string]float64 {
	s.t.Helper()
	return s.pageAt(time.Now())
}

func (s *sufferers) pageAt(now time.Time) map[string]float64 {
	s.t.Helper()
	p := exposition.NewPage(nil)
	s.fast.Write(p, now)
	var text strings.Builder
	if _, err := p.WriteTo(&text); err != nil {
		s.t.Fatal(err)
	}
	out := make(map[string]float64)
	for line := range strings.Lines(text.String()) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		series, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		name, labels, _ := strings.Cut(strings.TrimPrefix(series, "vigia_probe_recent_"), "{")
		for _, l := range []string{`dst="`, `tenant="`} {
			if _, after, ok := strings.Cut(labels, l); ok {
				v, _, _ := strings.Cut(after, `"`)
				name += " " + v
			}
		}
		var v float64
		if _, err := fmt.Sscan(value, &v); err != nil {
			s.t.Fatalf("%q: %v", line, err)
		}
		out[name] = v
	}
	if p.Series() != len(out) || len(out) > 9 {
		s.t.Errorf("%d series, of %d names; at most 9:\n%s", p.Series(), len(out), text.String())
	}
	return out
}

func (s *sufferers) expect(what string, got, want map[string]float64) {
	s.t.Helper()
	if !maps.Equal(got, want) {
		s.t.Errorf("%s: the page has %v, want %v", what, got, want)
	}
}

func lostBy(cause accounting.Cause) *protocol.Probe {
	return &protocol.Probe{State: protocol.Lost, Cause: cause}
}

// TestWhatMakesATargetSuffer has one target for every reason, and looks which are on the page.
func TestWhatMakesATargetSuffer(t *testing.T) {
	ok := answered(time.Millisecond)
	slow := answered(4 * time.Millisecond)
	for name, tc := range map[string]struct {
		label  sender.Labels
		settle func(s *sufferers, l sender.Labels)
		want   map[string]float64
	}{
		"nothing was sent":     {aimedAt("b", "red"), func(*sufferers, sender.Labels) {}, map[string]float64{"bad_targets": 0}},
		"every probe is fine":  {aimedAt("b", "red"), func(s *sufferers, l sender.Labels) { s.settle(l, 50, ok) }, map[string]float64{"bad_targets": 0}},
		"too few to tell":      {aimedAt("b", "red"), func(s *sufferers, l sender.Labels) { s.settle(l, 9, lostBy(accounting.Forward)) }, map[string]float64{"bad_targets": 0}},
		"the operator's own":   {aimedAt("b", "_infra"), func(s *sufferers, l sender.Labels) { s.settle(l, 50, lostBy(accounting.Forward)) }, map[string]float64{"bad_targets": 0}},
		"nobody's":             {aimedAt("b", "_unresolved"), func(s *sufferers, l sender.Labels) { s.settle(l, 50, lostBy(accounting.Forward)) }, map[string]float64{"bad_targets": 0}},
		"lost at our own door": {aimedAt("b", "red"), func(s *sufferers, l sender.Labels) { s.settle(l, 50, lostBy(accounting.SendError)) }, map[string]float64{"bad_targets": 0}},
		"as the objective allows": {
			aimedAt("b", "red"), func(s *sufferers, l sender.Labels) { s.settle(l, 99, ok); s.settle(l, 1, slow) }, map[string]float64{"bad_targets": 0},
		},
		"slower than that": {
			aimedAt("b", "red"), func(s *sufferers, l sender.Labels) { s.settle(l, 98, ok); s.settle(l, 2, slow) },
			map[string]float64{"bad_targets": 1, "loss_ratio b red": 0, "slow_ratio b red": 0.02},
		},
		"all is slow while nobody knows what slow is": {
			aimedAt("learning", "red"), func(s *sufferers, l sender.Labels) { s.settle(l, 50, slow) }, map[string]float64{"bad_targets": 0},
		},
		"all is slow on a host that is not fit": {
			aimedAt("b", "red"), func(s *sufferers, l sender.Labels) { s.host.unfit[health.Steal] = true; s.settle(l, 50, slow) }, map[string]float64{"bad_targets": 0},
		},
		"stamps that are not good": {
			aimedAt("b", "red"), func(s *sufferers, l sender.Labels) {
				s.settle(l, 50, &protocol.Probe{State: protocol.Answered, Verdict: delay.ClockStep, Stamps: delay.Stamps{T4: 1e9}})
			}, map[string]float64{"bad_targets": 0},
		},
		"one alone is lost": {
			aimedAt("b", "red"), func(s *sufferers, l sender.Labels) { s.settle(l, 9, ok); s.settle(l, 1, lostBy(accounting.Unknown)) }, map[string]float64{"bad_targets": 0},
		},
		"two of forty are lost": {
			aimedAt("b", "red"), func(s *sufferers, l sender.Labels) { s.settle(l, 38, ok); s.settle(l, 2, lostBy(accounting.Unknown)) },
			map[string]float64{"bad_targets": 1, "loss_ratio b red": 0.05, "slow_ratio b red": 0},
		},
		"lost while nobody knows what slow is": {
			aimedAt("learning", "red"), func(s *sufferers, l sender.Labels) { s.settle(l, 30, ok); s.settle(l, 10, lostBy(accounting.Reverse)) },
			map[string]float64{"bad_targets": 1, "loss_ratio learning red": 0.25},
		},
		"nearly all is lost, and of the rest nobody can tell": {
			aimedAt("b", "red"), func(s *sufferers, l sender.Labels) { s.settle(l, 9, slow); s.settle(l, 27, lostBy(accounting.Forward)) },
			map[string]float64{"bad_targets": 1, "loss_ratio b red": 0.75},
		},
		"all causes": {
			aimedAt("b", "red"), func(s *sufferers, l sender.Labels) {
				for c := range accounting.Cause(accounting.NumCauses) {
					s.settle(l, 5, lostBy(c))
				}
			}, map[string]float64{"bad_targets": 1, "loss_ratio b red": 0.5},
		},
	} {
		s := newSufferers(t, tc.label)
		tc.settle(s, tc.label)
		s.expect(name, s.page(), tc.want)
	}
}

// TestWhatIsOverIsGone: a loss is told of in its second and the ten that follow.
func TestWhatIsOverIsGone(t *testing.T) {
	l := aimedAt("b", "red")
	s := newSufferers(t, l)
	rec := s.recorders.targets[l]
	rec.recent.count(1, outcomes{settled: 10, lost: 10})
	first := s.recorders.began.Add(time.Second / 2)
	for second := range 20 {
		got, want := s.pageAt(first.Add(time.Duration(second)*time.Second)), map[string]float64{"bad_targets": 1, "loss_ratio b red": 1}
		if second >= recentSeconds {
			want = map[string]float64{"bad_targets": 0}
		}
		s.expect(fmt.Sprintf("%d s later", second), got, want)
	}
	rec.Removed()
	s.expect("without the target", s.page(), map[string]float64{"bad_targets": 0})
}

// TestSecondsTakeTurns counts by hand what the ring of seconds has to know.
func TestSecondsTakeTurns(t *testing.T) {
	r := newRecent(aimedAt("b", "red"))
	want := make(map[int64]outcomes)
	for second := int64(1); second < 60; second++ {
		if second%7 < 5 { // with pauses
			o := outcomes{settled: uint32(second), lost: uint32(second % 3), judged: 2, slow: 1}
			r.count(second, o)
			r.count(second, o)
			o.add(o)
			want[second] = o
		}
		var sum outcomes
		for s, o := range want {
			if s > second-recentSeconds {
				sum.add(o)
			}
		}
		if got := r.sum(second); got != sum {
			t.Errorf("second %d: %+v, want %+v", second, got, sum)
		}
	}
	if got := r.sum(60 + recentSeconds); got != (outcomes{}) {
		t.Errorf("long after: %+v", got)
	}
}

// TestOfFortyThatSufferTheWorstFourAreShown, and the number of all.
func TestOfFortyThatSufferTheWorstFourAreShown(t *testing.T) {
	var targets []sender.Labels
	for i := range 40 {
		targets = append(targets, aimedAt(fmt.Sprintf("b%02d", i), "red"))
	}
	s := newSufferers(t, targets...)
	for i, l := range targets {
		s.settle(l, 60-i, answered(time.Millisecond))
		s.settle(l, 2+i, lostBy(accounting.Forward))
	}
	got := s.page()
	if len(got) != 9 || got["bad_targets"] != 40 {
		t.Errorf("%v", got)
	}
	for i := 36; i < 40; i++ {
		if v := got[fmt.Sprintf("loss_ratio b%02d red", i)]; v != float64(2+i)/62 {
			t.Errorf("target %d: %v", i, v)
		}
	}
	// One that was not shown is worse now, but by too little to take another's place.
	s.settle(targets[35], 3, lostBy(accounting.Forward))
	if again := s.page(); !slices.Equal(names(again), names(got)) {
		t.Errorf("%v was followed by %v", names(got), names(again))
	}
	s.settle(targets[0], 1000, lostBy(accounting.Forward))
	if after := s.page(); after["loss_ratio b00 red"] < 0.9 || len(after) != 9 {
		t.Errorf("one that is far worse is not shown: %v", after)
	}
}

func names(page map[string]float64) []string { return slices.Sorted(maps.Keys(page)) }

// TestATenantCannotHideAnother by harming many targets of its own.
func TestATenantCannotHideAnother(t *testing.T) {
	var targets []sender.Labels
	for i := range 30 {
		targets = append(targets, aimedAt(fmt.Sprintf("b%02d", i), "hostile"))
	}
	victims := []sender.Labels{aimedAt("v1", "blue"), aimedAt("v2", "green")}
	s := newSufferers(t, append(targets, victims...)...)
	for _, l := range targets {
		s.settle(l, 20, lostBy(accounting.Forward))
	}
	for _, l := range victims {
		s.settle(l, 95, answered(time.Millisecond))
		s.settle(l, 5, lostBy(accounting.Forward))
	}
	for range 3 { // those that are shown do not keep them out either
		got := s.page()
		if got["loss_ratio v1 blue"] != 0.05 || got["loss_ratio v2 green"] != 0.05 || got["bad_targets"] != 32 {
			t.Errorf("%v", got)
		}
	}
}

// BenchmarkFast makes the page of a node with 1 000 targets, all of them quiet or all lossy.
func BenchmarkFast(b *testing.B) {
	for name, p := range map[string]*protocol.Probe{"quiet": answered(time.Millisecond), "lossy": lostBy(accounting.Forward)} {
		b.Run(name, func(b *testing.B) {
			reg := prometheus.NewRegistry()
			f := factory(b, reg)
			recorders := NewRecorders(f, reg, Context{Host: health.New(b.TempDir()), Objectives: objective.New(), Judges: newBook(), Twins: twin.New()}, nil)
			for i := range 1000 {
				target := stampTarget()
				target.Labels = aimedAt(fmt.Sprint(i), fmt.Sprint(i%50))
				rec := recorders.New(target)
				for range 20 {
					rec.Settled(p)
				}
			}
			fast, page := NewFast(f, recorders), exposition.NewPage(nil)
			b.ReportAllocs()
			now := time.Now()
			for b.Loop() {
				page.Reset(nil)
				fast.Write(page, now)
			}
		})
	}
}
