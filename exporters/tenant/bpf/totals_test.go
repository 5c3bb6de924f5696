package bpf

import (
	"testing"

	"vigia/internal/bpf/vport"
	"vigia/internal/bpf/vport/vporttest"
	"vigia/internal/ports"
	"vigia/internal/testutil"
)

// book is what is persistent in a private bpffs, and the sums of the exporters that use it
// one after the other.
type book struct {
	t          *testing.T
	pinDir     string
	node       string
	persistent *vport.TenantTotals
	totals     *totals
}

func newBook(t *testing.T) *book {
	t.Helper()
	b := &book{t: t, pinDir: testutil.NewBPFFS(t), node: testutil.NewNetNS(t)}
	b.restart()
	return b
}

// restart is what happens when the exporter is killed and starts again.
func (b *book) restart() {
	b.t.Helper()
	m := vporttest.Open(b.t, vport.Options{PinDir: b.pinDir, NetNS: b.node, MaxPorts: 4})
	b.persistent, b.totals = m.TenantTotals(), newTotals(m.TenantTotals())
}

type port struct {
	index  uint32
	since  uint64
	tenant string
	count  uint64
}

// scrape shows the sums of a scrape that sees these ports.
func (b *book) scrape(live ...port) map[string]uint64 {
	b.t.Helper()
	b.totals.begin()
	for _, p := range live {
		if err := b.totals.add(vport.Incarnation{Index: p.index, SinceNs: p.since}, p.tenant, counters(p.count)); err != nil {
			b.t.Fatal(err)
		}
	}
	if err := b.totals.end(); err != nil {
		b.t.Fatal(err)
	}
	out := make(map[string]uint64)
	for tenant, a := range b.totals.byTenant() {
		if a.Bytes[1][2] != a.Packets[0][3]*10 || a.Sizes[1][7] != a.Packets[0][3] {
			b.t.Errorf("the parts of %s do not fit: %+v", tenant, a)
		}
		out[tenant] = a.Packets[0][3]
	}
	return out
}

func traffic(n uint64) (a vport.Traffic) {
	a.Packets[0][3], a.Bytes[1][2], a.Sizes[1][7] = n, 10*n, n
	return a
}

func counters(n uint64) *vport.Counters {
	a := traffic(n)
	return &vport.Counters{Bytes: a.Bytes, Packets: a.Packets, Sizes: a.Sizes}
}

func (b *book) expect(what string, got map[string]uint64, tenant string, want uint64) {
	b.t.Helper()
	if got[tenant] != want {
		b.t.Errorf("%s: %s has %d, want %d; all: %v", what, tenant, got[tenant], want, got)
	}
}

func TestSumsSurviveAnything(t *testing.T) {
	b := newBook(t)
	p1, p2 := port{5, 100, "red", 10}, port{6, 100, "red", 1}
	b.expect("two ports", b.scrape(p1, p2), "red", 11)
	b.restart()
	p1.count = 20
	b.expect("after a restart", b.scrape(p1, p2), "red", 21)

	// A port goes while nobody looks, after it counted on.
	if err := b.persistent.SetFinal(vport.Incarnation{Index: 5, SinceNs: 100}, traffic(25)); err != nil {
		t.Fatal(err)
	}
	b.restart()
	b.expect("its last word counts", b.scrape(p2), "red", 26)
	b.restart()
	b.expect("once", b.scrape(p2), "red", 26)

	// Its interface number comes back with counters at zero.
	again := port{5, 200, "red", 3}
	b.expect("a new life", b.scrape(p2, again), "red", 29)

	// It changes hands.
	again.tenant, again.count = "blue", 5
	got := b.scrape(p2, again)
	b.expect("the old owner keeps what was", got, "red", 31)
	b.expect("the new one starts at nothing", got, "blue", 0)
	again.count = 9
	b.restart()
	got = b.scrape(p2, again)
	b.expect("and counts from there", got, "blue", 4)
	b.expect("alone", got, "red", 31)

	// After a start the identity may be late.
	again.tenant, again.count = ports.Unresolved, 10
	b.expect("it stays whose it was", b.scrape(p2, again), "blue", 5)
	again.tenant = ""
	b.expect("also when it is no port for a while", b.scrape(p2, again), "blue", 5)

	// Everything goes, and no last word was written.
	got = b.scrape()
	b.expect("what was seen last", got, "red", 31)
	b.expect("is not lost", got, "blue", 5)
	if owners, err := b.persistent.Owners(); err != nil || len(owners) != 0 {
		t.Errorf("owners of incarnations that are over: %v, %v", owners, err)
	}
}

func TestUnknownPortsBecomeTheirTenants(t *testing.T) {
	b := newBook(t)
	p := port{5, 100, ports.Unresolved, 7}
	b.expect("nobody's", b.scrape(p), ports.Unresolved, 7)
	p.tenant, p.count = "red", 9
	got := b.scrape(p)
	b.expect("what was before stays nobody's", got, ports.Unresolved, 9)
	b.expect("and only what follows is the tenant's", got, "red", 0)
	p.count = 12
	b.expect("it follows", b.scrape(p), "red", 3)
}

func TestAScrapeThatBreaksOffHidesNoEnd(t *testing.T) {
	b := newBook(t)
	p1, p2, p3 := port{5, 100, "red", 10}, port{6, 100, "red", 1}, port{7, 100, "blue", 4}
	b.scrape(p1, p2, p3)
	b.totals.begin()
	if err := b.totals.add(vport.Incarnation{Index: p1.index, SinceNs: p1.since}, p1.tenant, counters(p1.count)); err != nil {
		t.Fatal(err)
	}
	if err := b.persistent.SetFinal(vport.Incarnation{Index: p2.index, SinceNs: p2.since}, traffic(3)); err != nil {
		t.Fatal(err)
	}
	b.expect("the last word of the one that went", b.scrape(p1), "red", 13)
	if owners, err := b.persistent.Owners(); err != nil || len(owners) != 1 {
		t.Errorf("owners are %v, %v; want that of one incarnation", owners, err)
	}
	p4 := port{4, 300, "red", 2}
	b.expect("in another order: numbers of interfaces are used again", b.scrape(p4, p1), "red", 15)
}
