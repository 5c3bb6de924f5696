package fastloop

import (
	"net"
	"testing"
	"time"

	"vigia/internal/bpf/classify"
)

func order(advised, measured float64) Order {
	return Order{
		Key: Key{Port: "p", Destination: [4]byte{10, 0, 0, 1}}, Advised: advised * mbit, Measured: measured * mbit,
		Floor: 24 * mbit, Ceiling: 95 * mbit, Link: 100 * mbit, Severity: 1, Lease: DefaultLease,
	}
}

func TestAnAdvisedRateHoldsAtOnceAndNeverBelowTheFloor(t *testing.T) {
	s, now := NewSender(), time.Now()
	if h := s.Hold(now, order(40, 200)); h.Rate != 40*mbit || h.Clamped {
		t.Errorf("held %+v", h)
	}
	if h := s.Hold(now, order(1, 200)); h.Rate != 24*mbit || !h.Clamped {
		t.Errorf("held %+v", h)
	}
	if h := s.Hold(now, order(5000, 200)); h.Rate != 95*mbit {
		t.Errorf("held %+v", h)
	}
}

func TestWithoutAdviceTheMeasuredRateIsHalved(t *testing.T) {
	s, now := NewSender(), time.Now()
	for _, step := range []struct{ measured, want float64 }{{80, 40}, {200, 24}, {24, 24}} {
		if h := s.Hold(now, order(0, step.measured)); h.Rate != step.want*mbit {
			t.Errorf("at %v: held %v, want %v", step.measured, h.Rate/mbit, step.want)
		}
	}
	s = NewSender()
	for _, want := range []float64{47.5, 24} { // the plain variant: from the ceiling down
		if h := s.Hold(now, order(0, 0)); h.Rate != want*mbit {
			t.Errorf("held %v, want %v", h.Rate/mbit, want)
		}
	}
}

func TestALimitGrowsInStepsAndEnds(t *testing.T) {
	s, now := NewSender(), time.Now()
	s.Hold(now, order(24, 100))
	if changed, over := s.Grow(now.Add(steady + growInterval - 1)); changed != nil || over != nil {
		t.Errorf("grew early: %v %v", changed, over)
	}
	now = now.Add(steady)
	last, steps := 24*mbit, 0
	for ; steps < 1000; steps++ {
		now = now.Add(growInterval)
		changed, over := s.Grow(now)
		if over != nil {
			break
		}
		if len(changed) != 1 || changed[0].Rate <= last || changed[0].Rate > last*1.08 {
			t.Fatalf("step %d: from %v to %+v", steps, last/mbit, changed)
		}
		last = changed[0].Rate
	}
	if steps < 10 || steps > 40 || last < 0.85*95*mbit || len(s.List()) != 0 {
		t.Errorf("ended after %d steps from %v", steps, last/mbit)
	}
}

func TestWithoutAdviceALimitGrowsAfterTheFirstStep(t *testing.T) {
	s, now := NewSender(), time.Now()
	s.Hold(now, order(0, 80))
	if changed, _ := s.Grow(now.Add(growInterval)); len(changed) != 1 || !near(changed[0].Rate, 42.5*mbit) {
		t.Errorf("grew to %+v", changed)
	}
}

func TestSeveritySlowsTheRecovery(t *testing.T) {
	s, now := NewSender(), time.Now()
	o := order(24, 100)
	o.Severity = 8
	s.Hold(now, o)
	changed, _ := s.Grow(now.Add(steady + growInterval))
	if len(changed) != 1 || !near(changed[0].Rate-24*mbit, 1.5*mbit/8) {
		t.Errorf("grew to %v", changed[0].Rate/mbit)
	}
	o.Severity, o.Lease = 255, time.Hour
	if h := s.Hold(now, o); h.Severity != maxSeverity || h.Lease != MaxLease {
		t.Errorf("a peer's numbers are not bounded: %+v", h)
	}
}

func TestASleepingProcessForgetsWhatIsLongOver(t *testing.T) {
	s, now := NewSender(), time.Now()
	s.Hold(now, order(24, 100))
	if _, over := s.Grow(now.Add(time.Hour)); len(over) != 1 {
		t.Errorf("over %v", over)
	}
}

func TestSourcesOfAClassByWhatTheySend(t *testing.T) {
	s, now := NewSources(), time.Now()
	source := func(n byte, class uint32) classify.Source {
		return classify.Source{Link: 7, Class: class, From: classify.MACAddress{n}, Destination: classify.AddressOf(net.ParseIP("10.0.0.1"))}
	}
	bytes := map[classify.Source]uint64{}
	read := func(fn func(classify.Source, classify.Arrival)) error {
		for k, v := range bytes {
			fn(k, classify.Arrival{Bytes: v})
		}
		return nil
	}
	bytes[source(1, classB)] = 1e9 // long ago
	if err := s.Update(now, read); err != nil {
		t.Fatal(err)
	}
	if top, n := s.Top(7, classB); n != 0 {
		t.Errorf("counts from before are rates: %+v", top)
	}
	bytes[source(2, classB)] += 800
	bytes[source(3, classB)] += 150
	bytes[source(4, classB)] += 50
	bytes[source(5, classA)] += 5000
	if s.Due(now.Add(sourceWindow / 2)) {
		t.Error("due too early")
	}
	now = now.Add(100 * time.Millisecond)
	if err := s.Update(now, read); err != nil {
		t.Fatal(err)
	}
	top, n := s.Top(7, classB)
	if n != 3 || len(top) != 1 || top[0].Source != source(2, classB) || !near(top[0].Rate, 8000) || !near(top[0].Share, 0.8) {
		t.Errorf("top %+v of %d", top, n)
	}
	if top, _ := s.Top(8, classB); top != nil {
		t.Errorf("of another link: %+v", top)
	}
	for i := range byte(40) { // as many as one tells at once
		bytes[source(100+i, classA)] += 5000
	}
	if err := s.Update(now.Add(100*time.Millisecond), read); err != nil {
		t.Fatal(err)
	}
	if top, n := s.Top(7, classA); len(top) != topSources || n != 40 {
		t.Errorf("%d of %d sources", len(top), n)
	}
}
