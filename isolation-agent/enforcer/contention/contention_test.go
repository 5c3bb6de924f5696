package contention

import (
	"fmt"
	"math"
	"testing"
	"time"

	"vigia/isolation-agent/enforcer/contract"
	"vigia/isolation-agent/enforcer/scheduling"
)

const (
	dev    = "up0"
	limit  = 10_000_000 // bytes per second
	second = time.Second
)

// clock begins somewhere; readings are so long after that.
func clock(after time.Duration) time.Time { return time.Unix(1_000_000, 0).Add(after) }

func usage(tenant string, guarantee, bytes uint64, backlog uint32) scheduling.Usage {
	return scheduling.Usage{Owner: contract.Owner{Tenant: tenant}, Guarantee: guarantee, Ceiling: limit, Bytes: bytes, Backlog: backlog}
}

// fill has a link full for the seconds between readings of its classes.
func fill(t *testing.T, b *Book, readings ...[]scheduling.Usage) {
	t.Helper()
	b.Filled(clock(0), dev, 0, limit)
	for i, usages := range readings {
		now := clock(time.Duration(i+1) * second)
		if !b.Filled(now, dev, uint64(i+1)*limit, limit) {
			t.Fatalf("a link that carried all of its limit in second %d is not full", i+1)
		}
		b.Add(now, dev, false, usages)
	}
}

func only(t *testing.T, b *Book, now time.Time) Taken {
	t.Helper()
	list := b.Taken(now)
	if len(list) != 1 {
		t.Fatalf("%d pairs: %+v", len(list), list)
	}
	return list[0]
}

func TestWhoHasMoreThanItBoughtTakesFromWhoWaits(t *testing.T) {
	b := NewBook()
	fill(t, b,
		[]scheduling.Usage{usage("blue", 5e6, 100, 3000), usage("red", 2e6, 200, 9000)},
		[]scheduling.Usage{usage("blue", 5e6, 100+4e6, 3000), usage("red", 2e6, 200+6e6, 9000)})
	got := only(t, b, clock(2*second))
	want := Taken{Pair: Pair{"blue", "red", false}, Bytes: 4e6, BytesPerSecond: 4e6 / window.Seconds()}
	if got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func TestNothingIsTaken(t *testing.T) {
	for name, second := range map[string][]scheduling.Usage{
		"from who does not wait":               {usage("blue", 5e6, 4e6, 0), usage("red", 2e6, 6e6, 9000)},
		"by who keeps to its guarantee":        {usage("blue", 5e6, 5e6, 3000), usage("red", 2e6, 2e6, 9000)},
		"by a burst of a twentieth":            {usage("blue", 5e6, 5e6, 3000), usage("red", 2e6, 2.09e6, 9000)},
		"from itself":                          {usage("red", 5e6, 4e6, 3000), usage("red", 2e6, 6e6, 9000)},
		"when counters began again":            {usage("blue", 5e6, 0, 3000), usage("red", 2e6, 0, 9000)},
		"from a tenant that came in that time": {usage("red", 2e6, 6e6, 9000), usage("new", 2e6, 1e6, 9000)},
	} {
		t.Run(name, func(t *testing.T) {
			b := NewBook()
			first := []scheduling.Usage{usage("blue", 5e6, 0, 3000), usage("red", 2e6, 0, 9000)}
			if name == "when counters began again" {
				first[0].Bytes, first[1].Bytes = 1e6, 1e6
			}
			if name == "from itself" {
				first[0] = usage("red", 5e6, 0, 3000)
				first[0].Owner.Port, second[0].Owner.Port = "p", "p"
			}
			fill(t, b, first, second)
			if list := b.Taken(clock(3 * time.Second)); len(list) != 0 {
				t.Errorf("%+v", list)
			}
		})
	}
}

func TestWhoIsAtItsOwnCeilingWaitsForNobody(t *testing.T) {
	b := NewBook()
	first, second := usage("blue", 2e6, 0, 3000), usage("blue", 2e6, 3e6, 3000)
	first.Ceiling, second.Ceiling = 3e6, 3e6
	fill(t, b, []scheduling.Usage{first, usage("red", 2e6, 0, 0)}, []scheduling.Usage{second, usage("red", 2e6, 7e6, 0)})
	if list := b.Taken(clock(3 * time.Second)); len(list) != 0 {
		t.Errorf("%+v", list)
	}
}

func TestADropIsWaitingToo(t *testing.T) {
	b := NewBook()
	dropped := usage("blue", 5e6, 4e6, 0)
	dropped.Drops = 1
	fill(t, b, []scheduling.Usage{usage("blue", 5e6, 0, 0), usage("red", 2e6, 0, 0)}, []scheduling.Usage{dropped, usage("red", 2e6, 6e6, 0)})
	if got := only(t, b, clock(2*second)); got.Tenant != "blue" || got.Bytes != 4e6 {
		t.Errorf("%+v", got)
	}
}

func TestWhatIsTakenIsDividedAsGuaranteesAre(t *testing.T) {
	b := NewBook()
	fill(t, b,
		[]scheduling.Usage{usage("blue", 3e6, 0, 9), usage("green", 1e6, 0, 9), usage("red", 2e6, 0, 9)},
		[]scheduling.Usage{usage("blue", 3e6, 3e6, 9), usage("green", 1e6, 1e6, 9), usage("red", 2e6, 6e6, 9)})
	got := map[string]float64{}
	for _, taken := range b.Taken(clock(2 * second)) {
		if taken.By != "red" {
			t.Errorf("%+v", taken)
		}
		got[taken.Tenant] = taken.Bytes
	}
	if got["blue"] != 3e6 || got["green"] != 1e6 {
		t.Errorf("%v", got)
	}
}

func TestBothOfTwoThatWantAllTakeFromEachOther(t *testing.T) {
	b := NewBook()
	fill(t, b,
		[]scheduling.Usage{usage("blue", 1e6, 0, 9), usage("red", 1e6, 0, 9)},
		[]scheduling.Usage{usage("blue", 1e6, 5e6, 9), usage("red", 1e6, 5e6, 9)})
	if list := b.Taken(clock(2 * second)); len(list) != 2 || list[0].Bytes != 4e6 || list[1].Bytes != 4e6 {
		t.Errorf("%+v", list)
	}
}

func TestAGaugeLooksBackAndACounterStays(t *testing.T) {
	b := NewBook()
	fill(t, b,
		[]scheduling.Usage{usage("blue", 5e6, 0, 9), usage("red", 2e6, 0, 9)},
		[]scheduling.Usage{usage("blue", 5e6, 4e6, 9), usage("red", 2e6, 6e6, 9)})
	for after, rate := range map[time.Duration]float64{0: 8e5, window - 1: 8e5} {
		if got := only(t, b, clock(2*second+after)); got.BytesPerSecond != rate {
			t.Errorf("%v after: %v", after, got.BytesPerSecond)
		}
	}
	if got := only(t, b, clock(2*second+window)); got.BytesPerSecond != 0 || got.Bytes != 4e6 {
		t.Errorf("after the window: %+v", got)
	}
}

func TestALinkThatIsNotFullIsNotRead(t *testing.T) {
	b := NewBook()
	for i, step := range []struct {
		root uint64
		full bool
	}{
		{0, false}, // the first reading has none before
		{limit, true},
		{limit + 0.89*limit, false},
		{2.8 * limit, true},
		{0, false}, // made anew
		{0.95 * limit, true},
	} {
		if got := b.Filled(clock(time.Duration(i)*second), dev, step.root, limit); got != step.full {
			t.Errorf("reading %d: full %v", i, got)
		}
	}
	if b.Filled(clock(5*second), dev, 5*limit, limit) {
		t.Error("full within no time")
	}
}

// TestALinkThatStaysFullIsReadLessOften has a link full for a minute, looked at as the watch does, somewhat early or late:
// it is read at once, closely in its first second, then once in a second; and at once again after a pause.
func TestALinkThatStaysFullIsReadLessOften(t *testing.T) {
	for _, jitter := range []time.Duration{0, -20 * time.Millisecond, 20 * time.Millisecond} {
		b := NewBook()
		var root uint64
		now := clock(0)
		b.Filled(now, dev, root, limit)
		var at []time.Duration
		begun := now.Add(Interval + jitter)
		look := func(full bool) {
			jitter = -jitter
			step := Interval + jitter
			now = now.Add(step)
			if full {
				root += uint64(step.Seconds() * limit)
			}
			if b.Filled(now, dev, root, limit) {
				at = append(at, now.Sub(begun))
				b.Add(now, dev, false, nil)
			}
		}
		for now.Sub(clock(0)) < time.Minute {
			look(true)
		}
		for i, want := range []time.Duration{0, 250, 500, 1000, 2000, 3000, 4000} {
			if off := at[i] - want*time.Millisecond; off.Abs() > 50*time.Millisecond {
				t.Errorf("reading %d %v after the link filled up, want about %d ms", i, at[i], want)
			}
		}
		if len(at) < 61 || len(at) > 64 {
			t.Errorf("%d readings in a minute", len(at))
		}
		look(false)
		at = nil
		look(true)
		look(true)
		if len(at) != 2 {
			t.Errorf("%d readings of two looks after a pause", len(at))
		}
	}
}

// TestAPauseBeginsAnew has a link with room between two full stretches: what was sent in it counts for nobody.
func TestAPauseBeginsAnew(t *testing.T) {
	b := NewBook()
	fill(t, b, []scheduling.Usage{usage("blue", 5e6, 0, 9), usage("red", 2e6, 0, 9)})
	if b.Filled(clock(2*second), dev, limit, limit) {
		t.Fatal("full without a byte")
	}
	if !b.Filled(clock(3*second), dev, 2*limit, limit) {
		t.Fatal("not full again")
	}
	b.Add(clock(3*second), dev, false, []scheduling.Usage{usage("blue", 5e6, 1, 9), usage("red", 2e6, 9e6, 9)})
	if list := b.Taken(clock(3 * second)); len(list) != 0 {
		t.Errorf("%+v", list)
	}
}

func TestPairsAreBoundedAndNothingIsLost(t *testing.T) {
	b := NewBook()
	const takers = 3 * most
	var first, second []scheduling.Usage
	first, second = append(first, usage("blue", 1e6, 0, 9)), append(second, usage("blue", 1e6, 0, 9))
	for i := range takers {
		name := fmt.Sprint("t", i)
		first, second = append(first, usage(name, 1000, 0, 0)), append(second, usage(name, 1000, 3000, 0))
	}
	fill(t, b, first, second)
	list := b.Taken(clock(2 * time.Second))
	sum := 0.0
	for _, taken := range list {
		sum += taken.Bytes
	}
	if len(list) != most+1 || math.Abs(sum-takers*2000) > 1 {
		t.Errorf("%d pairs, %v bytes of %d", len(list), sum, takers*2000)
	}
	if others := list[0]; others.By != Others || others.Bytes != (takers-most)*2000 {
		t.Errorf("%+v", others)
	}
}

// TestTenantsThatComeAndGoLeaveNothing has tenants replaced for as long as others are kept apart, and longer.
func TestTenantsThatComeAndGoLeaveNothing(t *testing.T) {
	b := NewBook()
	for i := range 3 * most {
		waits, takes := fmt.Sprint("w", i), fmt.Sprint("t", i)
		fill(t, b,
			[]scheduling.Usage{usage(waits, 5e6, 0, 9), usage(takes, 2e6, 0, 9)},
			[]scheduling.Usage{usage(waits, 5e6, 4e6, 9), usage(takes, 2e6, 6e6, 9)})
		b.Keep(map[string]bool{}, map[string]bool{waits: true, takes: true})
		if got := only(t, b, clock(2*second)); got.Pair != (Pair{waits, takes, false}) || got.Bytes != 4e6 {
			t.Fatalf("%+v", got)
		}
	}
	b.Keep(map[string]bool{}, map[string]bool{})
	if len(b.pairs) != 0 || len(b.devices) != 0 {
		t.Errorf("%d pairs and %d devices are left", len(b.pairs), len(b.devices))
	}
}

func TestDevicesThatAreGoneAreForgotten(t *testing.T) {
	b := NewBook()
	b.Filled(clock(0), dev, 0, limit)
	b.Keep(map[string]bool{"other": true}, nil)
	if b.Filled(clock(second), dev, limit, limit) || len(b.devices) != 1 {
		t.Error("a device that came again was known")
	}
}
