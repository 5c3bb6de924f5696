package mesh

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// labelOf is the label by which the alert names what is accused.
func labelOf(a Accused) string {
	switch {
	case a.Uplink:
		return "src_" + a.Scope.String()
	case a.Scope == ScopeNode:
		return "dst"
	}
	return "dst_" + a.Scope.String()
}

// seriesOf returns the votes as nodes export them.
func seriesOf(votes []Vote) (series []map[string]string) {
	for _, v := range votes {
		s := &v.Subject
		text := fmt.Sprintf("vigia_probe_unreachable_ratio{src=%q, dst=%q, dst_rack=%q, dst_zone=%q, scope=%q}",
			v.Voter.Name, s.Name, s.Rack, s.Zone, v.Scope)
		if v.Outside {
			text = fmt.Sprintf("vigia_probe_outside_unreachable_ratio{src=%q, src_rack=%q, src_zone=%q, scope=%q}",
				s.Name, s.Rack, s.Zone, v.Scope)
		}
		series = append(series, map[string]string{"series": text, "values": fmt.Sprint(v.Share) + "x10"})
	}
	return series
}

// TestRules lets Prometheus evaluate alert-rules/mesh.rules.yml with the votes of many sites: what
// fires is what Accuse says.
func TestRules(t *testing.T) {
	rules, err := filepath.Abs("../../alert-rules/mesh.rules.yml")
	if err != nil {
		t.Fatal(err)
	}
	type object = map[string]any
	var tests []object
	for name, votes := range manyVotes() {
		expected := []object{}
		for _, a := range Accuse(votes) {
			labels := fmt.Sprintf(`{%s=%q}`, labelOf(a), a.Name)
			expected = append(expected, object{"labels": labels, "value": 1})
		}
		tests = append(tests, object{
			"name": name, "interval": "1s", "input_series": seriesOf(votes),
			"promql_expr_test": []object{{
				"expr": `count by (dst, dst_rack, dst_zone, src_rack, src_zone) (ALERTS{alertname="VigiaUnreachable", alertstate="firing"})`, "eval_time": "8s",
				"exp_samples": expected,
			}},
		})
	}
	raw, err := json.Marshal(object{"rule_files": []string{rules}, "evaluation_interval": "1s", "tests": tests})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "mesh.test.yml")
	if err := os.WriteFile(path, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), "promtool", "test", "rules", path).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
