package scrape

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"vigia/exporters/tenant/source"
	"vigia/internal/catalog"
	"vigia/internal/exposition"
	"vigia/internal/ports"
	"vigia/internal/testutil"
)

// node is an inventory whose ports the test moves about, and the time there.
type node struct {
	ports []ports.Port
	now   time.Time
}

func (n *node) EveryPort() ([]ports.Port, []ports.SourceState) {
	return n.ports, []ports.SourceState{{Name: "rtnetlink"}}
}

func (n *node) plug(ids ...string) {
	n.ports = nil
	for i, id := range ids {
		n.ports = append(n.ports, ports.Port{ID: id, Tenant: "red", Index: i + 1, Up: true})
	}
}

// counters is a source of counters that the test sets.
type counters struct {
	name   string
	phase  source.Phase
	began  func() // may be nil
	bytes  *exposition.Family
	value  float64
	drops  uint64
	within uint64
	err    error
	ran    int
	series int // of its own, beside the ports'
}

func (c *counters) AttributesDrops() {}

func (c *counters) Collect(v *source.View, out *exposition.Page) error {
	c.ran++
	if c.began != nil {
		c.began()
	}
	if c.err != nil {
		return c.err
	}
	for i := range v.Ports {
		p := &v.Ports[i]
		out.Emit(c.bytes, c.value, p.ID, p.Tenant, source.FromTenant)
		v.Drops.Device(p.ID, p.Tenant, source.ToTenant, c.drops)
		v.Drops.Add(p.ID, p.Tenant, source.ToTenant, source.MTU, c.within, source.Within)
	}
	for i := range c.series {
		out.Emit(c.bytes, 1, "own", strconv.Itoa(i), source.FromTenant)
	}
	return nil
}

func newEngine(t *testing.T, n *node, series int, gone time.Duration, make func(f source.Families) []*counters) *Engine {
	t.Helper()
	c, err := catalog.Load()
	if err != nil {
		t.Fatal(err)
	}
	f := c.NewFactory("exporter", prometheus.NewRegistry())
	var collectors []Collector
	for _, c := range make(f) {
		collectors = append(collectors, Collector{Name: c.name, Phase: c.phase, Source: c})
	}
	return New(Options{
		Collectors: collectors, Inventory: n, Families: f, Logger: slog.New(slog.DiscardHandler), Series: series, Gone: gone,
		Now: func() time.Time { return n.now },
	})
}

// one returns a node with one source.
func one(t *testing.T, series int, gone time.Duration) (*node, *counters, *Engine) {
	t.Helper()
	n, c := &node{now: time.Unix(1000, 0)}, &counters{name: "netdev"}
	e := newEngine(t, n, series, gone, func(f source.Families) []*counters {
		c.bytes = source.Family(f, "vigia_port_bytes_total")
		return []*counters{c}
	})
	return n, c, e
}

func get(t *testing.T, e *Engine, query string) (int, map[string]float64) {
	t.Helper()
	w := httptest.NewRecorder()
	e.Handler(prometheus.NewRegistry()).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics"+query, nil))
	out := make(map[string]float64)
	for line := range strings.SplitSeq(w.Body.String(), "\n") {
		i := strings.LastIndexByte(line, ' ')
		if w.Code != http.StatusOK || i < 0 || line[0] == '#' {
			continue
		}
		v, err := strconv.ParseFloat(line[i+1:], 64)
		if err != nil {
			t.Fatalf("line %q", line)
		}
		out[testutil.SortLabels(line[:i])] = v
	}
	return w.Code, out
}

func scrapeAll(t *testing.T, e *Engine) map[string]float64 {
	t.Helper()
	_, m := get(t, e, "")
	return m
}

func dropped(reason string) string {
	return fmt.Sprintf(`vigia_port_drops_total{direction="to_tenant",port="p",reason=%q,tenant="red"}`, reason)
}

func TestSparseSeriesStartAtZero(t *testing.T) {
	n, c, e := one(t, 1000, 0)
	n.plug("p")
	if _, ok := scrapeAll(t, e)[dropped("unattributed")]; ok {
		t.Error("a reason that never occurred has a series")
	}
	c.drops, c.within = 10, 4
	for i, want := range []float64{0, 0, 6, 6} {
		if got, ok := scrapeAll(t, e)[dropped("unattributed")]; !ok || got != want {
			t.Errorf("scrape %d: %v, %v; want %v", i, got, ok, want)
		}
	}
	if got := scrapeAll(t, e)[dropped("mtu")]; got != 4 {
		t.Errorf("mtu %v, want 4", got)
	}
}

func TestHistoryBeforeTheExporterIsNoGrowth(t *testing.T) {
	n, c, e := one(t, 1000, 0)
	n.plug("p")
	c.drops = 500
	if got := scrapeAll(t, e)[dropped("unattributed")]; got != 500 {
		t.Errorf("the first scrape after a start says %v, want 500", got)
	}
}

func TestFailingSourceLeavesTheRemainderOut(t *testing.T) {
	n, c, e := one(t, 1000, 0)
	n.plug("p")
	c.drops = 3
	scrapeAll(t, e)
	n.now = n.now.Add(20 * time.Second)
	c.err = errors.New("broken")
	m := scrapeAll(t, e)
	if _, ok := m[dropped("unattributed")]; ok {
		t.Error("the remainder is exported though a source fails")
	}
	if _, ok := m[`vigia_port_bytes_total{direction="from_tenant",port="p",tenant="red"}`]; ok {
		t.Error("the failing source has series")
	}
	if m[`vigia_exporter_collector_success{collector="netdev"}`] != 0 || m[`vigia_exporter_source_age_seconds{source="netdev"}`] != 20 {
		t.Errorf("success %v, age %v; want 0 and 20", m[`vigia_exporter_collector_success{collector="netdev"}`], m[`vigia_exporter_source_age_seconds{source="netdev"}`])
	}
	c.err = nil
	if got := scrapeAll(t, e)[dropped("unattributed")]; got != 3 {
		t.Errorf("after the failure %v, want 3 at once", got)
	}
}

func TestPortsStayAWhileWhenTheyAreGone(t *testing.T) {
	n, _, e := one(t, 1000, 30*time.Second)
	seen := func() (gone int) {
		e.scrape(nil, func(*exposition.Page) error { return nil })
		return len(e.gone.since)
	}
	n.plug("p", "q")
	if seen() != 0 {
		t.Fatal("something is gone already")
	}
	n.plug("q")
	if seen() != 1 {
		t.Error("the port is not remembered")
	}
	n.now = n.now.Add(29 * time.Second)
	if seen() != 1 {
		t.Error("the port is forgotten too early")
	}
	n.now = n.now.Add(time.Second)
	if seen() != 0 || len(e.gone.ports) != 1 {
		t.Error("the port is remembered for too long")
	}
	n.plug()
	seen()
	n.plug("q")
	if seen() != 0 {
		t.Error("a port that came back is gone")
	}
}

func TestSeriesAreBounded(t *testing.T) {
	n, c, e := one(t, 100, 0)
	ids := make([]string, 15)
	for i := range ids {
		ids[i] = fmt.Sprintf("p%02d", i)
	}
	n.plug(ids...)
	c.value = 7
	m := scrapeAll(t, e)
	if m[`vigia_exporter_overflow_ports`] != 5 {
		t.Errorf("%v ports overflow, want 5", m[`vigia_exporter_overflow_ports`])
	}
	if got, ok := m[`vigia_port_bytes_total{direction="from_tenant",port="_overflow",tenant="red"}`]; !ok || got != 0 {
		t.Errorf("the sum starts at %v, %v", got, ok)
	}
	c.value = 9
	m = scrapeAll(t, e)
	if got := m[`vigia_port_bytes_total{direction="from_tenant",port="_overflow",tenant="red"}`]; got != 10 {
		t.Errorf("the sum is %v, want 5 x 2", got)
	}
	c.series = 1000
	limited := `vigia_exporter_series_limited_total{collector="netdev"}`
	if got, ok := m[limited]; ok {
		t.Errorf("%v samples were kept out before any was", got)
	}
	for scrape, want := range []float64{0, 0, 3 * (1000 - 90)} {
		m = scrapeAll(t, e)
		if got, ok := m[limited]; !ok || got != want {
			t.Errorf("scrape %d: %v samples were kept out, %v, want %v", scrape, got, ok, want)
		}
	}
	if got := len(m); m["vigia_exporter_series"] != float64(got) {
		t.Errorf("vigia_exporter_series is %v, the page has %d", m["vigia_exporter_series"], got)
	}
}

func TestCollectPicksCollectors(t *testing.T) {
	a, b := &counters{name: "netdev"}, &counters{name: "openflow"}
	n := &node{now: time.Unix(1000, 0)}
	n.plug("p")
	e := newEngine(t, n, 1000, 0, func(f source.Families) []*counters {
		a.bytes, b.bytes = source.Family(f, "vigia_port_bytes_total"), source.Family(f, "vigia_port_bytes_total")
		a.drops = 5
		return []*counters{a, b}
	})
	_, m := get(t, e, "?collect[]=netdev")
	if _, ok := m[`vigia_port_bytes_total{direction="from_tenant",port="p",tenant="red"}`]; !ok || b.ran != 0 {
		t.Errorf("collect[]=netdev: ran b %d times, %v", b.ran, m)
	}
	if _, ok := m[dropped("unattributed")]; ok {
		t.Error("drops came unasked")
	}
	// Drops need every source that attributes them, but not their series.
	_, m = get(t, e, "?collect[]=drops")
	if m[dropped("unattributed")] != 5 || b.ran != 1 || a.ran != 2 {
		t.Errorf("collect[]=drops: %v, ran %d and %d times", m, a.ran, b.ran)
	}
	if _, ok := m[`vigia_port_bytes_total{direction="from_tenant",port="p",tenant="red"}`]; ok {
		t.Error("collect[]=drops brought bytes")
	}
	for query, want := range map[string]string{
		"?collect[]=nosuch":                           "these are: netdev, openflow, drops",
		"?" + strings.Repeat("collect[]=netdev&", 65): "at most 64",
	} {
		w := httptest.NewRecorder()
		e.Handler(prometheus.NewRegistry()).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics"+query, nil))
		if w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), want) {
			t.Errorf("%.20s: %d %s", query, w.Code, w.Body)
		}
	}
}

func TestALargePageIsCompressedAndCarriesTheBase(t *testing.T) {
	n, _, e := one(t, 1000, 0)
	n.plug("p")
	base := prometheus.NewRegistry()
	g := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "base_metric", Help: "Help."}, []string{"n"})
	base.MustRegister(g)
	for i := range exposition.PlainLimit / len(`base_metric{n="00000"} 0`) {
		g.WithLabelValues(fmt.Sprintf("%05d", i)).Set(0)
	}
	req := httptest.NewRequest(http.MethodGet, "/metrics", nil)
	req.Header.Set("Accept-Encoding", "gzip")
	w := httptest.NewRecorder()
	e.Handler(base).ServeHTTP(w, req)
	z, err := gzip.NewReader(w.Body)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"base_metric{n=\"00000\"} 0\n", "# TYPE vigia_port_bytes_total counter\n"} {
		if !strings.Contains(string(body), want) {
			t.Errorf("no %q in\n%s", want, body)
		}
	}
}

func TestNamesMustDiffer(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	newEngine(t, &node{}, 1000, 0, func(source.Families) []*counters {
		return []*counters{{name: "netdev"}, {name: "netdev", phase: source.Attribute}}
	})
}

func TestCollectorsRunInTheirPhasesWhateverTheirOrder(t *testing.T) {
	var order []string
	list := []*counters{
		{name: "attribution", phase: source.Attribute},
		{name: "qdisc", phase: source.Collect},
		{name: "ovs", phase: source.Reconcile},
		{name: "identity", phase: source.Identify},
		{name: "netdev", phase: source.Collect},
	}
	for turn := range list {
		order = nil
		n := &node{now: time.Unix(1000, 0)}
		n.plug("p")
		e := newEngine(t, n, 1000, 0, func(f source.Families) []*counters {
			for _, c := range list {
				c.bytes = source.Family(f, "vigia_port_bytes_total")
				c.began = func() { order = append(order, c.name) }
			}
			return append(slices.Clone(list[turn:]), list[:turn]...)
		})
		scrapeAll(t, e)
		if got := strings.Join(order, " "); got != "identity netdev qdisc ovs attribution" {
			t.Errorf("they ran in the order %s", got)
		}
		if got := strings.Join(e.Names(), " "); got != "identity netdev qdisc ovs attribution drops" {
			t.Errorf("they are named in the order %s", got)
		}
	}
}

// background is a source that works between scrapes.
type background struct{ running chan bool }

func (b *background) Collect(*source.View, *exposition.Page) error { return nil }

func (b *background) Run(ctx context.Context) {
	b.running <- true
	<-ctx.Done()
}

func TestBackgroundSourcesRun(t *testing.T) {
	b := &background{running: make(chan bool)}
	e := newEngine(t, &node{}, 1000, 0, func(source.Families) []*counters { return nil })
	e.opts.Collectors = []Collector{{Name: "openflow", Source: b}}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { e.Run(ctx); close(done) }()
	<-b.running
	cancel()
	<-done
}
