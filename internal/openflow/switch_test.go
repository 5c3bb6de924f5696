package openflow

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"vigia/internal/testutil"
)

// rig is a real switch with two tenants' ports, flows with cookies and a meter.
type rig struct {
	*testutil.VSwitch
	a, b string
}

const pings = 5

func newRig(t *testing.T) *rig {
	t.Helper()
	node := testutil.NewNetNS(t)
	testutil.DisableIPv6(t, node)
	r := &rig{VSwitch: testutil.NewVSwitch(t, node), a: testutil.NewNetNS(t), b: testutil.NewNetNS(t)}
	for i, ns := range []string{r.a, r.b} {
		testutil.DisableIPv6(t, ns)
		tap := fmt.Sprintf("tap%d", i)
		testutil.NewVethPair(t, node, tap, ns, "eth0")
		testutil.Run(t, "ip", "netns", "exec", ns, "ethtool", "-K", "eth0", "tx", "off")
		testutil.IP(t, "-n", ns, "addr", "add", fmt.Sprintf("10.9.0.%d/24", i+1), "dev", "eth0")
		testutil.IP(t, "-n", ns, "link", "set", "eth0", "address", fmt.Sprintf("02:00:00:00:00:0%d", i+1))
	}
	testutil.IP(t, "-n", r.a, "neigh", "add", "10.9.0.2", "lladdr", "02:00:00:00:00:02", "dev", "eth0", "nud", "permanent")
	testutil.IP(t, "-n", r.b, "neigh", "add", "10.9.0.1", "lladdr", "02:00:00:00:00:01", "dev", "eth0", "nud", "permanent")
	r.Set("add-br", "br-int", "--", "set", "bridge", "br-int", "datapath_type=netdev", "fail_mode=secure",
		"--", "add-port", "br-int", "tap0", "--", "add-port", "br-int", "tap1")
	r.Set("set", "bridge", "br-int", "protocols=OpenFlow10,OpenFlow13")
	r.OFCtl("OpenFlow13", "add-meter", "br-int", "meter=7,pktps,stats,band=type=drop,rate=100000")
	r.OFCtl("OpenFlow13", "add-flow", "br-int", "table=0,cookie=0x14,priority=5,in_port=tap0,actions=meter:7,output:tap1")
	r.OFCtl("OpenFlow13", "add-flow", "br-int", "table=0,cookie=0x15,priority=5,in_port=tap1,actions=output:tap0")
	r.OFCtl("OpenFlow13", "add-flow", "br-int", "table=3,cookie=0x15,priority=9,tcp,tp_dst=80,actions=drop")
	testutil.Run(t, "ip", "netns", "exec", r.a, "ping", "-c", fmt.Sprint(pings), "-i0.2", "-W10", "10.9.0.2")
	return r
}

func (r *rig) dial(t *testing.T) *Conn {
	t.Helper()
	c, err := Dial(t.Context(), r.Mgmt("br-int"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func TestEveryVersionTellsTheSame(t *testing.T) {
	r := newRig(t)
	for version := V10; version <= V14; version++ {
		t.Run(version.String(), func(t *testing.T) {
			r.Set("set", "bridge", "br-int", "protocols=OpenFlow1"+fmt.Sprint(int(version)-1))
			c := r.dial(t)
			if c.Version() != version {
				t.Fatalf("agreed on %s", c.Version())
			}
			checkPorts(t, r, c)
			checkTables(t, c)
			checkFlows(t, c)
			checkMeters(t, c)
			if queues, err := c.Queues(t.Context()); err != nil || len(queues) != 0 {
				t.Errorf("queues: %v, %v; want none", queues, err)
			}
		})
	}
}

func checkPorts(t *testing.T, r *rig, c *Conn) {
	t.Helper()
	names := map[uint32]string{0xfffffffe: "br-int"} // OFPP_LOCAL
	for _, name := range []string{"tap0", "tap1"} {
		number, err := strconv.ParseUint(r.Set("get", "interface", name, "ofport"), 10, 32)
		if err != nil {
			t.Fatal(err)
		}
		names[uint32(number)] = name
	}
	stats, err := c.Ports(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	seen := make(map[string]bool)
	for _, p := range stats {
		name := names[p.Port]
		seen[name] = true
		if name != "tap0" && name != "tap1" {
			continue
		}
		if p.RxPackets != pings || p.TxPackets != pings || p.RxBytes != pings*98 || p.TxBytes != pings*98 {
			t.Errorf("%s: %+v, want %d packets of 98 bytes each way", name, p, pings)
		}
		if c.Version() >= V13 && p.DurationSec > 3600 {
			t.Errorf("%s exists for %d s", name, p.DurationSec)
		}
	}
	if !seen["br-int"] || !seen["tap0"] || !seen["tap1"] {
		t.Errorf("ports %v, names %v", stats, names)
	}
}

func checkTables(t *testing.T, c *Conn) {
	t.Helper()
	var tables []TableStats
	testutil.WaitFor(t, "the lookups of table 0", func() bool { // they come up from the datapath within a second
		var err error
		if tables, err = c.Tables(t.Context()); err != nil {
			t.Fatal(err)
		}
		return tables[0].Lookup >= 2*pings && tables[0].Matched >= 2*pings
	})
	for _, table := range tables {
		want := map[uint8]uint32{0: 2, 3: 1}[table.ID]
		if table.Active != want && table.ID < 250 { // the last ones are the switch's own
			t.Errorf("table %d has %d flows, want %d", table.ID, table.Active, want)
		}
	}
	if len(tables) < 4 {
		t.Errorf("%d tables", len(tables))
	}
}

func checkFlows(t *testing.T, c *Conn) {
	t.Helper()
	for _, tc := range []struct {
		filter  FlowFilter
		flows   int
		packets uint64
	}{
		{FlowFilter{}, 3, 2 * pings},
		{FlowFilter{Cookie: 0x14, Mask: ^uint64(0)}, 1, pings},
		{FlowFilter{Cookie: 0x15, Mask: ^uint64(0)}, 2, pings},
		{FlowFilter{Cookie: 0x99, Mask: ^uint64(0)}, 0, 0},
	} {
		var flows int
		var packets uint64
		count := func() { // counters come up from the datapath within a second
			flows, packets = 0, 0
			err := c.Flows(t.Context(), tc.filter, func(f FlowStats) {
				flows++
				packets += f.Packets
				if f.Table == 3 && f.Priority != 9 || f.Table == 0 && f.Priority != 5 || len(f.Match) == 0 {
					t.Errorf("flow %+v", f)
				}
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		testutil.WaitFor(t, "the flows' counters", func() bool { count(); return packets == tc.packets })
		if flows != tc.flows {
			t.Errorf("%+v: %d flows, want %d", tc.filter, flows, tc.flows)
		}
		sum, err := c.Aggregate(t.Context(), tc.filter)
		if c.Version() == V10 && tc.filter.Mask != 0 {
			if !errors.Is(err, ErrUnsupported) {
				t.Errorf("aggregate by cookie in 1.0: %v", err)
			}
			continue
		}
		if err != nil || int(sum.Flows) != tc.flows || sum.Packets != tc.packets || sum.Bytes != 98*tc.packets {
			t.Errorf("%+v: aggregate %+v, %v", tc.filter, sum, err)
		}
	}
}

func checkMeters(t *testing.T, c *Conn) {
	t.Helper()
	meters, err := c.Meters(t.Context())
	if c.Version() < V13 {
		if !errors.Is(err, ErrUnsupported) {
			t.Errorf("meters in %s: %v", c.Version(), err)
		}
		return
	}
	if err != nil || len(meters) != 1 {
		t.Fatalf("meters: %v, %v", meters, err)
	}
	if m := meters[0]; m.ID != 7 || m.Packets != pings || m.Bytes != 98*pings || m.BandPackets != 0 {
		t.Errorf("meter %+v", m)
	}
}

func TestVersionsThatDoNotMeetAreExplained(t *testing.T) {
	s := testutil.NewVSwitch(t, testutil.NewNetNS(t))
	s.Set("add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=netdev", "protocols=OpenFlow15")
	_, err := Dial(t.Context(), s.Mgmt("br0"))
	if err == nil || !strings.Contains(err.Error(), "protocols") && !strings.Contains(err.Error(), "refuses") {
		t.Errorf("got %v", err)
	}
	if _, err := Dial(t.Context(), s.Mgmt("absent")); err == nil || !strings.Contains(err.Error(), "connect to the switch") {
		t.Errorf("absent bridge: %v", err)
	}
}

func TestSessionEndsWithTheSwitch(t *testing.T) {
	s := testutil.NewVSwitch(t, testutil.NewNetNS(t))
	s.Set("add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=netdev")
	c, err := Dial(t.Context(), s.Mgmt("br0"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Ports(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.StopSwitch()
	if _, err := c.Ports(t.Context()); err == nil {
		t.Error("a dead switch answered")
	}
	if _, err := c.Tables(t.Context()); err == nil || !strings.Contains(err.Error(), "the session has ended") {
		t.Errorf("got %v", err)
	}
	s.StartSwitch()
	testutil.WaitFor(t, "a new session", func() bool {
		again, err := Dial(t.Context(), s.Mgmt("br0"))
		if err != nil {
			return false
		}
		again.Close()
		return true
	})
}

func TestContextEndsAWait(t *testing.T) {
	path := silent(t)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := Dial(ctx, path); err == nil {
		t.Error("a silent switch shook hands")
	}
}
