package control

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// readingsOf returns the readings of all classes of a receiver; one that has none is not there.
func readingsOf(r *Receiver, readings map[uint32]Reading) (out []ClassReading) {
	for id := range r.classes {
		reading, known := readings[id]
		out = append(out, ClassReading{ID: id, Reading: reading, Absent: !known})
	}
	return out
}

// pausing is traffic of tenants that are still for long, and whose links fill and empty.
func pausing(random *rand.Rand, tenants int) func() []float64 {
	most, left := make([]float64, tenants), make([]int, tenants)
	return func() []float64 {
		for i := range tenants {
			if left[i]--; left[i] > 0 {
				continue
			}
			most[i], left[i] = 0, 5+random.IntN(300)
			if random.IntN(2) == 0 {
				most[i] = 160 * random.Float64()
			}
		}
		return most
	}
}

// TestAClassThatRestsChangesNothing has one receiver whose classes rest, and which is told of what
// moved alone, beside one whose classes never do, and which is told of all: both decide alike.
func TestAClassThatRestsChangesNothing(t *testing.T) {
	const tenants, ticks = 6, 6000
	decisions, rested := 0, 0
	for seed := range uint64(10) {
		next := pausing(rand.New(rand.NewPCG(seed, 3)), tenants)
		resting, watchful := NewReceiver(Vigia, 95*mbit, 2.5*mbit), NewReceiver(Vigia, 95*mbit, 2.5*mbit)
		classes, guarantees := map[uint32]ClassConfig{}, make([]float64, tenants)
		for i := range uint32(tenants) {
			guarantees[i] = 15
			classes[i] = ClassConfig{Tenant: "t", GuaranteeBytesPerSecond: 15 * mbit}
		}
		resting.SetClasses(classes)
		watchful.SetClasses(classes)
		now, readings, told := time.Now(), map[uint32]Reading{}, map[uint32]Reading{}
		for tick := range ticks {
			now = now.Add(Tick)
			arrive := next()
			left := scheduler(95, guarantees, arrive)
			var moved []ClassReading
			for i := range uint32(tenants) {
				v := readings[i]
				v.Arrived += uint64(arrive[i] * mbit * Tick.Seconds())
				v.Left += uint64(left[i] * mbit * Tick.Seconds())
				readings[i] = v
				if before, known := told[i]; !known || before != v {
					moved = append(moved, ClassReading{ID: i, Reading: v})
					told[i] = v
				}
			}
			got := resting.Sample(now, moved)
			rested += tenants - len(resting.awake)
			watchful.wakeAll()
			want := watchful.Sample(now, readingsOf(watchful, readings))
			decisions += len(want)
			alike(t, seed, tick, got, want)
			if resting.Busy(now) != watchful.Busy(now) {
				t.Errorf("seed %d, tick %d: one is busy, the other is not", seed, tick)
			}
			if t.Failed() {
				return
			}
		}
	}
	if decisions < 1000 || rested < 1000 {
		t.Errorf("%d decisions, and classes rested for %d ticks: too few to compare", decisions, rested)
	}
}

// alike compares decisions of one tick but for their order and for rounding.
func alike(t *testing.T, seed uint64, tick int, got, want []Congestion) {
	t.Helper()
	by := map[uint32]Congestion{}
	for _, c := range want {
		by[c.Class] = c
	}
	if len(got) != len(want) {
		t.Errorf("seed %d, tick %d: %d decisions, without rest %d", seed, tick, len(got), len(want))
	}
	for _, c := range got {
		w, known := by[c.Class]
		if math.Abs(c.Rate-w.Rate) > 1 {
			t.Errorf("seed %d, tick %d, class %d: advised %.0f, without rest %.0f", seed, tick, c.Class, c.Rate, w.Rate)
		}
		if c.Rate = w.Rate; !known || c != w {
			t.Errorf("seed %d, tick %d, class %d: %+v, without rest %+v", seed, tick, c.Class, c, w)
		}
	}
}

// rest lets a class of a plant be still until it rests.
func (p *plant) rest(id uint32) *window {
	p.t.Helper()
	p.run(samples+int(pause/Tick)+1, 40, 0, 0)
	w := p.r.classes[id]
	if !w.resting || len(p.r.awake) != 1 {
		p.t.Fatalf("resting: %v; %d classes are awake", w.resting, len(p.r.awake))
	}
	return w
}

// untold lets ticks pass in which classA alone moves, and the receiver is told of no other.
func (p *plant) untold(ticks int, arrives, lost float64) {
	for range ticks {
		p.now = p.now.Add(Tick)
		r := p.readings[classA]
		r.Arrived += uint64(arrives * mbit * Tick.Seconds())
		r.Left += uint64((arrives - lost) * mbit * Tick.Seconds())
		p.readings[classA] = r
		p.r.Sample(p.now, []ClassReading{{ID: classA, Reading: r}})
	}
}

func TestAClassThatMovesAgainCountsAtOnce(t *testing.T) {
	p := newPlant(t, Vigia)
	p.run(50, 40, 50, 0)
	w := p.rest(classB)
	p.run(1, 40, 50, 0)
	if w.resting || len(p.r.awake) != 2 || w.n != samples {
		t.Fatalf("resting: %v; %d classes are awake, it has %d samples", w.resting, len(p.r.awake), w.n)
	}
	if arrived, _, _ := w.mean(samples); !near(arrived, 5*mbit) {
		t.Errorf("a tick of 50 Mbit/s in ten counts as %.1f", arrived/mbit)
	}
}

// TestWhatAClassWantedFadesWhileItRests, as it does while it is looked at.
func TestWhatAClassWantedFadesWhileItRests(t *testing.T) {
	p := newPlant(t, Vigia)
	p.run(50, 40, 50, 0)
	w := p.rest(classB)
	before := w.demand
	const ticks = 70
	p.untold(ticks, 40, 0)
	p.run(1, 40, 1, 0)
	if want := before * math.Pow(demandFades, ticks+1); math.Abs(w.demand-want) > 0.01*want || !w.knows(p.now) {
		t.Errorf("it wanted %.2f Mbit/s, and after %d ticks %.2f, want %.2f", before/mbit, ticks, w.demand/mbit, want/mbit)
	}
	w = p.rest(classB)
	p.untold(ticks, 99, 4) // a full wire teaches nothing
	before = w.demand * math.Pow(demandFades, float64(p.r.learnt-w.learnt))
	p.run(1, 99, 1, 4)
	if math.Abs(w.demand-before) > 0.01*before {
		t.Errorf("it wanted %.3f Mbit/s, and after a full wire %.3f", before/mbit, w.demand/mbit)
	}
}

func TestAClassThatWaitsOrIsAdvisedDoesNotRest(t *testing.T) {
	p := newPlant(t, Vigia)
	p.run(20, 40, 20, 0)
	r := p.readings[classB]
	r.Arrived += 1000
	r.Waiting = 1000
	p.readings[classB] = r
	p.run(100, 40, 0, 0)
	if w := p.r.classes[classB]; w.resting {
		t.Error("a class in whose queue something waits rests")
	}
	p = newPlant(t, Vigia)
	p.run(20, 71, 20, 0)
	if got, _ := p.run(30, 71, 60, 36); len(got) == 0 {
		t.Fatal("a flood is not noticed")
	}
	p.run(samples+5, 71, 0, 0)
	if w := p.r.classes[classB]; w.resting {
		t.Error("a class that was congested a moment ago rests")
	}
}

// TestAClassThatIsGoneComesBackAsNews: what it counted meanwhile did not come in a tick.
func TestAClassThatIsGoneComesBackAsNews(t *testing.T) {
	p := newPlant(t, Vigia)
	p.run(20, 40, 20, 0)
	w := p.rest(classB)
	r := p.readings[classB]
	delete(p.readings, classB)
	p.now = p.now.Add(Tick)
	p.r.Sample(p.now, readingsOf(p.r, p.readings))
	if w.resting || w.n != 0 || w.started {
		t.Fatalf("resting %v, %d samples are kept of what is not there", w.resting, w.n)
	}
	r.Arrived, r.Left = r.Arrived+1<<30, r.Left+1<<30
	p.readings[classB] = r
	if got, _ := p.run(30, 40, 0, 0); got != nil {
		t.Errorf("notified because of %+v", got)
	}
	if w.demand > 21*mbit {
		t.Errorf("it wants %.0f Mbit/s", w.demand/mbit)
	}
}

func TestAnUnknownClassIsLeftOut(t *testing.T) {
	p := newPlant(t, Vigia)
	p.now = p.now.Add(Tick)
	if got := p.r.Sample(p.now, []ClassReading{{ID: 77, Reading: Reading{Arrived: 1 << 40}}}); got != nil || len(p.r.classes) != 2 {
		t.Errorf("%+v, %d classes", got, len(p.r.classes))
	}
}
