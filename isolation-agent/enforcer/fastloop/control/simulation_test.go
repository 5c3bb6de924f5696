package control

import (
	"testing"
	"time"
)

// wire is a link of 100 Mbit/s with a TCP tenant and a flood at the same receiver,
// and the limit that the flood's sender holds it to: the loop, closed, without I/O.
type wire struct {
	*plant
	sender   *Sender
	tcp      float64 // what the TCP tenant sends now, Mbit/s
	got      float64 // Mbit that it received in all
	flooded  int     // ticks in which the wire dropped
	released bool    // the flood has no limit any more
	notices  int
	arrives  func(notice int) bool // tells which notices reach the sender; nil for all
	late     int                   // ticks that each is on its way
	way      []underway
	lowest   float64 // limit that the sender ever set, Mbit/s
}

type underway struct {
	ticks int
	order Order
}

func newWire(t *testing.T) *wire {
	return &wire{plant: newPlant(t, Vigia), sender: NewSender(), tcp: 1}
}

// tick lets 10 ms pass in which the tenants want so much.
func (w *wire) tick(wants, offered float64) {
	flood := offered
	if list := w.sender.List(); len(list) > 0 {
		flood = min(flood, list[0].Rate/mbit)
	}
	tcp := min(w.tcp, wants)
	arriveA, arriveB := tcp, flood
	if sum := tcp + flood; sum > 100 { // the wire drops alike, and TCP backs off
		arriveA, arriveB = tcp*100/sum, flood*100/sum
		w.tcp = max(1, w.tcp*0.8)
		w.flooded++
	} else {
		w.tcp = min(w.tcp*1.05, max(wants, w.tcp)) // a pause leaves its window as it was
	}
	w.got += arriveA * Tick.Seconds()
	lost := max(0, arriveA+arriveB-95)
	list, _ := w.run(1, arriveA, arriveB, min(lost, arriveB))
	w.released = len(w.sender.List()) == 0
	w.sender.Grow(w.now)
	for _, c := range list {
		if c.Class != classB {
			continue
		}
		w.notices++
		if w.arrives != nil && !w.arrives(w.notices) {
			continue
		}
		o := order(c.Rate/mbit, c.Measured/mbit)
		o.Ceiling = 100 * mbit
		w.way = append(w.way, underway{w.late, o})
	}
	w.deliver()
}

func (w *wire) deliver() {
	var rest []underway
	for _, u := range w.way {
		if u.ticks--; u.ticks >= 0 {
			rest = append(rest, u)
			continue
		}
		h := w.sender.Obey(w.now, u.order)[0]
		if w.lowest == 0 || h.Rate/mbit < w.lowest {
			w.lowest = h.Rate / mbit
		}
	}
	w.way = rest
}

func TestAFloodIsHeldForAsLongAsOthersUseTheLink(t *testing.T) {
	w := newWire(t)
	for range 300 {
		w.tick(71, 0)
	}
	w.got, w.flooded = 0, 0
	for range 1000 {
		w.tick(71, 200)
	}
	if mean := w.got / 10; mean < 0.95*71 {
		t.Errorf("the tenant received %.1f Mbit/s of its 71", mean)
	}
	if w.flooded > 30 {
		t.Errorf("the wire dropped in %d of 1000 ticks: the flood was let go and came back", w.flooded)
	}
	if w.notices < 10 || w.notices > 250 { // as many as one every renewInterval, most of which say nothing new
		t.Errorf("%d notices in ten seconds", w.notices)
	}
}

func TestAFloodIsHeldBesideATenantThatTakesLittle(t *testing.T) {
	w := newWire(t)
	w.until(500)
	w.flooded = 0
	for i := range 300 { // bursts below half of the link together with what the flood may have
		wants := 5.0
		if i/10%2 == 0 {
			wants = 20
		}
		if w.tick(wants, 200); !w.r.Busy(w.now) {
			t.Fatalf("tick %d: the link is not looked at, and the flood's sender will let go", i)
		}
	}
	if w.flooded > 10 { // what it leaves is not kept from others for ever
		t.Errorf("the wire dropped in %d of 300 ticks", w.flooded)
	}
}

func TestWhatOthersLeaveComesBackWithinASecond(t *testing.T) {
	w := newWire(t)
	for range 300 {
		w.tick(71, 200)
	}
	if w.released {
		t.Fatal("the flood is not held")
	}
	ticks := 0
	for ; ticks < 500 && !w.released; ticks++ {
		w.tick(0, 200)
	}
	if ticks > 120 {
		t.Errorf("the link was given back after %d ticks", ticks)
	}
}

func TestAShortPauseDoesNotLetAFloodBackAtOnce(t *testing.T) {
	w := newWire(t)
	for range 300 {
		w.tick(71, 200)
	}
	w.got, w.flooded = 0, 0
	for range 10 { // a job that pauses for 200 ms of every second
		for range 80 {
			w.tick(71, 200)
		}
		for range 20 {
			w.tick(0, 200)
		}
	}
	if mean := w.got / 8; mean < 0.85*71 {
		t.Errorf("the job received %.1f Mbit/s of its 71 while it wanted them", mean)
	}
}

// until lets ticks pass until the flood is held at its guarantee, and returns how many.
func (w *wire) until(most int) int {
	for i := range most {
		w.tick(71, 200)
		if list := w.sender.List(); len(list) == 1 && list[0].Rate < 26*mbit {
			return i
		}
	}
	return most
}

func TestLostAndLateNoticesOnlyDelay(t *testing.T) {
	nominal := newWire(t)
	usual := nominal.until(500)
	lossy := newWire(t)
	lossy.arrives = func(n int) bool { return n%2 == 0 } // half of all, the first among them
	if took := lossy.until(500); took > 3*usual {
		t.Errorf("with half of the notices lost the flood was held after %d ticks, without after %d", took, usual)
	}
	lossy.got = 0
	for range 500 {
		lossy.tick(71, 200)
	}
	if mean := lossy.got / 5; mean < 0.9*71 {
		t.Errorf("with half of the notices lost the tenant received %.1f Mbit/s of its 71", mean)
	}
	late := newWire(t)
	late.late = 100 // a second
	for range 2000 {
		late.tick(71, 200)
	}
	if late.lowest < 23.9 || lossy.lowest < 23.9 {
		t.Errorf("held at %.1f and %.1f Mbit/s, below the guarantee of 24", late.lowest, lossy.lowest)
	}
	parted := newWire(t)
	parted.until(500)
	parted.arrives = func(int) bool { return false } // a partition: what was advised ends by itself
	for range 1000 {
		if parted.tick(71, 200); parted.released {
			return
		}
	}
	t.Error("cut off from the receiver, the sender holds its tenant back for more than ten seconds")
}

func TestASlowRampIsMeasuredAgainstTheContract(t *testing.T) {
	p := newPlant(t, Vigia)
	p.run(20, 71, 23, 0)
	rate := 23.0
	for minute := range 60 { // one percent more every minute, of which a second is looked at
		rate *= 1.01
		if got, _ := p.run(100, 71, rate, max(0, 71+rate-95)); len(got) > 0 {
			if got[0].Class != classB || got[0].Rate != 24*mbit {
				t.Errorf("notified of %+v", got[0])
			}
			if lost := 71 + rate - 95; lost > 2*2.5 {
				t.Errorf("minute %d: noticed at a loss of %.1f Mbit/s, D is 2.5: the ramp was learnt", minute, lost)
			}
			return
		}
	}
	t.Error("nobody was notified within an hour")
}

func TestPulsesAtTheSamplingPeriodAreSeen(t *testing.T) {
	for _, phase := range []int{0, 1} {
		p := newPlant(t, Vigia)
		var notices int
		for i := range 40 { // a burst in every second tick: counters add up, whenever they are read
			rate, lost := 0.0, 0.0
			if i%2 == phase {
				rate, lost = 60, 12
			}
			got, _ := p.run(1, 71, rate, lost)
			notices += len(got)
		}
		if notices == 0 {
			t.Errorf("bursts of phase %d gave no notice", phase)
		}
	}
}

func TestManySendersOfManyTenantsAreNotifiedWithinBounds(t *testing.T) {
	const tenants, senders, seconds = 50, 256, 3
	r := NewReceiver(Vigia, 95*mbit, 2.5*mbit)
	classes, readings := map[uint32]ClassConfig{}, map[uint32]Reading{}
	for id := range uint32(tenants) {
		classes[id] = ClassConfig{Tenant: "t", GuaranteeBytesPerSecond: uint64(95 * mbit / tenants)}
	}
	r.SetClasses(classes)
	first, notices, now := map[uint32]int{}, 0, time.Now()
	for tick := range seconds * 100 {
		now = now.Add(Tick)
		for id := range classes {
			v := readings[id]
			v.Arrived += uint64(6 * mbit * Tick.Seconds())
			v.Left += uint64(95 * mbit / tenants * Tick.Seconds())
			readings[id] = v
		}
		for _, c := range r.Sample(now, readingsOf(r, readings)) {
			if _, known := first[c.Class]; !known {
				first[c.Class] = tick
			}
			if c.Rate < float64(c.Config.GuaranteeBytesPerSecond) {
				t.Fatalf("class %d is to have %.0f of its %d", c.Class, c.Rate, c.Config.GuaranteeBytesPerSecond)
			}
			notices++
		}
	}
	for id := range classes {
		if tick, known := first[id]; !known || tick > 100 {
			t.Errorf("class %d was first notified at tick %d", id, tick)
		}
	}
	if most := tenants * seconds * int(time.Second/noticeInterval); notices > most {
		t.Errorf("%d decisions, at most %d are due", notices, most)
	}
	s := NewSources(roomForSources)
	for round := range 2 {
		bytes := map[Source]uint64{}
		for i := range senders { // a few send most
			bytes[Source{Link: 7, Class: classB, From: MAC{2, 0, 0, 0, byte(i >> 8), byte(i)}}] = uint64(100_000_000 / (1 + i*i))
		}
		count(s, now.Add(time.Duration(round)*sourceWindow), bytes)
	}
	top, n := s.Top(7, classB)
	var covered float64
	for _, share := range top {
		covered += share.Share
	}
	if n != senders || len(top) > topSources || covered < enough {
		t.Errorf("%d of %d sources cover %.2f", len(top), n, covered)
	}
}
