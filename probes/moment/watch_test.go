package moment

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"vigia/internal/testutil"
	"vigia/probes/health"
	stampprobe "vigia/probes/protocol/stamp"
	"vigia/probes/records"
	"vigia/probes/sender"
)

func named(dst string) sender.Labels {
	return sender.Labels{Src: "n", Dst: dst, Path: "p", Tenant: "red", Probe: "c"}
}

func harm(names ...string) (bad []Harm) {
	for _, n := range names {
		bad = append(bad, Harm{Labels: named(n), Why: Loss})
	}
	return bad
}

// counted counts results.
type counted struct {
	mu   sync.Mutex
	seen map[Result]int
}

func (c *counted) count(r Result) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.seen == nil {
		c.seen = make(map[Result]int)
	}
	c.seen[r]++
}

func (c *counted) want(t *testing.T, want map[Result]int) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	if !maps.Equal(c.seen, want) {
		t.Errorf("counted %v, want %v", c.seen, want)
	}
}

// still makes records that nothing is sent for: the targets cannot be traced.
func still() Sources {
	return Sources{
		Trace:   func(sender.Labels) (*sender.Trace, error) { return nil, sender.ErrNoTrace },
		Address: func(*sender.Target) (netip.AddrPort, error) { return netip.AddrPort{}, fmt.Errorf("it has none") },
		Recent:  func(sender.Labels, int) []*records.Line { return nil },
		Health:  func() health.Reading { return health.Reading{} },
	}
}

func watching(c *counted, names ...string) *Watch {
	w := New(Options{Sources: still(), Count: c.count})
	set(w, names...)
	return w
}

func set(w *Watch, names ...string) {
	var targets []sender.Target
	for _, n := range names {
		targets = append(targets, sender.Target{Labels: named(n), Protocol: stampprobe.Protocol{}})
	}
	w.Set(targets)
}

func asked(jobs []job) (names []string) {
	for _, j := range jobs {
		names = append(names, string(j.why)+" "+j.target.Labels.Dst)
	}
	return names
}

// do makes the records of jobs, as Run does.
func do(t *testing.T, w *Watch, jobs []job) {
	t.Helper()
	for _, j := range jobs {
		w.make(t.Context(), j)
	}
}

// TestOnePerEpisode records a bad target once, however long it lasts, and not again before the
// interval is over.
func TestOnePerEpisode(t *testing.T) {
	var c counted
	w := watching(&c, "a")
	now := time.Now()
	steps := []struct {
		after time.Duration
		bad   []Harm
		want  string
	}{
		{0, nil, "[]"},
		{1, harm("a"), "[loss a]"},
		{2, harm("a"), "[]"},
		{600, harm("a"), "[]"}, // the same time
		{601, nil, "[good a]"},
		{602, harm("a"), "[loss a]"},
		{603, nil, "[]"},
		{604, harm("a"), "[]"}, // too soon
		{605, harm("a"), "[]"},
		{606, harm("unknown"), "[]"},
	}
	w.targets[named("a")].calm = now.Add(-time.Hour)
	w.targets[named("a")].tried = now
	for _, s := range steps {
		if s.after == 601 {
			w.targets[named("a")].calm = now
		}
		jobs := w.step(s.bad, now.Add(s.after*time.Second))
		if s.after == 601 { // it has just become good
			if len(jobs) != 0 {
				t.Errorf("a good record of a target that was bad a second ago: %v", asked(jobs))
			}
			continue
		}
		if got := fmt.Sprint(asked(jobs)); got != s.want {
			t.Errorf("after %d s: %s, want %s", s.after, got, s.want)
		}
		do(t, w, jobs)
	}
	c.want(t, map[Result]int{TakenBad: 2, TooSoon: 1})
	if bad, _ := w.Records(func(sender.Labels) bool { return true }, 10); len(bad) != 2 || bad[0].Time.Before(bad[1].Time) || bad[0].Why != Loss {
		t.Errorf("%+v", bad)
	}
}

// TestFewAtATime makes some records at once; the others follow if they are still bad, and are
// counted if they are not.
func TestFewAtATime(t *testing.T) {
	var c counted
	w := watching(&c, "a", "b", "c", "d")
	now := time.Now()
	first := w.step(harm("a", "b", "c", "d"), now)
	if len(first) != concurrent {
		t.Fatalf("%v", asked(first))
	}
	if more := w.step(harm("a", "b", "c", "d"), now.Add(time.Second)); len(more) != 0 {
		t.Fatalf("%v", asked(more))
	}
	do(t, w, first)
	if next := w.step(harm("c"), now.Add(2*time.Second)); fmt.Sprint(asked(next)) != "[loss c]" {
		t.Errorf("%v", asked(next))
	}
	c.want(t, map[Result]int{TakenBad: concurrent, Busy: 1})
}

// TestGoodOnesTakeTurns records good targets one after the other, the longest ago first, and none
// while a bad one is recorded.
func TestGoodOnesTakeTurns(t *testing.T) {
	var c counted
	w := watching(&c, "a", "b", "x")
	now := time.Now().Add(settled)
	w.targets[named("x")].calm = now.Add(8 * goodEvery) // it has not been good for long
	var got []string
	for i := range 8 {
		at := now.Add(time.Duration(i+1) * goodEvery)
		jobs := w.step(nil, at)
		got = append(got, asked(jobs)...)
		do(t, w, jobs)
	}
	if fmt.Sprint(got) != "[good a good b]" {
		t.Errorf("%v", got)
	}
	later := now.Add(DefaultGoodInterval + settled)
	if jobs := w.step(harm("a"), later); fmt.Sprint(asked(jobs)) != "[loss a]" {
		t.Errorf("%v", asked(jobs))
	} else {
		do(t, w, jobs)
	}
	if jobs := w.step(harm("a"), later.Add(goodEvery)); fmt.Sprint(asked(jobs)) != "[good x]" {
		t.Errorf("%v", asked(jobs))
	}
	bad, good := w.Records(func(sender.Labels) bool { return true }, 10)
	if len(bad) != 1 || bad[0].LastGood == nil || bad[0].LastGood != good[0] || len(good) != 2 || good[1].Dst != "b" {
		t.Errorf("%+v %+v", bad, good)
	}
	c.want(t, map[Result]int{TakenGood: 2, TakenBad: 1})
}

// TestGoodThatIsNot is kept out: the target turned bad meanwhile, lost probes, or is another.
func TestGoodThatIsNot(t *testing.T) {
	var c counted
	w := watching(&c, "a")
	target := w.targets[named("a")].target
	lossy := &Moment{Src: "n", Dst: "a", Path: "p", Tenant: "red", Probe: "c", Outcomes: Outcomes{Lost: map[string]int{"forward": 1}}}
	clean := &Moment{Src: "n", Dst: "a", Path: "p", Tenant: "red", Probe: "c"}
	w.keep(lossy, job{target, Good})
	w.targets[named("a")].since = time.Now()
	w.keep(clean, job{target, Good})
	w.targets[named("a")].since = time.Time{}
	changed := target
	changed.Host = "other"
	w.keep(clean, job{changed, Good})
	if len(w.good) != 0 {
		t.Errorf("%+v", w.good)
	}
	w.keep(clean, job{target, Good})
	c.want(t, map[Result]int{TakenGood: 1})
	// It goes with its target, and when that changes.
	set(w, "b")
	if len(w.good) != 0 {
		t.Errorf("%+v", w.good)
	}
}

// TestFixedNumberOfRecords keeps the last ones, also when fewer are to be kept.
func TestFixedNumberOfRecords(t *testing.T) {
	w := New(Options{Sources: still()})
	w.Configure(Config{Interval: time.Minute, GoodInterval: time.Minute, Keep: 3})
	for i := range 10 {
		name := fmt.Sprint(i)
		w.keep(&Moment{Dst: name}, job{sender.Target{Labels: named(name)}, Loss})
	}
	list := func() (names []string) {
		bad, good := w.Records(func(l sender.Labels) bool { return l.Dst != "8" }, 100)
		for _, m := range bad {
			names = append(names, m.Dst)
		}
		if len(good) != 0 || good == nil || bad == nil {
			t.Errorf("%v", good)
		}
		return names
	}
	if got := list(); !slices.Equal(got, []string{"9", "7"}) {
		t.Errorf("%v", got)
	}
	w.Configure(Config{Disabled: true, Keep: 1})
	if got := list(); !slices.Equal(got, []string{"9"}) {
		t.Errorf("%v", got)
	}
	set(w, "a")
	if jobs := w.step(harm("a"), time.Now()); len(jobs) != 0 {
		t.Errorf("disabled, and yet %v", asked(jobs))
	}
}

// TestPausedTargets are not watched.
func TestPausedTargets(t *testing.T) {
	var c counted
	w := watching(&c)
	w.Set([]sender.Target{{Labels: named("a"), Paused: true}})
	if jobs := w.step(harm("a"), time.Now()); len(jobs) != 0 {
		t.Errorf("%v", asked(jobs))
	}
}

// TestRun makes a record by itself, and ends with its context.
func TestRun(t *testing.T) {
	t.Parallel()
	ns, early := int64(2e6), int64(5e6)
	line := func(ago time.Duration, outcome, cause string, rtt *int64) *records.Line {
		return &records.Line{Time: time.Now().Add(-ago).UTC().Format(time.RFC3339Nano), Outcome: outcome, Cause: cause, RTT: rtt}
	}
	sources := still()
	sources.Recent = func(sender.Labels, int) []*records.Line { // made when they are asked for, whenever that is
		return []*records.Line{
			line(time.Minute, "lost", "reverse", nil),
			{Time: "never"},
			line(3*time.Second, "received", "", &ns), line(2*time.Second, "received", "", &early), line(time.Second, "lost", "forward", nil), line(0, "received", "", nil),
		}
	}
	w := New(Options{Sources: sources, Bad: func(to []Harm, _ time.Time) []Harm { return append(to, harm("a")...) }})
	set(w, "a")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.Run(ctx)
	}()
	var bad []*Moment
	testutil.WaitFor(t, "a record", func() bool {
		bad, _ = w.Records(func(sender.Labels) bool { return true }, 1)
		return len(bad) == 1
	})
	cancel()
	<-done
	o := bad[0].Outcomes
	if o.Settled != 4 || len(o.Lost) != 1 || o.Lost["forward"] != 1 || o.MaxRTT != 0.005 || o.MedianRTT != 0.005 || o.Seconds != outcomeSeconds {
		t.Errorf("%+v", o)
	}
	if m := bad[0]; m.Hops.Error != sender.ErrNoTrace.Error() || m.PathMTU.Error != "it has none" || m.PathMTU.Outcome != "failed" {
		t.Errorf("%+v", m)
	}
}
