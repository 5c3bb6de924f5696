package app

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"vigia/internal/bpf/vport"
	"vigia/internal/testutil"
)

const udpTotal = `vigia_tenant_protocol_packets_total{direction="from_tenant",protocol="udp",tenant="red"}`

// TestRestartsLoseNothing kills every process in turn while traffic flows: sums only
// grow, and in the end they are what was sent.
func TestRestartsLoseNothing(t *testing.T) {
	r := &rig{t: t, node: testutil.NewNetNS(t), tenant: testutil.NewNetNS(t), dir: t.TempDir()}
	for _, ns := range []string{r.node, r.tenant} {
		testutil.DisableIPv6(t, ns)
	}
	testutil.NewVethPair(t, r.node, "tap0", r.tenant, "eth0")
	testutil.IP(t, "-n", r.tenant, "addr", "add", vmIP+"/24", "dev", "eth0")
	testutil.IP(t, "-n", r.tenant, "neigh", "add", nodeIP, "lladdr", "02:00:00:00:00:99", "dev", "eth0")
	s := testutil.NewVSwitch(t, r.node)
	s.Set("add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=netdev", "fail_mode=secure", "--", "add-port", "br0", "tap0",
		"--", "set", "interface", "tap0", "external_ids:iface-id=p1", "external_ids:vigia-tenant=red")
	r.config = r.write("exporter.yaml", fmt.Sprintf("node: n1\nnetns: %s\novsdb: unix:%s\nopenflow: {every: 5s}\nbpf: {pin_dir: %s, max_ports: 8}\n", r.node, s.Socket, testutil.NewBPFFS(t)))
	d := r.start()
	sent, last := 0, d.Metrics()[udpTotal]
	start := last
	step := func(what string) {
		t.Helper()
		r.udp(50, 100, func(int) int { return 9 })
		sent += 50
		testutil.WaitFor(t, what+": all that was sent", func() bool {
			now := d.Metrics()[udpTotal]
			if now < last || now > start+float64(sent) {
				t.Fatalf("%s: the sum is %v, was %v, %d were sent", what, now, last, sent)
			}
			last = now
			return now == start+float64(sent)
		})
	}
	works := func(collector string) bool {
		return d.Metrics()[`vigia_exporter_collector_success{collector="`+collector+`"}`] == 1
	}
	// How soon, is what the intervals between tries say, which have tests of their own.
	recovery := func(what, collector string) {
		t.Helper()
		start := time.Now()
		testutil.WaitFor(t, what+" to be found again", func() bool { return works(collector) })
		t.Logf("%s was found again after %.2f s", what, time.Since(start).Seconds())
	}
	step("at first")
	s.Stop()
	testutil.WaitFor(t, "the failure to show", func() bool { return !works("ovsdb") })
	step("without ovsdb-server")
	s.Start()
	recovery("ovsdb-server", "ovsdb")
	step("with ovsdb-server again")
	s.StopSwitch()
	step("without ovs-vswitchd")
	testutil.WaitFor(t, "the failure to show", func() bool { return !works("openflow") && !works("ovs") })
	s.StartSwitch()
	recovery("ovs-vswitchd", "openflow")
	recovery("ovs-vswitchd's control socket", "ovs")
	step("with ovs-vswitchd again")
	d.Stop()
	r.udp(50, 100, func(int) int { return 9 }) // nobody is looking
	sent += 50
	d = r.start()
	step("after the exporter's restart")

	// The port goes while the exporter is away, and comes back.
	d.Stop()
	r.udp(50, 100, func(int) int { return 9 })
	sent += 50
	testutil.IP(t, "-n", r.node, "link", "del", "tap0")
	testutil.NewVethPair(t, r.node, "tap0", r.tenant, "eth0")
	testutil.IP(t, "-n", r.tenant, "addr", "add", vmIP+"/24", "dev", "eth0")
	testutil.IP(t, "-n", r.tenant, "neigh", "add", nodeIP, "lladdr", "02:00:00:00:00:99", "dev", "eth0")
	d = r.start()
	testutil.WaitFor(t, "the port's old life to be settled", func() bool { return d.Metrics()[udpTotal] == start+float64(sent) })
	last = start + float64(sent)
	step("after the port came back")
}

// TestAKilledExporterLosesNothing kills it with no chance to say anything, while
// traffic flows: what the kernel counted is there when it comes back.
func TestAKilledExporterLosesNothing(t *testing.T) {
	r := newRig(t, "")
	sent, last := 0.0, 0.0
	send := func() { r.udp(50, 100, func(int) int { return 9 }); sent += 50 }
	for round := range 3 {
		address, start := testutil.FreeAddress(t), time.Now()
		p := startProcess(t, os.Args[0], "--config", r.config, "--tier=detail", "--web.listen-address", address)
		complete := func() bool {
			page := read("http://" + address + "/metrics")
			n, counted := sample(page, udpTotal)
			if counted && n < last {
				t.Errorf("round %d: the sum fell from %v to %v", round, last, n)
			}
			last = max(last, n)
			_, attached := sample(page, `vigia_port_created_timestamp_seconds{port="p1",tenant="red"}`)
			return attached && n == sent && !strings.Contains(read("http://"+address+"/debug/ports"), beingAttached)
		}
		testutil.WaitFor(t, fmt.Sprintf("all %v of round %d\n%s", sent, round, p.stderr), complete)
		t.Logf("round %d: everything was there %.2f s after the start", round, time.Since(start).Seconds())
		send()
		testutil.WaitFor(t, "what was sent", complete)
		p.kill()
		send() // nobody is looking
	}
}

// read returns a page, empty while nobody answers.
func read(url string) string {
	resp, err := http.Get(url)
	if err != nil {
		return ""
	}
	defer resp.Body.Close()
	page, err := io.ReadAll(resp.Body)
	if err != nil {
		return ""
	}
	return string(page)
}

// sample returns the value of a series, its labels sorted, on a page.
func sample(page, series string) (float64, bool) {
	for line := range strings.SplitSeq(page, "\n") {
		i := strings.LastIndexByte(line, ' ')
		if i < 0 || line[0] == '#' || testutil.SortLabels(line[:i]) != series {
			continue
		}
		n, err := strconv.ParseFloat(line[i+1:], 64)
		return n, err == nil
	}
	return 0, false
}

// TestPacketSocketDropsAreTheSwitchsLoss stops ovs-vswitchd for a moment: its
// receive buffer overflows, and ss shows the same count.
func TestPacketSocketDropsAreTheSwitchsLoss(t *testing.T) {
	r := &rig{t: t, node: testutil.NewNetNS(t), tenant: testutil.NewNetNS(t), dir: t.TempDir()}
	for _, ns := range []string{r.node, r.tenant} {
		testutil.DisableIPv6(t, ns)
	}
	testutil.NewVethPair(t, r.node, "tap0", r.tenant, "eth0")
	testutil.IP(t, "-n", r.tenant, "addr", "add", vmIP+"/24", "dev", "eth0")
	testutil.IP(t, "-n", r.tenant, "neigh", "add", nodeIP, "lladdr", "02:00:00:00:00:99", "dev", "eth0")
	s := testutil.NewVSwitch(t, r.node)
	s.Set("add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=netdev", "fail_mode=secure", "--", "add-port", "br0", "tap0",
		"--", "set", "interface", "tap0", "external_ids:iface-id=p1", "external_ids:vigia-tenant=red")
	r.config = r.write("exporter.yaml", fmt.Sprintf("node: n1\nnetns: %s\novsdb: unix:%s\nbpf: {pin_dir: %s, max_ports: 8}\n", r.node, s.Socket, testutil.NewBPFFS(t)))
	d := r.start()
	r.udp(100, 100, func(int) int { return 9 })
	lost := `vigia_port_drops_total{direction="from_tenant",port="p1",reason="queue_full",tenant="red"}`
	if got := d.Metrics()[lost]; got != 0 {
		t.Fatalf("%v drops while the switch keeps up", got)
	}
	// What the kernel does with its own copy, OTHERHOST here, is no loss.
	for series := range d.Metrics() {
		if strings.HasPrefix(series, "vigia_port_drops_total") && strings.Contains(series, "mac_vlan_filter") {
			t.Errorf("%s: every packet that was switched is called lost", series)
		}
	}
	s.SignalSwitch(syscall.SIGSTOP)
	r.udp(3000, 1400, func(int) int { return 9 })
	testutil.WaitFor(t, "the loss to show", func() bool { return d.Metrics()[lost] > 0 })
	got := d.Metrics()[lost]
	s.SignalSwitch(syscall.SIGCONT)
	if want := ssDrops(t, r.node, "tap0"); got != want || want < 100 {
		t.Errorf("%v drops, ss shows %v", got, want)
	}
}

// ssDrops returns the drops that ss shows for the packet socket at a device.
func ssDrops(t *testing.T, ns, device string) (sum float64) {
	t.Helper()
	found := false
	for line := range strings.SplitSeq(testutil.Run(t, "ip", "netns", "exec", ns, "ss", "-0", "-a", "-m", "-n"), "\n") {
		if strings.HasPrefix(strings.TrimSpace(line), "p_") {
			found = strings.Contains(line, ":"+device)
		}
		_, after, ok := strings.Cut(line, ",d")
		if !found || !ok {
			continue
		}
		var n float64
		if _, err := fmt.Sscanf(after, "%f", &n); err != nil {
			t.Fatal(err)
		}
		sum += n
	}
	return sum
}

// TestPortsPluggedAgainAndAgainLeakNothing counts what could be left behind, after a
// thousand times in the long tests.
func TestPortsPluggedAgainAndAgainLeakNothing(t *testing.T) {
	times := 1000
	if testing.Short() {
		times = 100
	}
	r := newRig(t, "")
	d := r.start()
	kernel, err := vport.Open(vport.Options{PinDir: r.pins, NetNS: r.node, MaxPorts: 8})
	if err != nil {
		t.Fatal(err)
	}
	defer kernel.Close()
	// entries are what the maps hold of ports: their places, owners and last words.
	entries := func() int {
		places, err := kernel.Places()
		if err != nil {
			t.Fatal(err)
		}
		owners, err := kernel.TenantTotals().Owners()
		if err != nil {
			t.Fatal(err)
		}
		return len(places) + len(owners)
	}
	held := func() (descriptors, pins, series int) {
		fds, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		err = filepath.WalkDir(r.pins, func(string, os.DirEntry, error) error { pins++; return nil })
		if err != nil {
			t.Fatal(err)
		}
		_, body := d.Get("/metrics")
		return len(fds), pins, strings.Count(body, `port="p1"`)
	}
	r.udp(10, 100, func(int) int { return 9 })
	d.Metrics()
	descriptors, pins, lines := held()
	goroutines := runtime.NumGoroutine()
	const batch = 50
	for range times / batch {
		var script strings.Builder
		for range batch {
			fmt.Fprintf(&script, "link del tap0\nlink add tap0 type veth peer name eth0 netns %s\nlink set tap0 up\n", r.tenant)
		}
		cmd := exec.Command("ip", "-n", r.node, "-batch", "-")
		cmd.Stdin = strings.NewReader(script.String())
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		d.Metrics()
	}
	testutil.IP(t, "-n", r.tenant, "link", "set", "eth0", "up")
	testutil.WaitFor(t, "the last port, and nothing else", func() bool {
		f, p, l := held()
		return f <= descriptors+3 && p == pins && l >= lines-2 && l <= lines+2 && entries() == 2 && runtime.NumGoroutine() <= goroutines+5
	})
	if code := d.Stop(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// TestPromtoolFindsNothing lets Prometheus judge the page.
func TestPromtoolFindsNothing(t *testing.T) {
	r := newRig(t, "")
	d := r.start()
	r.udp(100, 100, func(int) int { return 9 })
	_, body := d.Get("/metrics")
	if !strings.Contains(body, `vigia_tenant_packet_size_bytes_bucket{tenant="red",direction="from_tenant",le="256"}`) {
		t.Error("the tier detail has no frame sizes")
	}
	var ours strings.Builder // go_* and process_* are client_golang's
	for line := range strings.Lines(body) {
		if strings.HasPrefix(line, "vigia_") || strings.HasPrefix(line, "# HELP vigia_") || strings.HasPrefix(line, "# TYPE vigia_") {
			ours.WriteString(line)
		}
	}
	cmd := exec.Command("promtool", "check", "metrics")
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	go func() { defer stdin.Close(); _, _ = io.WriteString(stdin, ours.String()) }()
	if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("%v\n%s", err, out)
	}
}
