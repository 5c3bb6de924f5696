package openflow

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"vigia/exporters/tenant/source"
	"vigia/exporters/tenant/source/sourcetest"
	"vigia/internal/exposition"
	"vigia/internal/openflow"
	"vigia/internal/ports"
	"vigia/internal/testutil"
)

const every = 300 * time.Millisecond

// rig is a switch with the ports of two tenants, an inventory and the source.
type rig struct {
	t *testing.T
	*testutil.VSwitch
	inventory *ports.Inventory
	source    *Source
	tenants   [2]string
}

func newRig(t *testing.T) *rig {
	t.Helper()
	node := testutil.NewNetNS(t)
	testutil.DisableIPv6(t, node)
	r := &rig{t: t, VSwitch: testutil.NewVSwitch(t, node)}
	r.Set("add-br", "br-int", "--", "set", "bridge", "br-int", "datapath_type=netdev", "fail_mode=secure")
	for i := range r.tenants {
		ns, tap := testutil.NewNetNS(t), fmt.Sprintf("tap%d", i)
		testutil.DisableIPv6(t, ns)
		testutil.NewVethPair(t, node, tap, ns, "eth0")
		testutil.IP(t, "-n", ns, "link", "set", "eth0", "address", fmt.Sprintf("02:00:00:00:00:0%d", i+1))
		testutil.IP(t, "-n", ns, "addr", "add", fmt.Sprintf("10.9.0.%d/24", i+1), "dev", "eth0")
		testutil.IP(t, "-n", ns, "neigh", "add", fmt.Sprintf("10.9.0.%d", 2-i), "lladdr", fmt.Sprintf("02:00:00:00:00:0%d", 2-i), "dev", "eth0")
		r.Set("add-port", "br-int", tap, "--", "set", "interface", tap, fmt.Sprintf("external_ids:iface-id=p%d", i), "external_ids:vigia-tenant=red")
		r.tenants[i] = ns
	}
	r.flows()
	var err error
	r.inventory, err = ports.NewInventory(ports.Sources{NetNS: node, OVSDB: "unix:" + r.Socket}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	r.source = New(sourcetest.Families(t), Options{Bridges: r.inventory.Bridges, RunDir: r.Dir, Every: every, Cookies: []Cookie{{"br-int", 0x14, "red"}}})
	done := make(chan struct{}, 2)
	go func() { _ = r.inventory.Run(t.Context()); done <- struct{}{} }()
	go func() { r.source.Run(t.Context()); done <- struct{}{} }()
	t.Cleanup(func() { <-done; <-done; r.inventory.Close() })
	return r
}

func (r *rig) flows() {
	r.t.Helper()
	r.OFCtl("OpenFlow13", "add-meter", "br-int", "meter=7,pktps,stats,band=type=drop,rate=100000")
	for i := range r.tenants {
		r.OFCtl("OpenFlow13", "add-flow", "br-int", fmt.Sprintf("cookie=0x14,in_port=tap%d,actions=meter:7,output:tap%d", i, 1-i))
	}
}

func (r *rig) ping(n int) {
	r.t.Helper()
	testutil.Run(r.t, "ip", "netns", "exec", r.tenants[0], "ping", "-c", fmt.Sprint(n), "-i0.2", "-W10", "10.9.0.2")
}

func (r *rig) scrape(detail bool) (string, *source.View, error) {
	r.t.Helper()
	list, states := r.inventory.Ports()
	v := sourcetest.View(list, nil, states, time.Now())
	v.Detail = detail
	p := exposition.NewPage(nil)
	err := r.source.Collect(v, p)
	var out strings.Builder
	if _, err := p.WriteTo(&out); err != nil {
		r.t.Fatal(err)
	}
	return out.String(), v, err
}

// want waits until every line is on the page.
func (r *rig) want(lines ...string) string {
	r.t.Helper()
	var page string
	var err error
	defer func() {
		if r.t.Failed() {
			r.t.Logf("error %v, page\n%s", err, page)
		}
	}()
	testutil.WaitFor(r.t, fmt.Sprintf("%q", lines), func() bool {
		page, _, err = r.scrape(false)
		return !slices.ContainsFunc(lines, func(l string) bool { return !strings.Contains(page, l+"\n") })
	})
	return page
}

func TestARealBridge(t *testing.T) {
	r := newRig(t)
	if _, _, err := r.scrape(false); err == nil {
		t.Log("the first answer is there already")
	}
	r.ping(3)
	page := r.want(
		`vigia_openflow_table_flows{bridge="br-int",table="0"} 2`,
		`vigia_openflow_meter_packets_total{bridge="br-int",meter="7"} 6`,
		`vigia_openflow_meter_bytes_total{bridge="br-int",meter="7"} 588`,
		`vigia_openflow_meter_drops_total{bridge="br-int",meter="7"} 0`,
		`vigia_openflow_cookie_packets_total{bridge="br-int",cookie="0x14",tenant="red"} 6`,
		`vigia_openflow_cookie_flows{bridge="br-int",cookie="0x14",tenant="red"} 2`,
		`vigia_ovs_port_drops_total{bridge="br-int",device="br-int",kind="internal",direction="in"} 0`,
	)
	if strings.Contains(page, "vigia_port_bytes_total") {
		t.Error("a port that the kernel counts is counted twice")
	}
	if strings.Contains(page, `table="1"`) {
		t.Error("a table that nobody uses has series")
	}

	if strings.Contains(page, "vigia_openflow_table_limit") {
		t.Error("a table without a limit has one")
	}
	r.Set("--", "--id=@t", "create", "Flow_Table", "flow_limit=5", "--", "set", "Bridge", "br-int", "flow_tables:0=@t")
	r.want(`vigia_openflow_table_limit{bridge="br-int",table="0"} 5`)
	r.Set("clear", "Bridge", "br-int", "flow_tables")
	testutil.WaitFor(t, "the limit to go", func() bool {
		page, _, err := r.scrape(false)
		return err == nil && !strings.Contains(page, "vigia_openflow_table_limit")
	})

	// Flows come and go; the cookie's sum only grows.
	r.OFCtl("OpenFlow13", "del-flows", "br-int")
	r.want(`vigia_openflow_cookie_packets_total{bridge="br-int",cookie="0x14",tenant="red"} 6`, `vigia_openflow_cookie_flows{bridge="br-int",cookie="0x14",tenant="red"} 0`)
	r.OFCtl("OpenFlow13", "del-meters", "br-int")
	r.flows()
	r.ping(2)
	r.want(`vigia_openflow_cookie_packets_total{bridge="br-int",cookie="0x14",tenant="red"} 10`)
}

func TestTheSwitchMayRestartAndLoseABridge(t *testing.T) {
	r := newRig(t)
	up := `vigia_openflow_table_flows{bridge="br-int",table="0"} 2`
	r.want(up)
	r.StopSwitch()
	testutil.WaitFor(t, "the failure", func() bool {
		page, _, err := r.scrape(false)
		return err != nil && strings.Contains(err.Error(), "bridge br-int") && !strings.Contains(page, "br-int")
	})
	r.StartSwitch()
	testutil.WaitFor(t, "the bridge", func() bool { _, _, err := r.scrape(false); return err == nil })
	r.flows()
	r.want(up)
	r.Set("del-br", "br-int")
	testutil.WaitFor(t, "the bridge to go", func() bool {
		page, _, err := r.scrape(false)
		return err == nil && page == ""
	})
}

// vhost is a bridge with a port that only the switch knows, as read from one.
func vhost() []bridge {
	return []bridge{{
		Bridge: ports.Bridge{Name: "br-int", Userspace: true, Ports: map[uint32]ports.BridgePort{
			4: {Device: "vhu0", Kind: "dpdkvhostuserclient"}, 9: {Device: "vx0", Kind: "vxlan"},
		}},
		stats: []openflow.PortStats{
			{
				Port: 4, RxPackets: 10, TxPackets: 20, RxBytes: 1000, TxBytes: 2000, RxDropped: 5, TxDropped: 9, RxErrors: openflow.Unknown,
				Custom: map[string]uint64{"ovs_tx_failure_drops": 6, "ovs_tx_mtu_exceeded_drops": 1, "ovs_rx_qos_drops": 5, "ovs_tx_retries": 99},
				Sizes:  &openflow.SizeCounters{Rx: [7]uint64{1, 2, 3, 4, 5, 6, 7}, Tx: [7]uint64{openflow.Unknown}},
			},
			{Port: 9, RxPackets: 7, TxPackets: 8, RxBytes: openflow.Unknown, TxBytes: 800},
			{Port: 77, RxPackets: 1},
		},
		queues: []openflow.QueueStats{{Port: 9, Queue: 2, TxBytes: 5, TxPackets: 4, TxErrors: 3}, {Port: 78}},
	}}
}

func TestPortsThatOnlyTheSwitchCounts(t *testing.T) {
	s := New(sourcetest.Families(t), Options{Every: time.Hour})
	s.poller = sourcetest.Fixed(vhost())
	v := sourcetest.View([]ports.Port{{ID: "p", Tenant: "red", Device: "vhu0"}}, nil, nil, time.Now())
	v.Detail = true
	p := exposition.NewPage(nil)
	if err := s.Collect(v, p); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if _, err := p.WriteTo(&out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`vigia_port_bytes_total{port="p",tenant="red",direction="from_tenant"} 1000`,
		`vigia_port_packets_total{port="p",tenant="red",direction="to_tenant"} 20`,
		`vigia_ovs_port_packets_total{bridge="br-int",device="vx0",kind="vxlan",direction="in"} 7`,
		`vigia_ovs_port_bytes_total{bridge="br-int",device="vx0",kind="vxlan",direction="out"} 800`,
		`vigia_openflow_queue_drops_total{bridge="br-int",device="vx0",queue="2"} 3`,
		`vigia_port_frames_by_size_total{port="p",tenant="red",direction="from_tenant",size="max"} 7`,
		`vigia_port_frames_by_size_total{port="p",tenant="red",direction="to_tenant",size="127"} 0`,
	} {
		if !strings.Contains(out.String(), want+"\n") {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
	for _, not := range []string{`device="vx0",kind="vxlan",direction="in"} 1.8`, `size="64"} 1.8`, `queue="0"`} {
		if strings.Contains(out.String(), not) {
			t.Errorf("%q should not be in\n%s", not, out.String())
		}
	}
	v.Drops.Settle(source.NewRemainders())
	for key, want := range map[source.DropKey]uint64{
		{Port: "p", Tenant: "red", Direction: source.ToTenant, Reason: source.VhostBackpressure}: 6,
		{Port: "p", Tenant: "red", Direction: source.ToTenant, Reason: source.MTU}:               1,
		{Port: "p", Tenant: "red", Direction: source.ToTenant, Reason: source.Unattributed}:      2,
		{Port: "p", Tenant: "red", Direction: source.FromTenant, Reason: source.RateLimit}:       5,
		{Port: "p", Tenant: "red", Direction: source.FromTenant, Reason: source.Unattributed}:    0,
	} {
		if got := v.Drops.Counts[key]; got != want {
			t.Errorf("%+v: %d, want %d", key, got, want)
		}
	}
}

func TestFlowsOfACookieOnlyAddUp(t *testing.T) {
	totals := &flowTotals{flows: make(map[string]flow)}
	round := func(flows ...openflow.FlowStats) {
		totals.round++
		for _, f := range flows {
			totals.add(f)
		}
		totals.forget()
	}
	a, b := openflow.FlowStats{Match: []byte("a"), Packets: 5, Bytes: 50}, openflow.FlowStats{Match: []byte("b"), Packets: 1, Bytes: 10}
	round(a, b)
	a.Packets, a.Bytes = 8, 80
	round(a) // b is gone
	if totals.packets != 9 || totals.bytes != 90 || len(totals.flows) != 1 {
		t.Errorf("%d packets, %d bytes, %d flows; want 9, 90, 1", totals.packets, totals.bytes, len(totals.flows))
	}
	a.Packets, a.Bytes = 2, 20 // installed anew
	other := a
	other.Priority = 7 // another flow
	round(a, other, openflow.FlowStats{Match: []byte("u"), Packets: openflow.Unknown})
	if totals.packets != 13 || totals.bytes != 130 || len(totals.flows) != 2 {
		t.Errorf("%d packets, %d bytes, %d flows; want 13, 130, 2", totals.packets, totals.bytes, len(totals.flows))
	}
}
