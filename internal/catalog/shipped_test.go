package catalog

import (
	"bytes"
	"encoding/json"
	"io"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// parts are the programs that have metrics.
var parts = []string{"probe", "exporter", "enforcer", "agent", "compare", "campaign"}

func shipped(t *testing.T) *Catalog {
	t.Helper()
	c, err := Load()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestShippedMetricsKeepTheConventions holds what Prometheus asks of names and units.
func TestShippedMetricsKeepTheConventions(t *testing.T) {
	c := shipped(t)
	units := regexp.MustCompile(`_(seconds|bytes|ratio)(_total|_per_second)?$`)
	total := 0
	for _, part := range parts {
		metrics := c.Part(part)
		if len(metrics) < 5 {
			t.Errorf("%s has %d metrics", part, len(metrics))
		}
		if !slices.IsSortedFunc(metrics, func(a, b Metric) int { return strings.Compare(a.Name, b.Name) }) {
			t.Errorf("the metrics of %s are not in order", part)
		}
		for _, m := range metrics {
			total++
			if m.Part != part {
				t.Errorf("%s is of the part %s, listed for %s", m.Name, m.Part, part)
			}
			if suffix := units.FindStringSubmatch(m.Name); suffix != nil && !strings.Contains(m.Unit, strings.TrimSuffix(suffix[1], "s")) {
				t.Errorf("%s has the unit %s", m.Name, m.Unit)
			}
			if strings.Contains(m.Name, "_milliseconds") || strings.Contains(m.Name, "_bits") || strings.Contains(m.Name, "_percent") {
				t.Errorf("%s is not in a base unit", m.Name)
			}
			if strings.HasSuffix(m.Name, "_info") && m.Type != Gauge {
				t.Errorf("%s is a %s", m.Name, m.Type)
			}
			if strings.Contains(m.Name, partPlaceholder) {
				t.Errorf("%s has no part", m.Name)
			}
		}
	}
	if total < 150 {
		t.Errorf("%d metrics are fewer than are shipped", total)
	}
}

// TestShippedMetricsOfOnePartAreNotAnothers looks for a name in two programs.
func TestShippedMetricsOfOnePartAreNotAnothers(t *testing.T) {
	c, owner := shipped(t), make(map[string]string)
	for _, part := range parts {
		for _, m := range c.Part(part) {
			if other, twice := owner[m.Name]; twice {
				t.Errorf("%s is of %s and of %s", m.Name, other, part)
			}
			owner[m.Name] = part
		}
	}
	if nobody := c.Part("nobody"); slices.ContainsFunc(nobody, func(m Metric) bool { return !strings.HasPrefix(m.Name, "vigia_nobody_") }) {
		t.Errorf("an unknown part has %v", nobody)
	}
}

// TestEveryShippedMetricCanBeMade makes all of them, and has Prometheus gather them.
func TestEveryShippedMetricCanBeMade(t *testing.T) {
	c := shipped(t)
	for _, part := range parts {
		registry := prometheus.NewPedanticRegistry()
		f := c.NewFactory(part, registry)
		want := make(map[string]Metric)
		for _, m := range c.Part(part) {
			values := make([]string, len(m.Labels))
			for i, label := range m.Labels {
				if listed := m.Values[label]; listed != nil {
					values[i] = listed[len(listed)-1]
				}
			}
			want[m.Name] = m
			switch m.Type {
			case Counter:
				f.Counter(m.Name).WithLabelValues(values...).Add(2)
			case Gauge:
				f.Gauge(m.Name).WithLabelValues(values...).Set(2)
			case Histogram:
				f.Histogram(m.Name, ClassicDelayBuckets()).WithLabelValues(values...).Observe(2)
			}
			if d := f.Series(m.Name).Desc(); !strings.Contains(d.String(), m.Name) {
				t.Errorf("%s: %s", m.Name, d)
			}
			if got := f.Declared(m.Name); got.Name != m.Name || got.Type != m.Type {
				t.Errorf("%s is declared as %+v", m.Name, got)
			}
		}
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		types := map[Type]dto.MetricType{Counter: dto.MetricType_COUNTER, Gauge: dto.MetricType_GAUGE, Histogram: dto.MetricType_HISTOGRAM}
		for _, family := range families {
			m := want[family.GetName()]
			if family.GetType() != types[m.Type] || family.GetHelp() != m.Help || len(family.GetMetric()[0].GetLabel()) != len(m.Labels) {
				t.Errorf("%s is gathered as %s with %v", m.Name, family.GetType(), family.GetMetric()[0].GetLabel())
			}
		}
		if len(families) != len(want) {
			t.Errorf("%d of %d metrics of %s are gathered", len(families), len(want), part)
		}
	}
}

// TestEveryFormatHasEveryMetric prints all of them.
func TestEveryFormatHasEveryMetric(t *testing.T) {
	c := shipped(t)
	for _, part := range parts {
		metrics := c.Part(part)
		for _, format := range Formats() {
			var out bytes.Buffer
			if err := Print(&out, metrics, format); err != nil {
				t.Fatal(err)
			}
			for _, m := range metrics {
				if !strings.Contains(out.String(), m.Name) {
					t.Errorf("%s of %s lacks %s", format, part, m.Name)
				}
			}
			switch format {
			case "json":
				var back []Metric
				if err := json.Unmarshal(out.Bytes(), &back); err != nil || len(back) != len(metrics) {
					t.Errorf("%d of %d metrics come back, %v", len(back), len(metrics), err)
				}
			case "markdown":
				for line := range strings.Lines(out.String()) {
					if strings.Count(strings.ReplaceAll(line, `\|`, ""), "|") != 6 {
						t.Errorf("a line is no row of five cells: %s", line)
					}
				}
			}
		}
	}
}

type broken struct{ after int }

func (b *broken) Write(p []byte) (int, error) {
	if b.after--; b.after < 0 {
		return 0, io.ErrClosedPipe
	}
	return len(p), nil
}

func TestPrintSaysWhenItCannot(t *testing.T) {
	metrics := shipped(t).Part("exporter")
	for _, format := range Formats() {
		for after := range 3 {
			err := Print(&broken{after}, metrics, format)
			if format != "json" && err == nil || format == "json" && after == 0 && err == nil { // JSON is one write
				t.Errorf("%s after %d writes: %v", format, after, err)
			}
		}
	}
}
