package export

import (
	"errors"
	"log/slog"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"vigia/internal/catalog"
	"vigia/probes/pathmtu"
	"vigia/probes/sender"
)

// TestPathMTUSeries follows the series of one target from its first search to its
// removal.
func TestPathMTUSeries(t *testing.T) {
	c, err := catalog.Load()
	if err != nil {
		t.Fatal(err)
	}
	reg := prometheus.NewPedanticRegistry()
	hidden := false
	m := NewPathMTUs(c.NewFactory("probe", reg), reg, slog.New(slog.DiscardHandler), func(sender.Labels) bool { return hidden })
	gather := func() map[string]float64 { return values(t, reg) }
	const mtu = "vigia_probe_path_mtu_bytes b p c a t"
	searches := func(o pathmtu.Outcome) string {
		return "vigia_probe_path_mtu_searches_total b " + string(o) + " p c a t"
	}
	target := &sender.Target{Labels: sender.Labels{Src: "a", Dst: "b", Path: "p", Tenant: "t", Probe: "c"}}
	m.Done(target, &pathmtu.Result{Outcome: pathmtu.Found, MTU: 9000}) // not wanted yet
	if s := gather(); len(s) != 0 {
		t.Errorf("series of a target that is not searched: %v", s)
	}
	m.Set(map[sender.Labels]bool{target.Labels: true})
	s := gather()
	if v, ok := s[mtu]; ok {
		t.Errorf("an MTU before the first search: %v", v)
	}
	for _, o := range pathmtu.Outcomes() {
		if n, ok := s[searches(o)]; n != 0 || !ok {
			t.Errorf("%v searches %s before the first, there is a series: %v", n, o, ok)
		}
	}
	m.Done(target, &pathmtu.Result{Outcome: pathmtu.Found, MTU: 1400})
	m.Done(target, &pathmtu.Result{Outcome: pathmtu.Unreachable, Err: errors.New("no answer")})
	if known, ok := m.Known(target.Labels); !ok || known.String() != "1400; last search: unreachable" {
		t.Errorf("%v, %s", ok, known)
	}
	m.Set(map[sender.Labels]bool{target.Labels: true}) // a reload
	s = gather()
	if v := s[mtu]; v != 1400 {
		t.Errorf("MTU %v after a search that found nothing, want 1400 as before", v)
	}
	for _, o := range []pathmtu.Outcome{pathmtu.Found, pathmtu.Unreachable} {
		if n := s[searches(o)]; n != 1 {
			t.Errorf("%v searches %s, want 1", n, o)
		}
	}
	if _, ok := m.Known(sender.Labels{}); ok {
		t.Error("the path of a target that is not searched is known")
	}
	hidden = true
	if s := gather(); len(s) != 0 {
		t.Errorf("series of a hidden target: %v", s)
	}
	hidden = false
	if s := gather(); s[mtu] != 1400 {
		t.Errorf("series after it was hidden: %v", s)
	}
	m.Set(nil)
	if s := gather(); len(s) != 0 {
		t.Errorf("series of a removed target: %v", s)
	}
}
