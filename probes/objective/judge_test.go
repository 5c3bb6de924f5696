package objective

import (
	"log/slog"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"vigia/probes/sender"
)

// clock is a time that tests move.
type clock struct {
	mu sync.Mutex
	at time.Time
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *clock) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}

func newClock() *clock { return &clock{at: time.Unix(1_800_000_000, 0)} }

func bookAt(c *clock, path string) *Book { return newBook(path, slog.New(slog.DiscardHandler), c.now) }

var first = sender.Labels{Src: "a", Dst: "b", Path: "p", Tenant: "t", Probe: "c"}

// learn gives a judge an hour of samples, one a second: each of the sizes in turn.
func learn(c *clock, j *Judge, k Kind, sizes ...time.Duration) {
	for i := range 3601 {
		j.Sample(k, int64(sizes[i%len(sizes)]))
		c.pass(time.Second)
	}
}

func counts(t *testing.T, j *Judge, k Kind, judged, bad uint64) {
	t.Helper()
	if a, b := j.Counts(k); a != judged || b != bad {
		t.Errorf("%v: %d judged, %d bad; want %d and %d", k, a, b, judged, bad)
	}
}

func TestSetObjectives(t *testing.T) {
	book := bookAt(newClock(), "")
	book.Set([]Target{{Labels: first, Bounds: Bounds{Delay: 10 * time.Millisecond, Jitter: 5 * time.Millisecond}}})
	j := book.Of(first)
	for _, ns := range []time.Duration{0, 9 * time.Millisecond, 10 * time.Millisecond, 10*time.Millisecond + 1, time.Second} {
		j.Sample(Delay, int64(ns))
		j.Sample(Jitter, int64(ns))
	}
	counts(t, j, Delay, 5, 2)
	counts(t, j, Jitter, 5, 4)
	// A reload keeps the counts, and is in force at once.
	book.Set([]Target{{Labels: first, Bounds: Bounds{Delay: time.Millisecond, Jitter: 5 * time.Millisecond}}})
	if book.Of(first) != j {
		t.Fatal("another judge after a reload")
	}
	j.Sample(Delay, int64(2*time.Millisecond))
	counts(t, j, Delay, 6, 3)
	if got := j.Objective(Delay); got != time.Millisecond {
		t.Errorf("objective %v", got)
	}
}

// TestNothingIsJudgedBeforeItIsLearned, neither early nor by few samples.
func TestNothingIsJudgedBeforeItIsLearned(t *testing.T) {
	c := newClock()
	book := bookAt(c, "")
	book.Set([]Target{{Labels: first}})
	j := book.Of(first)
	for range lessonSamples * 10 {
		j.Sample(Delay, int64(time.Millisecond))
	}
	c.pass(lessonTime - 1)
	j.Sample(Delay, int64(time.Millisecond))
	if got := j.Objective(Delay); got != 0 {
		t.Fatalf("%v after less than an hour", got)
	}
	c.pass(1)
	j.Sample(Delay, int64(time.Millisecond))
	if j.Objective(Delay) == 0 {
		t.Fatal("nothing after an hour")
	}
	counts(t, j, Delay, 0, 0)
	j.Sample(Delay, int64(time.Second))
	counts(t, j, Delay, 1, 1)

	for i := range lessonSamples { // of a class that is probed once an hour
		if got := j.Objective(Jitter); got != 0 {
			t.Fatalf("%v after %d samples", got, i)
		}
		j.Sample(Jitter, int64(time.Millisecond))
		c.pass(time.Hour)
	}
	if j.Objective(Jitter) == 0 {
		t.Errorf("nothing after %d samples", lessonSamples)
	}
	counts(t, j, Jitter, 0, 0)
}

// TestWhatIsLearned compares with twice the 99th percentile of the same samples, which the
// buckets (9 %) and two digits (10 % at most) round up.
func TestWhatIsLearned(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for name, draw := range map[string]func() float64{
		"steady":       func() float64 { return 20e6 },
		"exponential":  func() float64 { return 3e6 * rng.ExpFloat64() },
		"lognormal":    func() float64 { return 2e6 * math.Exp(rng.NormFloat64()) },
		"pareto":       func() float64 { return 1e6 / math.Sqrt(1-rng.Float64()) },
		"microseconds": func() float64 { return 50e3 * rng.ExpFloat64() },
	} {
		c := newClock()
		book := bookAt(c, "")
		book.Set([]Target{{Labels: first}})
		j := book.Of(first)
		all := make([]int64, 0, 3601)
		for range 3601 {
			ns := int64(draw())
			all = append(all, ns)
			j.Sample(Delay, ns)
			c.pass(time.Second)
		}
		slices.Sort(all)
		want := max(2*float64(all[len(all)*99/100]), float64(Floor))
		got := j.Objective(Delay)
		if ratio := float64(got) / want; ratio < 0.99 || ratio > 1.21 {
			t.Errorf("%s: %v, want %v and a little", name, got, time.Duration(want))
		}
		// The healthy path goes on: its share of bad samples is far below the 14.4 % at
		// which an alert fires, and within the budget of 1 %.
		for range 100_000 {
			j.Sample(Delay, int64(draw()))
		}
		if judged, bad := j.Counts(Delay); float64(bad) > 0.006*float64(judged) {
			t.Errorf("%s: %d of %d samples of a healthy path are bad", name, bad, judged)
		}
	}
}

func TestRoundUp(t *testing.T) {
	for ns, want := range map[int64]int64{1: 1, 99: 99, 100: 100, 101: 110, 1_000_000: 1_000_000, 1_234_567: 1_300_000, 9_950_000: 10_000_000, 99_000_001: 100_000_000} {
		if got := roundUp(ns); got != want {
			t.Errorf("%d: %d, want %d", ns, got, want)
		}
	}
	rng := rand.New(rand.NewPCG(3, 4))
	for range 1000 {
		ns := rng.Int64N(math.MaxInt64 / 100)
		if got := roundUp(ns); got < ns || float64(got) > 1.1*float64(ns)+1 {
			t.Errorf("%d: %d", ns, got)
		}
	}
	if learned(0) != int64(Floor) || learned(int64(Floor)) != 2*int64(Floor) {
		t.Errorf("%d %d", learned(0), learned(int64(Floor)))
	}
}

// TestAnotherTargetIsLearnedAnew: its address, class or kind of path has changed.
func TestAnotherTargetIsLearnedAnew(t *testing.T) {
	c := newClock()
	book := bookAt(c, "")
	book.Set([]Target{{Labels: first, Identity: "x"}})
	j := book.Of(first)
	learn(c, j, Delay, 5*time.Millisecond)
	was := j.Objective(Delay)
	book.Set([]Target{{Labels: first, Identity: "x"}})
	if got := j.Objective(Delay); got != was || got < 10*time.Millisecond {
		t.Errorf("the same target: %v, was %v", got, was)
	}
	// What the operator sets goes before, and what was learned is there when that is gone.
	book.Set([]Target{{Labels: first, Identity: "x", Bounds: Bounds{Delay: time.Second}}})
	if got := j.Objective(Delay); got != time.Second {
		t.Errorf("set: %v", got)
	}
	book.Set([]Target{{Labels: first, Identity: "x"}})
	if got := j.Objective(Delay); got != was {
		t.Errorf("no longer set: %v, was %v", got, was)
	}
	j.Sample(Delay, int64(time.Second))
	book.Set([]Target{{Labels: first, Identity: "y"}})
	if got := j.Objective(Delay); got != 0 || book.Of(first) != j {
		t.Errorf("another target: %v", got)
	}
	counts(t, j, Delay, 1, 1)
	book.Set(nil)
	book.Set([]Target{{Labels: first, Identity: "y"}})
	if book.Of(first) == j {
		t.Error("a target that was gone has its judge back")
	}
}

// TestJudgesWhileRead takes samples and changes objectives at the same time: the race
// detector watches, and no reader sees more bad samples than were judged.
func TestJudgesWhileRead(t *testing.T) {
	c := newClock()
	book := bookAt(c, "")
	book.Set([]Target{{Labels: first}})
	j := book.Of(first)
	var wg sync.WaitGroup
	var owner sync.Mutex
	wg.Go(func() {
		for range 20_000 {
			owner.Lock()
			j.Sample(Delay, int64(time.Second))
			owner.Unlock()
			c.pass(time.Second)
		}
	})
	wg.Go(func() {
		for i := range 200 {
			book.Set([]Target{{Labels: first, Bounds: Bounds{Delay: time.Duration(i%2) * time.Millisecond}}})
		}
	})
	for range 200 {
		owner.Lock()
		judged, bad := j.Counts(Delay)
		owner.Unlock()
		if bad > judged {
			t.Fatalf("%d bad of %d", bad, judged)
		}
		j.Objective(Delay)
		book.contents()
	}
	wg.Wait()
}

func TestSamplesCostNoMemory(t *testing.T) {
	book := bookAt(newClock(), "")
	book.Set([]Target{{Labels: first, Bounds: Bounds{Delay: time.Millisecond}}})
	j := book.Of(first)
	if n := testing.AllocsPerRun(1000, func() { j.Sample(Delay, 5) }); n != 0 {
		t.Errorf("%v allocations for a sample that is judged", n)
	}
	j.Sample(Jitter, 5)
	if n := testing.AllocsPerRun(1000, func() { j.Sample(Jitter, 5) }); n != 0 {
		t.Errorf("%v allocations for a sample that is learned from", n)
	}
}

func BenchmarkSample(b *testing.B) {
	book := NewBook("", slog.New(slog.DiscardHandler))
	book.Set([]Target{{Labels: first, Bounds: Bounds{Delay: time.Millisecond}}})
	j := book.Of(first)
	for name, k := range map[string]Kind{"judged": Delay, "learned": Jitter} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for i := range b.N {
				j.Sample(k, int64(i%2_000_000))
			}
		})
	}
}
