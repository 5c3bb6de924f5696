package mesh

import (
	"math/rand/v2"
	"testing"
	"time"
)

const second = int64(time.Second)

// play settles a probe each interval, one for each letter: . answered, s slow, x lost,
// - no evidence. It returns the time of the last.
func play(p *Pair, from int64, interval time.Duration, probes string) (now int64) {
	now = from
	for _, c := range probes {
		now += int64(interval)
		p.Settled(map[rune]Outcome{'.': Fine, 's': Slow, 'x': Lost, '-': Nothing}[c], now)
	}
	return now
}

func TestUnreachable(t *testing.T) {
	for _, c := range []struct {
		probes                string
		interval              time.Duration
		doubtful, unreachable bool
	}{
		{"", time.Second, false, false},
		{"..x", time.Second, false, false},
		{"..xx", time.Second, true, false},
		{"..xxx", time.Second, true, true},
		{"..xxx.", time.Second, false, false},
		{"..xxxs", time.Second, false, false},
		{"..x--xx", time.Second, true, true},
		{"...---", time.Second, false, false},
		{"..xxxxx", 50 * time.Millisecond, true, false}, // a moment only
		{"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx", 50 * time.Millisecond, true, true},
	} {
		var p Pair
		now := play(&p, 0, c.interval, c.probes)
		if d, u := p.Doubtful(now, c.interval), p.Unreachable(now, c.interval); d != c.doubtful || u != c.unreachable {
			t.Errorf("%q each %v: doubtful %v, unreachable %v", c.probes, c.interval, d, u)
		}
		late := now + int64(3*c.interval+patience) + 1
		if p.Doubtful(late, c.interval) || p.Unreachable(late, c.interval) {
			t.Errorf("%q: old evidence still holds", c.probes)
		}
	}
}

func TestBad(t *testing.T) {
	for _, c := range []struct {
		probes string
		bad    bool
	}{
		{"", false},
		{"....x....", false},
		{"x...............................x", false}, // 32 apart
		{"x..............................x", true},
		{"sssssss", false},
		{"ssssssss", true},
		{"s.s.s.s.s.s.s.s.", true},
		{"----------", false},
	} {
		var p Pair
		if now := play(&p, 0, time.Second, c.probes); p.Bad(now) != c.bad {
			t.Errorf("%q: bad is %v", c.probes, !c.bad)
		}
	}
	var p Pair
	now := play(&p, 0, time.Second, "xx")
	if !p.Bad(now+int64(hold)) || p.Bad(now+int64(hold)+1) {
		t.Error("a bad pair is held for another time")
	}
	if p.Severity() != 4 {
		t.Errorf("severity %d", p.Severity())
	}
}

// A pair that loses a probe now and then does not come and go: a change to bad holds for five
// minutes at least.
func TestBadDoesNotFlap(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 3))
	var p Pair
	was, since, changes := false, int64(0), 0
	for now := second; now < 24*3600*second; now += second {
		o := Fine
		if random.Float64() < 0.01 {
			o = Lost
		}
		p.Settled(o, now)
		if bad := p.Bad(now); bad != was {
			if changes++; was && now-since < int64(hold) {
				t.Fatalf("bad for %v only", time.Duration(now-since))
			}
			was, since = bad, now
		}
	}
	if changes == 0 || changes > 2*24*12 {
		t.Errorf("%d changes in a day", changes)
	}
}

func BenchmarkPair(b *testing.B) {
	var p Pair
	now := int64(0)
	for b.Loop() {
		now += second
		p.Settled(Fine, now)
	}
}
