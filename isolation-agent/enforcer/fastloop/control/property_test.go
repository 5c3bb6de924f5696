package control

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// traffic is what comes for a class in every tick: random walks, pulses, silence.
type traffic struct {
	random *rand.Rand
	rate   float64 // Mbit/s
	most   float64
}

func (tr *traffic) next() float64 {
	switch tr.random.IntN(60) {
	case 0:
		tr.rate = 0
	case 1:
		tr.rate = tr.most * tr.random.Float64()
	case 2:
		tr.rate = tr.most
	default:
		tr.rate = min(tr.most, tr.rate*(0.9+0.2*tr.random.Float64()))
	}
	return tr.rate
}

// scheduler delivers as HTB does: guarantees first, and then what is left in proportion
// to them. Everything is in Mbit/s.
func scheduler(limit float64, guarantees, arrive []float64) []float64 {
	out := make([]float64, len(arrive))
	left := limit
	for i := range arrive {
		out[i] = min(arrive[i], guarantees[i])
		left -= out[i]
	}
	for left > 1e-9 {
		var weights float64
		for i := range arrive {
			if arrive[i] > out[i]+1e-9 {
				weights += guarantees[i]
			}
		}
		if weights == 0 {
			break
		}
		given := 0.0
		for i := range arrive {
			if arrive[i] > out[i]+1e-9 {
				more := min(arrive[i]-out[i], left*guarantees[i]/weights)
				out[i] += more
				given += more
			}
		}
		left -= given
	}
	return out
}

// TestDecisionsKeepTheirPromisesWhateverComes drives a receiver with random traffic of
// random tenants.
func TestDecisionsKeepTheirPromisesWhateverComes(t *testing.T) {
	for seed := range uint64(40) {
		random := rand.New(rand.NewPCG(seed, 1))
		n := 1 + random.IntN(6)
		guarantees, classes := make([]float64, n), map[uint32]ClassConfig{}
		sources := make([]traffic, n)
		for i := range n {
			guarantees[i] = 90 / float64(n) * (0.5 + random.Float64()/2)
			classes[uint32(i)] = ClassConfig{Tenant: fmt.Sprint(i), GuaranteeBytesPerSecond: uint64(guarantees[i] * mbit)}
			sources[i] = traffic{random: random, most: 200 * random.Float64()}
		}
		variant := []Variant{Vigia, Paper}[seed%2]
		r := NewReceiver(variant, 95*mbit, 2.5*mbit)
		r.SetClasses(classes)
		now, readings := time.Now(), map[uint32]Reading{}
		last := map[uint32]time.Time{}
		var past [][]float64 // what left in each tick
		for tick := range 3000 {
			now = now.Add(Tick)
			arrive := make([]float64, n)
			for i := range n {
				arrive[i] = sources[i].next()
			}
			left := scheduler(95, guarantees, arrive)
			for i := range n {
				v := readings[uint32(i)]
				v.Arrived += uint64(arrive[i] * mbit * Tick.Seconds())
				v.Left += uint64(left[i] * mbit * Tick.Seconds())
				readings[uint32(i)] = v
			}
			past = append(past, slices.Clone(left))
			for _, c := range r.Sample(now, readingsOf(r, readings)) {
				checkDecision(t, seed, tick, variant, &c, last, now)
				if !c.Renewal && c.Dropped <= 2.5*mbit && (variant == Paper || !starved(past, guarantees, int(c.Class))) {
					t.Errorf("seed %d, tick %d: notified of drops below the threshold, and nobody lacks anything: %+v", seed, tick, c)
				}
			}
			if t.Failed() {
				return
			}
		}
	}
}

// starved tells whether of late a class had more than its guarantee, and another one less than its own and less than it
// had within ten seconds, while the link was full.
func starved(past [][]float64, guarantees []float64, class int) bool {
	mean := func(i, from, ticks int) (sum float64) {
		for _, left := range past[from : from+ticks] {
			sum += left[i] / float64(ticks)
		}
		return sum
	}
	now := len(past) - samples
	if now < 0 || mean(class, now, samples) < 0.999*guarantees[class] {
		return false
	}
	for i := range guarantees {
		if has := mean(i, now, samples); i != class && has > 0 && has < 0.93*guarantees[i] {
			for at := max(0, now-1000); at < now; at++ {
				if mean(i, at, samples) > has {
					return true
				}
			}
		}
	}
	return false
}

func checkDecision(t *testing.T, seed uint64, tick int, v Variant, c *Congestion, last map[uint32]time.Time, now time.Time) {
	t.Helper()
	interval := map[Variant]time.Duration{Vigia: noticeInterval, Paper: paperInterval}[v]
	if c.Renewal {
		interval = renewInterval
	}
	if before, known := last[c.Class]; known && now.Sub(before) < interval {
		t.Errorf("seed %d, tick %d: notices %s apart", seed, tick, now.Sub(before))
	}
	last[c.Class] = now
	switch {
	case math.IsNaN(c.Rate) || math.IsNaN(c.Measured) || math.IsNaN(c.Dropped) || c.Measured < 0 || c.Dropped < 0:
		t.Errorf("seed %d, tick %d: %+v", seed, tick, c)
	case v == Paper && (c.Rate != 0 || c.Renewal):
		t.Errorf("seed %d, tick %d: the plain variant advises %+v", seed, tick, c)
	case v == Vigia && c.Rate < float64(c.Config.GuaranteeBytesPerSecond)*0.999:
		t.Errorf("seed %d, tick %d: advised %.2f Mbit/s of a guarantee of %.2f", seed, tick, c.Rate/mbit, float64(c.Config.GuaranteeBytesPerSecond)/mbit)
	case !c.Renewal && (c.Since.After(now) || now.Sub(c.Since) > samples*2*Tick+congestedFor+time.Hour):
		t.Errorf("seed %d, tick %d: since %s", seed, tick, now.Sub(c.Since))
	case c.Renewal && (c.First || c.Dropped != 0):
		t.Errorf("seed %d, tick %d: a renewal with drops: %+v", seed, tick, c)
	}
}

// TestDecisionsDoNotDependOnTheScale: a link of ten times the rate decides the same,
// tick by tick.
func TestDecisionsDoNotDependOnTheScale(t *testing.T) {
	decide := func(scale float64) (out []string) {
		random := rand.New(rand.NewPCG(9, 9))
		r := NewReceiver(Vigia, uint64(95*mbit*scale), uint64(2.5*mbit*scale))
		r.SetClasses(map[uint32]ClassConfig{
			classA: {Tenant: "a", GuaranteeBytesPerSecond: uint64(71 * mbit * scale)},
			classB: {Tenant: "b", GuaranteeBytesPerSecond: uint64(23 * mbit * scale)},
		})
		now, readings := time.Now(), map[uint32]Reading{}
		a, b := traffic{random: random, most: 80}, traffic{random: random, most: 160}
		for tick := range 2000 {
			now = now.Add(Tick)
			arrive := []float64{math.Round(a.next()), math.Round(b.next())}
			left := scheduler(95, []float64{71, 23}, arrive)
			for i, id := range []uint32{classA, classB} {
				v := readings[id]
				v.Arrived += uint64(arrive[i] * 1250 * scale)
				v.Left += uint64(math.Round(left[i]) * 1250 * scale)
				readings[id] = v
			}
			for _, c := range r.Sample(now, readingsOf(r, readings)) {
				out = append(out, fmt.Sprintf("tick %d: class %d renewal %v rate %.3f", tick, c.Class, c.Renewal, c.Rate/mbit/scale))
			}
		}
		return out
	}
	once, ten := decide(1), decide(10)
	slices.Sort(once)
	slices.Sort(ten)
	if len(once) < 20 || !slices.Equal(once, ten) {
		t.Errorf("%d decisions on the small link, %d on the large one", len(once), len(ten))
		for i := range min(len(once), len(ten)) {
			if once[i] != ten[i] {
				t.Fatalf("%s, and on the large one %s", once[i], ten[i])
			}
		}
	}
}

// TestAQuietLinkIsNeitherBusyNorNotified holds a receiver to leaving alone what has room.
func TestAQuietLinkIsNeitherBusyNorNotified(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 3))
	p := newPlant(t, Vigia)
	for tick := range 5000 {
		a, b := 20*random.Float64(), 20*random.Float64()
		if got, _ := p.run(1, a, b, 0); len(got) > 0 {
			t.Fatalf("tick %d: notified of %+v", tick, got)
		}
		if tick > samples && p.r.Busy(p.now) {
			t.Fatalf("tick %d: busy at %.0f Mbit/s", tick, a+b)
		}
	}
}

// TestALimitStaysBetweenFloorAndCeilingWhateverIsOrdered drives a sender with random
// orders, also absurd ones of a peer that lies.
func TestALimitStaysBetweenFloorAndCeilingWhateverIsOrdered(t *testing.T) {
	for seed := range uint64(50) {
		random := rand.New(rand.NewPCG(seed, 2))
		s, now := NewSender(), time.Now()
		rates := map[LimitKey]float64{}
		for step := range 2000 {
			now = now.Add(time.Duration(random.IntN(300)) * time.Millisecond)
			key := LimitKey{Port: fmt.Sprint(random.IntN(3)), Destination: Address{10, 0, 0, byte(random.IntN(2))}}
			if random.IntN(3) > 0 {
				o := Order{LimitKey: key, Group: Group{Contract: fmt.Sprint(key)}, Floor: 24 * mbit, Ceiling: 95 * mbit, Link: 100 * mbit, Severity: uint8(random.IntN(256))}
				o.Advised = []float64{0, 1, 24, 60, 95, 1e6, math.MaxUint64}[random.IntN(7)] * mbit
				o.Measured = []float64{0, 1, 50, 200, math.MaxUint64}[random.IntN(5)]
				l := s.Obey(now, o)[0]
				if l.Clamped != (o.Advised > 0 && o.Advised < o.Floor) && o.Advised > 0 {
					t.Fatalf("seed %d, step %d: clamped %v at %v", seed, step, l.Clamped, o.Advised/mbit)
				}
				rates[key] = l.Rate
			}
			changed, over := s.Grow(now)
			for _, l := range changed {
				if l.Rate <= rates[l.LimitKey] {
					t.Fatalf("seed %d, step %d: a limit grew from %v to %v", seed, step, rates[l.LimitKey]/mbit, l.Rate/mbit)
				}
				rates[l.LimitKey] = l.Rate
			}
			for _, key := range over {
				delete(rates, key)
			}
			if s.Len() != len(rates) {
				t.Fatalf("seed %d, step %d: %d limits, %d are known", seed, step, s.Len(), len(rates))
			}
			for _, l := range s.List() {
				if l.Rate < 24*mbit || l.Rate >= released*95*mbit || l.Severity < 1 || l.Severity > maxSeverity || l.Rate != rates[l.LimitKey] {
					t.Fatalf("seed %d, step %d: %+v", seed, step, l)
				}
			}
		}
	}
}

// TestEveryLimitEndsWhenNobodyAsksForIt: however severe, and however late it is looked at.
func TestEveryLimitEndsWhenNobodyAsksForIt(t *testing.T) {
	for _, severity := range []uint8{0, 1, 4, maxSeverity, 255} {
		for _, look := range []time.Duration{Tick, 50 * time.Millisecond, time.Second, time.Minute} {
			s, now := NewSender(), time.Now()
			s.Obey(now, Order{LimitKey: LimitKey{Port: "p"}, Advised: mbit, Floor: mbit, Ceiling: 100 * mbit, Link: 100 * mbit, Severity: severity})
			start := now
			for s.Len() > 0 && now.Sub(start) < 5*time.Minute {
				now = now.Add(look)
				s.Grow(now)
			}
			if s.Len() > 0 {
				t.Errorf("severity %d, looked at every %s: it is still there after five minutes", severity, look)
			}
		}
	}
}

func TestAMoreSevereLimitNeverGrowsFaster(t *testing.T) {
	s, now := NewSender(), time.Now()
	for severity := range uint8(maxSeverity) {
		s.Obey(now, Order{
			LimitKey: LimitKey{Port: fmt.Sprintf("%02d", severity)}, Group: Group{Contract: fmt.Sprint(severity)}, Advised: 24 * mbit, Floor: 24 * mbit, Ceiling: 1000 * mbit, Link: 100 * mbit, Severity: severity + 1,
		})
	}
	for range 100 {
		now = now.Add(growInterval)
		s.Grow(now)
		list := s.List()
		slices.SortFunc(list, func(a, b Limit) int { return cmp.Compare(a.Port, b.Port) })
		for i := 1; i < len(list); i++ {
			if list[i].Rate > list[i-1].Rate {
				t.Fatalf("severity %d has %v Mbit/s, severity %d has %v", list[i].Severity, list[i].Rate/mbit, list[i-1].Severity, list[i-1].Rate/mbit)
			}
		}
	}
}

func TestALimitEndsOnceAndBeginsAnew(t *testing.T) {
	s, start := NewSender(), time.Now()
	o := order(24, 100)
	var l *Limit
	for i := range 20 {
		l = s.Obey(start.Add(time.Duration(i)*100*time.Millisecond), o)[0]
	}
	if l.Since != start || !l.AtFloor() {
		t.Errorf("orders begin it anew: %+v", l)
	}
	if !s.End(o.LimitKey) || s.End(o.LimitKey) || s.Len() != 0 {
		t.Error("it does not end, or twice")
	}
	later := start.Add(3 * time.Second)
	if l = s.Obey(later, order(40, 100))[0]; l.Since != later || l.AtFloor() {
		t.Errorf("a new limit is as old as the last: %+v", l)
	}
}

// TestSharesAreThoseOfWhatWasCounted compares sources with a plain reckoning.
func TestSharesAreThoseOfWhatWasCounted(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 8))
	s, now := NewSources(roomForSources), time.Now()
	for round := range 300 {
		dt := sourceWindow + time.Duration(random.IntN(50))*time.Millisecond
		now = now.Add(dt)
		bytes := map[Source]uint64{}
		for range random.IntN(40) {
			source := Source{Link: 1 + random.IntN(2), Class: uint32(random.IntN(3)), From: MAC{byte(random.IntN(30))}}
			bytes[source] += uint64(random.IntN(1 << 16))
		}
		count(s, now, bytes)
		if round > 0 {
			compareTop(t, round, s, dt, bytes)
		}
	}
}

func compareTop(t *testing.T, round int, s *Sources, dt time.Duration, bytes map[Source]uint64) {
	t.Helper()
	for link := 1; link <= 2; link++ {
		for class := range uint32(3) {
			rates, sum := map[Source]float64{}, 0.0
			for source, n := range bytes {
				if source.Link == link && source.Class == class && n > 0 {
					rates[source] = float64(n) / dt.Seconds()
					sum += rates[source]
				}
			}
			top, n := s.Top(link, class)
			covered := 0.0
			for i, share := range top {
				covered += share.Share
				if !near(share.Rate, rates[share.Source]) || !near(share.Share, rates[share.Source]/sum) || (i > 0 && share.Rate > top[i-1].Rate) {
					t.Fatalf("round %d: place %d is %+v, want a rate of %v", round, i, share, rates[share.Source])
				}
			}
			if n != len(rates) || len(top) > topSources || (len(top) < min(n, topSources) && covered < enough) {
				t.Fatalf("round %d: %d of %d sources cover %.2f; %d send", round, len(top), n, covered, len(rates))
			}
			if len(top) > 1 && covered-top[len(top)-1].Share >= enough {
				t.Fatalf("round %d: the last of %d is one too many", round, len(top))
			}
		}
	}
}

func TestAReadingAfterAPauseIsNoRate(t *testing.T) {
	s, now := NewSources(roomForSources), time.Now()
	source := Source{Link: 1, Class: classA}
	for _, step := range []struct {
		after time.Duration
		bytes uint64
		want  float64
	}{
		{0, 1 << 40, 0}, // from before
		{sourceWindow, 0, 0},
		{sourceWindow, 5000, 100_000},
		{sourceWindow, 0, 0},
		{2 * time.Second, 1 << 30, 0}, // of so long that it says nothing of now
		{sourceWindow, 50, 1000},
	} {
		now = now.Add(step.after)
		count(s, now, map[Source]uint64{source: step.bytes})
		top, _ := s.Top(1, classA)
		got := 0.0
		if len(top) > 0 {
			got = top[0].Rate
		}
		if math.Abs(got-step.want) > 1 {
			t.Errorf("at %d bytes: %v bytes per second, want %v", step.bytes, got, step.want)
		}
	}
}
