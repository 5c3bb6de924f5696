package pathmtu

import (
	"context"
	"errors"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"vigia/probes/sender"
)

// fakeLink is a path in memory.
type fakeLink struct {
	mtu     int
	breaks  int // packets after which nothing arrives any more; 0 for never
	brings  int // of the small probes that follow a missing one each so manieth; 0 for all
	claims  func(size int) int
	sent    int
	small   int
	lost    int
	largest int
	sizes   map[int]int
}

func (l *fakeLink) packets() int           { return l.sent }
func (l *fakeLink) loss() (sent, lost int) { return l.small, l.lost }

func (l *fakeLink) dead() bool { return l.breaks > 0 && l.sent > l.breaks }

func (l *fakeLink) try(_ context.Context, size int) (a attempt) {
	if l.sizes == nil {
		l.sizes = make(map[int]int)
	}
	l.sizes[size]++
	l.sent++
	if l.claims != nil {
		a.reported = l.claims(size)
	}
	if size <= l.mtu && !l.dead() {
		l.largest = max(l.largest, size)
		l.small++
	} else {
		l.sent++
		l.small++
		a.controlArrived = !l.dead() && (l.brings == 0 || l.small%l.brings == 0)
		if !a.controlArrived {
			l.lost++
		}
	}
	a.largest = l.largest
	return a
}

var standard = Limits{Min: DefaultMin, Max: DefaultMax}

// TestEveryMTU finds all that there can be, and never takes less than three
// failures for a limit.
func TestEveryMTU(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limits := Limits{Min: 600, Max: 700}
		for mtu := 600; mtu <= 701; mtu++ {
			l := &fakeLink{mtu: mtu}
			r := run(t.Context(), l, limits)
			want := min(mtu, limits.Max)
			if r.Outcome != Found || r.MTU != want || r.AtMax != (want == limits.Max) || r.Err != nil {
				t.Errorf("path of %d bytes: %+v", mtu, r)
			}
			if mtu < limits.Max && l.sizes[mtu+1] < minTries {
				t.Errorf("path of %d bytes: %d tries of the size after it", mtu, l.sizes[mtu+1])
			}
			for size := range l.sizes {
				if size < limits.Min || size > limits.Max {
					t.Errorf("tried %d bytes", size)
				}
			}
		}
	})
}

// TestReportsDecideNothing lies about the MTU in every way.
func TestReportsDecideNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, claims := range map[string]func(int) int{
			"too small":    func(int) int { return 600 },
			"tiny":         func(int) int { return 68 },
			"too large":    func(int) int { return 4000 },
			"always less":  func(size int) int { return size - 1 },
			"more than is": func(size int) int { return size + 1 },
			"true":         func(int) int { return 1500 },
		} {
			l := &fakeLink{mtu: 1500, claims: claims}
			if r := run(t.Context(), l, standard); r.Outcome != Found || r.MTU != 1500 {
				t.Errorf("%s: %+v", name, r)
			}
			if name == "true" && len(l.sizes) > 4 { // smallest, largest, what was reported, and one more
				t.Errorf("a true report: tried %v", l.sizes)
			}
		}
	})
}

func TestUnsettled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		late, cancelLate := context.WithTimeout(t.Context(), 0)
		defer cancelLate()
		for name, tc := range map[string]struct {
			ctx  context.Context
			link *fakeLink
			want error
			as   Outcome
		}{
			"the path breaks": {t.Context(), &fakeLink{mtu: 1500, breaks: 30}, errBroken, Unsettled},
			"heavy loss":      {t.Context(), &fakeLink{mtu: 600, brings: 7}, errLossy, Unsettled},
			"nothing at all":  {t.Context(), &fakeLink{mtu: 0, breaks: 1}, errSilent, Unreachable},
			"out of time":     {late, &fakeLink{mtu: 0}, context.DeadlineExceeded, Unreachable},
			"it shall end":    {ended, &fakeLink{mtu: 1500}, context.Canceled, Unsettled},
		} {
			r := run(tc.ctx, tc.link, standard)
			if r.Outcome != tc.as || !errors.Is(r.Err, tc.want) || r.MTU != 0 || r.AtMax {
				t.Errorf("%s: %+v", name, r)
			}
			if tc.link.sent > MaxPackets+2 {
				t.Errorf("%s: %d packets", name, tc.link.sent)
			}
		}
	})
}

func TestTriesGrowWithLoss(t *testing.T) {
	for _, tc := range []struct{ sent, lost, want int }{
		{1000, 0, minTries}, {10, 0, 5}, {20, 4, 8}, {100, 20, 8}, {100, 60, maxTries}, {0, 0, maxTries},
	} {
		if got := tries(tc.sent, tc.lost); got != tc.want {
			t.Errorf("%d of %d lost: %d tries, want %d", tc.lost, tc.sent, got, tc.want)
		}
	}
}

// TestRunner looks at when searches begin, which are dropped, and that a failed
// one is repeated soon.
func TestRunner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		done := make(map[string]int)
		count := func(dst string) int {
			mu.Lock()
			defer mu.Unlock()
			return done[dst]
		}
		r := NewRunner(Options{
			Address: func(*sender.Target) (netip.AddrPort, error) { return netip.AddrPort{}, errors.New("no address yet") },
			Done: func(tg *sender.Target, r *Result) {
				mu.Lock()
				defer mu.Unlock()
				done[tg.Labels.Dst]++
				if r.Outcome != Failed || r.Err == nil {
					t.Errorf("%+v", r)
				}
			},
		})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); r.Run(ctx) }()
		task := func(dst string) Task {
			return Task{Target: sender.Target{Labels: sender.Labels{Dst: dst}}, Plan: Plan{Interval: time.Hour, Limits: standard}}
		}
		r.Set([]Task{task("a"), task("b")})
		time.Sleep(firstWithin)
		synctest.Wait()
		if count("a") != 1 || count("b") != 1 {
			t.Errorf("first searches: %v", done)
		}
		r.Set([]Task{task("a")})
		time.Sleep(10 * retryAfter)
		synctest.Wait()
		if count("a") != 11 || count("b") != 1 {
			t.Errorf("after ten minutes: %v", done)
		}
		r.Set(nil)
		time.Sleep(time.Hour)
		cancel()
		<-ended
		if count("a") != 11 {
			t.Errorf("after the end: %v", done)
		}
	})
}
