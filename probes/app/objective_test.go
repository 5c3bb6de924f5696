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
