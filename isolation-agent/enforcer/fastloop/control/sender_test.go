package control

import (
	"testing"
	"time"
)

func order(advised, measured float64) Order {
	return Order{
		LimitKey: LimitKey{Port: "p", Destination: [4]byte{10, 0, 0, 1}}, Advised: advised * mbit, Measured: measured * mbit,
		Floor: 24 * mbit, Ceiling: 95 * mbit, Link: 100 * mbit, Severity: 1,
	}
}

func TestAnAdvisedRateHoldsAtOnceAndNeverBelowTheFloor(t *testing.T) {
	s, now := NewSender(), time.Now()
	if h := s.Obey(now, order(40, 200))[0]; h.Rate != 40*mbit || h.Clamped {
		t.Errorf("held %+v", h)
	}
	if h := s.Obey(now, order(1, 200))[0]; h.Rate != 24*mbit || !h.Clamped {
		t.Errorf("held %+v", h)
	}
	if h := s.Obey(now, order(5000, 200))[0]; h.Rate != 95*mbit {
		t.Errorf("held %+v", h)
	}
}

func TestWithoutAdviceTheMeasuredRateIsHalved(t *testing.T) {
	s, now := NewSender(), time.Now()
	for _, step := range []struct{ measured, want float64 }{{80, 40}, {200, 24}, {24, 24}} {
		if h := s.Obey(now, order(0, step.measured))[0]; h.Rate != step.want*mbit {
			t.Errorf("at %v: held %v, want %v", step.measured, h.Rate/mbit, step.want)
		}
	}
	s = NewSender()
	for _, want := range []float64{47.5, 24} { // the plain variant: from the ceiling down
		if h := s.Obey(now, order(0, 0))[0]; h.Rate != want*mbit {
			t.Errorf("held %v, want %v", h.Rate/mbit, want)
		}
	}
}

func TestALimitGrowsInStepsAndEnds(t *testing.T) {
	s, now := NewSender(), time.Now()
	s.Obey(now, order(24, 100))
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
	s.Obey(now, order(0, 80))
	if changed, _ := s.Grow(now.Add(growInterval)); len(changed) != 1 || !near(changed[0].Rate, 42.5*mbit) {
		t.Errorf("grew to %+v", changed)
	}
}

func TestSeveritySlowsTheRecovery(t *testing.T) {
	s, now := NewSender(), time.Now()
	o := order(24, 100)
	o.Severity = 8
	s.Obey(now, o)
	changed, _ := s.Grow(now.Add(steady + growInterval))
	if len(changed) != 1 || !near(changed[0].Rate-24*mbit, 1.5*mbit/8) {
		t.Errorf("grew to %v", changed[0].Rate/mbit)
	}
	o.Severity = 255
	if h := s.Obey(now, o)[0]; h.Severity != maxSeverity {
		t.Errorf("a peer's numbers are not bounded: %+v", h)
	}
}

func TestASleepingProcessForgetsWhatIsLongOver(t *testing.T) {
	s, now := NewSender(), time.Now()
	s.Obey(now, order(24, 100))
	if _, over := s.Grow(now.Add(time.Hour)); len(over) != 1 {
		t.Errorf("over %v", over)
	}
}
