package catalog

import (
	"bytes"
	"encoding/json"
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
}

func TestLoadRejects(t *testing.T) {
	metric := func(s string) string { return "part: x\nmetrics:\n  - " + s }
	good := "{name: vigia_a_total, type: counter, unit: packets, labels: [a], help: Fine.}"
	for _, tc := range []struct{ name, yaml, want string }{
		{"unknown key", metric("{nam: vigia_a_total}"), "nam"},
		{"no part", "metrics: []", "part is missing"},
		{"name without prefix", metric("{name: a_total, type: counter, unit: u, labels: [], help: H.}"), "must match"},
		{"unknown type", metric("{name: vigia_aa, type: summary, unit: u, labels: [], help: H.}"), "unknown type"},
		{"total on gauge", metric("{name: vigia_a_total, type: gauge, unit: u, labels: [], help: H.}"), "_total belongs"},
		{"counter without total", metric("{name: vigia_aa, type: counter, unit: u, labels: [], help: H.}"), "_total belongs"},
		{"no unit", metric("{name: vigia_aa, type: gauge, labels: [], help: H.}"), "unit is missing"},
		{"no sentence", metric("{name: vigia_aa, type: gauge, unit: u, labels: [], help: H}"), "sentences"},
		{"repeated label", metric("{name: vigia_aa, type: gauge, unit: u, labels: [a, a], help: H.}"), "repeated label"},
		{"reserved label", metric("{name: vigia_aa, type: gauge, unit: u, labels: [le], help: H.}"), "repeated label"},
		{"twice", metric(good + "\n  - " + good), "declared twice"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			fsys := fstest.MapFS{"m/x.yaml": {Data: []byte(tc.yaml)}}
			_, err := load(fsys, "m")
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Fatalf("got error %v, want one that says %q", err, tc.want)
			}
		})
	}
	if _, err := load(fstest.MapFS{}, "m"); err == nil {
		t.Error("an empty catalogue was accepted")
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

func TestFactoryRefusesUndeclared(t *testing.T) {
	c, err := Load()
	if err != nil {
		t.Fatal(err)
	}
	f := c.NewFactory("probe", prometheus.NewRegistry())
	for name, fn := range map[string]func(){
		"unknown":       func() { f.Counter("vigia_nothing_total") },
		"other part":    func() { f.Counter("vigia_port_bytes_total") },
		"wrong type":    func() { f.Gauge("vigia_probe_sent_total") },
		"histogram":     func() { f.Desc("vigia_probe_rtt_seconds") },
		"unknown const": func() { f.Desc("vigia_nothing") },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			fn()
		})
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

func TestDescCarriesType(t *testing.T) {
	c, err := Load()
	if err != nil {
		t.Fatal(err)
	}
	f := c.NewFactory("exporter", prometheus.NewRegistry())
	desc, valueType := f.Desc("vigia_port_bytes_total")
	m := prometheus.MustNewConstMetric(desc, valueType, 7, "p", "red", "from_tenant")
	var out dto.Metric
	if err := m.Write(&out); err != nil {
		t.Fatal(err)
	}
	if out.Counter.GetValue() != 7 {
		t.Errorf("got %v, want a counter of 7", &out)
	}
	if _, valueType := f.Desc("vigia_port_up"); valueType != prometheus.GaugeValue {
		t.Error("vigia_port_up is not a gauge")
	}
}

func TestPrint(t *testing.T) {
	metrics := []Metric{{Name: "vigia_a_total", Type: Counter, Unit: "packets", Labels: []string{"x", "y"}, Help: "Help.", Part: "p"}}
	var text, md, js bytes.Buffer
	for format, w := range map[string]*bytes.Buffer{"text": &text, "markdown": &md, "json": &js} {
		if err := Print(w, metrics, format); err != nil {
			t.Fatalf("%s: %v", format, err)
		}
	}
	if want := "vigia_a_total{x,y} counter, packets\n    Help.\n"; text.String() != want {
		t.Errorf("text: got %q, want %q", text.String(), want)
	}
	if !strings.Contains(md.String(), "| `vigia_a_total` | counter | packets | `x` `y` | Help. |\n") {
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
