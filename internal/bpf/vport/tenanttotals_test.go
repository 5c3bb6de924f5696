package vport

import (
	"math"
	"strings"
	"testing"

	"vigia/internal/testutil"
)

// traffic has a number of its own in every place.
func traffic(base uint64) (t Traffic) {
	for d := range t.Bytes {
		for i := range t.Bytes[d] {
			t.Bytes[d][i], t.Packets[d][i] = base+uint64(100*d+i), base+uint64(1000+100*d+i)
		}
		for i := range t.Sizes[d] {
			t.Sizes[d][i] = base + uint64(2000+100*d+i)
		}
	}
	return t
}

func TestTrafficIsAddedAndSubtractedInEveryPlace(t *testing.T) {
	sum, other := traffic(5), traffic(70)
	sum.Add(&other)
	for d := range sum.Bytes {
		for i := range sum.Bytes[d] {
			if want := uint64(75 + 2*(100*d+i)); sum.Bytes[d][i] != want || sum.Packets[d][i] != want+2000 {
				t.Errorf("direction %d, protocol %d: %d bytes, %d packets", d, i, sum.Bytes[d][i], sum.Packets[d][i])
			}
		}
		for i := range sum.Sizes[d] {
			if want := uint64(4075 + 2*(100*d+i)); sum.Sizes[d][i] != want {
				t.Errorf("direction %d, size %d: %d", d, i, sum.Sizes[d][i])
			}
		}
	}
	sum.Sub(&other)
	if sum != traffic(5) {
		t.Errorf("%+v, want what it was", sum)
	}
	// Less than nothing, until what it is added to makes up for it.
	var less Traffic
	less.Sub(&other)
	if less.Bytes[0][0] != math.MaxUint64-69 {
		t.Errorf("nothing less 70 is %d", less.Bytes[0][0])
	}
	less.Add(&other)
	if less != (Traffic{}) {
		t.Errorf("made up for: %+v", less)
	}
}

func TestTenantTotalsOutliveTheProcess(t *testing.T) {
	pins := testutil.NewBPFFS(t)
	first := open(t, Options{PinDir: pins, MaxPorts: 4})
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	a, b := Incarnation{Index: 5, SinceNs: 100}, Incarnation{Index: 5, SinceNs: 200}
	long := strings.Repeat("x", tenantSize)
	totals := first.TenantTotals()
	must(totals.SetOwner(a, "red"))
	must(totals.SetOwner(b, long))
	must(totals.SetFinal(a, traffic(1)))
	must(totals.Settle("red", traffic(2)))
	must(totals.Settle(long, traffic(3)))
	must(totals.Settle("red", traffic(4)))
	must(first.Close())
	totals = open(t, Options{PinDir: pins, MaxPorts: 4}).TenantTotals()
	owners, err := totals.Owners()
	if err != nil || len(owners) != 2 || owners[a] != "red" || owners[b] != long {
		t.Errorf("owners %v, %v", owners, err)
	}
	settled, err := totals.Settled()
	if err != nil || len(settled) != 2 || settled["red"] != traffic(4) || settled[long] != traffic(3) {
		t.Errorf("settled %v, %v", settled, err)
	}
	if last, ok, err := totals.Final(a); err != nil || !ok || last != traffic(1) {
		t.Errorf("the last word %+v, %v, %v", last, ok, err)
	}
	if _, ok, err := totals.Final(b); err != nil || ok {
		t.Errorf("a last word of one that goes on: %v, %v", ok, err)
	}
	for range 2 {
		must(totals.Forget(a))
	}
	if _, ok, _ := totals.Final(a); ok {
		t.Error("the last word is not forgotten")
	}
	if owners, err = totals.Owners(); err != nil || len(owners) != 1 {
		t.Errorf("owners %v, %v", owners, err)
	}
}

func TestTheEndOfAnAttachmentIsItsLastWord(t *testing.T) {
	b := newBench(t)
	frame := udpFrame("10.0.0.2", 9, 100)
	for range 3 {
		b.run(b.objects.VportTcxFrom, frame)
	}
	c := b.read()
	if err := b.detach(loopback); err != nil {
		t.Fatal(err)
	}
	incarnation := Incarnation{Index: loopback, SinceNs: c.SinceNs}
	last, ok, err := b.TenantTotals().Final(incarnation)
	if err != nil || !ok || last != c.Traffic() || last.Packets[FromTenant][protocolUDP] != 3 {
		t.Errorf("the last word %+v, %v, %v", last, ok, err)
	}
	b.run(b.objects.VportTcxFrom, frame) // nobody's now
	b.put(loopback)
	if c := b.read(); c.Packets[FromTenant][protocolUDP] != 0 || c.SinceNs == incarnation.SinceNs {
		t.Errorf("the next begins with %+v", c)
	}
}
