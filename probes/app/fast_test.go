package app

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"vigia/internal/catalog"
	"vigia/internal/testutil"
)

// fast is what /metrics/fast says, and how many series.
func (d *running) fast() (s scrape, series int) {
	d.t.Helper()
	code, body := d.get(catalog.FastPage)
	if code != http.StatusOK {
		d.t.Fatalf("%s: %d %s", catalog.FastPage, code, body)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(body))
	if err != nil {
		d.t.Fatal(err)
	}
	for _, f := range families {
		series += len(f.Metric)
	}
	return families, series
}

// TestLossIsOnTheFastPageWhileItLasts has a reflector of which a filter drops a third of what
// one tenant sends, then all that ten send, then nothing.
func TestLossIsOnTheFastPageWhileItLasts(t *testing.T) {
	t.Parallel()
	left, right := network(t)
	start(t, node("b", right, "10.9.0.2"))
	aimFor := func(dst, tenant string) string {
		return fmt.Sprintf("  - {dst: %s, path: direct, tenant: %s, probe: stamp-64, netns: %s, source: 10.9.0.1, address: \"10.9.0.2:862\"}\n", dst, tenant, left)
	}
	targets := []string{aimFor("b", "red"), aimFor("b", "_infra")}
	config := strings.NewReplacer("deadline: 10s", "deadline: 500ms", "size: 64,", "size: 64, objectives: [{delay: 450ms, jitter: 450ms}],")
	a := start(t, config.Replace(node("a", left, "10.9.0.1", targets...)))
	red := []string{"src", "a", "dst", "b", "path", "direct", "tenant", "red", "probe", "stamp-64"}
	bad := func(s scrape) float64 { return s.must(t, "vigia_probe_recent_bad_targets") }
	a.waitFor("samples", func() bool { v, _ := a.scrape().value("vigia_probe_judged_total", red...); return v > 50 })
	// The reflector may have come after the first probes.
	a.waitFor("a page without losses", func() bool { s, n := a.fast(); return n == 1 && bad(s) == 0 })

	filter := func(rule string) {
		t.Helper()
		testutil.Run(t, "ip", "netns", "exec", right, "nft", "flush ruleset; add table inet t; add chain inet t c { type filter hook input priority 0; }; add rule inet t c udp dport 862 "+rule)
	}
	filter("numgen inc mod 3 == 0 drop")
	var s scrape
	a.waitFor("the loss of a third", func() bool {
		var n int
		s, n = a.fast()
		loss, _ := s.value("vigia_probe_recent_loss_ratio", red...)
		if n > 3 {
			t.Fatalf("%d series of one target", n)
		}
		_, judged := s.value("vigia_probe_recent_slow_ratio", red...)
		return judged && bad(s) == 1 && loss > 0.2 && loss < 0.5
	})
	checkCatalogue(t, s, catalog.FastPage)
	if v, ok := s.value("vigia_probe_recent_loss_ratio", "tenant", "_infra"); ok {
		t.Errorf("the operator's own target is there: %v", v)
	}

	for i := range 10 {
		targets = append(targets, aimFor(fmt.Sprint("b", i), fmt.Sprint("tenant-", i)))
	}
	if code, text := a.reload(config.Replace(node("a", left, "10.9.0.1", targets...))); code != http.StatusOK {
		t.Fatalf("%d %s", code, text)
	}
	filter("drop")
	a.waitFor("the loss of all", func() bool {
		s, n := a.fast()
		if n > 9 {
			t.Fatalf("%d series", n)
		}
		return bad(s) == 11 && len(s["vigia_probe_recent_loss_ratio"].GetMetric()) == 4
	})
	filter("accept")
	a.waitFor("the losses to be forgotten", func() bool { s, n := a.fast(); return n == 1 && bad(s) == 0 })
}
