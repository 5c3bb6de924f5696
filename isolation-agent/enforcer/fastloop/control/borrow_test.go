package control

import (
	"fmt"
	"testing"
)

// TestABorrowerKeepsWhatOthersLeave lets a TCP tenant that bought half of the link take all
// of it, and then another one send within its contract. Whatever that sends, the first keeps
// what it leaves, in every second, and what it bought in every 100 ms.
func TestABorrowerKeepsWhatOthersLeave(t *testing.T) {
	burst := func(rate, on, period float64) func(float64) float64 {
		return func(second float64) float64 {
			if second-float64(int(second/period))*period < on {
				return rate
			}
			return 0
		}
	}
	for name, neighbour := range map[string]struct {
		sends  func(float64) float64
		adapts bool
	}{
		"0.5 Mbit/s of UDP":       {sends: steadily(0.5)},
		"2.5 Mbit/s of UDP":       {sends: steadily(2.5)},
		"10 Mbit/s of UDP":        {sends: steadily(10)},
		"19.5 Mbit/s of UDP":      {sends: steadily(19.5)},
		"bursts of 100 ms":        {sends: burst(19.5, 0.1, 0.5)},
		"bursts of half the time": {sends: burst(19.5, 0.5, 1)},
		"2.5 Mbit/s of TCP":       {sends: steadily(2.5), adapts: true},
		"19.5 Mbit/s of TCP":      {sends: steadily(19.5), adapts: true},
	} {
		t.Run(name, func(t *testing.T) {
			// The same sender alone: what it takes of a link depends on how it adapts.
			alone := newNetwork(t, 50, 20, 10)
			alone.add(0, true, steadily(100))
			alone.run(3)
			usual := 100.0
			for range 10 {
				usual = min(usual, alone.run(1)[0]/95)
			}
			n := newNetwork(t, 50, 20, 10)
			n.add(0, true, steadily(100))
			n.run(3)
			n.add(1, neighbour.adapts, neighbour.sends)
			for second := range 15 {
				got := n.worst(t, second, 50*0.98)
				if least := 0.95 * usual * (95 - got[1]); got[0] < least {
					t.Errorf("second %d: it has %.1f Mbit/s beside %.1f, want %.1f", second, got[0], got[1], least)
				}
			}
			for i, g := range n.guests {
				for _, l := range g.sender.List() {
					if l.Rate < 0.9*(95-20)*mbit && i == 0 {
						t.Errorf("it is held at %.1f Mbit/s", l.Rate/mbit)
					}
				}
			}
		})
	}
}

// worst lets a second pass and returns what the guests got; the first must have so much in
// every tenth of it.
func (n *network) worst(t *testing.T, second int, least float64) []float64 {
	t.Helper()
	sum := make([]float64, len(n.guests))
	for part := range 10 {
		got := n.run(0.1)
		if got[0] < least && (second > 0 || part > 0) {
			t.Errorf("second %d, part %d: it has %.1f Mbit/s, and bought %.1f", second, part, got[0], least)
		}
		for i := range got {
			sum[i] += got[i] / 10
		}
	}
	return sum
}

// TestWhatABorrowerLosesBesideASatisfiedNeighbourIsItsOwn: its queue drops more than D, one
// super-frame in a tenth of a second, and nobody else lacks anything. Nobody is notified, or
// at least of no less than what the neighbour leaves.
func TestWhatABorrowerLosesBesideASatisfiedNeighbourIsItsOwn(t *testing.T) {
	for _, tc := range []struct {
		arrives, lost float64
		notices       bool
	}{
		{93, 3, false},  // 98 of 100 are on the wire
		{95, 5, true},   // all of it
		{98, 9.5, true}, // as much as one who adapts loses
	} {
		p := newPlant(t, Vigia)
		p.run(100, 0, 95, 1) // alone, and the neighbour's wish unknown
		got, _ := p.run(100, 5, tc.arrives, tc.lost)
		if (len(got) > 0) != tc.notices {
			t.Errorf("%v Mbit/s, of which %v are lost: %d notices", tc.arrives, tc.lost, len(got))
		}
		for _, c := range got {
			if c.Class != classB || c.Rate < 0.9*(95-1.1*5)*mbit {
				t.Fatalf("%v Mbit/s, of which %v are lost: advised %.1f Mbit/s", tc.arrives, tc.lost, c.Rate/mbit)
			}
		}
	}
}

// TestAnAdvisedRateRisesWithin50msOfRoom: the neighbour stops, and a limit goes up or away.
func TestAnAdvisedRateRisesWithin50msOfRoom(t *testing.T) {
	for _, rate := range []float64{60, 200} {
		t.Run(fmt.Sprint(rate), func(t *testing.T) {
			n := newNetwork(t, 70, 24)
			n.add(0, true, steadily(70))
			n.run(2)
			flood := n.add(1, false, steadily(rate))
			n.run(2)
			if flood.sender.Len() != 1 {
				t.Fatal("it is not limited")
			}
			n.guests[0].offers = steadily(0)
			n.run(0.1) // a mean of ten samples sees that it stopped
			n.run(pause.Seconds())
			before := 0.0
			for range 40 {
				list := flood.sender.List()
				if len(list) == 0 {
					return
				}
				if list[0].Rate <= before && before < roomy*0.99*95*mbit { // beyond that it ends
					t.Fatalf("at %.1f Mbit/s it did not rise for 50 ms", before/mbit)
				}
				before = list[0].Rate
				n.run(0.06) // and the notice's own way
			}
			t.Errorf("it is still held, at %.1f Mbit/s", before/mbit)
		})
	}
}

// TestTheJitterOfANeighbourIsNotItsGrowth: what comes in bursts of a few ticks leaves the same to a borrower that
// adapts as what comes evenly.
func TestTheJitterOfANeighbourIsNotItsGrowth(t *testing.T) {
	for name, bursts := range map[string][]float64{
		"evenly":             {20},
		"every other tick":   {40, 0},
		"every third tick":   {0, 0, 60},
		"two of seven ticks": {70, 0, 0, 70, 0, 0, 0},
	} {
		p := newPlant(t, Vigia)
		tick := func(i int, borrower, lost float64) (got []Congestion) {
			got, _ = p.run(1, bursts[i%len(bursts)], borrower, lost)
			return got
		}
		for i := range 210 {
			tick(i, 60, 0)
		}
		advised, sum, n := 0.0, 0.0, 0
		for i := range 420 { // it has more than the rest until it is told, and what it is told from then on
			borrower, lost := 85.0, 6.0
			if advised > 0 {
				borrower, lost = advised/mbit, 0
			}
			for _, c := range tick(i, borrower, lost) {
				advised = c.Rate
			}
			if i >= 70 && advised > 0 {
				sum += advised / mbit
				n++
			}
		}
		if n == 0 {
			t.Fatalf("%s: it is told nothing", name)
		}
		if mean := sum / float64(n); mean < 0.94*(95-20) { // a burst more in one window than in another is no growth, but needs room
			t.Errorf("%s: it is told %.1f Mbit/s on average, of 75 that are left", name, mean)
		}
	}
}

// TestANeighbourThatBeginsIsNotHarmed: what it wants is known from before, and its window is not full yet.
func TestANeighbourThatBeginsIsNotHarmed(t *testing.T) {
	for _, slow := range []float64{1, 0.2} { // at first it takes all that it wants, or less
		p := newPlant(t, Vigia)
		p.run(100, 40, 50, 0)
		p.run(int(pause/Tick)+5, 0, 94, 0) // its demand fades meanwhile, but not all of it
		for i := range samples {
			takes := 40 * min(1, slow+float64(i)/(samples-2)/2)
			p.run(1, takes, 102-takes, 6)
			if p.r.classes[classB].floods(p.now) {
				t.Fatalf("tick %d of a neighbour that begins with %.0f: who borrowed while it paused counts as a flood", i, 40*slow)
			}
		}
	}
	p := newPlant(t, Vigia)
	p.run(100, 40, 50, 0)
	p.run(samples, 30, 70, 5)
	if !p.r.classes[classB].floods(p.now) {
		t.Error("a neighbour that gets three quarters of what it wants is not harmed")
	}
}

// TestAClassCrowdsTheWireOnlyOnceItWasTold: that the wire was full before says nothing of who obeys.
func TestAClassCrowdsTheWireOnlyOnceItWasTold(t *testing.T) {
	p := newPlant(t, Vigia)
	p.run(100, 30, 60, 0)
	for range 100 {
		if got, _ := p.run(1, 30, 72, 6); len(got) > 0 {
			break
		}
	}
	b := p.r.classes[classB]
	if b.advised == 0 {
		t.Fatal("it is told nothing")
	}
	p.run(samples, 30, 60, 0)
	if b.crowds(p.now) {
		t.Error("what it sent before it was told counts against it")
	}
	p.run(3*samples, 30, 71, 6)
	if !b.crowds(p.now) {
		t.Error("it fills the wire though it was told, and nobody minds")
	}
}
