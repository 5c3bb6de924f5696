package control

import (
	"testing"
	"time"
)

// trio is a receiver with LIM_IN 95, D 2.5 and three classes: one of 50 and two of 20.
type trio struct {
	r        *Receiver
	now      time.Time
	readings [3]Reading
}

func newTrio(v Variant) *trio {
	n := &trio{r: NewReceiver(v, 95*mbit, 2.5*mbit), now: time.Now()}
	classes := map[uint32]ClassConfig{}
	for i, guarantee := range []uint64{50, 20, 20} {
		classes[uint32(i)] = ClassConfig{Tenant: string(rune('a' + i)), GuaranteeBytesPerSecond: guarantee * mbit}
	}
	n.r.SetClasses(classes)
	return n
}

// run lets so much arrive for each class for some ticks, of which the scheduler loses so much, both in Mbit/s, and returns
// the decisions.
func (n *trio) run(ticks int, arrive, lost [3]float64) (out []Congestion) {
	for range ticks {
		n.now = n.now.Add(Tick)
		readings := make([]ClassReading, 3)
		for i := range readings {
			n.readings[i].Arrived += uint64(arrive[i] * mbit * Tick.Seconds())
			n.readings[i].Left += uint64((arrive[i] - lost[i]) * mbit * Tick.Seconds())
			readings[i] = ClassReading{ID: uint32(i), Reading: n.readings[i]}
		}
		out = append(out, n.r.Sample(n.now, readings)...)
	}
	return out
}

var (
	alone   = [3]float64{99, 0, 0}    // the first has the whole wire, and nobody knows whether it wants more
	flooded = [3]float64{8, 45.5, 46} // two others have taken it
	excess  = [3]float64{0, 2.3, 2.3} // of which each loses less than D
	nothing = [3]float64{}
)

// TestFloodsOfSeveralTenantsAreToldThoughEachLosesLittle: what the scheduler cannot pass on they lose together, and the
// harm is done before it, on the wire.
func TestFloodsOfSeveralTenantsAreToldThoughEachLosesLittle(t *testing.T) {
	n := newTrio(Vigia)
	if got := n.run(100, alone, [3]float64{2}); len(got) > 0 {
		t.Fatalf("alone on the link it is told %+v", got[0])
	}
	told := map[uint32]float64{}
	for tick := range 20 {
		for _, c := range n.run(1, flooded, excess) {
			if _, known := told[c.Class]; !known && c.Renewal {
				t.Errorf("tick %d: the first notice to class %d is a renewal", tick, c.Class)
			}
			told[c.Class] = c.Rate / mbit
		}
	}
	if len(told) != 2 || told[1] < 20 || told[2] < 20 || told[1] > 26 || told[2] > 26 {
		t.Fatalf("told %v after 20 ticks, want about 20 for classes 1 and 2", told)
	}
	// They obey, and the first needs a second to find out that there is room: what it bought stays free for it.
	for tick := range 100 {
		for _, c := range n.run(1, [3]float64{8, told[1], told[2]}, nothing) {
			told[c.Class] = c.Rate / mbit
		}
		if sum := told[1] + told[2]; tick > 10 && sum > 95-0.93*50 {
			t.Fatalf("%d ticks later they may have %.1f Mbit/s, which leaves the first %.1f of 50", tick, sum, 95-sum)
		}
	}
}

// TestATimeOutIsNoEnd: a victim that lost all of a window sends nothing, and then one segment at a time.
func TestATimeOutIsNoEnd(t *testing.T) {
	n := newTrio(Vigia)
	n.run(100, alone, [3]float64{2})
	told := map[uint32]bool{}
	silent := [3]float64{0, 49.5, 50}
	for range 3 {
		for _, c := range append(n.run(2, flooded, excess), n.run(18, silent, excess)...) {
			told[c.Class] = true
		}
	}
	if !told[1] || !told[2] {
		t.Errorf("told %v", told)
	}
}

func TestThePlainVariantTellsNobodyWhoLosesLittle(t *testing.T) {
	n := newTrio(Paper)
	n.run(100, alone, [3]float64{})
	if got := n.run(100, flooded, excess); len(got) > 0 {
		t.Errorf("told %+v", got[0])
	}
}

// TestNobodyIsToldForOnesOwnDoing: in none of these does anybody take what another one wants.
func TestNobodyIsToldForOnesOwnDoing(t *testing.T) {
	for name, then := range map[string]func(n *trio) []Congestion{
		"the first ends, and another has the wire": func(n *trio) []Congestion {
			return n.run(100, [3]float64{0, 99, 0}, [3]float64{0, 2, 0})
		},
		"the first takes less, and the wire has room": func(n *trio) []Congestion {
			return n.run(100, [3]float64{20, 60, 0}, nothing)
		},
		"the first has what it bought": func(n *trio) []Congestion {
			return n.run(100, [3]float64{50, 25, 24.5}, [3]float64{0, 2.2, 2})
		},
		"the others have what they bought": func(n *trio) []Congestion {
			return n.run(100, [3]float64{59.5, 20, 20}, [3]float64{2})
		},
		"another comes in bursts of 100 ms, and in some of them less": func(n *trio) (got []Congestion) {
			for i := range 50 {
				burst := 22.0
				if i%5 > 1 {
					burst = 18.2
				}
				got = append(got, n.run(10, [3]float64{99.5 - burst, burst, 0}, [3]float64{1})...)
				got = append(got, n.run(36, alone, [3]float64{2})...)
			}
			return got
		},
		"another has ended, and says that it is there": func(n *trio) (got []Congestion) {
			got = n.run(100, [3]float64{78, 21, 0}, [3]float64{2})
			got = append(got, n.run(40, alone, [3]float64{2})...)
			for range 80 { // a frame of 64 bytes every 100 ms
				got = append(got, n.run(1, [3]float64{99, 64 * 8 / 1e6 / Tick.Seconds(), 0}, [3]float64{2})...)
				got = append(got, n.run(9, alone, [3]float64{2})...)
			}
			return got
		},
		"the first comes in bursts of three ticks": func(n *trio) (got []Congestion) {
			n.run(2000, [3]float64{0, 99, 0}, nothing) // what it took before is long ago
			for i := range 300 {
				arrive := [3]float64{0, 59, 0}
				if i%3 == 0 {
					arrive = [3]float64{120, 59, 0}
				}
				got = append(got, n.run(1, arrive, [3]float64{0, 2, 0})...)
			}
			return got
		},
	} {
		n := newTrio(Vigia)
		n.run(100, alone, [3]float64{2})
		for _, c := range then(n) {
			if n.r.classes[c.Class].floods(n.now) || c.Rate < 25*mbit {
				t.Errorf("%s: class %d is told %.1f Mbit/s", name, c.Class, c.Rate/mbit)
				break
			}
		}
		for id, w := range n.r.classes {
			if w.floods(n.now) {
				t.Errorf("%s: class %d counts as a flood", name, id)
			}
		}
	}
}

// TestWhatAClassTookLongAgoIsNotWhatItWants: for ten seconds it counts, while the wire is full and nothing can be learnt.
func TestWhatAClassTookLongAgoIsNotWhatItWants(t *testing.T) {
	for _, tc := range []struct {
		full  time.Duration // since it took more
		harms bool
	}{{demandOf / 2, true}, {demandOf + time.Second, false}} {
		n := newTrio(Vigia)
		n.run(100, alone, [3]float64{2})
		n.run(int(tc.full/Tick), [3]float64{0, 99, 0}, nothing) // it paused
		n.run(samples, [3]float64{10, 89, 0}, nothing)
		n.run(2*samples, [3]float64{10, 89, 0}, nothing)
		if got := n.r.classes[1].floods(n.now); got != tc.harms {
			t.Errorf("%s after it took 99 Mbit/s it has 10: the other counts as a flood: %v", tc.full, got)
		}
	}
}

// TestARoomyWireTeachesWhatAClassWants: what it took of a full one fades as what was learnt does.
func TestARoomyWireTeachesWhatAClassWants(t *testing.T) {
	n := newTrio(Vigia)
	n.run(100, alone, [3]float64{2})
	n.run(int(demandKnown/Tick)+2*samples, [3]float64{30, 20, 0}, nothing)
	if w := n.r.classes[0]; !w.knows(n.now) || w.demand < 50*mbit {
		t.Errorf("half a second after it had the wire it is thought to want %.1f Mbit/s", w.demand/mbit)
	}
	n.run(500, [3]float64{30, 20, 0}, nothing)
	if w := n.r.classes[0]; !near(w.demand, 30*mbit) {
		t.Errorf("five seconds later it is thought to want %.1f Mbit/s, of 30", w.demand/mbit)
	}
}
