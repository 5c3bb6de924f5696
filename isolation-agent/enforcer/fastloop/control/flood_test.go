package control

import "testing"

// heap lets a class that borrows lose much in some ticks beside a neighbour within its contract.
func (p *plant) heap(ticks int) {
	p.t.Helper()
	p.run(ticks, 20, 150, 72)
	p.run(1, 20, 75, 0)
}

// held returns for how many ticks, at most 500, the class still counts as one that floods.
func (p *plant) held() (ticks int) {
	for w := p.r.classes[classB]; w.floods(p.now) && ticks < 500; ticks++ {
		p.run(1, 20, 60, 0)
	}
	return ticks
}

// Where the receiver's processor is away for some ticks, what came meanwhile is lost in one heap, whoever sent it.
func TestOneHeapOfLossesIsNoFloodForSeconds(t *testing.T) {
	for ticks := 1; ticks < floodTicks; ticks++ {
		p := newPlant(t, Vigia)
		p.run(100, 20, 75, 0)
		p.heap(ticks)
		if got := p.held(); got > int(suspectFor/Tick) {
			t.Errorf("a heap of %d ticks counts as a flood for %d", ticks, got)
		}
		if p.r.classes[classB].flooded(p.now) {
			t.Errorf("after a heap of %d ticks it is let go step by step", ticks)
		}
	}
}

func TestALossThatGoesOnIsAFlood(t *testing.T) {
	for ticks := floodTicks; ticks < 3*samples; ticks++ {
		p := newPlant(t, Vigia)
		p.run(100, 20, 75, 0)
		p.heap(ticks)
		if got := p.held(); got < int(floodFor/Tick)-samples {
			t.Errorf("%d ticks of losses count as a flood for %d", ticks, got)
		}
	}
}

// Who floods for some ticks only, again and again, is not taken for a processor that was away.
func TestTheSecondHeapWithinSecondsIsAFlood(t *testing.T) {
	for _, apart := range []int{20, 50, 100, 280} {
		p := newPlant(t, Vigia)
		p.run(100, 20, 75, 0)
		p.heap(3)
		p.run(apart, 20, 75, 0)
		p.heap(3)
		if got := p.held(); got < int(floodFor/Tick)-samples {
			t.Errorf("a second heap after %d ticks counts as a flood for %d", apart, got)
		}
	}
	p := newPlant(t, Vigia)
	p.run(100, 20, 75, 0)
	p.heap(3)
	p.run(int(floodFor/Tick)+10, 20, 75, 0)
	p.heap(3)
	if got := p.held(); got > int(suspectFor/Tick) {
		t.Errorf("a heap long after another counts as a flood for %d ticks", got)
	}
}
