package kerneldrops

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"vigia/exporters/tenant/source"
	"vigia/exporters/tenant/source/sourcetest"
	"vigia/internal/bpf/drops"
	"vigia/internal/exposition"
	"vigia/internal/ports"
)

// events is a counter that says what the test wants.
type events struct {
	counts map[drops.Event]uint64
	err    error
}

func (e *events) Read(_ func(int) bool, each func(*drops.Event, uint64)) error {
	for event, count := range e.counts {
		each(&event, count)
	}
	return e.err
}

func (e *events) Lost() (uint64, error) { return 7, nil }

const (
	bridgePort, ovsPort, internalPort, uplink = 5, 6, 7, 99
)

func view() *source.View {
	return sourcetest.View([]ports.Port{
		{ID: "b", Tenant: "red", Index: bridgePort, DataPlane: ports.LinuxBridge},
		{ID: "o", Tenant: "blue", Index: ovsPort, DataPlane: ports.OVSUserspace},
		{ID: "i", Tenant: "red", Index: internalPort, DataPlane: ports.OVSKernel, TenantSide: true},
	}, nil, nil, time.Now())
}

func newSource(t *testing.T, e *events) *Source {
	t.Helper()
	return New(sourcetest.Families(t), e)
}

func TestDropsAreLaidAtTheRightDoor(t *testing.T) {
	for _, tc := range []struct {
		name  string
		event drops.Event
		want  source.DropKey
	}{
		{"a filter on what the tenant sends", drops.Event{Device: bridgePort, Arrival: bridgePort, Reason: "NETFILTER_DROP"}, source.DropKey{Port: "b", Tenant: "red", Direction: "from_tenant", Reason: source.Policy}},
		{"a filter on what the tenant would get", drops.Event{Device: bridgePort, Arrival: uplink, Reason: "NETFILTER_DROP"}, source.DropKey{Port: "b", Tenant: "red", Direction: "to_tenant", Reason: source.Policy}},
		{"the node's own packet to the tenant", drops.Event{Device: bridgePort, Reason: "FULL_RING"}, source.DropKey{Port: "b", Tenant: "red", Direction: "to_tenant", Reason: source.VhostBackpressure}},
		{"the tenant's packet at the uplink", drops.Event{Device: uplink, Arrival: bridgePort, Reason: "PKT_TOO_BIG"}, source.DropKey{Port: "b", Tenant: "red", Direction: "from_tenant", Reason: source.MTU}},
		{"a device that is the tenant's own end", drops.Event{Device: internalPort, Arrival: internalPort, Reason: "UDP_CSUM"}, source.DropKey{Port: "i", Tenant: "red", Direction: "to_tenant", Reason: source.Checksum}},
		{"a frame for nobody", drops.Event{Device: bridgePort, Arrival: bridgePort, Reason: "OTHERHOST"}, source.DropKey{Port: "b", Tenant: "red", Direction: "from_tenant", Reason: source.MACVLANFilter}},
		{"towards a port of a userspace switch", drops.Event{Device: ovsPort, Reason: "FULL_RING"}, source.DropKey{Port: "o", Tenant: "blue", Direction: "to_tenant", Reason: source.VhostBackpressure}},
		{"a reason of a newer kernel", drops.Event{Device: bridgePort, Arrival: bridgePort, Reason: "VXLAN_SOMETHING_NEW"}, source.DropKey{Port: "b", Tenant: "red", Direction: "from_tenant", Reason: source.TunnelError}},
		{"a reason without a name", drops.Event{Device: bridgePort, Arrival: bridgePort, Reason: "REASON_999"}, source.DropKey{Port: "b", Tenant: "red", Direction: "from_tenant", Reason: source.Other}},

		{"the kernel's copy of what a userspace switch took", drops.Event{Device: ovsPort, Arrival: ovsPort, Reason: "OTHERHOST"}, source.DropKey{}},
		{"the same, a broadcast", drops.Event{Device: ovsPort, Arrival: ovsPort, Reason: "NO_SOCKET"}, source.DropKey{}},
		{"a packet socket that looks for something else", drops.Event{Device: bridgePort, Arrival: bridgePort, Reason: "SOCKET_FILTER"}, source.DropKey{}},
		{"a qdisc, which says so itself", drops.Event{Device: bridgePort, Reason: "QDISC_DROP"}, source.DropKey{}},
		{"Vigia's own policer", drops.Event{Device: bridgePort, Arrival: bridgePort, Reason: "TC_INGRESS"}, source.DropKey{}},
		{"a TCP socket's business", drops.Event{Device: bridgePort, Arrival: bridgePort, Reason: "TCP_OLD_DATA"}, source.DropKey{}},
		{"an interface that is no port", drops.Event{Device: uplink, Arrival: uplink, Reason: "NO_SOCKET"}, source.DropKey{}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			v := view()
			if err := newSource(t, &events{counts: map[drops.Event]uint64{tc.event: 3}}).Collect(v, exposition.NewPage(nil)); err != nil {
				t.Fatal(err)
			}
			want := map[source.DropKey]uint64{}
			if tc.want != (source.DropKey{}) {
				want[tc.want] = 3
			}
			if diff := cmp.Diff(want, v.Drops.Counts); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestWhatOurProgramDropsAtXDPIsCountedOnce gives what a flood that is limited looks like at
// a port of a userspace switch: the driver frees without a reason what the program dropped.
func TestWhatOurProgramDropsAtXDPIsCountedOnce(t *testing.T) {
	freed := drops.Event{Device: ovsPort, Reason: "NOT_SPECIFIED", Protocol: "udp"}
	e := &events{counts: map[drops.Event]uint64{}}
	s := newSource(t, e)
	for i, scrape := range []struct{ limited, freed, want uint64 }{
		{0, 0, 0},
		{900, 1000, 0},    // 100 more were freed after the program was read
		{5000, 5100, 0},   // the same
		{5100, 5100, 0},   // the flood is over
		{5100, 5107, 0},   // seven that the program did not drop
		{5100, 5107, 7},   // are told at the next scrape
		{90000, 90100, 7}, // and a flood takes nothing back
		{90100, 90107, 7},
		{90100, 90107, 7},
	} {
		v := view()
		v.Drops.Add("o", "blue", source.FromTenant, source.RateLimit, scrape.limited, source.Beside)
		e.counts = map[drops.Event]uint64{freed: scrape.freed}
		if err := s.Collect(v, exposition.NewPage(nil)); err != nil {
			t.Fatal(err)
		}
		if got := v.Drops.Counts[source.DropKey{Port: "o", Tenant: "blue", Direction: source.FromTenant, Reason: source.Other}]; got != scrape.want {
			t.Errorf("scrape %d: %d others, want %d", i, got, scrape.want)
		}
		if got := v.Drops.Counts[source.DropKey{Port: "o", Tenant: "blue", Direction: source.FromTenant, Reason: source.RateLimit}]; got != scrape.limited {
			t.Errorf("scrape %d: %d limited, want %d", i, got, scrape.limited)
		}
	}
}

// TestACopyOfAnUnknownProtocolIsNoLoss gives what a frame of an unknown ethertype looks like at a port of a userspace
// switch, which has it: the kernel finds no protocol for its own copy, and the device counts that.
func TestACopyOfAnUnknownProtocolIsNoLoss(t *testing.T) {
	for port, want := range map[int]uint64{ovsPort: 0, bridgePort: 40} {
		e := &events{counts: map[drops.Event]uint64{{Device: port, Arrival: port, Reason: "UNHANDLED_PROTO", Protocol: "other"}: 40}}
		v := view()
		p := v.ByIndex(port)
		v.Drops.Device(p.ID, p.Tenant, source.FromTenant, 43)
		if err := newSource(t, e).Collect(v, exposition.NewPage(nil)); err != nil {
			t.Fatal(err)
		}
		v.Drops.Settle(source.NewRemainders())
		got := v.Drops.Counts
		key := source.DropKey{Port: p.ID, Tenant: p.Tenant, Direction: source.FromTenant, Reason: source.MACVLANFilter}
		if got[key] != want {
			t.Errorf("port %s: %d filtered, want %d", p.ID, got[key], want)
		}
		key.Reason = source.Unattributed
		if got[key] != 3 {
			t.Errorf("port %s: %d unattributed, want 3", p.ID, got[key])
		}
	}
}

// TestARestartTellsTheRestAtOnce lets counters that outlived the process be read for the first time.
func TestARestartTellsTheRestAtOnce(t *testing.T) {
	e := &events{counts: map[drops.Event]uint64{{Device: ovsPort, Reason: "NOT_SPECIFIED", Protocol: "udp"}: 507}}
	v := view()
	v.Drops.Add("o", "blue", source.FromTenant, source.RateLimit, 500, source.Beside)
	if err := newSource(t, e).Collect(v, exposition.NewPage(nil)); err != nil {
		t.Fatal(err)
	}
	if got := v.Drops.Counts[source.DropKey{Port: "o", Tenant: "blue", Direction: source.FromTenant, Reason: source.Other}]; got != 7 {
		t.Errorf("%d others, want 7", got)
	}
}

func TestRawReasonsAreTheDetail(t *testing.T) {
	e := &events{counts: map[drops.Event]uint64{
		{Device: bridgePort, Arrival: bridgePort, Reason: "NETFILTER_DROP", Protocol: "tcp"}: 3,
		{Device: uplink, Arrival: bridgePort, Reason: "NETFILTER_DROP", Protocol: "tcp"}:     4,
	}}
	s := newSource(t, e)
	page := func(detail bool) string {
		v, p := view(), exposition.NewPage(nil)
		v.Detail = detail
		if err := s.Collect(v, p); err != nil {
			t.Fatal(err)
		}
		var b strings.Builder
		if _, err := p.WriteTo(&b); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	const want = `vigia_port_kernel_drops_total{port="b",tenant="red",direction="from_tenant",reason="NETFILTER_DROP",protocol="tcp"} 7`
	if got := page(true); !strings.Contains(got, want) || !strings.Contains(got, "vigia_exporter_kernel_drops_lost_total 7\n") {
		t.Errorf("no %s in\n%s", want, got)
	}
	if got := page(false); strings.Contains(got, "vigia_port_kernel_drops_total{") {
		t.Errorf("detail without being asked:\n%s", got)
	}
	e.err = errors.New("gone")
	if err := s.Collect(view(), exposition.NewPage(nil)); err == nil {
		t.Error("a failure to read is no failure")
	}
}

// TestEveryMappedReasonIsKnownToSomeKernel catches names that are misspelt: all but
// those of newer or older kernels are in the running one.
func TestReasonsAreMostlyThisKernels(t *testing.T) {
	r, err := drops.KernelReasons()
	if err != nil {
		t.Fatal(err)
	}
	elsewhere := map[string]bool{ // other versions, and modules that are not loaded
		"PTYPE_ABSENT": true, "MAC_INVALID_SOURCE": true, "LOCAL_MAC": true, "BRIDGE_INGRESS_STP_STATE": true, "IP_TTL_EXCEEDED": true,
		"XFRM_POLICY": true, "VLAN_FILTER": true, "RECURSION_LIMIT": true,
	}
	for name := range losses() {
		if r.Number(name) == 0 && !elsewhere[name] && !strings.HasPrefix(name, "OVS_") {
			t.Errorf("this kernel has no reason %s", name)
		}
	}
}
