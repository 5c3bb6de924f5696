package catalogtest

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"vigia/internal/catalog"
)

const toyPath = "./testdata/toy"

// notes is a test that keeps what it is told.
type notes struct {
	testing.TB
	said []string
}

func (n *notes) Helper()           {}
func (n *notes) Error(args ...any) { n.said = append(n.said, fmt.Sprint(args...)) }

func (n *notes) Errorf(format string, args ...any) {
	n.said = append(n.said, fmt.Sprintf(format, args...))
}

func (n *notes) Fatalf(format string, args ...any) {
	n.Errorf(format, args...)
	panic(n)
}

func TestEmittedReadsConstantsAndNamesTheRest(t *testing.T) {
	values, computed := Load(t, toyPath).Emitted(t, "exporter")
	if diff := cmp.Diff(Values{
		"vigia_port_bytes_total.direction":  {"from_tenant"},
		"vigia_port_errors_total.direction": {"to_tenant", "from_tenant"},
		"vigia_exporter_ports.state":        {"resolved", "gone", "backward"},
	}, values); diff != "" {
		t.Errorf("values (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string][]string{
		"vigia_port_errors_total.direction": {"direction"},
		"vigia_exporter_ports.state":        {"kind(direction)", "fmt.Sprint(direction)"},
	}, computed); diff != "" {
		t.Errorf("computed (-want +got):\n%s", diff)
	}
	values, computed = Load(t, toyPath).Emitted(t, "agent") // by a vector, and by a function made for a metric
	if diff := cmp.Diff(Values{"vigia_agent_alerts_total.status": {"firing"}, "vigia_agent_reverts_total.cause": {"ttl"}}, values); diff != "" {
		t.Errorf("values (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string][]string{"vigia_agent_alerts_total.outcome": {"outcome"}}, computed); diff != "" {
		t.Errorf("computed (-want +got):\n%s", diff)
	}
}

func TestEmittedKnowsThePartsMetricsAlone(t *testing.T) {
	if values, computed := Load(t, toyPath).Emitted(t, "probe"); len(values)+len(computed) != 0 {
		t.Errorf("of the exporter's metrics: %v, %v", values, computed)
	}
}

func TestCallWithAnotherNumberOfValuesIsAnError(t *testing.T) {
	n := &notes{TB: t}
	Load(t, toyPath).Emitted(n, "enforcer")
	if len(n.said) != 1 || !strings.Contains(n.said[0], "vigia_enforcer_ports has the labels [state], and this call gives 2 values") {
		t.Errorf("said %q", n.said)
	}
}

func TestWhatIsReadFromCode(t *testing.T) {
	code := Load(t, toyPath)
	sorted := func(values []string) []string { return slices.Compact(slices.Sorted(slices.Values(values))) }
	for name, tc := range map[string]struct{ got, want []string }{
		"constants": {sorted(code.Constants(t, "Way")), []string{"back", "there"}},
		"strings":   {sorted(code.Strings(t, "kind")), []string{"few", "first", "one", "second", "several", "three", "two", "x"}},
		"cases":     {code.Cases(t, "text"), []string{"one", "two"}},
		"compared":  {sorted(code.Compared(t, "text")), []string{"there", "three"}},
		"field":     {sorted(code.Field(t, "state", "Name")), []string{"assigned", "literal"}},
	} {
		if diff := cmp.Diff(tc.want, tc.got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	values, computed := code.Arguments(t, "note", 1)
	if !slices.Equal(values, []string{"first"}) || !slices.Equal(computed, []string{"text"}) {
		t.Errorf("arguments %v, computed %v", values, computed)
	}
	if values, computed = code.Arguments(t, "note", 0); !slices.Equal(values, []string{"x"}) || !slices.Equal(computed, []string{"a"}) {
		t.Errorf("arguments %v, computed %v", values, computed)
	}
	if imported := Load(t, "vigia/exporters/tenant/scrape").Constants(t, "source.Reason"); !slices.Contains(imported, "queue_full") {
		t.Errorf("constants of an imported package: %v", imported)
	}
}

// TestWhatIsNotThereIsAnError keeps a test from comparing nothing after a name in the
// code has changed.
func TestWhatIsNotThereIsAnError(t *testing.T) {
	code := Load(t, toyPath)
	for want, read := range map[string]func(t testing.TB){
		"no constant is a Road":        func(t testing.TB) { code.Constants(t, "Road") },
		"no function nothing with":     func(t testing.TB) { code.Strings(t, "nothing") },
		"no switch on nothing":         func(t testing.TB) { code.Cases(t, "nothing") },
		"nothing is compared with no":  func(t testing.TB) { code.Compared(t, "nothing") },
		"is set as state.Nothing":      func(t testing.TB) { code.Field(t, "state", "Nothing") },
		"no call of nothing":           func(t testing.TB) { code.Arguments(t, "nothing", 0) },
		"no call of note has":          func(t testing.TB) { code.Arguments(t, "note", 7) },
		"vigia/nowhere":                func(t testing.TB) { Load(t, "vigia/nowhere") },
		"no package matches [vigia/n0": func(t testing.TB) { Load(t, "vigia/n0where/...") },
	} {
		n := &notes{TB: t}
		func() {
			defer func() {
				if r := recover(); r != nil && r != any(n) {
					panic(r)
				}
			}()
			read(n)
		}()
		if len(n.said) == 0 || !strings.Contains(n.said[0], want) {
			t.Errorf("said %q, want %q", n.said, want)
		}
	}
}

func TestDifferences(t *testing.T) {
	metrics := []catalog.Metric{{Name: "vigia_a", Labels: []string{"who", "way"}, Values: map[string][]string{"way": {"there", "back"}}}}
	for name, tc := range map[string]struct {
		emitted Values
		want    []string
	}{
		"equal":      {Values{"vigia_a.way": {"back", "there", "back"}}, nil},
		"nobody":     {Values{"vigia_a.way": {"back"}}, []string{"vigia_a.way: the catalogue lists there, which nothing emits"}},
		"undeclared": {Values{"vigia_a.way": {"back", "there", "round"}}, []string{"vigia_a.way: round can be emitted, and is not in the catalogue's list there, back"}},
		"forgotten": {Values{}, []string{
			"vigia_a.way: the catalogue lists back, which nothing emits", "vigia_a.way: the catalogue lists there, which nothing emits",
		}},
		"open": {Values{"vigia_a.way": {"back", "there"}, "vigia_a.who": {"me"}}, []string{
			"vigia_a.who: the catalogue leaves it open: list its values there, or leave them out here",
		}},
		"other metric": {Values{"vigia_a.way": {"back", "there"}, "vigia_b.way": {"back"}}, []string{"vigia_b.way: no metric of the part has that label"}},
	} {
		if diff := cmp.Diff(tc.want, differences(metrics, tc.emitted)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	n := &notes{TB: t}
	if Compare(n, "campaign", Values{}); len(n.said) != 3 {
		t.Errorf("said %q, want one problem for each of the three states of a repetition", n.said)
	}
}
