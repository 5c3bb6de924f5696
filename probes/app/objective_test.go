package app

import (
	"net/http"
	"strings"
	"testing"
)

// TestBurningObjectiveStopsBulkTests loses every probe of a tenant with an objective:
// no bulk test begins. Once the tenant's probes are answered again, they do.
func TestBurningObjectiveStopsBulkTests(t *testing.T) {
	t.Parallel()
	left, right := network(t)
	start(t, node("b", right, "10.9.0.2")+bulkTests("b", "a", right, "10.9.0.2", "10.9.0.1"))
	bulk := strings.Replace(bulkTests("a", "b", left, "10.9.0.1", "10.9.0.2"), "ratio: 0.1", "ratio: 0.999", 1)
	config := func(port string) string {
		return node("a", left, "10.9.0.1", aim("b", "stamp-64", left, "10.9.0.1", "10.9.0.2:"+port)) + bulk
	}
	// Nothing is judged before the first deadline, so the tests come later.
	_, objectives, _ := strings.Cut(bulk, "objectives:")
	before, _, _ := strings.Cut(config("999"), "bulk:")
	a := start(t, before+"objectives:"+objectives)
	a.waitFor("the objective to burn", func() bool {
		v, ok := a.scrape().value("vigia_probe_objective_burning", "tenant", "_infra")
		return ok && v == 1
	})
	runs := func(result string) (sum float64) {
		for _, probe := range []string{"bulk-tcp", "bulk-udp"} {
			v, _ := a.scrape().value("vigia_bulk_runs_total", "probe", probe, "result", result)
			sum += v
		}
		return sum
	}
	if code, body := a.reload(config("999")); code != http.StatusOK {
		t.Fatalf("%d %s", code, body)
	}
	a.waitFor("a test that is stopped", func() bool { return runs("stopped") >= 2 })
	if n := runs("completed"); n != 0 {
		t.Errorf("%v tests ran while the objective burnt", n)
	}
	if code, body := a.reload(config("862")); code != http.StatusOK {
		t.Fatalf("%d %s", code, body)
	}
	a.waitFor("tests again", func() bool { return runs("completed") >= 1 })
}

// TestObjectivesOfTargetsAreLive: while they are learned nothing is judged; a reload sets
// them, and every sample is judged from then on, by the path's objective before the class's.
func TestObjectivesOfTargetsAreLive(t *testing.T) {
	t.Parallel()
	left, right := network(t)
	start(t, node("b", right, "10.9.0.2"))
	config := node("a", left, "10.9.0.1", aim("b", "stamp-64", left, "10.9.0.1", "10.9.0.2:862"))
	a := start(t, config)
	labels := []string{"dst", "b", "probe", "stamp-64"}
	a.waitFor("samples", func() bool { v, _ := a.scrape().value("vigia_probe_rtt_seconds", labels...); return v > 50 })
	before := a.scrape()
	for _, kind := range []string{"delay", "jitter"} {
		if v, ok := before.value("vigia_probe_judged_total", "objective", kind); !ok || v != 0 {
			t.Errorf("%s: %v judged while there is no objective, %v", kind, v, ok)
		}
		if v, ok := before.value("vigia_probe_objective_seconds", "objective", kind); ok {
			t.Errorf("%s: an objective of %v after a moment", kind, v)
		}
	}
	set := strings.Replace(config, "name: stamp-64,", "name: stamp-64, objectives: [{delay: 900ms, jitter: 900ms}, {path: direct, delay: 1ns}],", 1)
	if set == config {
		t.Fatal("the class is not there")
	}
	if code, body := a.reload(set); code != http.StatusOK {
		t.Fatalf("%d %s", code, body)
	}
	a.waitFor("judged samples", func() bool {
		s := a.scrape()
		return s.must(t, "vigia_probe_judged_total", "objective", "delay") > 20 && s.must(t, "vigia_probe_judged_total", "objective", "jitter") > 20
	})
	after := a.scrape()
	if judged, slow := after.must(t, "vigia_probe_judged_total", "objective", "delay"), after.must(t, "vigia_probe_slow_total"); judged != slow {
		t.Errorf("%v of %v round trips took more than a nanosecond", slow, judged)
	}
	if v := after.must(t, "vigia_probe_objective_seconds", "objective", "delay"); v != 1e-9 {
		t.Errorf("delay objective %v", v)
	}
	if v := after.must(t, "vigia_probe_objective_seconds", "objective", "jitter"); v != 0.9 {
		t.Errorf("jitter objective %v", v)
	}
	if received, was := after.must(t, "vigia_probe_received_total"), before.must(t, "vigia_probe_received_total"); received < was {
		t.Errorf("%v received after the reload, %v before", received, was)
	}
}
