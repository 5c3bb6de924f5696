package vport

import (
	"maps"
	"strings"
	"testing"
	"time"

	"vigia/internal/testutil"
)

func TestShapedTellsWhoseLimitsClassesShape(t *testing.T) {
	const other = 9 // an interface
	b := newBench(t)
	b.put(other)
	expect := func(what string, want map[uint32]int) {
		t.Helper()
		if got, err := b.Shaped(); err != nil || !maps.Equal(got, want) {
			t.Errorf("%s: %v, %v; want %v", what, got, err, want)
		}
	}
	shape := func(n uint32) uint32 { return ClassMajor<<16 | FirstShape + n }
	expect("without limits", nil)
	b.setLimit(LimitRequest{Rate: 1000, Burst: 1000})
	expect("with a limit that is policed", nil)
	b.setLimit(LimitRequest{Rate: 1000, Burst: 1000, Class: shape(1)})
	b.setPair(dest("10.0.0.2"), Pair{Rate: 1000, Burst: 1000, Class: shape(2), TTL: time.Minute})
	if err := b.SetPair(other, dest("10.0.0.2"), Pair{Rate: 1000, Burst: 1000, Class: shape(3), TTL: time.Minute}); err != nil {
		t.Fatal(err)
	}
	expect("with three", map[uint32]int{shape(1): loopback, shape(2): loopback, shape(3): other})

	// A class stays with a limit that has run out, until another one has it.
	if err := b.SetPair(other, dest("10.0.0.3"), Pair{Rate: 1000, Burst: 1000, Class: shape(4), TTL: time.Nanosecond}); err != nil {
		t.Fatal(err)
	}
	all := map[uint32]int{shape(1): loopback, shape(2): loopback, shape(3): other, shape(4): other}
	expect("with one that ran out", all)
	b.setPair(dest("10.0.0.4"), Pair{Rate: 1000, Burst: 1000, Class: shape(4), TTL: time.Minute})
	all[shape(4)] = loopback
	expect("with its next owner", all)
	if err := b.detach(other); err != nil {
		t.Fatal(err)
	}
	delete(all, shape(3))
	expect("without an interface", all)
}

func TestDropsOfClassesOutliveTheProcess(t *testing.T) {
	pins := testutil.NewBPFFS(t)
	first := open(t, Options{PinDir: pins, MaxPorts: 4})
	class, gone := UplinkClass{Link: 3, Class: 0x115072dc}, UplinkClass{Link: 3, Class: 0x11508001}
	red := DropOwner{Port: "6d5a5c3e-0000-4000-8000-000000000001", Tenant: strings.Repeat("t", tenantSize), Direction: "from_tenant", Reason: "queue_full"}
	shared := DropOwner{Port: "_shared", Tenant: "red", Direction: "to_tenant", Reason: "rate_limit"}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	d := first.ClassDrops()
	must(d.SetCounted(class, ClassCount{Bytes: 1 << 40, Drops: 217}))
	must(d.SetCounted(gone, ClassCount{Bytes: 1, Drops: 1}))
	must(d.SetCounted(class, ClassCount{Bytes: 1<<40 + 1, Drops: 218}))
	must(d.Forget(gone))
	must(d.Forget(gone))
	must(d.SetAttributed(red, 217))
	must(d.SetAttributed(red, 1<<33))
	must(d.SetAttributed(shared, 5))
	must(first.Close())
	second := open(t, Options{PinDir: pins, MaxPorts: 4})
	counted, err := second.ClassDrops().Counted()
	if err != nil || len(counted) != 1 || counted[class] != (ClassCount{Bytes: 1<<40 + 1, Drops: 218}) {
		t.Errorf("counted %+v, %v", counted, err)
	}
	attributed, err := second.ClassDrops().Attributed()
	if want := map[DropOwner]uint64{red: 1 << 33, shared: 5}; err != nil || !maps.Equal(attributed, want) {
		t.Errorf("attributed %v, %v; want %v", attributed, err, want)
	}
	must(second.Uninstall())
	third := open(t, Options{PinDir: pins, MaxPorts: 4})
	if attributed, err := third.ClassDrops().Attributed(); err != nil || len(attributed) != 0 {
		t.Errorf("after the removal of everything: %v, %v", attributed, err)
	}
}
