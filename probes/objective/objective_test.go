package objective

import (
	"testing"
	"time"
)

var start = time.Unix(1_800_000_000, 0)

func watch(ratio float64, rtt time.Duration) *Watch {
	w := New()
	w.Set([]Objective{{Tenant: "blue", Ratio: ratio, RTT: rtt}})
	return w
}

// feed gives probes of one second, of which some are lost.
func feed(w *Watch, second, probes, lost int) {
	for i := range probes {
		w.Probe("blue", i >= lost, time.Millisecond, start.Add(time.Duration(second)*time.Second))
	}
}

func TestBurning(t *testing.T) {
	w := watch(0.999, 5*time.Millisecond)
	for second := range 10 {
		feed(w, second, 20, 0)
	}
	now := start.Add(9 * time.Second)
	if got := w.Burning(now); got != "" {
		t.Errorf("%s burns without a bad probe", got)
	}
	feed(w, 9, 2, 2)
	if got := w.Burning(now); got != "" {
		t.Error("two losses are taken for a burn")
	}
	feed(w, 9, 1, 1) // 3 of 203 are 1.5 %, over 14.4 times 0.1 %
	if got := w.Burning(now); got != "blue" {
		t.Errorf("got %q", got)
	}
	if got := w.Burning(now.Add(10 * time.Second)); got != "" {
		t.Errorf("%s still burns when all is over", got)
	}
}

func TestSlowIsBad(t *testing.T) {
	w := watch(0.99, 5*time.Millisecond)
	for i := range 100 {
		rtt := 5 * time.Millisecond
		if i%5 == 0 {
			rtt++
		}
		w.Probe("blue", true, rtt, start)
		w.Probe("red", false, 0, start) // nobody promised red anything
	}
	if got := w.Burning(start); got != "blue" {
		t.Errorf("got %q", got)
	}
	if got := watch(0.99, 0).Burning(start); got != "" {
		t.Errorf("%q burns before the first probe", got)
	}
}

// A share of bad probes below the burn rate does not burn, however many they are.
func TestSlowBurn(t *testing.T) {
	w := watch(0.99, 0)
	feed(w, 0, 1000, 100) // 10 %, below 14.4 %
	if got := w.Burning(start); got != "" {
		t.Errorf("%s burns", got)
	}
	feed(w, 0, 100, 100)
	if got := w.Burning(start); got != "blue" {
		t.Error("18 % does not burn")
	}
}

// A new set of objectives keeps what was seen of those that stay.
func TestSet(t *testing.T) {
	w := watch(0.999, 0)
	feed(w, 0, 10, 5)
	w.Set([]Objective{{Tenant: "red", Ratio: 0.9}, {Tenant: "blue", Ratio: 0.99}})
	if got := w.Burning(start); got != "blue" {
		t.Errorf("got %q", got)
	}
	w.Set(nil)
	if got := w.Burning(start); got != "" {
		t.Errorf("%s burns without an objective", got)
	}
}
