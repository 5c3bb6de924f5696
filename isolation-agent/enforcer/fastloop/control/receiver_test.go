package control

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

const (
	mbit   = 125_000.0 // bytes per second
	classA = 1
	classB = 2
)

// plant imitates the queues of a receiver with LIM_IN 95 and guarantees 71/24.
type plant struct {
	t        *testing.T
	r        *Receiver
	now      time.Time
	readings map[uint32]Reading
}

func newPlant(t *testing.T, v Variant) *plant {
	p := &plant{t: t, r: NewReceiver(v, 95*mbit, 2.5*mbit), now: time.Now(), readings: map[uint32]Reading{}}
	p.r.SetClasses(map[uint32]ClassConfig{classA: {Tenant: "a", GuaranteeBytesPerSecond: 71 * mbit}, classB: {Tenant: "b", GuaranteeBytesPerSecond: 24 * mbit}})
	return p
}

// run lets traffic come for some ticks: what arrives and what of it is lost, in
// Mbit/s. It returns the decisions with the tick that each was made in.
func (p *plant) run(ticks int, arriveA, arriveB, lostB float64) (out []Congestion, at []int) {
	p.t.Helper()
	for i := range ticks {
		p.now = p.now.Add(Tick)
		step := func(id uint32, arrive, lost float64) {
			r := p.readings[id]
			r.Arrived += uint64(arrive * mbit * Tick.Seconds())
			r.Left += uint64((arrive - lost) * mbit * Tick.Seconds())
			p.readings[id] = r
		}
		step(classA, arriveA, 0)
		step(classB, arriveB, lostB)
		for _, c := range p.r.Sample(p.now, readingsOf(p.r, p.readings)) {
			out, at = append(out, c), append(at, i)
		}
	}
	return out, at
}

func near(got, want float64) bool { return got > 0.98*want && got < 1.02*want }

func TestDropsBelowTheThresholdAreLeftToTheQueue(t *testing.T) {
	p := newPlant(t, Vigia)
	if got, _ := p.run(100, 71, 26.4, 2.4); got != nil {
		t.Errorf("notified because of %+v", got)
	}
}

func TestAFloodIsNoticedWithinTheWindowAndNotMoreThanEvery50ms(t *testing.T) {
	p := newPlant(t, Vigia)
	p.run(20, 71, 20, 0)
	got, at := p.run(30, 71, 30, 6)
	if len(got) < 2 || at[0] > samples {
		t.Fatalf("decisions at ticks %v", at)
	}
	for i := 1; i < len(at); i++ {
		if at[i]-at[i-1] < int(noticeInterval/Tick) {
			t.Errorf("decisions at ticks %v", at)
		}
	}
	c := got[len(got)-1]
	if c.Class != classB || c.Config.Tenant != "b" || !near(c.Measured, 30*mbit) || !near(c.Dropped, 6*mbit) || c.Rate != 24*mbit {
		t.Errorf("decision %+v", c)
	}
}

func TestWhoIsWithinItsContractIsToldNothing(t *testing.T) {
	p := newPlant(t, Vigia)
	p.run(20, 77, 20, 0)
	// A node without processor time forwards late: what came in 50 ms arrives in one tick, and a
	// part of it is more than the queue is meant to hold.
	for range 20 {
		if got, _ := p.run(4, 100, 0, 0); got != nil {
			t.Fatalf("notified because of %+v", got)
		}
		if got, _ := p.run(1, 0, 100, 40); got != nil {
			t.Fatalf("notified because of %+v", got)
		}
	}
	if got, _ := p.run(10, 70, 30, 6); len(got) == 0 {
		t.Error("beyond its contract it is told nothing either")
	}
}

func TestDropsOfALinkWithRoomAreTheTenantsOwn(t *testing.T) {
	p := newPlant(t, Vigia)
	if got, _ := p.run(100, 10, 60, 20); got != nil {
		t.Errorf("notified because of %+v", got)
	}
}

func TestAnIdleNeighboursGuaranteeIsLent(t *testing.T) {
	p := newPlant(t, Vigia)
	got, _ := p.run(30, 0, 100, 5)
	if len(got) == 0 || !near(got[0].Rate, 95*mbit) {
		t.Errorf("decisions %+v", got)
	}
}

func TestANeighbourBelowItsGuaranteeGetsTheRoomToGrow(t *testing.T) {
	p := newPlant(t, Vigia)
	p.run(30, 0, 100, 5)
	got, _ := p.run(30, 5, 120, 20) // a TCP sender begins beside a flood
	if len(got) == 0 || got[len(got)-1].Rate != 24*mbit {
		t.Errorf("decisions %+v", got)
	}
	// Beside a sender that adapts it has what it has grown by, several times.
	p = newPlant(t, Vigia)
	p.run(30, 0, 100, 5)
	var last Congestion
	for red := 5.0; red < 20; red *= 1.05 {
		got, _ := p.run(1, red, 100-red, 5)
		for _, c := range got {
			last = c
			if most := 95 - 1.3*red; c.Rate > most*mbit {
				t.Errorf("at %.1f Mbit/s of the neighbour's it is advised %.1f, want at most %.1f", red, c.Rate/mbit, most)
			}
		}
	}
	if last.Rate == 0 {
		t.Error("nobody was notified")
	}
}

func TestWhatANeighbourTakesWhenItCouldGrowIsWhatItWants(t *testing.T) {
	p := newPlant(t, Vigia)
	p.run(30, 30, 70, 5)
	p.run(150, 30, 24, 0) // held at the guarantee: the neighbour could grow and did not
	got, _ := p.run(20, 30, 70, 5)
	if len(got) == 0 || !near(got[0].Rate, (95-growth*30)*mbit) {
		t.Errorf("decisions %+v", got)
	}
}

// A flood that is held loses nothing, and takes little of what it may have if it comes from two nodes in turn: that it would
// go on is not to be seen. It must not have the whole link for its next burst because it has lost nothing for some seconds.
func TestWhoHasFloodedIsLetGoStepByStep(t *testing.T) {
	for _, flooded := range []bool{true, false} {
		p := newPlant(t, Vigia)
		p.run(100, 71, 5, 0) // the receiver learns what a wants
		if flooded {
			p.run(20, 60, 100, 60)
		} else {
			p.run(40, 71, 40, 3) // adapts, and its queue overflows now and then
		}
		var given float64 // beyond what was advised before, at once
		advised := p.r.classes[classB].advised
		if advised == 0 {
			t.Fatalf("flooded %v: nothing was advised", flooded)
		}
		for range 4 * 25 { // 8 s
			list, _ := p.run(8, 69, advised/mbit*0.9, 0)
			more, _ := p.run(2, 69, 0, 0)
			for _, c := range append(list, more...) {
				if c.Class == classB {
					given = max(given, (c.Rate-advised)/mbit)
					advised = min(c.Rate, 24*mbit)
				}
			}
			if p.r.classes[classB].advised == 0 { // the rest is the sender's
				break
			}
		}
		if all := given > 95; all == flooded {
			t.Errorf("flooded %v: %.1f Mbit/s more at once", flooded, given)
		}
	}
}

func TestThePlainVariantAdvisesNothingAndIgnoresTheLink(t *testing.T) {
	p := newPlant(t, Paper)
	got, at := p.run(45, 10, 60, 20)
	if len(got) < 3 || len(got) > 4 || got[0].Rate != 0 {
		t.Errorf("decisions %+v at %v, want one for every 10 samples", got, at)
	}
}

func TestCountersThatBeginAgainAreNoDrops(t *testing.T) {
	p := newPlant(t, Vigia)
	p.run(30, 71, 24, 0)
	p.readings[classB] = Reading{} // the device was made anew
	if got, _ := p.run(1, 71, 24, 0); got != nil {
		t.Errorf("notified because of %+v", got)
	}
}

func TestABusyLinkIsReadEveryTick(t *testing.T) {
	p := newPlant(t, Vigia)
	p.run(30, 20, 20, 0)
	if p.r.Busy(p.now) {
		t.Error("a link at 42% counts as busy")
	}
	p.run(30, 40, 20, 0)
	if !p.r.Busy(p.now) {
		t.Error("a link at 63% does not count as busy")
	}
}

func TestClassesComeAndGo(t *testing.T) {
	p := newPlant(t, Vigia)
	p.run(20, 71, 30, 6)
	p.r.SetClasses(map[uint32]ClassConfig{classA: {Tenant: "a", GuaranteeBytesPerSecond: 71 * mbit}})
	if got, _ := p.run(20, 71, 30, 6); got != nil {
		t.Errorf("notified about a class that is gone: %+v", got)
	}
}

// TestAQueueThatFillsIsTooMuch has a flood that no queue refuses yet: a long queue must not hide it. The published scheme
// knows drops alone.
func TestAQueueThatFillsIsTooMuch(t *testing.T) {
	for variant, told := range map[Variant]bool{Vigia: true, Paper: false} {
		p := newPlant(t, variant)
		p.run(20, 71, 20, 0)
		var got []Congestion
		ticks := 0
		for ; got == nil && ticks <= samples; ticks++ {
			r := p.readings[classB]
			r.Waiting += uint64(6 * mbit * Tick.Seconds())
			p.readings[classB] = r
			got, _ = p.run(1, 71, 30, 6)
		}
		if (got != nil) != told {
			t.Errorf("%v: after %d ticks %+v", variant, ticks, got)
		}
		for _, c := range got {
			if c.Class != classB || c.Dropped != 0 || c.Rate != 24*mbit || p.now.Sub(c.Since) != time.Duration(ticks)*Tick {
				t.Errorf("after %d ticks %+v", ticks, c)
			}
		}
	}
}

// TestAQueueThatStandsIsEnough has a sender that adapts to its queue, which is full now and then, and never lost anything.
func TestAQueueThatStandsIsEnough(t *testing.T) {
	p := newPlant(t, Vigia)
	p.run(20, 65, 30, 0)
	for range 10 {
		for _, bytes := range []int{30_000, -30_000} {
			r := p.readings[classB]
			r.Arrived, r.Waiting = r.Arrived+uint64(max(bytes, 0)), uint64(int(r.Waiting)+max(bytes, 0))
			if bytes < 0 {
				r.Left, r.Waiting = r.Left+uint64(-bytes), uint64(int(r.Waiting)+bytes)
			}
			p.readings[classB] = r
			if got, _ := p.run(2, 65, 30, 0); got != nil {
				t.Fatalf("notified about what waits: %+v", got)
			}
		}
	}
	if r := (Reading{Arrived: 100, Left: 10, Waiting: 60}); r.lost() != 30 {
		t.Errorf("lost %d of 100, of which 10 left and 60 wait", r.lost())
	}
}

// TestArrivalsThatAreCountedAnewHideNoLoss begins as an enforcer does after an update: the classes have been there for
// long, and what arrives is counted from now on.
func TestArrivalsThatAreCountedAnewHideNoLoss(t *testing.T) {
	p := newPlant(t, Vigia)
	p.readings[classA], p.readings[classB] = Reading{Left: 1 << 40}, Reading{Left: 1 << 40, Waiting: 10_000}
	p.run(20, 71, 20, 0)
	if got, at := p.run(30, 71, 30, 6); len(got) == 0 || at[0] > samples || !near(got[len(got)-1].Dropped, 6*mbit) {
		t.Errorf("decisions %+v at ticks %v", got, at)
	}
	p = newPlant(t, Vigia)
	p.readings[classB] = Reading{Left: 1 << 40}
	if got, _ := p.run(100, 71, 20, 0); got != nil {
		t.Errorf("nothing is lost, and notified because of %+v", got)
	}
}

func TestAClassWithoutAReadingCountsForNothing(t *testing.T) {
	p := newPlant(t, Vigia)
	p.run(20, 71, 30, 6)
	delete(p.readings, classB)
	p.now = p.now.Add(Tick)
	if got := p.r.Sample(p.now, readingsOf(p.r, p.readings)); got != nil {
		t.Errorf("notified because of %+v", got)
	}
	if w := p.r.classes[classB]; w.n != 0 || w.started {
		t.Errorf("%d samples are kept of what is not there", w.n)
	}
}

func TestAFloodOnALinkThatHadRoomIsNoticedWithinAFewTicks(t *testing.T) {
	p := newPlant(t, Vigia)
	p.run(3, 1, 1, 0)
	p.now = p.now.Add(time.Hour) // idle, and not sampled
	if p.r.Busy(p.now) {
		t.Error("an idle link is busy")
	}
	p.r.Wake(p.now)
	if !p.r.Busy(p.now.Add(5*Tick)) || p.r.Busy(p.now.Add(samples*Tick)) {
		t.Error("a link is sampled for a window after it woke, and then as its traffic is")
	}
	if got, at := p.run(20, 50, 120, 75); len(got) == 0 || at[0] > samplesCongested {
		t.Errorf("decisions at ticks %v", at)
	}
	p = newPlant(t, Vigia)
	p.r.Wake(p.now)
	if got, at := p.run(9, 50, 48, 3); len(got) != 0 { // above D while it lasts, but not for the window
		t.Errorf("a short loss is noticed at ticks %v", at)
	}
	p = newPlant(t, Paper)
	p.r.Wake(p.now)
	if _, at := p.run(20, 50, 120, 75); len(at) == 0 || at[0] < samples {
		t.Errorf("the plain variant decides before its window is full: %v", at)
	}
}

// TestSumsAreThoseOfTheLastSamples holds a window's running sums against its samples.
func TestSumsAreThoseOfTheLastSamples(t *testing.T) {
	var w window
	var all []sample
	source := rand.New(rand.NewPCG(1, 2))
	for i := range 10_000 {
		s := sample{arrived: float64(source.IntN(1 << 20)), left: float64(source.IntN(1 << 20)), dt: 0.01 + source.Float64()/1000}
		if i%5 > 0 {
			s.lost = float64(source.IntN(1 << 10))
		}
		if i%97 == 0 { // the link had room meanwhile
			w.n, w.sum, all = 0, sample{}, nil
		}
		w.put(s)
		all = append(all, s)
		for _, n := range []int{samples, samplesCongested} {
			var want sample
			for _, s := range all[max(0, len(all)-n):] {
				want.add(&s, 1)
			}
			arrived, left, lost := w.mean(n)
			for _, pair := range [][2]float64{{arrived, want.arrived / want.dt}, {left, want.left / want.dt}, {lost, want.lost / want.dt}} {
				if math.Abs(pair[0]-pair[1]) > 1e-9*(1+pair[1]) {
					t.Fatalf("sample %d, the last %d: %v, want %v", i, n, pair[0], pair[1])
				}
			}
		}
	}
}
