package control

import (
	"testing"
	"time"
)

// congested is a class of 24 Mbit/s that loses something.
func congested(rate float64) *Congestion {
	return &Congestion{Class: classB, Config: ClassConfig{Tenant: "b", GuaranteeBytesPerSecond: 24 * mbit}, Rate: rate * mbit, Dropped: 6 * mbit}
}

func renewed(rate float64) *Congestion {
	c := congested(rate)
	c.Renewal, c.Dropped = true, 0
	return c
}

var key = AdviceKey{Node: "n2", Tenant: "b", From: MAC{2, 0, 0, 0, 0, 1}, To: Address{10, 0, 0, 1}}

func TestASourceIsAdvisedItsShareAndNeverLessThanItsPartOfTheGuarantee(t *testing.T) {
	for _, tc := range []struct {
		rate, share float64
		sources     int
		want        float64
	}{
		{24, 1, 1, 24},
		{60, 0.5, 2, 30},
		{24, 0.9, 2, 21.6},
		{24, 0.1, 2, 12}, // half of the guarantee is its own
		{24, 0.01, 24, 1},
		{0, 1, 1, 24},
		{24, 1, 0, 24}, // sources that nobody has counted
	} {
		a := NewAdvices().Begin(time.Now(), key, false)
		got, due := a.Next(time.Now(), Vigia, congested(tc.rate), &Share{Share: tc.share}, tc.sources)
		if !due || !near(got, tc.want*mbit) {
			t.Errorf("%+v: %.2f Mbit/s, %v", tc, got/mbit, due)
		}
	}
}

func TestThePlainVariantAdvisesNoRateAndIsAlwaysDue(t *testing.T) {
	a := NewAdvices().Begin(time.Now(), key, false)
	a.Acknowledged(time.Now(), 24*mbit, true)
	for range 3 {
		if rate, due := a.Next(time.Now(), Paper, congested(24), &Share{Share: 1}, 1); rate != 0 || !due {
			t.Errorf("rate %v, %v", rate, due)
		}
	}
}

func TestASourceAtItsFloorIsLeftAloneForAWhile(t *testing.T) {
	now := time.Now()
	for _, tc := range []struct {
		name  string
		after time.Duration
		c     *Congestion
		due   bool
	}{
		{"at once", 0, congested(24), false},
		{"just before", floorRests - 1, congested(24), false},
		{"after that", floorRests, congested(24), true},
		{"less would be asked", 0, congested(24.0 * 0.9), false}, // the guarantee is the least
		{"a renewal of the same", 0, renewed(24), false},
		{"a renewal of more", 0, renewed(40), true},
	} {
		a := NewAdvices().Begin(now, key, false)
		a.Sent(now.Add(-time.Second), 24*mbit, 1)
		a.Acknowledged(now, 24*mbit, true)
		if _, due := a.Next(now.Add(tc.after), Vigia, tc.c, &Share{Share: 1}, 1); due != tc.due {
			t.Errorf("%s: due %v", tc.name, due)
		}
	}
	a := NewAdvices().Begin(now, key, false)
	a.Acknowledged(now, 60*mbit, true) // its floor was higher than what is asked now
	if _, due := a.Next(now, Vigia, congested(30), &Share{Share: 1}, 1); !due {
		t.Error("it may go lower and is not asked to")
	}
	a.Acknowledged(now, 24*mbit, false)
	if _, due := a.Next(now, Vigia, congested(24), &Share{Share: 1}, 1); !due {
		t.Error("it is not at its floor and gets no notice")
	}
}

func TestRenewalsAreRepeatedOnlySoOften(t *testing.T) {
	now := time.Now()
	for _, tc := range []struct {
		name  string
		after time.Duration
		rate  float64
		due   bool
	}{
		{"the same at once", 10 * time.Millisecond, 40, false},
		{"the same later", repeatInterval, 40, true},
		{"a little more", 10 * time.Millisecond, 41, false},
		{"a little less", 10 * time.Millisecond, 39, false},
		{"more", 10 * time.Millisecond, 42, true},
		{"less", 10 * time.Millisecond, 38, true},
	} {
		a := NewAdvices().Begin(now, key, false)
		a.Sent(now, 40*mbit, 1)
		if _, due := a.Next(now.Add(tc.after), Vigia, renewed(tc.rate), &Share{Share: 1}, 1); due != tc.due {
			t.Errorf("%s: due %v", tc.name, due)
		}
	}
}

func TestSeverityGoesUpWhileItLastsAndDownInCalm(t *testing.T) {
	now := time.Now()
	a := NewAdvices().Begin(now, key, false)
	if a.Severity() != 1 {
		t.Errorf("begins at %d", a.Severity())
	}
	for i := range 100 {
		a.Congested(now.Add(time.Duration(i) * noticeInterval))
		if want := uint8(min(1+(i+1)/3, maxSeverity)); a.Severity() != want {
			t.Fatalf("after %d notices: %d, want %d", i+1, a.Severity(), want)
		}
	}
	now = now.Add(99 * noticeInterval)
	a.Congested(now.Add(5 * time.Second))
	if a.Severity() != maxSeverity-5 {
		t.Errorf("after five seconds of calm: %d", a.Severity())
	}
	a.Congested(now.Add(time.Hour))
	if a.Severity() != 1 {
		t.Errorf("after an hour of calm: %d", a.Severity())
	}
}

func TestWhoDoesNotAnswerIsUnresponsive(t *testing.T) {
	start := time.Now()
	for _, tc := range []struct {
		name     string
		notices  int
		answered int           // how many of them
		heard    time.Duration // when the peer last said anything, after the first
		measured float64
		want     bool
	}{
		{"never heard", 10, 0, -time.Hour, 30, true},
		{"heard of late", 10, 0, 400 * time.Millisecond, 30, false},
		{"too few notices", 3, 0, -time.Hour, 80, false},
		{"it answers, without effect", 10, 10, 450 * time.Millisecond, 80, true},
		{"it answers, with effect", 10, 10, 450 * time.Millisecond, 30, false},
	} {
		a := NewAdvices().Begin(start, key, false)
		now := start
		for i := range tc.notices {
			now = start.Add(time.Duration(i) * noticeInterval)
			a.Congested(now)
			a.Sent(now, 24*mbit, uint64(i))
			if i < tc.answered {
				a.Acknowledged(now, 24*mbit, false)
			}
		}
		if got := a.Silent(now, start.Add(tc.heard)) || a.Idle(now, tc.measured*mbit); got != tc.want {
			t.Errorf("%s: %v", tc.name, got)
		}
	}
}

// TestARefusalIsAnAnswerAndAsksForMore: the peer is not to blame, and the source not let go.
func TestARefusalIsAnAnswerAndAsksForMore(t *testing.T) {
	start := time.Now()
	a := NewAdvices().Begin(start, key, false)
	now := start
	for i := range 10 {
		now = start.Add(time.Duration(i) * noticeInterval)
		a.Congested(now)
		a.Sent(now, 24*mbit, uint64(i))
		a.Refused(now)
	}
	if a.Silent(now, start.Add(-time.Hour)) {
		t.Error("who refuses does not answer")
	}
	if !a.Widened(now, 1*mbit) || !a.Widened(now.Add(widened-1), 1*mbit) || a.Widened(now.Add(widened), 1*mbit) {
		t.Error("more is not asked for, or for ever")
	}
}

func TestWhatHasNoEffectAsksForMore(t *testing.T) {
	start := time.Now()
	for _, tc := range []struct {
		name     string
		measured float64
		answers  bool
		rate     float64 // that is in force
		want     bool
	}{
		{"it sends as before", 80, true, 24, true},
		{"it sends what it may", 24, true, 24, false},
		{"it may send more by its floor", 80, true, 60, false},
		{"it does not answer at all", 80, false, 0, false},
	} {
		a := NewAdvices().Begin(start, key, false)
		now := start
		for i := range 10 {
			now = start.Add(time.Duration(i) * noticeInterval)
			a.Congested(now)
			a.Sent(now, 24*mbit, uint64(i))
			if tc.answers {
				a.Acknowledged(now, tc.rate*mbit, true)
			}
		}
		if got := a.Widened(now, tc.measured*mbit); got != tc.want {
			t.Errorf("%s: %v", tc.name, got)
		}
	}
}

func TestAKeyIsWidenedToThePortAndThenToTheTenant(t *testing.T) {
	port, ok := key.Wider()
	if want := (AdviceKey{Node: "n2", Tenant: "b", From: key.From}); !ok || port != want {
		t.Errorf("then %+v, %v", port, ok)
	}
	all, ok := port.Wider()
	if want := (AdviceKey{Node: "n2", Tenant: "b"}); !ok || all != want {
		t.Errorf("then %+v, %v", all, ok)
	}
	if more, ok := all.Wider(); ok || more != all {
		t.Errorf("then %+v, %v", more, ok)
	}
}

func TestAnAnswerIsTimedFromTheNoticeThatItIsTo(t *testing.T) {
	now := time.Now()
	a := NewAdvices().Begin(now, key, false)
	a.Sent(now, 24*mbit, 7)
	if took, latest := a.RoundTrip(now.Add(3*time.Millisecond), 7); took != 3*time.Millisecond || !latest {
		t.Errorf("took %s, %v", took, latest)
	}
	a.Sent(now.Add(50*time.Millisecond), 24*mbit, 9)
	if _, latest := a.RoundTrip(now.Add(51*time.Millisecond), 7); latest {
		t.Error("an answer to the notice before counts")
	}
}

func TestARenewalNeedsAdviceThatCounts(t *testing.T) {
	now := time.Now()
	list := NewAdvices()
	if list.Begin(now, key, true) != nil || list.Len() != 0 {
		t.Error("advice that nobody got is renewed")
	}
	a := list.Begin(now, key, false)
	a.Sent(now, 24*mbit, 1)
	if list.Begin(now.Add(adviceEnds), key, true) != a || list.Get(key) != a {
		t.Error("advice that counts is not renewed")
	}
	if list.Begin(now.Add(adviceEnds+1), key, true) != nil {
		t.Error("advice that counts no more is renewed")
	}
	if list.Begin(now.Add(time.Hour), key, false) != a {
		t.Error("its severity is forgotten too soon")
	}
	other := key
	other.To = AllDestinations
	if list.Get(other) != nil {
		t.Error("one destination's advice is another's")
	}
}

func TestAdviceIsForgottenInTheEnd(t *testing.T) {
	now := time.Now()
	list := NewAdvices()
	for i := range 1000 {
		k := key
		k.From[5], k.From[4] = byte(i), byte(i>>8)
		list.Begin(now, k, false).Sent(now.Add(time.Duration(i)*time.Millisecond), 1, 1)
	}
	list.Forget(now.Add(forgetAdvice))
	if list.Len() != 1000 {
		t.Errorf("%d are left", list.Len())
	}
	list.Forget(now.Add(forgetAdvice + 500*time.Millisecond))
	if list.Len() != 500 {
		t.Errorf("%d are left", list.Len())
	}
	list.Forget(now.Add(time.Hour))
	if list.Len() != 0 {
		t.Errorf("%d are left", list.Len())
	}
}

func TestAddressesAreWrittenAsUsual(t *testing.T) {
	if got := (MAC{2, 0, 0xab, 0, 0, 0xf}).String(); got != "02:00:ab:00:00:0f" {
		t.Errorf("MAC address %s", got)
	}
	if got := (Address{192, 0, 2, 255}).String(); got != "192.0.2.255" {
		t.Errorf("address %s", got)
	}
}
