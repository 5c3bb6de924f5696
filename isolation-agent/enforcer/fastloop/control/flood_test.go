package control

import (
	"testing"
	"time"
)

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
	for ticks := 1; ticks <= 4; ticks++ {
		p := newPlant(t, Vigia)
		p.run(100, 20, 75, 0)
		p.heap(ticks)
		if got := p.held(); got > 25 { // 0.25 s
			t.Errorf("a heap of %d ticks counts as a flood for %d", ticks, got)
		}
		if p.r.classes[classB].flooded(p.now) {
			t.Errorf("after a heap of %d ticks it is let go step by step", ticks)
		}
	}
}

func TestALossThatGoesOnIsAFlood(t *testing.T) {
	for ticks := 5; ticks < 30; ticks++ {
		p := newPlant(t, Vigia)
		p.run(100, 20, 75, 0)
		p.heap(ticks)
		if got := p.held(); got < 290 {
			t.Errorf("%d ticks of losses count as a flood for %d", ticks, got)
		}
	}
}

// Small losses before and after a heap, as of any TCP, do not make it last.
func TestSmallLossesAroundAHeapAreNone(t *testing.T) {
	p := newPlant(t, Vigia)
	p.run(100, 20, 75, 0)
	p.run(6, 20, 79, 3)
	p.heap(3)
	p.run(6, 20, 79, 3)
	if got := p.held(); got > 25 {
		t.Errorf("it counts as a flood for %d ticks", got)
	}
}

// A queue that only fills, while a neighbour takes less than before, harms it perhaps. It does if something is lost as well.
func TestHarmWithoutALossCountsForAMoment(t *testing.T) {
	for _, lost := range []float64{0, 5} {
		p := newPlant(t, Vigia)
		p.run(100, 40, 55, 0)
		for range 7 {
			r := p.readings[classB]
			r.Waiting += uint64((8 - lost) * mbit * Tick.Seconds())
			p.readings[classB] = r
			p.run(1, 28, 78, 8)
		}
		if !p.r.classes[classB].floods(p.now) {
			t.Fatalf("%.0f Mbit/s lost: the neighbour is not harmed", lost)
		}
		ticks := 0
		for ; p.r.classes[classB].floods(p.now) && ticks < 500; ticks++ {
			p.run(1, 40, 50, 0)
		}
		if seconds := ticks > 250; seconds != (lost > 0) {
			t.Errorf("%.0f Mbit/s lost: it counts as a flood for %d ticks", lost, ticks)
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
		if got := p.held(); got < 290 {
			t.Errorf("a second heap after %d ticks counts as a flood for %d", apart, got)
		}
	}
	p := newPlant(t, Vigia)
	p.run(100, 20, 75, 0)
	p.heap(3)
	p.run(310, 20, 75, 0)
	p.heap(3)
	if got := p.held(); got > 25 {
		t.Errorf("a heap long after another counts as a flood for %d ticks", got)
	}
}

func TestAHeapOfWhoHasFloodedIsAFlood(t *testing.T) {
	for _, after := range []int{400, 1900} { // ticks; 10 s are known, and what comes back within 20 s is the same flood
		p := newPlant(t, Vigia)
		p.run(100, 20, 75, 0)
		p.heap(2 * samples)
		p.run(after, 20, 75, 0)
		p.heap(2)
		if got := p.held(); got < 290 {
			t.Errorf("a heap %d ticks after a flood counts as a flood for %d", after, got)
		}
	}
}

// A link that had room is not looked at: nobody knows then who has just begun, and who took the same all the time is harmed.
func TestOneThatWasNotLookedAtHasNotJustBegun(t *testing.T) {
	p := newPlant(t, Vigia)
	p.run(100, 40, 50, 0)
	p.r.Wake(p.now)
	for range samples {
		p.run(1, 25, 80, 6)
	}
	if w := p.r.classes[classA]; !w.beganAt.IsZero() || !p.r.classes[classB].floods(p.now) {
		t.Errorf("it began at %v, and who harms it counts as a flood: %v", w.beganAt, p.r.classes[classB].floods(p.now))
	}
}

// While a flood pauses its advice stays, as its limit does at the sender; then the link is left alone, so that what comes
// next is seen in a window of its own.
func TestAdviceToAFloodOutlivesAPause(t *testing.T) {
	p := newPlant(t, Vigia)
	p.run(100, 20, 75, 0)
	p.heap(2 * samples)
	w := p.r.classes[classB]
	if w.advised == 0 {
		t.Fatal("a flood was advised nothing")
	}
	for i := range 100 {
		p.run(1, 20, 0, 0)
		since := p.now.Sub(w.advisedAt)
		if kept := w.advised > 0; kept != (since <= 500*time.Millisecond) {
			t.Fatalf("tick %d: %v after the last advice it is kept: %v", i, since, kept)
		}
	}
}

// A flood in turns loses nothing while it is held, and so looks over after letGoFor. It has the link for a moment then, and
// must not have it as often as that for ever.
func TestWhoFloodsAgainIsLetGoMoreSlowlyEachTime(t *testing.T) {
	p := newPlant(t, Vigia)
	steps := func() (seconds float64) { // for how long it is let go step by step after a flood
		p.run(100, 20, 75, 0)
		p.heap(2 * samples)
		began := p.now
		for p.r.classes[classB].flooded(p.now) {
			p.run(10, 20, 60, 0)
		}
		return p.now.Sub(began).Seconds()
	}
	for i, want := range []float64{10, 20, 40, 60, 60} {
		if got := steps(); got < want-0.2 || got > want+0.2 {
			t.Errorf("flood %d: let go step by step for %.1f s, want %.0f", i, got, want)
		}
	}
	p.run(2*6000, 20, 60, 0) // two minutes
	if got := steps(); got > 10.2 {
		t.Errorf("a flood long after the last: for %.1f s", got)
	}
}

func TestOneFloodThatGoesOnIsOne(t *testing.T) {
	for _, quiet := range []int{140, 400, 900} { // ticks without a sign of it: it is known for 10 s
		p := newPlant(t, Vigia)
		p.run(100, 20, 75, 0)
		for range 12 {
			p.heap(10)
			p.run(quiet, 20, 75, 0)
		}
		if got := p.r.classes[classB].letGo; got != 10*time.Second {
			t.Errorf("a flood that shows every %d ticks is let go step by step for %v", quiet, got)
		}
	}
}
