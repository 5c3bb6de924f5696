package fastloop

import (
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/common/promslog"

	"vigia/internal/bpf/classify"
	"vigia/internal/bpf/vport"
	"vigia/internal/tc"
	"vigia/internal/testutil"
	"vigia/isolation-agent/enforcer/contract"
	"vigia/isolation-agent/enforcer/fastloop/control"
	"vigia/isolation-agent/enforcer/notice"
	"vigia/isolation-agent/enforcer/scheduling"
)

const benchTenants = 64

// newKernelLoop is a loop on an uplink with the classes of 64 tenants in the kernel.
func newKernelLoop(tb testing.TB) *Loop {
	tb.Helper()
	l, _, _ := newSizedLoop(tb, benchTenants)
	return l
}

// newSizedLoop is one with so many tenants; it returns the namespace of the uplink and where the
// programs' maps are pinned, too.
func newSizedLoop(tb testing.TB, tenants int) (l *Loop, ns, pins string) {
	tb.Helper()
	ns, pins = testutil.NewNetNS(tb), testutil.NewBPFFS(tb)
	testutil.DisableIPv6(tb, ns)
	testutil.IP(tb, "-n", ns, "link", "add", "up0", "type", "veth", "peer", "name", "up1")
	testutil.IP(tb, "-n", ns, "link", "set", "up0", "up")
	testutil.IP(tb, "-n", ns, "link", "set", "up1", "up")
	programs, err := classify.Open(pins, tenants+1)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { programs.Close() })
	reconciler, err := scheduling.NewReconciler(ns, programs, promslog.NewNopLogger())
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { reconciler.Close() })
	var list []contract.Contract
	for i := range tenants {
		b := contract.Bandwidth{GuaranteeBytesPerSecond: uint64(benchTenants * mbit / float64(max(benchTenants, tenants))), CeilingBytesPerSecond: 100 * mbit}
		list = append(list, contract.Contract{
			Owner: contract.Owner{Tenant: fmt.Sprintf("t%d", i)}, Send: b, Receive: b, Matches: []classify.Match{{Network: classify.VXLAN, ID: uint32(i + 1)}},
		})
	}
	contracts, err := contract.NewSet(list)
	if err != nil {
		tb.Fatal(err)
	}
	reconciler.Set([]scheduling.Link{{Device: "up0", RateBytesPerSecond: 100 * mbit, Headroom: 0.05}}, contracts)
	if _, err := reconciler.Reconcile(); err != nil {
		tb.Fatal(err)
	}
	l = newLoop(Config{Node: "n1", Variant: control.Vigia}, reconciler, programs, &kernel{pairs: map[vport.Destination]vport.Pair{}}, inventory{},
		promslog.NewNopLogger(), Events{Notice: func(notice.Kind, notice.Outcome) {}}, &directory{self: "n1", nodes: map[string]*node{}})
	if l.conn, err = tc.Dial(ns); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { l.conn.Close() })
	l.refresh()
	return l, ns, pins
}

// ticks are what a tick may find: a link with room, one that is sampled and whose
// classes have not moved, and one all of whose classes have.
var ticks = []struct {
	name    string
	prepare func(*Loop, time.Time)
}{
	{"idle", func(*Loop, time.Time) {}},
	{"awake", func(l *Loop, now time.Time) { l.links[0].receiver.Wake(now) }},
	{"all", func(l *Loop, now time.Time) {
		l.links[0].receiver.Wake(now)
		l.links[0].forgetReadings()
	}},
}

// BenchmarkTick prints what a tick takes on a link with 64 tenants, in the kernel.
func BenchmarkTick(b *testing.B) {
	for _, bc := range ticks {
		b.Run(bc.name, func(b *testing.B) {
			l := newKernelLoop(b)
			now := time.Now()
			tick := func() {
				now = now.Add(control.Tick)
				bc.prepare(l, now)
				l.round(now)
			}
			for range 10 {
				tick()
			}
			b.ReportAllocs()
			for b.Loop() {
				tick()
			}
		})
	}
}

// TestATickAllocatesNextToNothing bounds the allocations of a tick: a garbage collector
// that runs because of the fast loop makes it late.
func TestATickAllocatesNextToNothing(t *testing.T) {
	for i, most := range []float64{0, 0, 0} {
		l := newKernelLoop(t)
		now := time.Now()
		tick := func() {
			now = now.Add(control.Tick)
			ticks[i].prepare(l, now)
			l.round(now)
		}
		for range 10 {
			tick()
		}
		if got := testing.AllocsPerRun(200, tick); got > most {
			t.Errorf("%s: %v allocations, at most %v are due", ticks[i].name, got, most)
		}
	}
}
