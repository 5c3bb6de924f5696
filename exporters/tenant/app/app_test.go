package app

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"vigia/internal/netns"
	"vigia/internal/testutil"
)

// rig is a node with one tenant on a veth port, and the exporter running on it.
type rig struct {
	t            *testing.T
	node, tenant string
	dir          string
	config       string
	pins         string
	daemon       *testutil.Daemon
}

const (
	nodeIP = "10.7.0.1"
	vmIP   = "10.7.0.2"
)

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	return Program().Run(ctx, args, stdout, stderr)
}

func newRig(t *testing.T, extra string) *rig {
	t.Helper()
	r := &rig{t: t, node: testutil.NewNetNS(t), tenant: testutil.NewNetNS(t), dir: t.TempDir()}
	testutil.DisableIPv6(t, r.node)
	testutil.DisableIPv6(t, r.tenant)
	testutil.NewVethPair(t, r.node, "tap0", r.tenant, "eth0")
	testutil.IP(t, "-n", r.node, "addr", "add", nodeIP+"/24", "dev", "tap0")
	testutil.IP(t, "-n", r.tenant, "addr", "add", vmIP+"/24", "dev", "eth0")
	testutil.WaitFor(t, "the path", func() bool { return answers(t, r.tenant, nodeIP) })
	r.write("ports.yaml", "version: 1\nports:\n  - {device: tap0, port: p1, tenant: red, network: net1, workload: vm1}\n")
	r.pins = testutil.NewBPFFS(t)
	r.config = r.write("exporter.yaml", fmt.Sprintf(`node: n1
netns: %s
ports_file: %s
bpf: {pin_dir: %s, max_ports: 8}
tenants: [{id: red, name: Red Team}]
%s`, r.node, filepath.Join(r.dir, "ports.yaml"), r.pins, extra))
	return r
}

func (r *rig) write(name, content string) string {
	r.t.Helper()
	path := filepath.Join(r.dir, name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		r.t.Fatal(err)
	}
	return path
}

// start runs the exporter with all that it can show.
func (r *rig) start() *testutil.Daemon {
	r.t.Helper()
	r.daemon = testutil.StartDaemon(r.t, run, "--config", r.config, "--tier=detail")
	testutil.WaitFor(r.t, "the program to be attached", func() bool {
		if _, ok := r.daemon.Metrics()[`vigia_port_created_timestamp_seconds{port="p1",tenant="red"}`]; !ok {
			return false
		}
		return attached(r.daemon)
	})
	return r.daemon
}

// attached tells whether all ports have their programs. What these count is exported a moment earlier.
func attached(d *testutil.Daemon) bool {
	code, page := d.Get("/debug/ports")
	return code == 200 && !strings.Contains(page, beingAttached)
}

// udp sends n datagrams of size bytes from the tenant, datagram i to port(i).
func (r *rig) udp(n, size int, port func(i int) int) {
	r.t.Helper()
	var conn net.PacketConn
	err := netns.Do(r.tenant, func() (err error) {
		conn, err = net.ListenPacket("udp4", vmIP+":0")
		return err
	})
	if err != nil {
		r.t.Fatal(err)
	}
	defer conn.Close()
	payload := make([]byte, size)
	lost := testutil.SendDrops(r.t, r.tenant, "eth0")
	for i := 0; i < n; i++ {
		if _, err := conn.WriteTo(payload, &net.UDPAddr{IP: net.ParseIP(nodeIP), Port: port(i)}); err != nil {
			r.t.Fatal(err)
		}
		if i == n-1 { // what the backlog of a busy processor had no room for never came to the port
			now := testutil.SendDrops(r.t, r.tenant, "eth0")
			i, lost = i-min(now-lost, n), now
		}
	}
}

func series(name, labels string) string { return name + "{" + labels + "}" }

func TestCountersAreExact(t *testing.T) {
	r := newRig(t, "")
	d := r.start()
	before := d.Metrics()
	r.udp(100, 200, func(int) int { return 9 })
	testutil.Run(t, "ip", "netns", "exec", r.tenant, "ping", "-c5", "-i0.2", "-W5", "-s100", nodeIP)
	after := d.Metrics()
	grew := func(s string) float64 {
		t.Helper()
		if _, ok := after[s]; !ok {
			t.Errorf("no series %s", s)
		}
		return after[s] - before[s]
	}
	const frame = 14 + 20 + 8
	for _, tc := range []struct {
		series string
		want   float64
	}{
		{series("vigia_tenant_protocol_packets_total", `direction="from_tenant",protocol="udp",tenant="red"`), 100},
		{series("vigia_tenant_protocol_bytes_total", `direction="from_tenant",protocol="udp",tenant="red"`), 100 * (200 + frame)},
		{series("vigia_tenant_protocol_packets_total", `direction="from_tenant",protocol="icmp",tenant="red"`), 5},
		{series("vigia_tenant_protocol_bytes_total", `direction="to_tenant",protocol="udp",tenant="red"`), 0},
	} {
		if got := grew(tc.series); got != tc.want {
			t.Errorf("%s grew by %v, want %v", tc.series, got, tc.want)
		}
	}
	// The node answers echo requests, and closed UDP ports by ICMP (rate limited).
	if got := grew(series("vigia_tenant_protocol_packets_total", `direction="to_tenant",protocol="icmp",tenant="red"`)); got < 5 {
		t.Errorf("%v ICMP packets to the tenant, want 5 replies or more", got)
	}
	// The device's own counters see the same traffic, and more (ARP, IPv6).
	if got := grew(series("vigia_port_packets_total", `direction="from_tenant",port="p1",tenant="red"`)); got < 105 {
		t.Errorf("the port carried %v packets from the tenant, want at least 105", got)
	}
	for _, want := range []string{
		`vigia_port_up{port="p1",tenant="red"}`,
		`vigia_tenant_info{tenant="red",tenant_name="Red Team"}`,
		`vigia_exporter_collector_success{collector="bpf"}`,
		`vigia_exporter_collector_success{collector="netdev"}`,
		`vigia_exporter_collector_success{collector="file"}`,
		`vigia_exporter_ports{state="resolved"}`,
	} {
		if after[want] != 1 {
			t.Errorf("%s is %v, want 1", want, after[want])
		}
	}
	created := after[`vigia_port_created_timestamp_seconds{port="p1",tenant="red"}`]
	if now := float64(time.Now().Unix()); created < now-600 || created > now+1 {
		t.Errorf("created at %v, now is %v", created, now)
	}
}

func TestFloodIsSignalled(t *testing.T) {
	r := newRig(t, "")
	d := r.start()
	score := series("vigia_port_flood_score", `port="p1",tenant="red"`)
	detected := series("vigia_port_flood_detected_timestamp_seconds", `port="p1",tenant="red"`)
	if m := d.Metrics(); m[score] >= 70 {
		t.Fatalf("score %v before the flood", m[score])
	} else if _, ok := m[detected]; ok {
		t.Fatal("a flood was detected before there was one")
	}
	start := float64(time.Now().UnixMicro()) / 1e6
	testutil.WaitFor(t, "the flood to be signalled", func() bool {
		r.udp(3000, 100, func(i int) int { return 1024 + i*17%60000 })
		m := d.Metrics()
		return m[score] >= 70 && m[series("vigia_port_udp_destination_ports", `port="p1",tenant="red"`)] >= 100
	})
	m := d.Metrics()
	at := m[detected]
	if at < start || at > float64(time.Now().UnixMicro())/1e6 {
		t.Errorf("detected at %f, started at %f", at, start)
	}
	if again := d.Metrics()[detected]; again != at {
		t.Errorf("the instant of detection moved from %f to %f", at, again)
	}
	testutil.WaitFor(t, "the score to fall", func() bool { return d.Metrics()[score] == 0 })
}

func TestPortsComeAndGoWithoutTakingTotalsAlong(t *testing.T) {
	r := newRig(t, "limits: {gone: 0s}\n")
	d := r.start()
	r.udp(50, 100, func(int) int { return 9 })
	total := series("vigia_tenant_protocol_packets_total", `direction="from_tenant",protocol="udp",tenant="red"`)
	before := 0.0
	testutil.WaitFor(t, "all packets to be counted", func() bool { before = d.Metrics()[total]; return before >= 50 })
	testutil.IP(t, "-n", r.node, "link", "del", "tap0")
	up := `vigia_port_up{port="p1",tenant="red"}`
	testutil.WaitFor(t, "the port to go", func() bool { _, ok := d.Metrics()[up]; return !ok })
	if after := d.Metrics()[total]; after != before {
		t.Errorf("the tenant's total went from %v to %v with its port", before, after)
	}
	testutil.NewVethPair(t, r.node, "tap0", r.tenant, "eth0")
	testutil.WaitFor(t, "the port to come back", func() bool { return d.Metrics()[up] == 1 })
}

func TestFailingSourceIsMissingSeriesNotZeros(t *testing.T) {
	r := newRig(t, "")
	d := r.start()
	if err := os.WriteFile(filepath.Join(r.dir, "ports.yaml"), []byte("version: 2\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	failed := `vigia_exporter_collector_success{collector="file"}`
	testutil.WaitFor(t, "the failure to show", func() bool { v, ok := d.Metrics()[failed]; return ok && v == 0 })
	if _, ok := d.Metrics()[`vigia_port_up{port="p1",tenant="red"}`]; !ok {
		t.Error("the last good identity was thrown away")
	}
	if code, body := d.Get("/-/ready"); code != 503 || !strings.Contains(body, "file:") {
		t.Errorf("ready answers %d %q", code, body)
	}
}

func TestDebugPortsSaysWhatIsWrong(t *testing.T) {
	r := newRig(t, "")
	server := testutil.NewOVSDBServer(t)
	server.VSCtl("add-br", "br-int", "--", "add-port", "br-int", "tap0", "--", "set", "interface", "tap0", "external_ids:iface-id=abc")
	r.config = r.write("exporter.yaml", fmt.Sprintf("node: n1\nnetns: %s\novsdb: unix:%s\nbpf: {pin_dir: %s, max_ports: 8}\n",
		r.node, server.Socket, testutil.NewBPFFS(t)))
	d := testutil.StartDaemon(t, run, "--config", r.config)
	var got struct {
		Ports []struct {
			ID, Tenant, Bridge, DataPlane, Hook, Problem string
		}
		Sources map[string]string
	}
	testutil.WaitFor(t, "the port", func() bool {
		_, body := d.Get("/debug/ports")
		if err := json.Unmarshal([]byte(body), &got); err != nil {
			t.Fatalf("%v in %s", err, body)
		}
		return len(got.Ports) == 1
	})
	p := got.Ports[0]
	if p.ID != "abc" || p.Tenant != "_unresolved" || p.Bridge != "br-int" || p.Hook != "tcx" || !strings.Contains(p.Problem, "external_ids:vigia-tenant") {
		t.Errorf("got %+v", p)
	}
	if got.Sources["ovsdb"] != "works" {
		t.Errorf("sources %v", got.Sources)
	}
	if m := d.Metrics(); m[`vigia_exporter_ports{state="unresolved"}`] != 1 {
		t.Error("the unresolved port is not counted")
	}
}

func TestReloadKeepsCounters(t *testing.T) {
	r := newRig(t, "")
	d := r.start()
	r.udp(20, 100, func(int) int { return 9 })
	total := series("vigia_tenant_protocol_packets_total", `direction="from_tenant",protocol="udp",tenant="red"`)
	before := d.Metrics()[total]
	content, err := os.ReadFile(r.config)
	if err != nil {
		t.Fatal(err)
	}
	r.write("exporter.yaml", strings.Replace(string(content), "Red Team", "Crimson", 1))
	if code, body := d.Do("POST", "/-/reload", "", ""); code != 200 {
		t.Fatalf("reload: %d %s", code, body)
	}
	m := d.Metrics()
	if m[`vigia_tenant_info{tenant="red",tenant_name="Crimson"}`] != 1 || m[total] < before {
		t.Errorf("after the reload the total is %v, was %v", m[total], before)
	}
	r.write("exporter.yaml", strings.Replace(string(content), "node: n1", "node: n2", 1))
	if code, body := d.Do("POST", "/-/reload", "", ""); code != 500 || !strings.Contains(body, "restart") {
		t.Errorf("a change of node: %d %s", code, body)
	}
}

func TestRestartKeepsThePrograms(t *testing.T) {
	r := newRig(t, "")
	d := r.start()
	created := `vigia_port_created_timestamp_seconds{port="p1",tenant="red"}`
	before := d.Metrics()[created]
	if code := d.Stop(); code != 0 {
		t.Fatalf("exit code %d\n%s", code, d.Stderr)
	}
	r.udp(30, 100, func(int) int { return 9 }) // nobody is looking
	d = r.start()
	m := d.Metrics()
	if got := m[series("vigia_tenant_protocol_packets_total", `direction="from_tenant",protocol="udp",tenant="red"`)]; got < 30 {
		t.Errorf("%v packets counted over the restart, want at least 30", got)
	}
	if after := m[created]; after < before-0.1 || after > before+0.1 {
		t.Errorf("the counters' start moved from %f to %f", before, after)
	}
}

func TestBadConfigurationIsRefusedOnOneLineEach(t *testing.T) {
	dir := t.TempDir()
	ports := filepath.Join(dir, "ports.yaml")
	if err := os.WriteFile(ports, []byte("version: 1\nports: []\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	good := "node: n1\nports_file: " + ports + "\nbpf: {pin_dir: /sys/fs/bpf/x}\n"
	for _, tc := range []struct{ name, content, want string }{
		{"unknown key", good + "prots_file: x\n", `unknown key "prots_file"; known here: bpf, cni_results_dir, flood, kubelet_socket, libvirt_dir, limits, netns, node, openflow, ovn_southbound, ovn_tls, ovs_rundir, ovsdb, ports_file, tenants, tenants_file`},
		{"no node", strings.Replace(good, "n1", "''", 1), "node: \"\": is not a node name"},
		{"no source", "node: n1\nbpf: {pin_dir: /x}\n", "ports_file: is missing and so are ovsdb, libvirt_dir and cni_results_dir"},
		{"relative pin directory", strings.Replace(good, "/sys/fs/bpf/x", "pins", 1), `:3: bpf.pin_dir: "pins": is not an absolute path`},
		{"too many ports", strings.Replace(good, "x}", "x, max_ports: 100000}", 1), "bpf.max_ports"},
		{"tenant twice", good + "tenants:\n  - {id: a, name: A}\n  - {id: a, name: B}\n", ":6: tenants[1].id: \"a\": is empty or listed twice"},
		{"nameless tenant", good + "tenants: [{id: a}]\n", "tenants[0].name"},
		{"flood packets", good + "flood: {packets: 0}\n", "flood.packets"},
		{"flood ports", good + "flood: {ports: 2000}\n", "flood.ports: \"2000\": is out of range; write 1 to 1000"},
		{"flood replies", good + "flood: {max_reply_percent: 101}\n", "flood.max_reply_percent"},
		{"flood quiet", good + "flood: {quiet: 1h}\n", "flood.quiet"},
		{"series", good + "limits: {series: 5}\n", "limits.series: \"5\": is out of range; write 100 to 1000000"},
		{"rundir", good + "ovs_rundir: run\n", "ovs_rundir: \"run\": is not an absolute path"},
		{"openflow interval", good + "openflow: {every: 1s}\n", "openflow.every"},
		{"cookie", good + "openflow:\n  cookies: [{bridge: br, cookie: x, tenant: red}]\n", "openflow.cookies[0].cookie: \"x\": is not a cookie; write a number such as 20 or 0x14"},
		{"cookie's bridge", good + "openflow:\n  cookies: [{bridge: ../x, cookie: 1, tenant: red}]\n", "openflow.cookies[0].bridge"},
		{"cookie's tenant", good + "openflow:\n  cookies: [{bridge: br, cookie: 1}]\n", "openflow.cookies[0].tenant"},
		{"cookie twice", good + "openflow:\n  cookies: [{bridge: br, cookie: 20, tenant: a}, {bridge: br, cookie: 0x14, tenant: b}]\n", "is listed twice"},
		{"gone", good + "limits: {gone: 2h}\n", "limits.gone"},
		{"negative", good + "flood: {packets: -1}\n", "a number is wanted here"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			path := filepath.Join(dir, "c.yaml")
			if err := os.WriteFile(path, []byte(tc.content), 0o600); err != nil {
				t.Fatal(err)
			}
			var stderr strings.Builder
			code := run(t.Context(), []string{"check-config", "--config", path}, io.Discard, &stderr)
			if code != 1 || !strings.Contains(stderr.String(), tc.want) || strings.Count(stderr.String(), "\n") != 1 {
				t.Errorf("exit %d, %q; want %q", code, stderr.String(), tc.want)
			}
		})
	}
	path := filepath.Join(dir, "c.yaml")
	if err := os.WriteFile(path, []byte(good), 0o600); err != nil {
		t.Fatal(err)
	}
	var stdout strings.Builder
	if code := run(t.Context(), []string{"check-config", "--config", path}, &stdout, io.Discard); code != 0 || !strings.Contains(stdout.String(), "OK, node n1") {
		t.Errorf("good configuration: exit %d, %q", code, stdout.String())
	}
}

func TestStartErrorsLeaveNothing(t *testing.T) {
	r := newRig(t, "")
	content, err := os.ReadFile(r.config)
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct{ old, new, want string }{
		"absent namespace": {"netns: " + r.node, "netns: vigia-test-absent", `network namespace "vigia-test-absent" does not exist`},
		"no bpffs":         {"pin_dir: ", "pin_dir: /tmp", "is not on a bpffs; run: mount -t bpf"},
	} {
		t.Run(name, func(t *testing.T) {
			path := r.write("bad.yaml", strings.Replace(string(content), tc.old, tc.new, 1))
			var stderr strings.Builder
			code := run(t.Context(), []string{"--config", path, "--web.listen-address", testutil.FreeAddress(t), "--log.level", "error"}, io.Discard, &stderr)
			if code != 1 || !strings.Contains(stderr.String(), tc.want) {
				t.Errorf("exit %d, %q; want %q", code, stderr.String(), tc.want)
			}
		})
	}
}

func TestTiersAndFlagsSwitchCollectors(t *testing.T) {
	r := newRig(t, "")
	for _, tc := range []struct {
		args []string
		on   []string
		off  []string
	}{
		{[]string{"--tier=ports"}, []string{"netdev", "identity"}, []string{"bpf"}},
		{[]string{"--tier=ports", "--collector.bpf"}, []string{"netdev", "bpf"}, nil},
		{[]string{"--no-collector.netdev"}, []string{"bpf"}, []string{"netdev", "openflow"}},
	} {
		d := testutil.StartDaemon(t, run, append([]string{"--config", r.config}, tc.args...)...)
		m := d.Metrics()
		for _, name := range tc.on {
			if _, ok := m[fmt.Sprintf("vigia_exporter_collector_duration_seconds{collector=%q}", name)]; !ok {
				t.Errorf("%v: collector %s does not run", tc.args, name)
			}
		}
		for _, name := range tc.off {
			if _, ok := m[fmt.Sprintf("vigia_exporter_collector_success{collector=%q}", name)]; ok {
				t.Errorf("%v: collector %s runs", tc.args, name)
			}
		}
		if code, body := d.Get("/metrics?collect[]=nosuch"); code != 400 || !strings.Contains(body, "identity") {
			t.Errorf("collect[]=nosuch: %d %s", code, body)
		}
		d.Stop()
	}
	var stderr strings.Builder
	code := run(t.Context(), []string{"--config", r.config, "--collector.openflow", "--web.listen-address", testutil.FreeAddress(t)}, io.Discard, &stderr)
	if code != 1 || !strings.Contains(stderr.String(), "--collector.openflow needs Open vSwitch") {
		t.Errorf("openflow without Open vSwitch: exit %d, %q", code, stderr.String())
	}
}

// TestQuietPortHasFewSeries: bytes and packets each way, and who it is; of its tenant the
// protocols that occurred, which begin with zeros.
func TestQuietPortHasFewSeries(t *testing.T) {
	r := newRig(t, "")
	d := testutil.StartDaemon(t, run, "--config", r.config)
	programmed := func() bool {
		return d.Metrics()[`vigia_exporter_collector_success{collector="bpf"}`] == 1 && attached(d)
	}
	testutil.WaitFor(t, "the program to be attached", programmed)
	count := func(label string) (n int, families map[string]bool) {
		families = make(map[string]bool)
		for series := range d.Metrics() {
			if strings.Contains(series, label) {
				n++
				families[series[:strings.IndexByte(series, '{')]] = true
			}
		}
		return n, families
	}
	if n, families := count(`port="p1"`); n != 5 || !families["vigia_port_info"] || !families["vigia_port_bytes_total"] || !families["vigia_port_packets_total"] {
		t.Errorf("a quiet port has %d series of %v, want 5", n, families)
	}
	udp := series("vigia_tenant_protocol_bytes_total", `direction="from_tenant",protocol="udp",tenant="red"`)
	if v, ok := d.Metrics()[udp]; ok {
		t.Fatalf("a tenant that sent no UDP has %v bytes of it", v)
	}
	r.udp(10, 200, func(int) int { return 9 })
	for scrape, want := range []float64{0, 0, 10 * (200 + 42)} {
		if v, ok := d.Metrics()[udp]; !ok || v != want {
			t.Errorf("scrape %d shows %v bytes of UDP, %v; want %v", scrape, v, ok, want)
		}
	}
	if _, families := count(`tenant="red"`); families["vigia_tenant_protocol_packets_total"] || families["vigia_port_flood_score"] || families["vigia_port_up"] {
		t.Errorf("of a tenant at rest there are %v", families)
	}
}

func TestPromtoolHasNothingToSay(t *testing.T) {
	r := newRig(t, "")
	server := testutil.NewVSwitch(t, r.node)
	server.Set("add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=netdev")
	content, err := os.ReadFile(r.config)
	if err != nil {
		t.Fatal(err)
	}
	r.write("exporter.yaml", string(content)+"ovsdb: unix:"+server.Socket+"\n")
	d := testutil.StartDaemon(t, run, "--config", r.config, "--tier=detail")
	r.udp(100, 200, func(int) int { return 9 })
	testutil.WaitFor(t, "the switch to be read", func() bool {
		m := d.Metrics()
		return m[`vigia_exporter_collector_success{collector="ovs"}`] == 1 && m[`vigia_exporter_collector_success{collector="openflow"}`] == 1 &&
			m[`vigia_exporter_collector_success{collector="conntrack"}`] == 1 && m[`vigia_exporter_collector_success{collector="bpf"}`] == 1
	})
	_, page := d.Get("/metrics")
	cmd := exec.Command("promtool", "check", "metrics")
	cmd.Stdin = strings.NewReader(page)
	if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("%v:\n%s", err, out)
	}
	for series, v := range d.Metrics() {
		if strings.HasPrefix(series, "vigia_exporter_collector_success") && v != 1 {
			t.Errorf("%s is %v\n%s", series, v, d.Stderr)
		}
	}
}
