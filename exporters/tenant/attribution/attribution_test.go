package attribution

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"vigia/exporters/tenant/source"
	"vigia/exporters/tenant/source/sourcetest"
	"vigia/internal/exposition"
	"vigia/internal/ports"
	"vigia/internal/testutil"
)

// files are a procfs that the test writes.
type files struct {
	t    testing.TB
	root string
}

func (p files) write(name, content string) {
	p.t.Helper()
	path := filepath.Join(p.root, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		p.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		p.t.Fatal(err)
	}
}

func (p files) cpu(softirqTicks, ovsTicks int) {
	p.write("stat", fmt.Sprintf("cpu  10 0 20 3000 5 0 %d 0 0 0\ncpu0 1 0 2 3 4 5 6 7\n", softirqTicks))
	p.write("42/stat", fmt.Sprintf("42 (ovs) x) (y) S 1 1 1 0 -1 0 0 0 0 0 %d %d 0 0 20 0 1 0 123 1000 20 18446744073709551615 1 1 0 0 0 0 0 0 0 0 0 0 17 1 0 0 0 0 0\n",
		ovsTicks/2, ovsTicks-ovsTicks/2))
}

func newSource(t *testing.T, runDir string) *Source {
	t.Helper()
	s, err := New(sourcetest.Families(t), "", runDir)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func fakeRig(t *testing.T) (*Source, files) {
	t.Helper()
	dir := t.TempDir()
	p := files{t, dir}
	p.write("run/ovs-vswitchd.pid", "42\n")
	p.write("net/softnet_stat", softnetLine(2)+softnetLine(10))
	p.write("sys/net/netfilter/nf_conntrack_count", "250\n")
	p.write("sys/net/netfilter/nf_conntrack_max", "1000\n")
	p.write("thread-self/net/stat/nf_conntrack", conntrackHead+conntrackLine(3, 1)+conntrackLine(16, 0))
	p.cpu(100, 1000)
	s := newSource(t, filepath.Join(dir, "run"))
	var err error
	if s.proc, err = newProc(dir); err != nil {
		t.Fatal(err)
	}
	return s, p
}

// softnetLine is a processor's line of /proc/net/softnet_stat.
func softnetLine(dropped int) string {
	return fmt.Sprintf("00000010 %08x 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000\n", dropped)
}

// conntrackHead and conntrackLine are /proc/net/stat/nf_conntrack.
const conntrackHead = "entries  clashres found new invalid ignore delete chainlength insert insert_failed drop early_drop icmp_error  " +
	"expect_new expect_create expect_delete search_restart\n"

func conntrackLine(drop, early int) string {
	return "000000fa " + strings.Repeat(" 00000000", 9) + fmt.Sprintf(" %08x %08x", drop, early) + strings.Repeat(" 00000000", 5) + "\n"
}

func view(now time.Time) *source.View {
	return sourcetest.View([]ports.Port{
		{ID: "r", Tenant: "red", DataPlane: ports.OVSUserspace, Index: 1},
		{ID: "b", Tenant: "blue", DataPlane: ports.OVSUserspace, Index: 2},
		{ID: "l", Tenant: "blue", DataPlane: ports.LinuxBridge, Index: 3},
	}, nil, nil, now)
}

func collect(t *testing.T, s *Source, load map[string]uint64) map[string]float64 {
	t.Helper()
	v := view(time.Now())
	carry(v, load, nil)
	return series(t, s, v)
}

// carry lays down packets and bytes of the view's ports, by their ids.
func carry(v *source.View, packets, sent map[string]uint64) {
	for i := range v.Ports {
		n, counted := packets[v.Ports[i].ID]
		bytes, measured := sent[v.Ports[i].ID]
		if counted || measured {
			v.Carry(i, n, bytes)
		}
	}
}

func series(t *testing.T, s *Source, v *source.View) map[string]float64 {
	t.Helper()
	p := exposition.NewPage(nil)
	if err := s.Collect(v, p); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if _, err := p.WriteTo(&out); err != nil {
		t.Fatal(err)
	}
	m := make(map[string]float64)
	for line := range strings.SplitSeq(out.String(), "\n") {
		var value float64
		i := strings.LastIndexByte(line, ' ')
		if i < 0 || line[0] == '#' {
			continue
		}
		if _, err := fmt.Sscan(line[i+1:], &value); err != nil {
			t.Fatal(err)
		}
		m[line[:i]] = value
	}
	return m
}

func tenantSeconds(tenant, resource, kind string) string {
	return fmt.Sprintf("vigia_tenant_resource_seconds_total{tenant=%q,resource=%q,kind=%q}", tenant, resource, kind)
}

func TestWhatIsSharedIsSplitByPackets(t *testing.T) {
	s, p := fakeRig(t)
	m := collect(t, s, map[string]uint64{"r": 1000, "b": 5, "l": 0})
	for series, want := range map[string]float64{
		`vigia_resource_seconds_total{resource="softirq",kind="cpu"}`:                           1,
		`vigia_resource_seconds_total{resource="ovs-vswitchd",kind="process"}`:                  10,
		`vigia_resource_drops_total{resource="softirq",kind="cpu",reason="cpu_backlog"}`:        12,
		`vigia_resource_utilization_ratio{resource="conntrack",kind="table"}`:                   0.25,
		`vigia_resource_drops_total{resource="conntrack",kind="table",reason="conntrack_full"}`: 20,
	} {
		if got, ok := m[series]; !ok || got != want {
			t.Errorf("%s is %v, %v; want %v", series, got, ok, want)
		}
	}
	if _, ok := m[tenantSeconds("red", softirq, "cpu")]; ok {
		t.Error("history was laid at somebody's door")
	}
	check := func(m map[string]float64, series string, want float64) {
		t.Helper()
		if got, ok := m[series]; !ok || math.Abs(got-want) > 1e-9 {
			t.Errorf("%s is %v, %v; want %v", series, got, ok, want)
		}
	}
	p.cpu(200, 1300) // 1 s of softirqs, 3 s of ovs-vswitchd
	m = collect(t, s, map[string]uint64{"r": 1600, "b": 205, "l": 200})
	check(m, tenantSeconds("red", softirq, "cpu"), 0.6)
	check(m, tenantSeconds("blue", softirq, "cpu"), 0.4)
	check(m, tenantSeconds("red", vswitchd, "process"), 3*600./800)
	check(m, tenantSeconds("blue", vswitchd, "process"), 3*200./800) // the bridge's port costs the switch nothing

	p.cpu(300, 1300)
	collect(t, s, nil) // nobody read the ports: the time is split later
	m = collect(t, s, map[string]uint64{"r": 10, "b": 305, "l": 200})
	check(m, tenantSeconds("red", softirq, "cpu"), 0.6) // its counters started again
	check(m, tenantSeconds("blue", softirq, "cpu"), 1.4)
}

// TestWhatPortsCarriedIsKeptApartFromTheView scrapes as an engine does, whose memory is
// used again, also by scrapes that this source has no part in.
func TestWhatPortsCarriedIsKeptApartFromTheView(t *testing.T) {
	s, p := fakeRig(t)
	var views source.Views
	list := view(time.Now()).Ports
	scrape := func(list []ports.Port, red, blue uint64) map[string]float64 {
		v := views.Next(list, nil, nil, time.Now())
		carry(v, map[string]uint64{"r": red, "b": blue}, nil)
		return series(t, s, v)
	}
	scrape(list, 100, 100)
	for range 3 {
		carry(views.Next(list, nil, nil, time.Now()), map[string]uint64{"r": 5000, "b": 5000}, nil)
	}
	p.cpu(200, 1000)
	if got := scrape(list, 160, 140)[tenantSeconds("red", softirq, "cpu")]; math.Abs(got-0.6) > 1e-9 {
		t.Errorf("red has %v of a second, want 0.6", got)
	}
	p.cpu(300, 1000)
	moved := []ports.Port{list[1], {ID: "new", Tenant: "green", Index: 9}, list[0]}
	m := scrape(moved, 190, 210)
	if red, blue := m[tenantSeconds("red", softirq, "cpu")], m[tenantSeconds("blue", softirq, "cpu")]; math.Abs(red-0.9) > 1e-9 || math.Abs(blue-1.1) > 1e-9 {
		t.Errorf("after the ports moved red has %v and blue %v, want 0.9 and 1.1", red, blue)
	}
	if _, ok := m[tenantSeconds("green", softirq, "cpu")]; ok {
		t.Error("history was laid at a new port's door")
	}
}

// TestUplinksAreSplitByBytes has a link of 10 Gbit/s, as a veth says of itself, and a
// device of no speed.
func TestUplinksAreSplitByBytes(t *testing.T) {
	node, peer := testutil.NewNetNS(t), testutil.NewNetNS(t)
	testutil.NewVethPair(t, node, "phy0", peer, "phy0")
	testutil.IP(t, "-n", node, "link", "add", "ifb9", "type", "ifb")
	s, _ := fakeRig(t)
	s.links = newLinks(node)
	defer s.Close()
	start := time.Unix(1000, 0)
	const second = 1_250_000_000 // bytes
	for _, step := range []struct {
		name              string
		after             time.Duration
		queue, ceiling    uint64
		red, blue         uint64
		used, redS, blueS float64
		ratio             float64 // -1 for none
	}{
		{"at first nothing is known", 0, 5000, 0, 100, 200, 0, 0, 0, -1},
		{"a second of sending in ten", 10 * time.Second, 5000 + second, 0, 3100, 1200, 1, 0.75, 0.25, 0.1},
		{"nothing", 20 * time.Second, 5000 + second, 0, 3100, 1200, 1, 0.75, 0.25, 0},
		{"counters that start again", 30 * time.Second, 7, 0, 3100, 0, 1, 0.75, 0.25, 0},
		{"what nobody's ports sent is nobody's", 40 * time.Second, 7 + second, 0, 3100, 0, 2, 0.75, 0.25, 0.1},
		{"a scheduler that gives out a fifth of the link", 50 * time.Second, 7 + 2*second, second / 5, 3100, 0, 7, 0.75, 0.25, 0.5},
		{"and one that would give out more than there is", 60 * time.Second, 7 + 3*second, 5 * second, 3100, 0, 8, 0.75, 0.25, 0.1},
	} {
		v := view(start.Add(step.after))
		v.Queues = map[string]source.Queue{"phy0": {Bytes: step.queue, Ceiling: step.ceiling}, "ifb9": {Bytes: step.queue}}
		carry(v, nil, map[string]uint64{"r": step.red, "b": step.blue, "l": 0})
		got := series(t, s, v)
		want := map[string]float64{
			`vigia_resource_seconds_total{resource="queue/phy0",kind="queue"}`: step.used,
		}
		if step.after > 0 {
			want[tenantSeconds("red", "queue/phy0", "queue")] = step.redS
			want[tenantSeconds("blue", "queue/phy0", "queue")] = step.blueS
		}
		if step.ratio >= 0 {
			want[`vigia_resource_utilization_ratio{resource="queue/phy0",kind="queue"}`] = step.ratio
		}
		for series, value := range want {
			if n, ok := got[series]; !ok || math.Abs(n-value) > 1e-9 {
				t.Errorf("%s: %s is %v, want %v", step.name, series, n, value)
			}
		}
		for series := range got {
			if _, known := want[series]; strings.Contains(series, "queue/") && !known {
				t.Errorf("%s: %s is not known", step.name, series)
			}
		}
	}
	v := view(start.Add(2 * time.Minute))
	v.Queues = map[string]source.Queue{"other0": {Bytes: 1}}
	carry(v, nil, map[string]uint64{"r": 0})
	for series := range series(t, s, v) {
		if strings.Contains(series, "queue/") {
			t.Errorf("the device is gone, and yet there is %s", series)
		}
	}
}

// TestALinkThatCannotBeAskedHidesNoOther has a queue of a device that is none.
func TestALinkThatCannotBeAskedHidesNoOther(t *testing.T) {
	node, peer := testutil.NewNetNS(t), testutil.NewNetNS(t)
	testutil.NewVethPair(t, node, "phy0", peer, "phy0")
	s, _ := fakeRig(t)
	s.links = newLinks(node)
	defer s.Close()
	for range 20 { // in whichever order the two are asked
		v := view(time.Now())
		carry(v, map[string]uint64{"r": 1}, map[string]uint64{"r": 1})
		v.Queues = map[string]source.Queue{"phy0": {Bytes: 5}, strings.Repeat("longer-than-any-name", 10): {Bytes: 5}}
		p := exposition.NewPage(nil)
		if err := s.Collect(v, p); err == nil {
			t.Error("nobody is told of the device")
		}
		var out strings.Builder
		if _, err := p.WriteTo(&out); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(out.String(), `resource="queue/phy0"`) {
			t.Fatal("the other link is hidden")
		}
	}
}

func TestASwitchThatIsNotThereCostsNothing(t *testing.T) {
	s, p := fakeRig(t)
	collect(t, s, map[string]uint64{"r": 1})
	if err := os.RemoveAll(filepath.Join(p.root, "42")); err != nil {
		t.Fatal(err)
	}
	m := collect(t, s, map[string]uint64{"r": 2})
	if _, ok := m[`vigia_resource_seconds_total{resource="ovs-vswitchd",kind="process"}`]; ok {
		t.Error("a process that is gone has used time")
	}
	if err := os.RemoveAll(filepath.Join(p.root, "run")); err != nil {
		t.Fatal(err)
	}
	collect(t, s, map[string]uint64{"r": 3})
	p.write("run/ovs-vswitchd.pid", "-1\n")
	if err := s.Collect(sourcetest.View(nil, nil, nil, time.Now()), exposition.NewPage(nil)); err == nil {
		t.Error("-1 was taken for a process id")
	}
}

func TestBrokenProcfsIsAnError(t *testing.T) {
	for name, content := range map[string]string{
		"stat": "cpu 1 2\n", "42/stat": "42 (x", "net/softnet_stat": "zz yy\n", "sys/net/netfilter/nf_conntrack_max": "x\n",
		"thread-self/net/stat/nf_conntrack": "entries drop\n1\n",
	} {
		s, p := fakeRig(t)
		p.write(name, content)
		if err := s.Collect(sourcetest.View(nil, nil, nil, time.Now()), exposition.NewPage(nil)); err == nil {
			t.Errorf("%s with %q is no error", name, content)
		}
	}
}

func TestThisKernelsProcfsIsUnderstood(t *testing.T) {
	s := newSource(t, "")
	page := exposition.NewPage(nil)
	if err := s.Collect(sourcetest.View(nil, nil, nil, time.Now()), page); err != nil {
		t.Fatal(err)
	}
	if page.Series() < 2 {
		t.Errorf("%d series", page.Series())
	}
}
