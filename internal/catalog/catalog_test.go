package catalog

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

func TestLoadEmbedded(t *testing.T) {
	c, err := Load()
	if err != nil {
		t.Fatal(err)
	}
	probe := c.Part("probe")
	i := slices.IndexFunc(probe, func(m Metric) bool { return m.Name == "vigia_probe_lost_total" })
	if i < 0 {
		t.Fatal("vigia_probe_lost_total is missing")
	}
	m := probe[i]
	want := []string{"src", "dst", "path", "tenant", "probe", "cause"}
	if diff := cmp.Diff(want, m.Labels); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}
	if m.Part != "probe" || m.Type != Counter {
		t.Errorf("got part %q, type %q", m.Part, m.Type)
	}
	if !slices.Equal(m.Pages, []string{MainPage}) || m.OnFastPage() {
		t.Errorf("it is on %q", m.Pages)
	}
	flood := c.NewFactory("exporter", prometheus.NewRegistry()).OnFastPage("vigia_port_flood_score")
	if !slices.Equal(flood.Pages, []string{MainPage, FastPage}) {
		t.Errorf("the flood score is on %q", flood.Pages)
	}
}

// toy is a catalogue of one file beside labels.yaml.
func toy(labels, metrics string) fstest.MapFS {
	return fstest.MapFS{"m/x.yaml": {Data: []byte(metrics)}, "m/labels.yaml": {Data: []byte(labels)}}
}

func TestLoadRejects(t *testing.T) {
	metric := func(s string) string { return "part: x\nmetrics:\n  - " + s }
	gauge := func(rest string) string {
		return metric("{name: vigia_aa, type: gauge, unit: u, help: H., " + rest + "}")
	}
	const a = "open: {a: something}"
	good := "{name: vigia_a_total, type: counter, unit: packets, labels: [a], help: Fine.}"
	for _, tc := range []struct{ name, labels, yaml, want string }{
		{"unknown key", a, metric("{nam: vigia_a_total}"), "nam"},
		{"no part", a, "metrics: []", "part is missing"},
		{"name without prefix", a, metric("{name: a_total, type: counter, unit: u, labels: [], help: H.}"), "must match"},
		{"unknown type", a, metric("{name: vigia_aa, type: summary, unit: u, labels: [], help: H.}"), "unknown type"},
		{"total on gauge", a, metric("{name: vigia_a_total, type: gauge, unit: u, labels: [], help: H.}"), "_total belongs"},
		{"counter without total", a, metric("{name: vigia_aa, type: counter, unit: u, labels: [], help: H.}"), "_total belongs"},
		{"no unit", a, metric("{name: vigia_aa, type: gauge, labels: [], help: H.}"), "unit is missing"},
		{"no sentence", a, metric("{name: vigia_aa, type: gauge, unit: u, labels: [], help: H}"), "sentences"},
		{"repeated label", a, gauge("labels: [a, a]"), "repeated label"},
		{"reserved label", a, gauge("labels: [le]"), "repeated label"},
		{"twice", a, metric(good + "\n  - " + good), "declared twice"},

		{"neither closed nor open", a, gauge("labels: [a, b]"), "label b has no values"},
		{"values of another label", a, gauge("labels: [a], values: {b: [x]}"), "values for b, which is none of its labels"},
		{"empty list", a, gauge("labels: [a], values: {a: []}"), "the list of values is empty"},
		{"repeated value", a, gauge("labels: [a], values: {a: [x, y, x]}"), `repeated value "x"`},
		{"value to be escaped", a, gauge(`labels: [a], values: {a: ['x"y']}`), `bad or repeated value "x\"y"`},
		{"number", a, gauge("labels: [a], values: {a: [64]}"), `value "64" is no string; quote it`},
		{"truth", a, gauge("labels: [a], values: {a: [true]}"), `value "true" is no string; quote it`},
		{"list in a list", a, gauge("labels: [a], values: {a: [[x]]}"), "is no string"},
		{"unknown set", a, gauge("labels: [a], values: {a: ways}"), "no set ways in labels.yaml"},
		{"unknown set in a list", a, gauge("labels: [a], values: {a: [x, {set: ways}]}"), "no set ways in labels.yaml"},
		{"neither value nor set", a, gauge("labels: [a], values: {a: [{sets: ways}]}"), "is no string"},
		{"value that its set has, too", a + "\nsets: {ways: [x]}", gauge("labels: [a], values: {a: [x, {set: ways}]}"), `repeated value "x"`},
		{"file's values that nothing takes", a, "part: x\nvalues: {b: [x]}\nmetrics:\n  - " + good, "no metric takes those of [b]"},
		{"unused set", a + "\nsets: {ways: [x]}", metric(good), "no metric uses set ways"},
		{"unused open label", "open: {a: A, b: B}", metric(good), "no metric uses open label b"},
		{"open label without a meaning", "open: {a: ''}", metric(good), "label a has no values"},
		{"set of that name", "sets: {open: [x]}", metric(good), "choose another"},
		{"empty set", "sets: {ways: []}", metric(good), "set ways: the list of values is empty"},
		{"unknown page", a, gauge("labels: [a], pages: [/fast]"), "bad pages"},
		{"no page", a, gauge("labels: [a], pages: []"), "bad pages"},
		{"page twice", a, gauge("labels: [a], pages: [/metrics, /metrics]"), "bad pages"},
		{"pages in another order", a, gauge("labels: [a], pages: [/metrics/fast, /metrics]"), "bad pages"},
		{"counter on the fast page", a, metric("{name: vigia_a_total, type: counter, unit: u, labels: [a], help: H., pages: [/metrics/fast]}"), "a counter cannot be on /metrics/fast"},

		{"unknown key of labels", "close: {}", metric(good), "close"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := load(toy(tc.labels, tc.yaml), "m")
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Fatalf("got error %v, want one that says %q", err, tc.want)
			}
		})
	}
	if _, err := load(fstest.MapFS{}, "m"); err == nil {
		t.Error("an empty catalogue was accepted")
	}
	if _, err := load(fstest.MapFS{"m/x.yaml": {Data: []byte(metric(good))}}, "m"); err == nil {
		t.Error("a catalogue without labels.yaml was accepted")
	}
}

func TestValuesComeFromMetricFileOrSet(t *testing.T) {
	c, err := load(toy("open: {who: someone}\nsets: {way: [forward, reverse]}", `
part: x
values:
  direction: way
  kind: [one, two]
metrics:
  - {name: vigia_of_file, type: gauge, unit: u, labels: [who, direction, kind], help: H.}
  - {name: vigia_of_its_own, type: gauge, unit: u, labels: [direction, kind], values: {direction: [up], kind: open}, help: H.}
  - {name: vigia_of_both, type: gauge, unit: u, labels: [direction], values: {direction: [{set: way}, both]}, help: H.}
  - {name: vigia_of_nobody, type: gauge, unit: u, labels: [who], help: H.}
`), "m")
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]map[string][]string{
		"vigia_of_file":    {"direction": {"forward", "reverse"}, "kind": {"one", "two"}},
		"vigia_of_its_own": {"direction": {"up"}},
		"vigia_of_both":    {"direction": {"forward", "reverse", "both"}},
		"vigia_of_nobody":  nil,
	} {
		metrics := c.Part("x")
		i := slices.IndexFunc(metrics, func(m Metric) bool { return m.Name == name })
		if diff := cmp.Diff(want, metrics[i].Values); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestClosedListsOfAnyLength(t *testing.T) {
	for n := 1; n <= 3*shortList; n++ {
		var values []string
		for i := range n {
			values = append(values, strings.Repeat("x", i))
		}
		closed := Metric{Labels: []string{"a", "b"}, Values: map[string][]string{"b": values}}.Closed()
		if closed[0] != nil {
			t.Error("an open label has a list")
		}
		for _, v := range values {
			if !closed[1].Has(v) {
				t.Errorf("%q is not among %d values", v, n)
			}
		}
		for _, v := range []string{"X", strings.Repeat("x", n)} {
			if closed[1].Has(v) {
				t.Errorf("%q is among %d values", v, n)
			}
		}
	}
}

func TestPartNamesSelfMetrics(t *testing.T) {
	c, err := Load()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, m := range c.Part("enforcer") {
		names = append(names, m.Name)
	}
	joined := strings.Join(names, " ")
	for _, want := range []string{"vigia_enforcer_build_info", "vigia_enforcer_config_last_reload_successful", "vigia_isolation_limit_bytes_per_second"} {
		if !strings.Contains(joined, want) {
			t.Errorf("%s is not among the enforcer's metrics", want)
		}
	}
	if strings.Contains(joined, partPlaceholder) || strings.Contains(joined, "vigia_probe_") {
		t.Errorf("foreign metrics among the enforcer's: %s", joined)
	}
}

// panicOf returns what a function panics with, "" if it does not.
func panicOf(fn func()) (said string) {
	defer func() {
		if r := recover(); r != nil {
			said = fmt.Sprint(r)
		}
	}()
	fn()
	return ""
}

func TestFactoryRefusesUndeclared(t *testing.T) {
	c, err := Load()
	if err != nil {
		t.Fatal(err)
	}
	f := c.NewFactory("probe", prometheus.NewRegistry())
	lost := f.Counter("vigia_probe_lost_total")
	unfit := f.Gauge("vigia_probe_host_unfit")
	variation := f.Histogram("vigia_probe_delay_variation_seconds", ClassicDelayBuckets())
	runs := f.Series("vigia_bulk_runs_total")
	for name, tc := range map[string]struct {
		fn   func()
		want string
	}{
		"unknown":         {func() { f.Counter("vigia_nothing_total") }, "vigia_nothing_total is not in the catalogue"},
		"other part":      {func() { f.Counter("vigia_port_bytes_total") }, "vigia_port_bytes_total is not in the catalogue"},
		"wrong type":      {func() { f.Gauge("vigia_probe_sent_total") }, "is a counter in the catalogue, not a gauge"},
		"not on the page": {func() { f.OnFastPage("vigia_probe_jitter_seconds") }, "vigia_probe_jitter_seconds is not on /metrics/fast"},
		"unknown series":  {func() { f.Series("vigia_nothing") }, "vigia_nothing is not in the catalogue"},
		"counter's value": {
			func() { lost.WithLabelValues("a", "b", "p", "t", "c", "Forward") },
			`vigia_probe_lost_total: label cause cannot be "Forward": the catalogue lists send_error, local_overflow,`,
		},
		"by name": {
			func() {
				lost.With(prometheus.Labels{"src": "a", "dst": "b", "path": "p", "tenant": "t", "probe": "c", "cause": "x"})
			},
			`label cause cannot be "x"`,
		},
		"gauge's value":     {func() { unfit.WithLabelValues("schedule_lag") }, `label reason cannot be "schedule_lag"`},
		"histogram's value": {func() { variation.WithLabelValues("a", "b", "p", "t", "c", "both") }, `label direction cannot be "both"`},
		"sample's value": {
			func() { runs.Sample(1, "a", "b", "p", "t", "c", "tcp", "unlimited", "2", "done") }, `label result cannot be "done"`,
		},
		"pairs' value": {
			func() { runs.Labels("a", "b", "p", "t", "c", "sctp", "unlimited", "2", "failed") }, `label protocol cannot be "sctp"`,
		},
		"too few": {func() { unfit.WithLabelValues() }, "expected 1 label values"},
	} {
		t.Run(name, func(t *testing.T) {
			if said := panicOf(tc.fn); !strings.Contains(said, tc.want) {
				t.Errorf("panic %q, want one that says %q", said, tc.want)
			}
		})
	}
}

// TestCheckedSeries looks at what a vector does otherwise: a series is made once,
// grows, goes, and starts anew.
func TestCheckedSeries(t *testing.T) {
	c, err := Load()
	if err != nil {
		t.Fatal(err)
	}
	reg := prometheus.NewPedanticRegistry()
	f := c.NewFactory("probe", reg)
	unfit, rejected := f.Gauge("vigia_probe_host_unfit"), f.Counter("vigia_reflector_rejected_total")
	unfit.WithLabelValues("steal").Set(1)
	rejected.WithLabelValues("_host", "malformed").Add(2)
	rejected.WithLabelValues("_host", "malformed").Inc()
	rejected.WithLabelValues("_host", "send_error")
	values := func() map[string]float64 {
		t.Helper()
		families, err := reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		out := make(map[string]float64)
		for _, family := range families {
			for _, m := range family.Metric {
				last := m.Label[len(m.Label)-1].GetValue()
				out[last] = m.Counter.GetValue() + m.Gauge.GetValue()
			}
		}
		return out
	}
	if diff := cmp.Diff(map[string]float64{"steal": 1, "malformed": 3, "send_error": 0}, values()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if !rejected.DeleteLabelValues("_host", "malformed") || rejected.DeleteLabelValues("_host", "not_allowed") {
		t.Error("a series that was there was not deleted, or one that was not there was")
	}
	rejected.WithLabelValues("_host", "malformed").Inc()
	if got := values()["malformed"]; got != 1 {
		t.Errorf("a series made anew starts at %v, want 0 and its one", got-1)
	}
}

func TestHistogramIsNativeSignedAndClassic(t *testing.T) {
	c, err := Load()
	if err != nil {
		t.Fatal(err)
	}
	reg := prometheus.NewRegistry()
	h := c.NewFactory("probe", reg).Histogram("vigia_probe_delay_variation_seconds", ClassicDelayBuckets())
	o := h.WithLabelValues("a", "b", "direct", "_infra", "udp", "forward")
	o.Observe(-0.001)
	o.Observe(0.002)
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := families[0].Metric[0].Histogram
	if got.GetSampleCount() != 2 || len(got.NegativeSpan) == 0 || len(got.PositiveSpan) == 0 {
		t.Errorf("want one negative and one positive native observation, got %v", got)
	}
	if len(got.Bucket) != len(ClassicDelayBuckets()) {
		t.Errorf("got %d classic buckets", len(got.Bucket))
	}
	if schema := got.GetSchema(); schema != 3 {
		t.Errorf("got schema %d, want 3 (factor 1.1)", schema)
	}
}

func TestSeriesCarriesTypeAndLabels(t *testing.T) {
	c, err := Load()
	if err != nil {
		t.Fatal(err)
	}
	f := c.NewFactory("exporter", prometheus.NewRegistry())
	bytes := f.Series("vigia_port_bytes_total")
	var out dto.Metric
	if err := bytes.Sample(7, "p", "red", "from_tenant").Write(&out); err != nil {
		t.Fatal(err)
	}
	if out.Counter.GetValue() != 7 {
		t.Errorf("got %v, want a counter of 7", &out)
	}
	if up := f.Series("vigia_port_up"); up.Type() != prometheus.GaugeValue {
		t.Error("vigia_port_up is not a gauge")
	}
	sizes := f.Series("vigia_tenant_packet_size_bytes")
	got := make(map[string]string)
	for _, pair := range sizes.Labels("red", "to_tenant") {
		got[pair.GetName()] = pair.GetValue()
	}
	if diff := cmp.Diff(map[string]string{"tenant": "red", "direction": "to_tenant"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if !strings.Contains(sizes.Desc().String(), "vigia_tenant_packet_size_bytes") {
		t.Errorf("descriptor %v", sizes.Desc())
	}
}

func TestPrint(t *testing.T) {
	metrics := []Metric{{
		Name: "vigia_a_total", Type: Counter, Unit: "packets", Labels: []string{"x", "y"}, Help: "Help.", Part: "p",
		Values: map[string][]string{"y": {"one", "own traffic", ""}},
	}, {
		Name: "vigia_c", Type: Gauge, Unit: "ratio", Labels: []string{}, Help: "Now.", Part: "p", Pages: []string{MainPage, FastPage},
	}, {
		Name: "vigia_d", Type: Gauge, Unit: "ratio", Labels: []string{}, Help: "Slow.", Part: "p", Pages: []string{VerdictPage},
	}}
	var text, md, js bytes.Buffer
	for format, w := range map[string]*bytes.Buffer{"text": &text, "markdown": &md, "json": &js} {
		if err := Print(w, metrics, format); err != nil {
			t.Fatalf("%s: %v", format, err)
		}
	}
	if want := "vigia_a_total{x,y} counter, packets\n    Help.\n    y: one, \"own traffic\", \"\"\nvigia_c{} gauge, ratio\n    Now.\n    pages: /metrics, /metrics/fast\nvigia_d{} gauge, ratio\n    Slow.\n    pages: /metrics/verdicts\n"; text.String() != want {
		t.Errorf("text: got %q, want %q", text.String(), want)
	}
	if !strings.Contains(md.String(), "| `vigia_a_total` | counter | packets | `x` `y` (`one`, `own traffic`, `\"\"`) | Help. |\n") {
		t.Errorf("markdown: got %q", md.String())
	}
	if !strings.HasSuffix(md.String(), "| `vigia_c` | gauge | ratio |  | Now. On `/metrics`, `/metrics/fast`. |\n| `vigia_d` | gauge | ratio |  | Slow. On `/metrics/verdicts`. |\n") {
		t.Errorf("markdown: got %q", md.String())
	}
	var back []Metric
	if err := json.Unmarshal(js.Bytes(), &back); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(metrics, back); diff != "" {
		t.Errorf("json (-want +got):\n%s", diff)
	}
	if err := Print(&text, metrics, "xml"); err == nil {
		t.Error("format xml was accepted")
	}
}
