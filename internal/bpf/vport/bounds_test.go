package vport

import "testing"

func TestBoundsAreSyncedAndLimitsSeen(t *testing.T) {
	b := newBench(t)
	want := map[int]Bounds{loopback: {Packets: 10, NewFlows: 20, Receive: 30}, 99: {Packets: 1}}
	got, err := b.SyncBounds(want)
	if err != nil || got[loopback] || len(got) != 1 {
		t.Fatalf("without a limit: %v %v", got, err)
	}
	if got, err := b.Contract(loopback); err != nil || got != want[loopback] {
		t.Errorf("contract %+v %v", got, err)
	}
	b.setLimit(LimitRequest{Everything: true, Rate: 1, Burst: 1})
	if got, err := b.SyncBounds(want); err != nil || !got[loopback] {
		t.Errorf("with a limit: %v %v", got, err)
	}
	if got := b.passes(tcpFrame("10.0.0.2"), 5); got != 0 {
		t.Errorf("%d frames passed: bounds took the limit away", got)
	}
	if err := b.RemoveLimit(loopback); err != nil {
		t.Fatal(err)
	}
	if got, err := b.SyncBounds(map[int]Bounds{loopback: {}}); err != nil || got[loopback] {
		t.Errorf("after its end: %v %v", got, err)
	}
	if got, err := b.Contract(loopback); err != nil || got != (Bounds{}) {
		t.Errorf("contract %+v %v", got, err)
	}
	if _, err := b.SyncBounds(map[int]Bounds{loopback: {Packets: MaxRate + 1}}); err == nil {
		t.Error("absurd bounds were accepted")
	}
}
