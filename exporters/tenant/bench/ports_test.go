// Package bench measures vigia-exporter beside node_exporter on the same ports, in
// the same run: make bench-exporter.
package bench

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"vigia/internal/netns"
	"vigia/internal/testutil"
)

// So many rounds of so many scrapes: what else runs on the machine, or on the host of a
// virtual one, only ever adds, and comes and goes within seconds.
const rounds, scrapes = 5, 20

// In each round so many scrapes of the fast page, so far apart that each is made anew.
const fastScrapes, fastPause = 4, 600 * time.Millisecond

// The numbers of ports of a node: fewer show whether all works, budgets are for 1 000.
var (
	fewPorts  = flag.Int("few-ports", budgetPorts, "ports of the smaller nodes, a multiple of four")
	manyPorts = flag.Int("many-ports", 5000, "ports of the larger node, a multiple of four")
	// sizes are of BenchmarkSizes alone.
	sizes    = flag.String("sizes", "12,100,1000,5000", "ports of each node of BenchmarkSizes, multiples of four, with commas")
	jsonFile = flag.String("json", "", "file to which every comparison appends a line of JSON with all that was measured")
)

// BenchmarkPorts scrapes nodes with many ports. Its numbers are reported once:
// run it with -benchtime 1x.
func BenchmarkPorts(b *testing.B) {
	ctx := interruptible(b)
	bridge := func(ports int) {
		b.Run(fmt.Sprintf("bridge/%d", ports), func(b *testing.B) {
			n := newNode(ctx, b)
			devices := n.devices(ports)
			compare(b, n, devices, n.portsFile(append(devices, lateDevice)), nil)
		})
	}
	bridge(*fewPorts)
	b.Run(fmt.Sprintf("ovs/%d", *fewPorts), func(b *testing.B) {
		n := newNode(ctx, b)
		devices := n.devices(*fewPorts)
		s := n.vswitch(append(devices, lateDevice))
		compare(b, n, devices, "ovsdb: unix:"+s.Socket+"\n", map[string]int{"ovs-vswitchd": pidOf(b, filepath.Join(s.Dir, "ovs-vswitchd.pid")), "ovsdb-server": s.PID()})
	})
	bridge(*manyPorts) // last: the kernel is busy for a while with taking so many away
}

// BenchmarkSizes scrapes nodes with so many ports behind the kernel's bridge, one size
// after the other: how cost grows.
func BenchmarkSizes(b *testing.B) {
	ctx := interruptible(b)
	for _, size := range strings.Split(*sizes, ",") {
		ports, err := strconv.Atoi(size)
		if err != nil || ports < 4 || ports%4 != 0 {
			b.Fatalf("-sizes: %q is no multiple of four; write for example 12,100", size)
		}
		b.Run(size, func(b *testing.B) {
			n := newNode(ctx, b)
			devices := n.devices(ports)
			compare(b, n, devices, n.portsFile(append(devices, lateDevice)), nil)
		})
	}
}

// interruptible returns a context that ends at SIGINT or SIGTERM. The benchmark then
// fails at its next step, and when all that it made is gone, the process ends.
func interruptible(b *testing.B) context.Context {
	b.Helper()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	b.Cleanup(func() {
		if ctx.Err() != nil {
			os.Exit(exitInterrupted)
		}
		stop()
	})
	return ctx
}

const exitInterrupted = 130 // as a shell says it

// node is a namespace full of ports.
type node struct {
	ctx context.Context // see interruptible
	b   testing.TB
	ns  string
	dir string
}

func newNode(ctx context.Context, b testing.TB) *node {
	b.Helper()
	n := &node{ctx: ctx, b: b, dir: b.TempDir()}
	n.goOn()
	n.ns = testutil.NewNetNS(b)
	testutil.DisableIPv6(b, n.ns)
	return n
}

// goOn ends the benchmark if it was interrupted.
func (n *node) goOn() {
	n.b.Helper()
	if err := n.ctx.Err(); err != nil {
		n.b.Fatal("interrupted")
	}
}

// say tells whoever waits what is being done.
func (n *node) say(format string, args ...any) {
	n.goOn()
	fmt.Fprintf(os.Stderr, "%s %s: %s\n", time.Now().Format(time.TimeOnly), n.b.Name(), fmt.Sprintf(format, args...))
}

// devices makes ports, half of them taps and half veth, all up.
func (n *node) devices(count int) []string {
	n.b.Helper()
	n.say("making %d ports", count)
	var script bytes.Buffer
	var out []string
	for i := range count / 4 {
		a, c, t1, t2 := fmt.Sprintf("va%d", i), fmt.Sprintf("vb%d", i), fmt.Sprintf("ta%d", i), fmt.Sprintf("tb%d", i)
		fmt.Fprintf(&script, "link add %s type veth peer name %s\n", a, c)
		fmt.Fprintf(&script, "tuntap add dev %s mode tap\ntuntap add dev %s mode tap\n", t1, t2)
		out = append(out, a, c, t1, t2)
	}
	for _, d := range out {
		fmt.Fprintf(&script, "link set %s up\n", d)
	}
	path := filepath.Join(n.dir, "batch")
	if err := os.WriteFile(path, script.Bytes(), 0o600); err != nil {
		n.b.Fatal(err)
	}
	testutil.Run(n.b, "ip", "-n", n.ns, "-batch", path)
	return out
}

// vswitch starts Open vSwitch with the devices on a bridge of its userspace datapath.
func (n *node) vswitch(devices []string) *testutil.VSwitch {
	n.b.Helper()
	n.say("adding %d ports to a bridge of Open vSwitch", len(devices))
	s := testutil.NewVSwitch(n.b, n.ns)
	s.Set("add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=netdev", "fail_mode=secure")
	for chunk := range slices.Chunk(devices, 100) {
		n.goOn()
		var args []string
		for _, d := range chunk {
			args = append(args, "--", "add-port", "br0", d, "--", "set", "interface", d, "external_ids:iface-id="+portID(d), "external_ids:vigia-tenant="+tenant(d))
		}
		s.Set(args[1:]...)
	}
	return s
}

// lateDevice is the port that is plugged last.
const lateDevice = "va99999"

func portID(device string) string { return fmt.Sprintf("6d5a5c3e-9b7e-4e0a-9d2b-%012s", device) }

// tenant spreads the ports over a hundred tenants.
func tenant(device string) string {
	number, err := strconv.Atoi(device[2:])
	if err != nil {
		panic(err)
	}
	return fmt.Sprintf("d0bd5c28a1f04a8f9d0c4e5f6a7b%04d", number%100)
}

func (n *node) portsFile(devices []string) string {
	n.b.Helper()
	var content bytes.Buffer
	content.WriteString("version: 1\nports:\n")
	for _, d := range devices {
		fmt.Fprintf(&content, "  - {device: %s, port: %s, tenant: %s}\n", d, portID(d), tenant(d))
	}
	path := filepath.Join(n.dir, "ports.yaml")
	if err := os.WriteFile(path, content.Bytes(), 0o600); err != nil {
		n.b.Fatal(err)
	}
	return "ports_file: " + path + "\n"
}

// ours starts vigia-exporter.
func (n *node) ours(sources string) *exporter {
	n.b.Helper()
	config := filepath.Join(n.dir, "exporter.yaml")
	// So many series that the late port beside 5 000 others has some of its own.
	content := fmt.Sprintf("node: bench\nnetns: %s\n%sbpf: {pin_dir: %s, max_ports: 8192}\nlimits: {series: 60000}\n", n.ns, sources, testutil.NewBPFFS(n.b))
	if err := os.WriteFile(config, []byte(content), 0o600); err != nil {
		n.b.Fatal(err)
	}
	e := &exporter{name: "vigia", address: testutil.FreeAddress(n.b), node: n}
	e.start(n.b, "../../../bin/vigia-exporter", "--config", config, "--web.listen-address", e.address, "--log.level", "error")
	return e
}

// compare starts both exporters and scrapes them in turn.
func compare(b *testing.B, n *node, devices []string, sources string, daemons map[string]int) {
	n.say("starting the exporters")
	ours := n.ours(sources)
	attach := ours.waitForPorts(b, len(devices))

	theirs := &exporter{name: "node_exporter", address: "127.0.0.1:9100", node: n, inside: true}
	theirs.start(b, "ip", "netns", "exec", n.ns, "prometheus-node-exporter", "--web.listen-address", theirs.address,
		"--collector.disable-defaults", "--collector.netdev", "--collector.netclass", "--log.level=error")
	theirs.wait(b)

	for range b.N {
		n.say("scraping")
		idle := daemonCPU(b, daemons)
		time.Sleep(5 * time.Second)
		idle = minus(daemonCPU(b, daemons), idle)
		yardstick := &exporter{name: "netdev alone", address: theirs.address, node: n, inside: true, cmd: theirs.cmd, query: "?collect[]=netdev"}
		memory := n.memory(b, ours)
		fast := &exporter{name: "fast page", address: ours.address, node: n, cmd: ours.cmd, query: "/fast"}
		var busy map[string]time.Duration
		var elapsed time.Duration
		for range rounds {
			before, start := daemonCPU(b, daemons), time.Now()
			for range scrapes {
				ours.scrape(b)
			}
			elapsed, busy = time.Since(start), minus(daemonCPU(b, daemons), before)
			theirs.scrape(b)
			yardstick.scrape(b)
			memory.scrape(b)
			for range fastScrapes {
				time.Sleep(fastPause)
				fast.scrape(b)
			}
		}
		report(b, ours, theirs, yardstick, len(devices), attach)
		if err := writeLine(b, len(devices), attach, ours, theirs, yardstick, memory); err != nil {
			b.Fatal(err)
		}
		reportFast(b, ours, fast)
		n.say("plugging one more port")
		testutil.Budget(b, "one more port, from plugging to programs", ours.plug(b).Seconds(), 2, "s")
		for name := range daemons {
			induced := max(0, busy[name]-time.Duration(float64(idle[name])*elapsed.Seconds()/5))
			b.Logf("%-28s %8.2f ms a scrape (idle: %.2f ms a second)", name+" CPU caused", ms(induced)/scrapes, ms(idle[name])/5)
			b.ReportMetric(ms(induced)/scrapes, name+"-ms/scrape")
		}
	}
}

func report(b *testing.B, ours, theirs, yardstick *exporter, ports int, attach time.Duration) {
	b.Logf("load average: %s; %d ports, half taps, half veth; n = %d rounds of %d scrapes (vigia), %d scrapes (node_exporter netdev and netclass, and netdev alone)",
		loadAverage(b), ports, rounds, scrapes, len(theirs.wall))
	wall, cpu := quickestRound(ours.wall), quickestRound(ours.cpu)
	b.Logf("vigia's quickest round: wall p50 %.1f ms, CPU p50 %.1f ms", ms(wall), ms(cpu))
	for _, e := range []*exporter{ours, theirs, yardstick} {
		slices.Sort(e.wall)
		slices.Sort(e.cpu)
		b.Logf("%-14s wall p50 %7.1f p90 %7.1f ms | CPU p50 %7.1f p90 %7.1f ms | RSS %5.1f MB | %6d series, %4.1f a port | %7d bytes gzip",
			e.name, ms(quantile(e.wall, 0.5)), ms(quantile(e.wall, 0.9)), ms(quantile(e.cpu, 0.5)), ms(quantile(e.cpu, 0.9)),
			float64(e.rss(b))/1e6, e.series, float64(e.series)/float64(ports), e.bytes)
	}
	ratio := func(f func(*exporter) float64) float64 { return f(theirs) / f(ours) }
	b.Logf("node_exporter : vigia = %.1f wall, %.1f CPU, %.1f RSS, %.1f series; every port had its programs %.2f s after the start",
		ratio(func(e *exporter) float64 { return ms(quantile(e.wall, 0.5)) }), ratio(func(e *exporter) float64 { return ms(quantile(e.cpu, 0.5)) }),
		ratio(func(e *exporter) float64 { return float64(e.rss(b)) }), ratio(func(e *exporter) float64 { return float64(e.series) }), attach.Seconds())
	for _, collector := range ours.collectors {
		b.Logf("%s", collector)
	}
	if ports == budgetPorts {
		testutil.Budget(b, "scrape, wall p50 of the quickest round", ms(wall), 20, "ms")
		testutil.Budget(b, "scrape, CPU p50 of the quickest round", ms(cpu), 15, "ms")
		testutil.Budget(b, "RSS", float64(ours.rss(b))/1e6, 40, "MB")
		testutil.Budget(b, "series of a port", float64(ours.portSeries)/float64(ports), 10, "")
	}
	b.ReportMetric(ms(quantile(ours.wall, 0.5)), "wall-p50-ms")
	b.ReportMetric(ms(quantile(ours.cpu, 0.5)), "cpu-p50-ms")
	b.ReportMetric(float64(ours.rss(b))/1e6, "rss-MB")
	b.ReportMetric(float64(ours.series)/float64(ports), "series/port")
	b.ReportMetric(attach.Seconds(), "attach-s")
}

// writeLine appends what was measured of the exporters to the file that was asked for.
func writeLine(b *testing.B, ports int, attach time.Duration, exporters ...*exporter) error {
	if *jsonFile == "" {
		return nil
	}
	line := map[string]any{"ports": ports, "attach_seconds": attach.Seconds(), "load": loadAverage(b)}
	for _, e := range exporters {
		line[e.name] = map[string]any{"wall_ms": milliseconds(e.wall), "cpu_ms": milliseconds(e.cpu), "rss": e.rss(b), "bytes": e.bytes, "plain_bytes": e.plain, "series": e.series}
	}
	file, err := os.OpenFile(*jsonFile, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	return errors.Join(json.NewEncoder(file).Encode(line), file.Close())
}

func milliseconds(took []time.Duration) (out []float64) {
	for _, d := range took {
		out = append(out, ms(d))
	}
	return out
}

// reportFast says what the page of every second costs beside the other one, while no port
// tells anything.
func reportFast(b *testing.B, ours, fast *exporter) {
	slices.Sort(fast.cpu)
	slices.Sort(fast.wall)
	part := ms(quantile(fast.cpu, 0.5)) / ms(quantile(ours.cpu, 0.5))
	b.Logf("%-14s wall p50 %7.1f p90 %7.1f ms | CPU p50 %7.1f p90 %7.1f ms (%.2f of a scrape's) | %d series, n = %d",
		fast.name, ms(quantile(fast.wall, 0.5)), ms(quantile(fast.wall, 0.9)), ms(quantile(fast.cpu, 0.5)), ms(quantile(fast.cpu, 0.9)), part, fast.series, len(fast.cpu))
	testutil.Budget(b, "series of the fast page of quiet ports", float64(fast.series), 1, "")
	b.ReportMetric(ms(quantile(fast.cpu, 0.5)), "fast-cpu-p50-ms")
}

// quickestRound returns the least of the rounds' medians.
func quickestRound(took []time.Duration) time.Duration {
	least := time.Duration(math.MaxInt64)
	for round := range slices.Chunk(took, scrapes) {
		round = slices.Clone(round)
		slices.Sort(round)
		least = min(least, quantile(round, 0.5))
	}
	return least
}

// budgetPorts is the number of ports that the budgets are for.
const budgetPorts = 1000

// exporter is a running exporter and what its scrapes cost.
type exporter struct {
	name, address string
	node          *node
	inside        bool   // it listens in the node's namespace
	query         string // of its page: what follows /metrics
	cmd           *exec.Cmd
	wall, cpu     []time.Duration
	series, bytes int
	plain         int      // bytes, before they are compressed
	portSeries    int      // of them with a port
	collectors    []string // duration of each at the last scrape, as exported
}

func (e *exporter) start(b testing.TB, name string, args ...string) {
	b.Helper()
	e.cmd = exec.Command(name, args...)
	e.cmd.Stderr = os.Stderr
	if err := e.cmd.Start(); err != nil {
		b.Fatalf("%v; run make build, and tools/bootstrap.sh test", err)
	}
	cmd := e.cmd
	b.Cleanup(func() {
		if err := cmd.Process.Signal(os.Interrupt); err == nil {
			_ = cmd.Wait()
		}
	})
}

// crash kills the exporter.
func (e *exporter) crash(b testing.TB) {
	b.Helper()
	if err := e.cmd.Process.Kill(); err != nil {
		b.Fatal(err)
	}
	_ = e.cmd.Wait() // says that it was killed
}

// again starts it as it was.
func (e *exporter) again(b testing.TB) {
	b.Helper()
	e.start(b, e.cmd.Path, e.cmd.Args[1:]...)
}

// answer of an exporter; took is the time to its last byte, before it is uncompressed,
// which is the reader's work.
type answer struct {
	status     int
	body       []byte
	raw        []byte // as it came
	compressed int    // bytes
	took       time.Duration
}

func (e *exporter) get(path string) (a answer, err error) {
	ns := ""
	if e.inside {
		ns = e.node.ns
	}
	transport := &http.Transport{DisableCompression: true, DisableKeepAlives: true, DialContext: func(ctx context.Context, network, address string) (c net.Conn, err error) {
		err = netns.Do(ns, func() error {
			var d net.Dialer
			c, err = d.DialContext(ctx, network, address)
			return err
		})
		return c, err
	}}
	req, err := http.NewRequestWithContext(e.node.ctx, http.MethodGet, "http://"+e.address+path, nil)
	if err != nil {
		return a, err
	}
	req.Header.Set("Accept-Encoding", "gzip")
	start := time.Now()
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return a, err
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	a = answer{status: resp.StatusCode, body: raw, raw: raw, compressed: len(raw), took: time.Since(start)}
	if err != nil || resp.Header.Get("Content-Encoding") != "gzip" {
		return a, err
	}
	z, err := gzip.NewReader(bytes.NewReader(raw))
	if err != nil {
		return a, err
	}
	a.body, err = io.ReadAll(z)
	return a, err
}

// scrape scrapes once and measures.
func (e *exporter) scrape(b *testing.B) {
	b.Helper()
	e.node.goOn()
	before := cpuTime(b, e.cmd.Process.Pid)
	got, err := e.get("/metrics" + e.query)
	if err != nil || got.status != http.StatusOK {
		b.Fatalf("%s: %d, %v: %.300s", e.name, got.status, err, got.body)
	}
	e.wall = append(e.wall, got.took)
	e.cpu = append(e.cpu, cpuTime(b, e.cmd.Process.Pid)-before)
	e.bytes, e.plain, e.series, e.portSeries, e.collectors = got.compressed, len(got.body), 0, 0, nil
	for line := range bytes.Lines(got.body) {
		if len(line) > 1 && line[0] != '#' {
			e.series++
			if bytes.Contains(line, []byte(`,port="`)) || bytes.Contains(line, []byte(`{port="`)) {
				e.portSeries++
			}
		}
		if bytes.HasPrefix(line, []byte("vigia_exporter_collector_duration_seconds{")) {
			e.collectors = append(e.collectors, strings.TrimSpace(string(line)))
		}
	}
}

func (e *exporter) wait(b *testing.B) {
	b.Helper()
	testutil.WaitFor(b, e.name, func() bool { got, err := e.get("/metrics"); return err == nil && got.status == http.StatusOK })
}

// waitForPorts waits until every port has its programs and returns how long it took.
func (e *exporter) waitForPorts(b testing.TB, ports int) time.Duration {
	b.Helper()
	start := time.Now()
	for {
		e.node.goOn()
		got, err := e.get("/metrics")
		if err == nil && programmed(got.body) && bytes.Count(got.body, []byte("\nvigia_port_info{")) == ports {
			return time.Since(start)
		}
		if time.Since(start) > 2*time.Minute {
			b.Fatalf("after two minutes not every port has its programs: %v", err)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// programmed reports whether every port on a page has its programs.
func programmed(page []byte) bool {
	return bytes.Contains(page, []byte("\nvigia_exporter_collector_success{collector=\"bpf\"} 1\n"))
}

// plug plugs one more port in, whose identity is known already, and returns how long
// it takes until it has its programs.
func (e *exporter) plug(b *testing.B) time.Duration {
	b.Helper()
	start := time.Now()
	testutil.IP(b, "-n", e.node.ns, "link", "add", lateDevice, "up", "type", "veth", "peer", "name", "vb99999")
	series := []byte(`vigia_port_info{port="` + portID(lateDevice) + `"`)
	for time.Since(start) < time.Minute {
		e.node.goOn()
		if got, err := e.get("/metrics?collect[]=bpf&collect[]=identity"); err == nil && programmed(got.body) && bytes.Contains(got.body, series) {
			return time.Since(start)
		}
		time.Sleep(20 * time.Millisecond)
	}
	b.Fatal("a port was plugged in and has no programs a minute later")
	return 0
}

// rss returns the resident memory in bytes.
func (e *exporter) rss(b *testing.B) uint64 {
	b.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", e.cmd.Process.Pid))
	if err != nil {
		b.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kb, err := strconv.ParseUint(strings.Fields(rest)[0], 10, 64)
			if err != nil {
				b.Fatal(err)
			}
			return kb * 1024
		}
	}
	b.Fatal("no VmRSS")
	return 0
}

// cpuTime returns what all threads of a process have run for.
func cpuTime(b testing.TB, pid int) time.Duration {
	b.Helper()
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	if err != nil || len(tasks) == 0 {
		b.Fatalf("process %d is gone: %v", pid, err)
	}
	var sum time.Duration
	for _, task := range tasks {
		raw, err := os.ReadFile(task)
		if err != nil {
			continue // the thread ended meanwhile
		}
		ns, err := strconv.ParseInt(strings.Fields(string(raw))[0], 10, 64)
		if err != nil {
			b.Fatal(err)
		}
		sum += time.Duration(ns)
	}
	return sum
}

func daemonCPU(b testing.TB, daemons map[string]int) map[string]time.Duration {
	b.Helper()
	out := make(map[string]time.Duration)
	for name, pid := range daemons {
		out[name] = cpuTime(b, pid)
	}
	return out
}

func minus(a, b map[string]time.Duration) map[string]time.Duration {
	out := make(map[string]time.Duration)
	for k := range a {
		out[k] = a[k] - b[k]
	}
	return out
}

func pidOf(b testing.TB, file string) int {
	b.Helper()
	raw, err := os.ReadFile(file)
	if err != nil {
		b.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(raw)))
	if err != nil {
		b.Fatal(err)
	}
	return pid
}

func loadAverage(b testing.TB) string {
	b.Helper()
	raw, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		b.Fatal(err)
	}
	return strings.Fields(string(raw))[0]
}

func ms(d time.Duration) float64 { return d.Seconds() * 1e3 }

// quantile of sorted durations.
func quantile(sorted []time.Duration, q float64) time.Duration {
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}
