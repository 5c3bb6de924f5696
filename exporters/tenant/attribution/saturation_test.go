package attribution

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"vigia/exporters/tenant/source/sourcetest"
	"vigia/internal/exposition"
	"vigia/internal/testutil"
)

const fullSeries = `vigia_resource_full_seconds_total{resource="ovs-vswitchd",kind="process"}`

func TestSecondsInWhichAProcessWasFullAreCounted(t *testing.T) {
	start := time.Now()
	at := func(seconds float64) time.Time { return start.Add(time.Duration(seconds * float64(time.Second))) }
	for name, c := range map[string]struct {
		readings []reading
		want     float64
	}{
		"nothing before the second reading": {[]reading{{at(0), 7, 500}}, 0},
		"a flood of two seconds in four": {[]reading{
			{at(0), 7, 0}, {at(1), 7, 0.3}, {at(2), 7, 1.29}, {at(3), 7, 2.25}, {at(4), 7, 2.6},
		}, 2},
		"nine tenths are enough, less is not":    {[]reading{{at(0), 7, 0}, {at(1), 7, 0.9}, {at(2), 7, 1.79}}, 1},
		"a late reading stands for its time":     {[]reading{{at(0), 7, 0}, {at(2.5), 7, 2.4}}, 2.5},
		"several threads at once":                {[]reading{{at(0), 7, 0}, {at(1), 7, 3.2}}, 1},
		"another process starts anew":            {[]reading{{at(0), 7, 0}, {at(1), 8, 50}, {at(2), 8, 51}}, 1},
		"none in between":                        {[]reading{{at(0), 7, 0}, {at(1), 0, 0}, {at(2), 7, 2}, {at(3), 7, 2.1}}, 0},
		"a clock that stands still counts none":  {[]reading{{at(0), 7, 0}, {at(0), 7, 1}}, 0},
		"a process id that is used again is new": {[]reading{{at(0), 7, 90}, {at(1), 7, 0.2}}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			var s saturation
			for _, r := range c.readings {
				s.saw(r)
			}
			if got := s.seconds(); got < c.want-1e-6 || got > c.want+1e-6 {
				t.Errorf("%v s were counted, want %v", got, c.want)
			}
		})
	}
}

// TestAFullSwitchIsSeenWhileNobodyScrapes has Run watch a procfs in which the switch uses more
// processors than there are.
func TestAFullSwitchIsSeenWhileNobodyScrapes(t *testing.T) {
	s, p := fakeRig(t)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); s.Run(ctx) }()
	ticks := 1000
	testutil.WaitFor(t, "a second of a full switch to be counted", func() bool {
		ticks += 100 // a second of its processor's time, whenever it is looked at
		replace(t, p, ticks)
		return s.saturation.seconds() >= 1
	})
	cancel()
	<-ended
	if m := collect(t, s, nil); m[fullSeries] < 1 {
		t.Errorf("%s is %v after more than a second", fullSeries, m[fullSeries])
	}
	if err := os.RemoveAll(filepath.Join(p.root, "run")); err != nil {
		t.Fatal(err)
	}
	if _, ok := collect(t, s, nil)[fullSeries]; ok {
		t.Error("a switch that does not run has a series")
	}
}

// replace writes the switch's processor time at once, for a reader meanwhile.
func replace(t *testing.T, p files, ticks int) {
	t.Helper()
	other := files{t, t.TempDir()}
	other.cpu(100, ticks)
	if err := os.Rename(filepath.Join(other.root, "42/stat"), filepath.Join(p.root, "42/stat")); err != nil {
		t.Fatal(err)
	}
}

func TestWithoutOpenVSwitchNobodyWatches(t *testing.T) {
	s := newSource(t, "")
	s.Run(context.Background()) // ends at once
	page := exposition.NewPage(nil)
	if err := s.Collect(sourcetest.View(nil, nil, nil, time.Now()), page); err != nil {
		t.Fatal(err)
	}
}
