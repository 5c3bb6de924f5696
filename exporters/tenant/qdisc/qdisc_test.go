package qdisc

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"vigia/exporters/tenant/source"
	"vigia/exporters/tenant/source/sourcetest"
	"vigia/internal/exposition"
	"vigia/internal/ports"
	"vigia/internal/rtnl"
	"vigia/internal/tc"
	"vigia/internal/testutil"
)

func newSource(t *testing.T, ns string, ours bool, u Uplinks) *Source {
	t.Helper()
	s, err := New(sourcetest.Families(t), ns, ours, u)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// noUplinks are a node without an enforcer.
func noUplinks() Uplinks { return Uplinks{Memory: newBook()} }

func page(t *testing.T, s *Source, v *source.View) string {
	t.Helper()
	p := exposition.NewPage(nil)
	if err := s.Collect(v, p); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if _, err := p.WriteTo(&out); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func TestQueuesOfARealNode(t *testing.T) {
	node, peer := testutil.NewNetNS(t), testutil.NewNetNS(t)
	testutil.DisableIPv6(t, node)
	testutil.DisableIPv6(t, peer)
	for i, dev := range []string{"tap0", "phy0"} {
		testutil.NewVethPair(t, node, dev, peer, "e"+dev)
		to := []string{"10.11.0.2", "10.11.1.2"}[i]
		testutil.IP(t, "-n", node, "addr", "add", []string{"10.11.0.1", "10.11.1.1"}[i]+"/24", "dev", dev)
		testutil.IP(t, "-n", node, "neigh", "add", to, "lladdr", "02:00:00:00:00:01", "dev", dev)
	}
	tcRun := func(args ...string) { testutil.Run(t, "tc", append([]string{"-n", node}, args...)...) }
	// Each lets two packets of 142 bytes go and keeps none waiting.
	tcRun("qdisc", "add", "dev", "tap0", "root", "tbf", "rate", "8kbit", "burst", "300", "limit", "300")
	tcRun("qdisc", "add", "dev", "phy0", "root", "handle", "1:", "htb", "default", "10")
	tcRun("class", "add", "dev", "phy0", "parent", "1:", "classid", "1:10", "htb", "rate", "8mbit", "ceil", "80mbit")
	tcRun("qdisc", "add", "dev", "phy0", "parent", "1:10", "pfifo", "limit", "10")

	links, err := rtnl.Dial(node)
	if err != nil {
		t.Fatal(err)
	}
	defer links.Close()
	all, err := links.Links()
	if err != nil {
		t.Fatal(err)
	}
	var list []ports.Port
	for _, l := range all {
		if l.Name == "tap0" {
			list = append(list, ports.Port{ID: "p", Tenant: "red", Index: l.Index})
		}
	}
	s := newSource(t, node, false, noUplinks())
	view := func(detail bool) *source.View {
		v := sourcetest.View(list, nil, nil, time.Now())
		v.Detail = detail
		return v
	}
	for _, to := range []string{"10.11.0.2", "10.11.1.2"} {
		testutil.Run(t, "ip", "netns", "exec", node, "sh", "-c", "ping -q -c20 -i0.01 -W1 -s100 "+to+" || true")
	}
	v := view(false)
	out := page(t, s, v)
	dropped := v.Drops.Counts[source.DropKey{Port: "p", Tenant: "red", Direction: source.ToTenant, Reason: source.QueueFull}]
	stats := testutil.Run(t, "tc", "-n", node, "-s", "qdisc", "show", "dev", "tap0", "root")
	if want := fmt.Sprintf("(dropped %d,", dropped); dropped == 0 || !strings.Contains(stats, want) {
		t.Errorf("%d packets dropped at the port's queue; tc says\n%s", dropped, stats)
	}
	for _, want := range []string{
		`vigia_qdisc_packets_total{device="phy0",kind="htb",parent="root"} 20`,
		`vigia_qdisc_drops_total{device="phy0",kind="htb",parent="root"} 0`,
		`vigia_qdisc_bytes_total{device="phy0",kind="pfifo",parent="1:10"} 2840`,
		`vigia_resource_drops_total{resource="queue/phy0",kind="queue",reason="queue_full"} 0`,
	} {
		if !strings.Contains(out, want+"\n") {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	if q := v.Queues["phy0"]; q.Ceiling != 10_000_000 || q.Bytes != 2840 {
		t.Errorf("the queue of the uplink is %+v", q)
	}
	if strings.Contains(out, "tap0") || strings.Contains(out, "backlog_bytes{port") {
		t.Errorf("the port's queue has series of its own:\n%s", out)
	}
	if strings.Contains(out, "vigia_qdisc_class_") {
		t.Errorf("classes have series in the default tier:\n%s", out)
	}
	out = page(t, s, view(true))
	for _, want := range []string{
		`vigia_port_queue_backlog_bytes{port="p",tenant="red",direction="to_tenant"}`,
		`vigia_qdisc_class_packets_total{device="phy0",class="1:10"} 20`,
		`vigia_qdisc_class_rate_bytes_per_second{device="phy0",class="1:10",bound="guarantee"} 1000000`,
		`vigia_qdisc_class_rate_bytes_per_second{device="phy0",class="1:10",bound="ceiling"} 10000000`,
	} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in tier detail:\n%s", want, out)
		}
	}
}

func TestCountersOf32BitsGoOn(t *testing.T) {
	s := &Source{counted: make(map[place]wide)}
	key := place{link: 1}
	for _, step := range []struct {
		now  uint32
		want uint64
	}{{0xfffffff0, 0xfffffff0}, {0xffffffff, 0xffffffff}, {4, 0x1_0000_0004}, {5, 0x1_0000_0005}} {
		if got := s.widen(key, step.now); got != step.want {
			t.Errorf("%#x: %#x, want %#x", step.now, got, step.want)
		}
	}
}

func TestOwnLimitsAreNotCountedTwice(t *testing.T) {
	p := ports.Port{ID: "p", Tenant: "red", Index: 3}
	for _, tc2 := range []struct {
		ours bool
		want uint64
	}{{true, 30}, {false, 100}} {
		s := newSource(t, "", tc2.ours, noUplinks())
		v := sourcetest.View([]ports.Port{p}, nil, nil, time.Now())
		v.Drops.Add("p", "red", source.FromTenant, source.RateLimit, 70, source.Beside)
		s.port(v, &p, &tc.Qdisc{Link: 3, Parent: tc.Clsact, Kind: "clsact", Stats: tc.Stats{Drops: 100}}, exposition.NewPage(nil))
		if got := v.Drops.Counts[source.DropKey{Port: "p", Tenant: "red", Direction: source.FromTenant, Reason: source.Policy}]; got != tc2.want {
			t.Errorf("ours %v: %d by policy, want %d", tc2.ours, got, tc2.want)
		}
	}
}

func TestWhatClassesMayHaveTogether(t *testing.T) {
	class := func(parent tc.Handle, ceil uint64) tc.Class {
		return tc.Class{Parent: parent, Ceil: ceil}
	}
	for _, c := range []struct {
		name    string
		classes []tc.Class
		want    uint64
	}{
		{"none", nil, 0},
		{"one, and those below it", []tc.Class{class(tc.Root, 100), class(tc.MakeHandle(1, 1), 90), class(tc.MakeHandle(1, 1), 80)}, 100},
		{"two", []tc.Class{class(tc.Root, 100), class(tc.MakeHandle(1, 0), 50)}, 150},
		{"one without a bound", []tc.Class{class(tc.Root, 100), class(tc.Root, 0)}, 0},
	} {
		if got := ceiling(c.classes); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
}
