package app

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"vigia/internal/catalog"
	"vigia/internal/daemon"
	"vigia/internal/testutil"
	"vigia/probes/pages"
)

const (
	patience    = 60 * time.Second
	reloadToken = "reload-token-of-the-tests"
)

// syncBuffer is written by the program and read by the test.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// running is a vigia-probe that runs.
type running struct {
	t      *testing.T
	config string
	url    string
	stderr *syncBuffer
	stop   func() int
	netns  string // where it serves; empty: our own
}

func start(t *testing.T, config string) *running {
	t.Helper()
	d := &running{t: t, config: filepath.Join(t.TempDir(), "probe.yaml"), stderr: &syncBuffer{}}
	d.write(config)
	address := testutil.FreeAddress(t)
	d.url = "http://" + address
	token := filepath.Join(t.TempDir(), "reload.token")
	if err := os.WriteFile(token, []byte(reloadToken), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	exited := make(chan int, 1)
	go func() {
		exited <- Program().Run(ctx, []string{"--config", d.config, "--web.listen-address", address, "--web.reload-token-file", token}, io.Discard, d.stderr)
	}()
	d.stop = sync.OnceValue(func() int {
		cancel()
		select {
		case code := <-exited:
			return code
		case <-time.After(patience):
			t.Errorf("the daemon did not stop\n%s", d.stderr)
			return -1
		}
	})
	t.Cleanup(func() {
		if code := d.stop(); code != daemon.ExitOK {
			t.Errorf("exit code %d\n%s", code, d.stderr)
		}
	})
	d.waitFor("the daemon to answer", func() bool { code, _ := d.get("/-/healthy"); return code == http.StatusOK })
	return d
}

func client() *http.Client { return &http.Client{Timeout: patience} }

func (d *running) write(config string) {
	d.t.Helper()
	if err := os.WriteFile(d.config, []byte(config), 0o600); err != nil {
		d.t.Fatal(err)
	}
}

func (d *running) get(path string) (int, string) {
	c := client()
	if d.netns != "" {
		c.Transport = inside(d.netns)
	}
	resp, err := c.Get(d.url + path)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err.Error()
	}
	return resp.StatusCode, string(body)
}

func (d *running) reload(config string) (int, string) {
	d.t.Helper()
	d.write(config)
	req, err := http.NewRequest(http.MethodPost, d.url+"/-/reload", nil)
	if err != nil {
		d.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+reloadToken)
	resp, err := client().Do(req)
	if err != nil {
		d.t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		d.t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

func (d *running) waitFor(what string, cond func() bool) {
	d.t.Helper()
	met := false
	defer func() {
		if !met {
			_, ready := d.get("/-/ready")
			_, targets := d.get("/debug/targets")
			d.t.Logf("%s%s\n%s", ready, targets, d.stderr)
		}
	}()
	testutil.WaitFor(d.t, what, func() bool { met = cond(); return met })
}

// scrape is what /metrics says, by family and labels.
type scrape map[string]*dto.MetricFamily

func (d *running) scrape() scrape {
	d.t.Helper()
	code, body := d.get("/metrics")
	if code != http.StatusOK {
		d.t.Fatalf("/metrics: %d %s", code, body)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(body))
	if err != nil {
		d.t.Fatal(err)
	}
	return families
}

// value returns the value of the series with these labels (name, value, ...) among
// others; ok is false when there is none. For a histogram it is the count.
func (s scrape) value(family string, labels ...string) (v float64, ok bool) {
	f := s[family]
	if f == nil {
		return 0, false
	}
	for _, m := range f.Metric {
		have := make(map[string]string)
		for _, l := range m.Label {
			have[l.GetName()] = l.GetValue()
		}
		match := true
		for i := 0; i < len(labels); i += 2 {
			match = match && have[labels[i]] == labels[i+1]
		}
		if !match {
			continue
		}
		switch {
		case m.Counter != nil:
			return m.Counter.GetValue(), true
		case m.Gauge != nil:
			return m.Gauge.GetValue(), true
		case m.Histogram != nil:
			return float64(m.Histogram.GetSampleCount()), true
		}
	}
	return 0, false
}

func (s scrape) must(t *testing.T, family string, labels ...string) float64 {
	t.Helper()
	v, ok := s.value(family, labels...)
	if !ok {
		t.Errorf("no series %s %v", family, labels)
	}
	return v
}

// TestMain lets more tests run side by side than there are processors: their daemons mostly wait.
func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", "4"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// network is a sender's and a reflector's namespace joined by a link.
func network(t *testing.T) (left, right string) {
	t.Helper()
	left, right = testutil.NewNetNS(t), testutil.NewNetNS(t)
	testutil.NewVethPair(t, left, "veth0", right, "veth0")
	testutil.IP(t, "-n", left, "addr", "add", "10.9.0.1/24", "dev", "veth0")
	testutil.IP(t, "-n", right, "addr", "add", "10.9.0.2/24", "dev", "veth0")
	return left, right
}

const paths = `paths:
  - {name: direct, dataplane: none, encap: none, mode: normal, security: none, layer: underlay, placement: remote}
  - {name: again, dataplane: none, encap: none, mode: normal, security: none, layer: overlay, placement: remote}
classes:
  - {name: stamp-64, protocol: stamp, size: 64, interval: 10ms, deadline: 10s}
  - {name: stamp-1000, protocol: stamp, size: 1000, interval: 20ms, deadline: 10s, source_ports: 2, ecmp_paths: 2}
`

// node returns the configuration of a node that answers in one namespace and
// probes the given targets from it.
func node(name, ns, address string, targets ...string) string {
	c := fmt.Sprintf("node: %s\nseries: all\nclock: {error_bound: 10us}\nhealth: {schedule_lag: 1m}\nreflector:\n  listeners: [{netns: %s, address: \"%s:862\"}]\n  allow: [10.9.0.0/24]\n%stargets:\n", name, ns, address, paths)
	for _, tg := range targets {
		c += tg
	}
	if len(targets) == 0 {
		c += "  []\n"
	}
	return c
}

// bulkTests is what makes a node run and accept bulk tests, in 3 of 6 seconds.
func bulkTests(name, peer, ns, address, peerAddress string) string {
	return fmt.Sprintf(`bulk:
  listeners: [{netns: %s, address: "%s:9876"}]
  allow: [10.9.0.0/24]
  hourly_bytes: 100000000
  slot: 3s
  nodes: [%s, %s]
  classes:
    - {name: bulk-tcp, protocol: tcp, duration: 200ms, max_bytes: 1000000}
    - {name: bulk-udp, protocol: udp, duration: 200ms, rates: [8Mbit], size: 1000}
  targets:
    - {dst: %s, path: direct, tenant: _infra, probe: bulk-tcp, netns: %s, address: "%s:9876"}
    - {dst: %s, path: direct, tenant: _infra, probe: bulk-udp, netns: %s, address: "%s:9876"}
objectives:
  - {tenant: _infra, ratio: 0.1}
`, ns, address, name, peer, peer, ns, peerAddress, peer, ns, peerAddress)
}

func aim(dst, probe, ns, source, address string) string {
	return fmt.Sprintf("  - {dst: %s, path: direct, tenant: _infra, probe: %s, netns: %s, source: %s, address: \"%s\"}\n", dst, probe, ns, source, address)
}

// TestTwoNodesProbeEachOther runs two daemons over a link and reads everything
// they export.
func TestTwoNodesProbeEachOther(t *testing.T) {
	t.Parallel()
	left, right := network(t)
	searching := strings.NewReplacer("size: 64,", "size: 64, path_mtu: {interval: 10s, max: 3000}, objectives: [{delay: 900ms, jitter: 900ms}],")
	a := start(t, searching.Replace(node("a", left, "10.9.0.1",
		aim("b", "stamp-64", left, "10.9.0.1", "10.9.0.2:862"), aim("b", "stamp-1000", left, "10.9.0.1", "10.9.0.2:862"),
		fmt.Sprintf("  - {dst: b, path: again, tenant: _infra, probe: stamp-64, netns: %s, twin: direct, address: \"10.9.0.2:862\"}\n", left)))+
		bulkTests("a", "b", left, "10.9.0.1", "10.9.0.2"))
	b := start(t, node("b", right, "10.9.0.2", aim("a", "stamp-64", right, "10.9.0.2", "10.9.0.1:862"))+
		bulkTests("b", "a", right, "10.9.0.2", "10.9.0.1"))
	for _, d := range []*running{a, b} {
		d.waitFor("being ready", func() bool { code, _ := d.get("/-/ready"); return code == http.StatusOK })
		d.waitFor("samples", func() bool { v, _ := d.scrape().value("vigia_probe_rtt_seconds"); return v > 50 })
	}
	a.waitFor("pairs", func() bool {
		v, _ := a.scrape().value("vigia_probe_overlay_tax_seconds", "path", "again")
		return v > 40
	})
	a.waitFor("a bulk test of each protocol", func() bool {
		s := a.scrape()
		tcp, tcpDone := s.value("vigia_bulk_goodput_bytes_per_second", "protocol", "tcp")
		udp, udpDone := s.value("vigia_bulk_jitter_seconds", "protocol", "udp")
		return tcpDone && udpDone && tcp > 0 && udp > 0
	})
	a.waitFor("the path MTU", func() bool {
		v, ok := a.scrape().value("vigia_probe_path_mtu_bytes", "path", "direct", "probe", "stamp-64")
		return ok && v == 1500
	})
	labels := []string{"src", "a", "dst", "b", "path", "direct", "tenant", "_infra", "probe", "stamp-64"}
	var s scrape
	a.waitFor("b to be up, and the reflector's counters to agree", func() bool {
		s = a.scrape()
		// A batch may be under way, and the two are not read at the same moment.
		in, _ := s.value("vigia_reflector_received_total", "listener", left)
		out, _ := s.value("vigia_reflector_reflected_total", "listener", left)
		up, _ := s.value("vigia_probe_target_up", labels...)
		return in >= 50 && out <= in+32 && in <= out+32 && up == 1
	})
	checkBulk(t, s)
	if n := s.must(t, "vigia_probe_path_mtu_searches_total", "path", "direct", "outcome", "found"); n < 1 {
		t.Errorf("%v searches found the path MTU", n)
	}
	if n := s.must(t, "vigia_probe_stray_total"); n != 0 {
		t.Errorf("%v answers belong to no target", n)
	}
	sent, received := s.must(t, "vigia_probe_sent_total", labels...), s.must(t, "vigia_probe_received_total", labels...)
	// Before b was there: nothing answers, or its first answer tells that it is the first.
	lost := s.must(t, "vigia_probe_lost_total", append(labels, "cause", "unknown")...) +
		s.must(t, "vigia_probe_lost_total", append(labels, "cause", "forward")...)
	if sent != received+lost || received < 50 {
		t.Errorf("%v sent, %v received, %v lost", sent, received, lost)
	}
	for family, want := range map[string]float64{
		"vigia_probe_late_total": 0, "vigia_probe_duplicate_total": 0, "vigia_probe_reordered_total": 0,
		"vigia_probe_corrupt_total": 0, "vigia_probe_accounting_mismatch": 0, "vigia_probe_target_up": 1,
		"vigia_probe_interval_seconds": 0.01, "vigia_probe_deadline_seconds": 10,
	} {
		if got := s.must(t, family, labels...); got != want {
			t.Errorf("%s is %v, want %v", family, got, want)
		}
	}
	for _, family := range []string{"vigia_probe_rtt_seconds", "vigia_probe_rtt_application_seconds", "vigia_probe_reflector_residence_seconds"} {
		if n := s.must(t, family, labels...); n < 40 {
			t.Errorf("%s has %v samples", family, n)
		}
	}
	if n := s.must(t, "vigia_probe_schedule_lag_seconds"); n < 40 {
		t.Errorf("the schedule's lag has %v samples", n)
	}
	for _, direction := range []string{"forward", "reverse", "roundtrip"} {
		if n := s.must(t, "vigia_probe_delay_variation_seconds", append(labels, "direction", direction)...); n < 40 {
			t.Errorf("%s variation has %v samples", direction, n)
		}
	}
	if v := s.must(t, "vigia_path_info", "path", "direct", "layer", "underlay"); v != 1 {
		t.Errorf("vigia_path_info is %v", v)
	}
	if user := s.must(t, "vigia_probe_timestamps_total", "point", "tx", "source", "user"); user != 0 {
		t.Errorf("%v probes without kernel send stamp", user)
	}
	checkCatalogue(t, s, catalog.MainPage)
}

// conditional are metrics that a fit host, or a kernel that does not tell, has not.
var conditional = map[string]bool{
	// Where nodes are discovered: TestMeshOfDiscoveredNodes.
	"vigia_probe_mesh_sent_total":              true,
	"vigia_probe_mesh_lost_total":              true,
	"vigia_probe_mesh_judged_total":            true,
	"vigia_probe_mesh_slow_total":              true,
	"vigia_probe_mesh_unsteady_total":          true,
	"vigia_probe_mesh_rtt_seconds":             true,
	"vigia_probe_mesh_delay_variation_seconds": true,
	"vigia_probe_mesh_pairs":                   true,
	"vigia_probe_unreachable_ratio":            true,
	// Of protocols of applications, and of twins of a mesh: TestApplicationsAreProbed.
	"vigia_probe_mesh_overlay_tax_seconds":                  true,
	"vigia_probe_http_failed_total":                         true,
	"vigia_probe_http_phase_seconds_total":                  true,
	"vigia_probe_http_status_code":                          true,
	"vigia_probe_http_certificate_expiry_timestamp_seconds": true,
	"vigia_probe_dns_failed_total":                          true,
	"vigia_probe_dns_phase_seconds_total":                   true,
	"vigia_probe_dns_answer_records":                        true,
	"vigia_probe_outside_unreachable_ratio":                 true,
	"vigia_probe_rtt_quarantined_seconds":                   true, "vigia_probe_rtt_application_quarantined_seconds": true,
	"vigia_probe_host_cpu_pressure_ratio": true, "vigia_probe_host_throttled_seconds_total": true,
}

// checkBulk demands that what bulk tests export adds up.
func checkBulk(t *testing.T, s scrape) {
	t.Helper()
	tcp := []string{"dst", "b", "probe", "bulk-tcp", "protocol", "tcp", "rate", "unlimited"}
	udp := []string{"dst", "b", "probe", "bulk-udp", "protocol", "udp", "rate", "8Mbit"}
	runs := s.must(t, "vigia_bulk_runs_total", append(tcp, "result", "completed")...)
	if bytes := s.must(t, "vigia_bulk_transferred_bytes_total", tcp...); bytes <= 0 || bytes > runs*1e6 {
		t.Errorf("%v tests transferred %v bytes", runs, bytes)
	}
	sent, received := s.must(t, "vigia_bulk_sent_packets_total", udp...), s.must(t, "vigia_bulk_received_packets_total", udp...)
	lost := s.must(t, "vigia_bulk_lost_packets_total", append(udp, "cause", "network")...)
	overflow := s.must(t, "vigia_bulk_lost_packets_total", append(udp, "cause", "receiver_overflow")...)
	if sent == 0 || sent != received+lost+overflow {
		t.Errorf("%v sent, %v received, %v lost, %v dropped by the receiver", sent, received, lost, overflow)
	}
	if left := s.must(t, "vigia_bulk_budget_remaining_bytes"); left >= 100_000_000 || left < 10_000_000 {
		t.Errorf("%v bytes left of the budget", left)
	}
	if v := s.must(t, "vigia_probe_objective_burning", "tenant", "_infra"); v != 0 {
		t.Errorf("an objective burns: %v", v)
	}
}

// checkCatalogue demands that every metric that the catalogue has on a page is there and
// nothing else of ours.
func checkCatalogue(t *testing.T, s scrape, page string) {
	t.Helper()
	c, err := catalog.Load()
	if err != nil {
		t.Fatal(err)
	}
	known := make(map[string]bool)
	for _, m := range c.Part("probe") {
		if !slices.Contains(m.Pages, page) {
			continue
		}
		known[m.Name] = true
		f := s[m.Name]
		if f == nil && conditional[m.Name] {
			continue
		}
		if f == nil {
			t.Errorf("%s is not exported", m.Name)
			continue
		}
		if got := strings.ToLower(f.GetType().String()); got != string(m.Type) {
			t.Errorf("%s is a %s, want a %s", m.Name, got, m.Type)
		}
	}
	for name := range s {
		if strings.HasPrefix(name, "vigia_") && !known[name] {
			t.Errorf("%s is not in the catalogue for %s", name, page)
		}
	}
}

// TestZeroFirst looks at the series of a target before it was ever probed.
func TestZeroFirst(t *testing.T) {
	slow := strings.Replace(paths, "interval: 10ms", "interval: 1h", 1)
	d := start(t, "node: a\nseries: all\n"+slow+"targets:\n  - {dst: b, path: direct, tenant: red, probe: stamp-64, address: \"127.0.0.1:1\"}\n")
	s := d.scrape()
	labels := []string{"src", "a", "dst", "b", "tenant", "red"}
	for _, family := range []string{"sent", "received", "late", "duplicate", "reordered", "corrupt", "skipped"} {
		if v := s.must(t, "vigia_probe_"+family+"_total", labels...); v != 0 {
			t.Errorf("%s is %v", family, v)
		}
	}
	for _, cause := range []string{"send_error", "local_overflow", "reflector_overflow", "forward", "reverse", "unknown"} {
		s.must(t, "vigia_probe_lost_total", append(labels, "cause", cause)...)
	}
	for _, reason := range []string{"no_kernel_stamp", "clock_step", "implausible"} {
		s.must(t, "vigia_probe_quarantined_total", append(labels, "reason", reason)...)
	}
	for _, direction := range []string{"forward", "reverse", "roundtrip"} {
		s.must(t, "vigia_probe_delay_variation_seconds", append(labels, "direction", direction)...)
	}
	for _, point := range []string{"tx", "rx", "reflector_rx", "reflector_tx"} {
		for _, source := range []string{"hardware", "kernel", "user"} {
			s.must(t, "vigia_probe_timestamps_total", "point", point, "source", source)
		}
	}
	if code, body := d.get("/-/ready"); code != http.StatusServiceUnavailable || !strings.Contains(body, "first round is not finished: 1 of 1 targets") {
		t.Errorf("ready: %d %s", code, body)
	}
}

// TestReload changes targets while probing goes on.
func TestReload(t *testing.T) {
	t.Parallel()
	left, right := network(t)
	start(t, node("b", right, "10.9.0.2"))
	stays := aim("b", "stamp-64", left, "10.9.0.1", "10.9.0.2:862")
	goes := aim("b", "stamp-1000", left, "10.9.0.1", "10.9.0.2:862")
	comes := aim("c", "stamp-64", left, "10.9.0.1", "10.9.0.2:862")
	a := start(t, node("a", left, "10.9.0.1", stays, goes))
	received := func(labels ...string) (float64, bool) {
		return a.scrape().value("vigia_probe_received_total", labels...)
	}
	a.waitFor("answers", func() bool { v, _ := received("dst", "b", "probe", "stamp-64"); return v > 20 })
	before := a.scrape()
	if code, body := a.reload(node("a", left, "10.9.0.1", stays, comes)); code != http.StatusOK {
		t.Fatalf("%d %s", code, body)
	}
	after := a.scrape()
	for _, family := range []string{"vigia_probe_received_total", "vigia_probe_rtt_seconds", "vigia_probe_sent_total"} {
		was, now := before.must(t, family, "dst", "b", "probe", "stamp-64"), after.must(t, family, "dst", "b", "probe", "stamp-64")
		if now < was {
			t.Errorf("%s fell from %v to %v", family, was, now)
		}
	}
	for name, f := range after {
		for _, m := range f.Metric {
			for _, l := range m.Label {
				if l.GetValue() == "stamp-1000" {
					t.Errorf("%s still has the target that is gone", name)
				}
			}
		}
	}
	a.waitFor("answers of the new target", func() bool { v, _ := received("dst", "c"); return v > 5 })

	for name, bad := range map[string]string{
		"nonsense":    "node: [",
		"unknown key": node("a", left, "10.9.0.1", stays) + "\nx: 1\n",
		"busy port":   strings.Replace(node("a", right, "10.9.0.2", stays), "allow", "allow", 1),
	} {
		code, body := a.reload(bad)
		if code != http.StatusInternalServerError {
			t.Errorf("%s: %d %s", name, code, body)
		}
	}
	if v := a.scrape().must(t, "vigia_probe_config_last_reload_successful"); v != 0 {
		t.Error("the failed reload is not exported")
	}
	mid, _ := received("dst", "c")
	a.waitFor("more answers", func() bool { v, _ := received("dst", "c"); return v > mid+5 })
	if code, _ := a.reload(node("a", left, "10.9.0.1", stays, comes)); code != http.StatusOK {
		t.Error("no recovery from failed reloads")
	}
	s := a.scrape()
	if lost := s.must(t, "vigia_probe_lost_total", "dst", "b", "cause", "unknown"); lost != 0 {
		t.Errorf("reloading lost %v probes", lost)
	}
}

// TestTroubleIsTold has targets that fail in different ways.
func TestTroubleIsTold(t *testing.T) {
	d := start(t, "node: a\nreflector: {listeners: [{netns: vigia-test-absent, address: \"127.0.0.1:862\"}]}\n"+paths+`targets:
  - {dst: refuses, path: direct, tenant: _infra, probe: stamp-64, address: "127.0.0.1:1"}
  - {dst: nowhere, path: direct, tenant: _infra, probe: stamp-64, address: "no-such-host.invalid:862"}
  - {dst: absent, path: direct, tenant: _infra, probe: stamp-64, netns: vigia-test-absent, address: "127.0.0.1:862"}
`)
	var views struct {
		Targets []pages.TargetView `json:"targets"`
	}
	states := func() map[string]pages.TargetView {
		code, body := d.get("/debug/targets")
		if code != http.StatusOK {
			t.Fatalf("%d %s", code, body)
		}
		if err := json.Unmarshal([]byte(body), &views); err != nil {
			t.Fatal(err)
		}
		out := make(map[string]pages.TargetView)
		for _, v := range views.Targets {
			out[v.Dst] = v
		}
		return out
	}
	d.waitFor("every target to have failed", func() bool {
		s := states()
		return s["refuses"].Lost["unknown"] > 0 && s["nowhere"].Lost["send_error"] > 0 && s["absent"].Lost["send_error"] > 0
	})
	for dst, want := range map[string][2]string{
		"refuses": {"down", "connection refused"},
		"nowhere": {"unresolved", "cannot be resolved"},
		"absent":  {"closed", `network namespace "vigia-test-absent" does not exist`},
	} {
		v := states()[dst]
		if v.State != want[0] || !strings.Contains(v.LastError, want[1]) || v.LastErrorAt == nil || v.Mismatch != 0 {
			t.Errorf("%s: %+v, want state %s and error %q", dst, v, want[0], want[1])
		}
	}
	code, body := d.get("/-/ready")
	if code != http.StatusServiceUnavailable || strings.Count(body, "vigia-test-absent") < 2 {
		t.Errorf("ready: %d %s, want both sockets in the absent namespace", code, body)
	}
	if v := d.scrape().must(t, "vigia_probe_target_up", "dst", "refuses"); v != 0 {
		t.Error("a target that refuses is up")
	}
}

func TestListenersOfOneNamespaceShareTheirSeries(t *testing.T) {
	stays, goes := testutil.FreePort(t, "udp", "127.0.0.1"), testutil.FreePort(t, "udp", "127.0.0.2")
	one := fmt.Sprintf("node: a\nreflector: {listeners: [{address: %q}]}\n", stays)
	two := fmt.Sprintf("node: a\nreflector: {listeners: [{address: %q}, {address: %q}]}\n", stays, goes)
	other := "node: a\n" + paths + "targets: [{dst: b, path: direct, tenant: t, probe: stamp-64, address: \"127.0.0.1:1\"}]\n"
	d := start(t, two)
	ask := func(at netip.AddrPort) {
		t.Helper()
		conn, err := net.Dial("udp", at.String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if _, err := conn.Write(make([]byte, 44)); err != nil {
			t.Fatal(err)
		}
		if err := conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
			t.Fatal(err)
		}
		if n, err := conn.Read(make([]byte, 100)); n != 44 {
			t.Fatalf("%s: %d bytes, %v", at, n, err)
		}
	}
	ask(stays)
	ask(goes)
	reflected := func() (float64, bool) {
		return d.scrape().value("vigia_reflector_reflected_total", "listener", "_host")
	}
	d.waitFor("two answers to be counted", func() bool { v, _ := reflected(); return v == 2 })
	if code, body := d.reload(one); code != http.StatusOK {
		t.Fatalf("%d %s", code, body)
	}
	ask(stays)
	d.waitFor("the third answer to be counted, after one of two listeners went", func() bool { v, _ := reflected(); return v == 3 })
	if code, body := d.reload(other); code != http.StatusOK {
		t.Fatalf("%d %s", code, body)
	}
	if v, ok := reflected(); ok {
		t.Errorf("after the last listener went, there is a series with %v", v)
	}
}

// TestRefusesToStart checks the exit code and the one line for what cannot work.
func TestRefusesToStart(t *testing.T) {
	busy, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	port := busy.LocalAddr().(*net.UDPAddr).Port
	for name, tc := range map[string]struct{ config, want string }{
		"mistake":       {"node: a\n", "targets: are missing, and so are reflector.listeners"},
		"busy listener": {fmt.Sprintf("node: a\nreflector: {listeners: [{address: \"127.0.0.1:%d\"}]}\n", port), fmt.Sprintf("reflector: bind UDP socket to 127.0.0.1:%d: address already in use", port)},
		"busy source":   {fmt.Sprintf("node: a\n%stargets: [{dst: b, path: direct, tenant: t, probe: stamp-64, source: \"127.0.0.1:%d\", address: \"127.0.0.1:1\"}]\n", paths, port), fmt.Sprintf("targets: bind UDP socket to 127.0.0.1:%d: address already in use", port)},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "probe.yaml")
			if err := os.WriteFile(path, []byte(tc.config), 0o600); err != nil {
				t.Fatal(err)
			}
			var stderr bytes.Buffer
			code := Program().Run(t.Context(), []string{"--config", path, "--web.listen-address", testutil.FreeAddress(t), "--log.level", "error"}, io.Discard, &stderr)
			if code != daemon.ExitError || !strings.Contains(stderr.String(), tc.want) || strings.Count(stderr.String(), "\n") != 1 {
				t.Errorf("exit %d, %q", code, stderr.String())
			}
		})
	}
}

func TestCommandLine(t *testing.T) {
	path := filepath.Join(t.TempDir(), "probe.yaml")
	if err := os.WriteFile(path, []byte("node: a\nreflector: {listeners: [{address: \"127.0.0.1:862\"}]}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"check-config", "--config", path}, daemon.ExitOK, "OK, node a: 0 targets, 0 probes/s, 1 reflector listeners"},
		{[]string{"--list-metrics", "text"}, daemon.ExitOK, "vigia_probe_quarantined_total{src,dst,path,tenant,probe,reason} counter"},
		{[]string{"once"}, daemon.ExitUsage, "required flag(s) '--to' not provided"},
		{[]string{"once", "--to", "127.0.0.1:1", "--count", "1", "--deadline", "100ms"}, daemon.ExitError, "no answer from 127.0.0.1:1: refused"},
		{[]string{"once", "--to", "127.0.0.1", "--size", "45"}, daemon.ExitUsage, "write 48"},
	} {
		var out bytes.Buffer
		if code := Program().Run(t.Context(), tc.args, &out, &out); code != tc.code || !strings.Contains(out.String(), tc.want) {
			t.Errorf("%v: exit %d, want %d\n%s", tc.args, code, tc.code, out.String())
		}
	}
}
