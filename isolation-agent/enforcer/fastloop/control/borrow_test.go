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
