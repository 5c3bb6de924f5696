package vport

import (
	"math"
	"slices"
	"testing"
	"time"

	"vigia/internal/testutil"
)

func TestASnapshotHasEveryInterfaceOnce(t *testing.T) {
	b := newBench(t)
	var s Snapshot
	look := func(want map[int]uint64) {
		t.Helper()
		if err := b.Snapshot(&s); err != nil {
			t.Fatal(err)
		}
		if len(s.Places) != len(want) || len(s.Counters) != len(want) {
			t.Fatalf("%d places, %d counters; want %d", len(s.Places), len(s.Counters), len(want))
		}
		for ifindex, packets := range want {
			i, ok := s.Find(ifindex)
			if !ok || s.Places[i].Incarnation.Index != uint32(ifindex) || s.Counters[i].Packets[FromTenant][protocolUDP] != packets {
				t.Errorf("interface %d is at %d, %v: %+v", ifindex, i, ok, s.Counters)
				continue
			}
			if c, err := b.Read(ifindex); err != nil || c != s.Counters[i] {
				t.Errorf("interface %d: the snapshot has %+v, the counters are %+v, %v", ifindex, s.Counters[i], c, err)
			}
			if signals, err := b.SignalsPlace(s.Places[i]); err != nil || signals.FloodSinceNs != 0 {
				t.Errorf("signals %+v, %v", signals, err)
			}
		}
		var signals SignalSnapshot
		if err := b.SnapshotSignals(&signals); err != nil || !slices.Equal(signals.Places, s.Places) || len(signals.Signals) != len(want) {
			t.Errorf("signals %+v of %+v, %v", signals.Signals, signals.Places, err)
		}
		if _, ok := s.Find(4711); ok {
			t.Error("found an interface that is not attached")
		}
	}
	b.run(b.objects.VportTcxFrom, udpFrame("10.0.0.2", 9, 100))
	look(map[int]uint64{loopback: 1})
	b.put(rival) // whose place the other one has
	look(map[int]uint64{loopback: 1, rival: 0})
	b.run(b.objects.VportTcxFrom, udpFrame("10.0.0.2", 9, 100))
	b.put(3)
	look(map[int]uint64{loopback: 2, rival: 0, 3: 0})
	if err := b.detach(loopback); err != nil {
		t.Fatal(err)
	}
	look(map[int]uint64{rival: 0, 3: 0})
	for _, ifindex := range []int{rival, 3} {
		if err := b.detach(ifindex); err != nil {
			t.Fatal(err)
		}
	}
	look(nil)
	places, err := b.Places()
	if err != nil || len(places) != 0 {
		t.Errorf("places %v, %v", places, err)
	}
}

func TestAFullHouseIsReadInOneGo(t *testing.T) {
	b := newBench(t)
	var s Snapshot
	for ifindex := loopback + 1; ifindex < loopback+b.maxPorts; ifindex++ {
		b.put(ifindex)
	}
	for range 3 { // and again into the same memory
		if err := b.Snapshot(&s); err != nil || len(s.Places) != b.maxPorts {
			t.Errorf("%d of %d places, %v", len(s.Places), b.maxPorts, err)
		}
	}
	if allocations := testing.AllocsPerRun(20, func() { _ = b.Snapshot(&s) }); allocations > 10 {
		t.Errorf("%v allocations", allocations)
	}
	var signals SignalSnapshot
	for range 3 {
		if err := b.SnapshotSignals(&signals); err != nil || len(signals.Signals) != b.maxPorts {
			t.Errorf("signals of %d of %d places, %v", len(signals.Signals), b.maxPorts, err)
		}
	}
	perPort := math.Inf(1)
	for range 5 { // what else the process allocates meanwhile is counted, too
		perPort = min(perPort, testing.AllocsPerRun(20, func() { _ = b.SnapshotSignals(&signals) })/float64(b.maxPorts))
	}
	if perPort > 3 { // of a few bytes each, for the call; none of a state's size
		t.Errorf("%v allocations a port", perPort)
	}
}

// TestASnapshotOfSignalsIsWhatEachInterfaceSays has one of two interfaces flood.
func TestASnapshotOfSignalsIsWhatEachInterfaceSays(t *testing.T) {
	b := newBench(t)
	b.put(rival)
	if err := b.SetSettings(Settings{MinPackets: 1, MinPorts: 1, MaxReplyPercent: 5, Quiet: time.Hour}); err != nil {
		t.Fatal(err)
	}
	b.run(b.objects.VportTcxFrom, udpFrame("10.0.0.2", 1000, 100))
	var s SignalSnapshot
	testutil.WaitFor(t, "a complete window", func() bool {
		if err := b.SnapshotSignals(&s); err != nil {
			t.Fatal(err)
		}
		for i, p := range s.Places {
			if p.Incarnation.Index != loopback && s.Signals[i] != (Signals{}) {
				t.Errorf("interface %d sent nothing and has %+v", p.Incarnation.Index, s.Signals[i])
			}
			if p.Incarnation.Index == loopback && s.Signals[i].UDPPackets > 0 {
				return true
			}
		}
		b.run(b.objects.VportTcxFrom, udpFrame("10.0.0.2", 999, 100)) // the second may be over by now
		return false
	})
	i := slices.IndexFunc(s.Places, func(p Place) bool { return p.Incarnation.Index == loopback })
	alone, err := b.Signals(loopback)
	if err != nil || s.Signals[i].FloodSinceNs != alone.FloodSinceNs || alone.FloodSinceNs == 0 {
		t.Errorf("the snapshot says %+v, the interface alone %+v, %v", s.Signals[i], alone, err)
	}
}
