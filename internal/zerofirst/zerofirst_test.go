package zerofirst

import "testing"

// shown is what a scrape finds: -1 for no series.
func shown(c *Counter, count uint64, history bool) int {
	v, ok := c.Show(count, history)
	if !ok {
		return -1
	}
	return int(v)
}

func TestASeriesBeginsWithZeros(t *testing.T) {
	var c Counter
	for i, s := range []struct {
		count uint64
		want  int
	}{{0, -1}, {0, -1}, {3, 0}, {5, 0}, {5, 5}, {7, 7}, {0, 0}} {
		if got := shown(&c, s.count, false); got != s.want {
			t.Errorf("scrape %d of %d shows %d, want %d", i, s.count, got, s.want)
		}
		if c.Known() != (s.want >= 0) {
			t.Errorf("scrape %d: known is %v", i, c.Known())
		}
	}
}

// What was counted before anybody looked is shown at once; what comes after the first look is not.
func TestHistoryIsNoGrowth(t *testing.T) {
	var c Counter
	if got := shown(&c, 40, true); got != 40 {
		t.Errorf("a counter with a past shows %d, want 40", got)
	}
	if got := shown(&c, 41, false); got != 41 {
		t.Errorf("and then %d, want 41", got)
	}
	var quiet Counter
	if got := shown(&quiet, 0, true); got != -1 {
		t.Errorf("a counter without a past shows %d", got)
	}
	if got := shown(&quiet, 1, false); got != 0 {
		t.Errorf("its first increment shows %d, want 0", got)
	}
}
