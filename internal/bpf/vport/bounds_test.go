package vport

import "testing"

func TestBoundsAreSyncedAndLimitsStay(t *testing.T) {
	b := newBench(t)
	want := Bounds{Packets: 10, NewFlows: 20, Receive: 30}
	expect := func(what string, want Bounds) {
		t.Helper()
		if got, err := b.Contract(loopback); err != nil || got != want {
			t.Errorf("%s: contract %+v, %v; want %+v", what, got, err, want)
		}
	}
	for range 2 {
		if err := b.SyncBounds(map[int]Bounds{loopback: want, 99: {Packets: 1}}); err != nil { // there is no 99
			t.Fatal(err)
		}
		expect("synced", want)
	}
	b.setLimit(LimitRequest{Everything: true, Rate: 1, Burst: 1})
	if err := b.SyncBounds(map[int]Bounds{loopback: {Packets: 11}}); err != nil {
		t.Fatal(err)
	}
	expect("changed beside a limit", Bounds{Packets: 11})
	if got := b.passes(tcpFrame("10.0.0.2"), 5); got != 0 {
		t.Errorf("%d frames passed: bounds took the limit away", got)
	}
	if err := b.RemoveLimit(loopback); err != nil {
		t.Fatal(err)
	}
	if err := b.SyncBounds(nil); err != nil {
		t.Fatal(err)
	}
	expect("not named", Bounds{Packets: 11})
	if err := b.SyncBounds(map[int]Bounds{loopback: {}}); err != nil {
		t.Fatal(err)
	}
	expect("without bounds", Bounds{})
	if err := b.SyncBounds(map[int]Bounds{loopback: {Packets: MaxRate + 1}}); err == nil {
		t.Error("absurd bounds were accepted")
	}
}
