package objective

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"sync"
	"testing"
	"time"
)

// seen is a probe of the model: all that a watch is told.
type seen struct {
	tenant string
	second int64
	bad    bool
}

// burnsByHand judges a tenant by every probe that was ever seen.
func burnsByHand(all []seen, tenant string, ratio float64, now int64) bool {
	total, bad := 0, 0
	for _, s := range all {
		if s.tenant == tenant && now-s.second < window {
			total++
			if s.bad {
				bad++
			}
		}
	}
	return bad >= minBad && float64(bad) >= min(burnRate*(1-ratio), 1)*float64(total)
}

// TestWatchAgreesWithAllThatWasSeen compares the ring of seconds with a list of every
// probe, over steps and gaps of any length.
func TestWatchAgreesWithAllThatWasSeen(t *testing.T) {
	objectives := []Objective{
		{Tenant: "blue", Ratio: 0.999, RTT: time.Millisecond},
		{Tenant: "green", Ratio: 0.97},
		{Tenant: "red", Ratio: 0.5, RTT: 3 * time.Millisecond}, // the budget is gone at once: only all bad burn
	}
	for seed := range uint64(40) {
		chance := rand.New(rand.NewPCG(seed, 1))
		w := New()
		w.Set(objectives)
		var all []seen
		burned := 0
		now := start.Unix()
		for range 300 {
			if chance.IntN(4) == 0 {
				now += int64(chance.IntN(3*window) + 1) // often beyond the window
			}
			badness := chance.Float64() * chance.Float64()
			for range chance.IntN(20) {
				o := objectives[chance.IntN(len(objectives))]
				answered, rtt := true, time.Duration(0)
				bad := chance.Float64() < badness
				switch {
				case bad && (o.RTT == 0 || chance.IntN(2) == 0):
					answered = false
				case bad:
					rtt = o.RTT + 1
				default:
					rtt = o.RTT
				}
				w.Probe(o.Tenant, answered, rtt, time.Unix(now, chance.Int64N(1e9)))
				all = append(all, seen{tenant: o.Tenant, second: now, bad: bad})
			}
			want, first := make(map[string]bool), ""
			for _, o := range objectives { // by name
				want[o.Tenant] = burnsByHand(all, o.Tenant, o.Ratio, now)
				if want[o.Tenant] && first == "" {
					first = o.Tenant
				}
			}
			if got := w.State(time.Unix(now, 0)); !maps.Equal(got, want) {
				t.Fatalf("seed %d, second %d: %v, want %v", seed, now, got, want)
			}
			if got := w.Burning(time.Unix(now, 0)); got != first {
				t.Fatalf("seed %d, second %d: %q burns, want %q", seed, now, got, first)
			}
			if first != "" {
				burned++
			}
		}
		if burned == 0 || burned == 300 {
			t.Errorf("seed %d: %d of 300 looks saw something burn: the test shows nothing", seed, burned)
		}
	}
}

// TestStateNamesEveryTenant with an objective, and no other.
func TestStateNamesEveryTenant(t *testing.T) {
	w := New()
	if got := w.State(start); len(got) != 0 {
		t.Errorf("a new watch has %v", got)
	}
	w.Set([]Objective{{Tenant: "blue", Ratio: 0.9}, {Tenant: "red", Ratio: 0.9}})
	w.Probe("nobody", false, 0, start)
	if got, want := w.State(start), map[string]bool{"blue": false, "red": false}; !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// TestWatchIsForManyAtOnce probes, asks and sets objectives from several goroutines;
// no probe is lost.
func TestWatchIsForManyAtOnce(t *testing.T) {
	const workers, probes = 4, 500
	w := New()
	objectives := func() (all []Objective) {
		for i := range workers {
			all = append(all, Objective{Tenant: fmt.Sprint("t", i), Ratio: 0.9})
		}
		return all
	}()
	w.Set(objectives)
	var wg sync.WaitGroup
	for i := range workers {
		wg.Go(func() {
			for n := range probes {
				w.Probe(objectives[i].Tenant, n%2 == 0, 0, start)
				switch n % 100 {
				case 0:
					w.Set(objectives)
				case 50:
					w.State(start)
					w.Burning(start)
				}
			}
		})
	}
	wg.Wait()
	for _, o := range objectives {
		var total, bad uint64
		for _, b := range w.tenants[o.Tenant].buckets {
			total, bad = total+b.total, bad+b.bad
		}
		if total != probes || bad != probes/2 {
			t.Errorf("%s: %d probes, %d bad", o.Tenant, total, bad)
		}
	}
}
