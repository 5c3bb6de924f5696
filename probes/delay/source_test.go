package delay

import "testing"

// TestChoose goes through what may be there of both ends' stamps. The clocks are
// years apart: a difference of two sources shows at once.
func TestChoose(t *testing.T) {
	const (
		system, device = int64(1_800_000_000e9), int64(37e9) // of our end
		far, farDevice = int64(1_700_000_000e9), int64(5e9)
	)
	kernel := func(s *Stamps) { s.T1, s.T4, s.Kernel = system, system+100_000, s.Kernel|T1|T4 }
	card := func(s *Stamps) { s.Device1, s.Device4 = device+1_000, device+99_000 }
	farKernel := func(s *Stamps) { s.T2, s.T3, s.Kernel = far, far+40_000, s.Kernel|T2|T3 }
	farCard := func(s *Stamps) {
		s.T2, s.T3, s.Kernel, s.Far = farDevice, farDevice+41_000, s.Kernel|T2|T3, Hardware
	}
	only := func(n int) func(*Stamps) {
		return func(s *Stamps) {
			card(s)
			if n == 1 {
				s.Device4 = 0
			} else {
				s.Device1 = 0
			}
		}
	}
	echo := func(s *Stamps) { s.OneClock, s.Kernel = true, s.Kernel|T2|T3 }
	stepped := func(s *Stamps) { kernel(s); card(s); s.Device4 += int64(3600e9) }
	back := func(s *Stamps) { kernel(s); card(s); s.Device4 -= int64(3600e9) }
	for _, tc := range []struct {
		name    string
		wanted  bool
		with    []func(*Stamps)
		source  Source
		verdict Verdict
		rtt     int64
	}{
		{"kernel everywhere", false, []func(*Stamps){kernel, farKernel}, Kernel, Good, 60_000},
		{"cards everywhere", true, []func(*Stamps){kernel, card, farCard}, Hardware, Good, 57_000},
		{"cards everywhere, no kernel stamp of ours", true, []func(*Stamps){card, farCard}, Hardware, Good, 57_000},
		{"unwanted", false, []func(*Stamps){kernel, card, farKernel}, Kernel, Good, 60_000},
		{"a card here alone", true, []func(*Stamps){kernel, card, farKernel}, Kernel, Good, 60_000},
		{"a card there alone", true, []func(*Stamps){kernel, farCard}, Kernel, MixedSource, 0},
		{"a card there alone, unasked", false, []func(*Stamps){kernel, card, farCard}, Kernel, MixedSource, 0},
		{"no stamp of the card when sent", true, []func(*Stamps){kernel, only(4), farKernel}, Kernel, Good, 60_000},
		{"no stamp of the card when received", true, []func(*Stamps){kernel, only(1), farKernel}, Kernel, Good, 60_000},
		{"half a pair against a card", true, []func(*Stamps){kernel, only(1), farCard}, Kernel, MixedSource, 0},
		{"an echo", true, []func(*Stamps){kernel, card, echo}, Hardware, Good, 98_000},
		{"an echo without a card", false, []func(*Stamps){kernel, card, echo}, Kernel, Good, 100_000},
		{"an echo, half a pair", true, []func(*Stamps){kernel, only(1), echo}, Kernel, Good, 100_000},
		{"the card's clock is set", true, []func(*Stamps){stepped, farCard}, Hardware, ClockStep, 0},
		{"the card's clock is set back", true, []func(*Stamps){back, farCard}, Hardware, ClockStep, 0},
		{"nothing there", true, []func(*Stamps){kernel, card}, Kernel, NoKernelStamp, 0},
	} {
		var s Stamps
		for _, fn := range tc.with {
			fn(&s)
		}
		s.Choose(tc.wanted)
		if s.Source != tc.source || s.Verdict() != tc.verdict || tc.verdict == Good && s.RTT() != tc.rtt {
			t.Errorf("%s: %s, %s, RTT %d", tc.name, s.Source, s.Verdict(), s.RTT())
		}
	}
}

func TestVariationIsOfOneSource(t *testing.T) {
	a, b := Stamps{T1: 1, T2: 2, T3: 3, T4: 4}, Stamps{T1: 1, T2: 2, T3: 3, T4: 4, Source: Hardware}
	if _, ok := Variation(&a, &b); ok {
		t.Error("stamps of two clocks are compared")
	}
}

// TestAdmission: a stray sample of another source stays out, a lasting change begins
// the statistics anew, once.
func TestAdmission(t *testing.T) {
	var a Admission
	feed := func(s Source, n int) (admitted, changes int) {
		for range n {
			ok, changed := a.Admit(s)
			if ok {
				admitted++
			}
			if changed {
				changes++
			}
		}
		return admitted, changes
	}
	for i, step := range []struct {
		source            Source
		n, admitted, turn int
	}{
		{Kernel, 2, 2, 0},
		{Hardware, 2, 0, 0},
		{Hardware, 1, 1, 1}, // just after the start
		{Hardware, 500, 500, 0},
		{Kernel, changeAfter - 1, 0, 0},
		{Hardware, 1, 1, 0},
		{Kernel, changeAfter - 1, 0, 0},
		{Kernel, 1, 1, 1},
		{Kernel, 49, 49, 0},
		{Hardware, 1, 0, 0},
		{Kernel, 1, 1, 0},
		{Hardware, 53, 3, 1},
	} {
		if admitted, changes := feed(step.source, step.n); admitted != step.admitted || changes != step.turn {
			t.Errorf("step %d: %d admitted, %d changes", i, admitted, changes)
		}
	}
}
