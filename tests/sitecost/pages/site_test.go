package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"

	"vigia/tests/sitecost/names"
)

func ptr[T any](v T) *T { return &v }

func labelled(pairs ...string) []*dto.LabelPair {
	var out []*dto.LabelPair
	for i := 0; i < len(pairs); i += 2 {
		out = append(out, &dto.LabelPair{Name: ptr(pairs[i]), Value: ptr(pairs[i+1])})
	}
	return out
}

// probePage is a page after so many seconds: a counter of 10 a second that is no whole number each time, one that
// rests, a histogram of 8 observations a second, a gauge.
func probePage(seconds float64) []*dto.MetricFamily {
	n := uint64(8 * seconds)
	target := labelled("dst", names.Node(1), "src", names.Node(0), "tenant", names.Tenant(2))
	return []*dto.MetricFamily{
		{Name: ptr("sent_total"), Type: dto.MetricType_COUNTER.Enum(), Metric: []*dto.Metric{
			{Label: target, Counter: &dto.Counter{Value: ptr(1000 + 10*seconds)}},
		}},
		{Name: ptr("lost_total"), Type: dto.MetricType_COUNTER.Enum(), Metric: []*dto.Metric{
			{Label: target, Counter: &dto.Counter{Value: ptr(3.0)}},
		}},
		{Name: ptr("rtt_seconds"), Type: dto.MetricType_HISTOGRAM.Enum(), Metric: []*dto.Metric{
			{Label: target, Histogram: &dto.Histogram{
				SampleCount: ptr(4 + n), SampleSum: ptr(float64(n) * 0.001), Schema: ptr(int32(3)),
				ZeroThreshold: ptr(1e-9), ZeroCount: ptr(uint64(0)),
				PositiveSpan:  []*dto.BucketSpan{{Offset: ptr(int32(-80)), Length: ptr(uint32(2))}, {Offset: ptr(int32(3)), Length: ptr(uint32(1))}},
				PositiveDelta: []int64{int64(n / 2), 4 + int64(n/4) - int64(n/2), int64(n/4) - 4 - int64(n/4)},
			}},
		}},
		{Name: ptr("jitter_seconds"), Type: dto.MetricType_GAUGE.Enum(), Metric: []*dto.Metric{
			{Label: target, Gauge: &dto.Gauge{Value: ptr(0.25)}},
		}},
	}
}

// exporterPage has one port, and sums.
func exporterPage(seconds float64) []*dto.MetricFamily {
	return []*dto.MetricFamily{{Name: ptr("port_bytes_total"), Type: dto.MetricType_COUNTER.Enum(), Metric: []*dto.Metric{
		{Label: labelled("port", names.Port(0, 7, 0), "tenant", names.Tenant(2)), Counter: &dto.Counter{Value: ptr(100 * seconds)}},
		{Label: labelled("port", "_overflow", "tenant", names.Tenant(3)), Counter: &dto.Counter{Value: ptr(0.0)}},
	}}}
}

const (
	protobuf = "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited"
	text     = "text/plain; version=0.0.4; charset=utf-8"
	apart    = 20.0 // seconds between captures
)

func saved(t *testing.T, folder, name, contentType string, page func(float64) []*dto.MetricFamily) {
	t.Helper()
	header, _, _ := strings.Cut(contentType, "\n")
	for which, seconds := range []float64{apart, 2 * apart} {
		out := bytes.NewBufferString(contentType + "\n\n")
		encoder := expfmt.NewEncoder(out, expfmt.ResponseFormat(http.Header{"Content-Type": {header}}))
		for _, f := range page(seconds) {
			if err := encoder.Encode(f); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(filepath.Join(folder, fmt.Sprintf("%s.%d", name, which)), out.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(folder, name+".seconds"), []byte("20.0\n"), 0o600); err != nil {
		t.Fatal(err)
	}
}

func newSite(t *testing.T, nodes int) *site {
	t.Helper()
	folder := t.TempDir()
	saved(t, folder, "probe-metrics", protobuf, probePage)
	saved(t, folder, "exporter-metrics", text+"\ngzip", exporterPage)
	s, err := load(folder, nodes, 0, time.Minute, 2)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func get(t *testing.T, s *site, agent, path string, node int) (int, map[string]*dto.MetricFamily) {
	t.Helper()
	address := &net.TCPAddr{IP: net.IPv4(127, 1, byte((node+1)>>8), byte(node+1)), Port: agents[agent]}
	r := httptest.NewRequestWithContext(context.WithValue(t.Context(), http.LocalAddrContextKey, net.Addr(address)), http.MethodGet, path, nil)
	r.Header.Set("Accept-Encoding", "gzip")
	w := httptest.NewRecorder()
	s.handler(agent).ServeHTTP(w, r)
	if w.Code != http.StatusOK {
		return w.Code, nil
	}
	var body io.Reader = w.Body
	if packed := w.Header().Get("Content-Encoding") == "gzip"; packed != (agent == "exporter") {
		t.Errorf("the page of %s is compressed: %t", agent, packed)
	} else if packed {
		z, err := gzip.NewReader(w.Body)
		if err != nil {
			t.Fatal(err)
		}
		body = z
	}
	decoder := expfmt.NewDecoder(body, expfmt.ResponseFormat(w.Header()))
	found := make(map[string]*dto.MetricFamily)
	for {
		var f dto.MetricFamily
		if err := decoder.Decode(&f); err == io.EOF {
			return w.Code, found
		} else if err != nil {
			t.Fatal(err)
		}
		found[f.GetName()] = &f
	}
}

func value(m *dto.Metric, label string) string {
	for _, l := range m.Label {
		if l.GetName() == label {
			return l.GetValue()
		}
	}
	return ""
}

func TestEveryNodeHasItsOwnNames(t *testing.T) {
	s := newSite(t, 1000)
	sources, tenants, ports := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for _, node := range []int{0, 1, 299, 999} {
		_, probe := get(t, s, "probe", "/metrics", node)
		m := probe["sent_total"].Metric[0]
		if got, want := value(m, "src"), names.Node(node); got != want {
			t.Errorf("src is %s, want %s", got, want)
		}
		if got, want := value(m, "dst"), names.Node((node+1)%1000); got != want {
			t.Errorf("dst is %s, want %s", got, want)
		}
		sources[value(m, "src")], tenants[value(m, "tenant")] = true, true
		_, exporter := get(t, s, "exporter", "/metrics", node)
		port := exporter["port_bytes_total"].Metric
		if n, place, _, ok := names.ParsePort(value(port[0], "port")); !ok || n != node || place != 7 {
			t.Errorf("port of node %d is %s", node, value(port[0], "port"))
		}
		if got := value(port[1], "port"); got != "_overflow" {
			t.Errorf("what is no port is %q", got)
		}
		ports[value(port[0], "port")] = true
	}
	if len(sources) != 4 || len(tenants) != 4 || len(ports) != 4 {
		t.Errorf("4 nodes have %d names, %d tenants, %d ports", len(sources), len(tenants), len(ports))
	}
}

// The page goes on as it went between the captures: in 100 s a counter of ten a second has grown by about a thousand.
func TestCountersGoOn(t *testing.T) {
	s := newSite(t, 4)
	_, before := get(t, s, "probe", "/metrics", 2)
	s.pages[pageKey{"probe", "/metrics"}][0].page.advance(100)
	s.pages[pageKey{"probe", "/metrics"}][0].at = time.Unix(1, 0) // what was rendered is old
	s.pages[pageKey{"probe", "/metrics"}][0].every = 0
	_, after := get(t, s, "probe", "/metrics", 2)
	counted := func(f map[string]*dto.MetricFamily, name string) float64 {
		return f[name].Metric[0].GetCounter().GetValue()
	}
	if grown := counted(after, "sent_total") - counted(before, "sent_total"); grown < 800 {
		t.Errorf("a counter of 10 a second grew by %g in 100 s", grown)
	}
	if counted(after, "lost_total") != 3 {
		t.Errorf("a counter that rested is %g, was 3", counted(after, "lost_total"))
	}
	h, old := after["rtt_seconds"].Metric[0].Histogram, before["rtt_seconds"].Metric[0].Histogram
	if grown := h.GetSampleCount() - old.GetSampleCount(); grown < 600 {
		t.Errorf("a histogram of 8 observations a second has %d more after 100 s", grown)
	}
	total, last := h.GetZeroCount(), int64(0)
	for _, d := range h.PositiveDelta {
		last += d
		if last < 0 {
			t.Fatalf("a bucket has %d observations", last)
		}
		total += uint64(last)
	}
	if total != h.GetSampleCount() {
		t.Errorf("the buckets have %d observations, the histogram %d", total, h.GetSampleCount())
	}
	if g := after["jitter_seconds"].Metric[0].GetGauge().GetValue(); g <= 0 || g > 0.5 {
		t.Errorf("a gauge about 0.25 is %g", g)
	}
}

func TestPersonalitiesDiffer(t *testing.T) {
	s := newSite(t, 4)
	_, even := get(t, s, "probe", "/metrics", 0)
	_, odd := get(t, s, "probe", "/metrics", 1)
	if a, b := even["sent_total"].Metric[0].GetCounter().GetValue(), odd["sent_total"].Metric[0].GetCounter().GetValue(); a == b {
		t.Errorf("both have sent %g", a)
	}
}

func TestAPortIsReplacedWhenItsLifeIsOver(t *testing.T) {
	s := newSite(t, 4)
	s.life = time.Hour
	body, slots, err := s.pages[pageKey{"exporter", "/metrics"}][1].now(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	seen := make(map[string]bool)
	start := time.Unix(1_700_000_000, 0)
	for hour := range 5 {
		page := string(s.write(body, slots, 1, start.Add(time.Duration(hour)*time.Hour)))
		for _, word := range names.Pattern.FindAllString(page, -1) {
			if _, _, _, ok := names.ParsePort(word); ok {
				seen[word] = true
			}
		}
	}
	if len(seen) != 5 {
		t.Errorf("in 5 lives there were %d ports", len(seen))
	}
}

func TestWhatIsNotThereIsNotFound(t *testing.T) {
	s := newSite(t, 4)
	for _, c := range []struct {
		agent, path string
		node        int
	}{{"probe", "/metrics", 4}, {"probe", "/metrics/fast", 0}, {"probe", "/", 0}, {"enforcer", "/metrics", 0}} {
		if code, _ := get(t, s, c.agent, c.path, c.node); code != http.StatusNotFound {
			t.Errorf("%s %s of node %d: %d", c.agent, c.path, c.node, code)
		}
	}
}

func TestWrongCapturesAreNamed(t *testing.T) {
	folder := t.TempDir()
	if _, err := load(folder, 1, 0, time.Second, 1); err == nil || !strings.Contains(err.Error(), "no captured page") {
		t.Errorf("an empty folder: %v", err)
	}
	saved(t, folder, "probe-metrics", protobuf, probePage)
	for file, content := range map[string]string{
		"probe-metrics.seconds": "-1",
		"probe-metrics.0":       "no header",
		"probe-metrics.1":       protobuf + "\n\n\x05abc",
	} {
		path := filepath.Join(folder, file)
		good, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := load(folder, 1, 0, time.Second, 1); err == nil || !strings.Contains(err.Error(), "probe-metrics") {
			t.Errorf("%s of %q: %v", file, content, err)
		}
		if err := os.WriteFile(path, good, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
