package app

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
	m := newPathMTUMetrics(c.NewFactory("probe", reg), slog.New(slog.DiscardHandler))
	gather := func() scrape {
		families, err := reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		s := make(scrape)
		for _, f := range families {
			s[f.GetName()] = f
		}
		return s
	}
	const mtu, searches = "vigia_probe_path_mtu_bytes", "vigia_probe_path_mtu_searches_total"
	target := &sender.Target{Labels: sender.Labels{Src: "a", Dst: "b", Path: "p", Tenant: "t", Probe: "c"}}
	m.done(target, &pathmtu.Result{Outcome: pathmtu.Found, MTU: 9000}) // not wanted yet
	if s := gather(); s[mtu] != nil || s[searches] != nil {
		t.Errorf("series of a target that is not searched: %v", s)
	}
	m.set(map[sender.Labels]bool{target.Labels: true})
	s := gather()
	if s[mtu] != nil {
		t.Errorf("an MTU before the first search: %v", s[mtu])
	}
	for _, o := range pathmtu.Outcomes() {
		if n := s.must(t, searches, "outcome", string(o)); n != 0 {
			t.Errorf("%v searches %s before the first", n, o)
		}
	}
	m.done(target, &pathmtu.Result{Outcome: pathmtu.Found, MTU: 1400})
	m.done(target, &pathmtu.Result{Outcome: pathmtu.Unreachable, Err: errors.New("no answer")})
	if known, ok := m.known(target.Labels); !ok || known.String() != "1400; last search: unreachable" {
		t.Errorf("%v, %s", ok, known)
	}
	m.set(map[sender.Labels]bool{target.Labels: true}) // a reload
	s = gather()
	if v := s.must(t, mtu, "src", "a", "dst", "b", "path", "p", "tenant", "t", "probe", "c"); v != 1400 {
		t.Errorf("MTU %v after a search that found nothing, want 1400 as before", v)
	}
	for _, o := range []pathmtu.Outcome{pathmtu.Found, pathmtu.Unreachable} {
		if n := s.must(t, searches, "outcome", string(o)); n != 1 {
			t.Errorf("%v searches %s, want 1", n, o)
		}
	}
	if _, ok := m.known(sender.Labels{}); ok {
		t.Error("the path of a target that is not searched is known")
	}
	m.set(nil)
	if s := gather(); s[mtu] != nil || s[searches] != nil {
		t.Errorf("series of a removed target: %v", s)
	}
}
