package delay

import (
	"math"
	"testing"
)

// stamps returns what a probe leaves behind that is sent at the given time,
// needs the given times on the way and back and stays for some in a reflector
// whose clock is ahead by offset.
func stamps(at, forward, residence, reverse, offset int64) Stamps {
	return Stamps{
		T1: at, T2: at + forward + offset, T3: at + forward + residence + offset,
		T4: at + forward + residence + reverse, Kernel: allPoints,
	}
}

const hour = int64(3600e9)

func TestRTTNeedsNoCommonClock(t *testing.T) {
	for _, offset := range []int64{0, 1, -1, hour, -hour} {
		s := stamps(1_700_000_000_000_000_000, 5_000, 80_000, 7_000, offset)
		if v := s.Verdict(); v != Good {
			t.Errorf("offset %d: verdict %v", offset, v)
		}
		if s.RTT() != 12_000 || s.Residence() != 80_000 {
			t.Errorf("offset %d: RTT %d, residence %d", offset, s.RTT(), s.Residence())
		}
	}
}

func TestVerdicts(t *testing.T) {
	for _, tc := range []struct {
		name  string
		spoil func(*Stamps)
		want  Verdict
	}{
		{"nothing wrong", func(*Stamps) {}, Good},
		{"no time at all", func(s *Stamps) { *s = stamps(5, 0, 0, 0, 0) }, Good},
		{"no send stamp", func(s *Stamps) { s.Kernel &^= T1 }, NoKernelStamp},
		{"no receive stamp", func(s *Stamps) { s.Kernel &^= T4 }, NoKernelStamp},
		{"reflector stamps in user space", func(s *Stamps) { s.Kernel &^= T2 | T3 }, NoKernelStamp},
		{"reflector sends in user space", func(s *Stamps) { s.Kernel &^= T3 }, NoKernelStamp},
		{"nothing", func(s *Stamps) { *s = Stamps{} }, NoKernelStamp},
		{"step in between", func(s *Stamps) { s.ReceivedSteps++ }, ClockStep},
		{"received before sent", func(s *Stamps) { s.T4 = s.T1 - 1 }, Implausible},
		{"answered before received", func(s *Stamps) { s.T3 = s.T2 - 1 }, Implausible},
		{"longer in the reflector than under way", func(s *Stamps) { s.T3 = s.T2 + 93_000 }, Implausible},
	} {
		s := stamps(1000, 5_000, 80_000, 7_000, hour)
		tc.spoil(&s)
		if got := s.Verdict(); got != tc.want {
			t.Errorf("%s: %v, want %v", tc.name, got, tc.want)
		}
	}
}

func TestVariationIsSignedAndFreeOfOffsets(t *testing.T) {
	for _, offset := range []int64{0, hour, -hour} {
		a := stamps(1_000_000, 5_000, 80_000, 7_000, offset)
		b := stamps(2_000_000, 4_000, 10_000, 9_500, offset)
		v, ok := Variation(&a, &b)
		if want := [NumDirections]int64{-1_000, 2_500, 1_500}; !ok || v != want {
			t.Errorf("offset %d: got %v, %v; want %v", offset, v, ok, want)
		}
		back, _ := Variation(&b, &a)
		for d := range v {
			if back[d] != -v[d] {
				t.Errorf("offset %d, %v: %d one way and %d the other", offset, Direction(d), v[d], back[d])
			}
		}
	}
	a, b := stamps(0, 1, 1, 1, 0), stamps(9, 1, 1, 1, 0)
	b.SentSteps, b.ReceivedSteps = 1, 1
	if _, ok := Variation(&a, &b); ok {
		t.Error("samples before and after a clock step were compared")
	}
}

// TestJitter compares with the recurrence of RFC 3550 section 6.4.1 worked out by
// hand: J = J + (|D| - J) / 16.
func TestJitter(t *testing.T) {
	var j Jitter
	if j.Seconds() != 0 {
		t.Errorf("at first %g", j.Seconds())
	}
	for _, tc := range []struct {
		rtt  int64
		want float64 // nanoseconds
	}{
		{100_000, 0},
		{116_000, 1_000},                 // D = 16000: 0 + 16000/16
		{100_000, 1_937.5},               // D = 16000: 1000 + 15000/16
		{100_000, 1_816.40625},           // D = 0
		{132_000, 3_702.880859375},       // D = 32000
		{132_000, 3_471.4508056640625},   // D = 0
		{131_999, 3_254.547630310058594}, // D = 1
	} {
		j.Add(tc.rtt)
		if got := j.Seconds() * 1e9; math.Abs(got-tc.want) > 0.07 {
			t.Errorf("after %d: %g ns, want %g", tc.rtt, got, tc.want)
		}
	}
}

func TestJitterOfASteadyPathFades(t *testing.T) {
	var j Jitter
	j.Add(0)
	j.Add(1_000_000)
	for range 500 {
		j.Add(1_000_000)
	}
	if j.Seconds() > 1e-9 {
		t.Errorf("%g s after 500 equal samples", j.Seconds())
	}
}

func TestNames(t *testing.T) {
	if Forward.String() != "forward" || Reverse.String() != "reverse" || RoundTrip.String() != "roundtrip" {
		t.Error("directions and constants are out of step")
	}
	if ClockStep.String() != "clock_step" || NoKernelStamp.String() != "no_kernel_stamp" || Implausible.String() != "implausible" {
		t.Error("verdicts and constants are out of step")
	}
}
