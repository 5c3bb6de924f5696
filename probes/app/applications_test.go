package app

import (
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/net/dns/dnsmessage"

	"vigia/internal/testutil"
)

// nameServer answers every question with one address until the end of the test.
func nameServer(t *testing.T) string {
	t.Helper()
	c, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	go func() {
		b := make([]byte, 512)
		for {
			n, from, err := c.ReadFrom(b)
			if err != nil {
				return
			}
			var m dnsmessage.Message
			if m.Unpack(b[:n]) != nil {
				continue
			}
			header := dnsmessage.ResourceHeader{Name: m.Questions[0].Name, Class: dnsmessage.ClassINET, TTL: 5}
			m.Response, m.Answers = true, []dnsmessage.Resource{{Header: header, Body: &dnsmessage.AResource{A: [4]byte{192, 0, 2, 1}}}}
			if answer, err := m.Pack(); err == nil {
				_, _ = c.WriteTo(answer, from)
			}
		}
	}()
	return c.LocalAddr().String()
}

// TestApplicationsAreProbed runs a daemon that asks a web server and a name server, and, by a second
// address that discovery knows of it, its own reflector at the same moment as by the first. Both servers have
// twins, too.
func TestApplicationsAreProbed(t *testing.T) {
	t.Parallel()
	web := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/healthz" {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	defer web.Close()
	dir := t.TempDir()
	ca, nodes := filepath.Join(dir, "ca.crt"), filepath.Join(dir, "nodes.json")
	reflector := testutil.FreePort(t, "udp", "127.0.0.1").Port()
	for file, text := range map[string]string{
		ca:    string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: web.Certificate().Raw})),
		nodes: fmt.Sprintf(`[{"targets": ["127.0.0.1"], "labels": {"node": "a", "at_again": "127.0.0.1:%d"}}, {"targets": ["127.0.0.9"], "labels": {"node": "b"}}]`, reflector),
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	a := start(t, fmt.Sprintf(`node: a
reflector: {listeners: [{address: "127.0.0.1:%[1]d"}], allow: [127.0.0.0/8]}
paths:
  - {name: direct, dataplane: none, encap: none, mode: normal, security: none, layer: underlay, placement: local}
  - {name: again, dataplane: auto, encap: auto, mode: normal, security: none, layer: overlay, placement: local, found_by: [%[2]s]}
classes:
  - {name: stamp-84, protocol: stamp, size: 84, interval: 50ms}
  - {name: healthz, protocol: http, interval: 100ms, options: {scheme: https, path: /healthz, tls_ca_file: %[3]s}}
  - {name: readyz, protocol: http, interval: 100ms, options: {scheme: https, path: /readyz, tls_ca_file: %[3]s}}
  - {name: dns, protocol: dns, interval: 100ms, options: {query_name: www.example.net, fail_if_not_matches_regexp: ["192.0.2.1$"]}}
targets:
  - {dst: web, path: direct, tenant: _infra, probe: healthz, address: "%[4]s"}
  - {dst: web, path: direct, tenant: _infra, probe: readyz, address: "%[4]s"}
  - {dst: names, path: direct, tenant: _infra, probe: dns, address: "%[5]s"}
  - {dst: web, path: again, tenant: _infra, probe: healthz, address: "%[4]s", twin: direct}
  - {dst: names, path: again, tenant: _infra, probe: dns, address: "%[5]s", twin: direct}
discovery:
  - files: [%[2]s]
    own: true
    targets:
      - {path: direct, tenant: _infra, probe: stamp-84, port: %[1]d}
      - {path: again, tenant: _infra, probe: stamp-84, at: again, twin: direct}
`, reflector, nodes, ca, web.Listener.Addr(), nameServer(t)))
	for what, series := range map[string][]string{
		"pages":         {"vigia_probe_received_total", "path", "direct", "probe", "healthz"},
		"twins' pages":  {"vigia_probe_overlay_tax_seconds", "path", "again", "probe", "healthz"},
		"twins' names":  {"vigia_probe_overlay_tax_seconds", "path", "again", "probe", "dns"},
		"failures":      {"vigia_probe_http_failed_total", "probe", "readyz", "failure", "status"},
		"names":         {"vigia_probe_received_total", "path", "direct", "probe", "dns"},
		"our own twins": {"vigia_probe_mesh_overlay_tax_seconds", "path", "again"},
		"lost failures": {"vigia_probe_lost_total", "probe", "readyz", "cause", "unknown"},
	} {
		a.waitFor(what, func() bool {
			v, ok := a.scrape().value(series[0], series[1:]...)
			return ok && v >= 3
		})
	}
	s := a.scrape()
	for series, want := range map[[3]string]float64{
		{"vigia_probe_http_status_code", "probe", "healthz"}:                          200,
		{"vigia_probe_http_status_code", "probe", "readyz"}:                           503,
		{"vigia_probe_http_certificate_expiry_timestamp_seconds", "probe", "healthz"}: float64(web.Certificate().NotAfter.Unix()),
		{"vigia_probe_dns_answer_records", "probe", "dns"}:                            1,
		{"vigia_probe_received_total", "probe", "readyz"}:                             0,
		{"vigia_probe_http_status_code", "path", "again"}:                             200,
	} {
		if got := s.must(t, series[0], series[1:]...); got != want {
			t.Errorf("%v: %v, want %v", series, got, want)
		}
	}
	for _, phase := range []string{"connect", "tls", "processing", "transfer"} {
		if v := s.must(t, "vigia_probe_http_phase_seconds_total", "probe", "healthz", "phase", phase); v <= 0 {
			t.Errorf("phase %s took %v s", phase, v)
		}
	}
	if v := s.must(t, "vigia_probe_dns_phase_seconds_total", "phase", "request"); v <= 0 {
		t.Errorf("questions took %v s", v)
	}
	if v := s.must(t, "vigia_probe_dns_failed_total", "failure", "rcode"); v != 0 {
		t.Errorf("%v questions were refused", v)
	}
	// The route to ourselves leads through lo, and so does that to the other: nothing wraps it.
	if v := s.must(t, "vigia_path_info", "path", "again", "dataplane", "routed", "encap", "none"); v != 1 {
		t.Errorf("the path that was to be found: %v", v)
	}
}
