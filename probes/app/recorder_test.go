package app

import (
	"os"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"vigia/internal/catalog"
	"vigia/probes/delay"
	"vigia/probes/health"
	"vigia/probes/protocol"
	stampprobe "vigia/probes/protocol/stamp"
	"vigia/probes/sender"
)

func newTestRecorder(t *testing.T) *recorder {
	t.Helper()
	c, err := catalog.Load()
	if err != nil {
		t.Fatal(err)
	}
	reg := prometheus.NewPedanticRegistry()
	all := newRecorders(c.NewFactory("probe", reg), reg, health.New(os.DirFS(t.TempDir())))
	return all.recorder(sender.Target{Protocol: stampprobe.Protocol{}, Labels: sender.Labels{Src: "a", Dst: "b"}}).(*recorder)
}

// observed returns what a scrape reads of the recorder's i-th histogram.
func observed(t *testing.T, r *recorder, i int) (count uint64, sum float64) {
	t.Helper()
	var m dto.Metric
	if err := r.series[i].Write(&m); err != nil {
		t.Fatal(err)
	}
	return m.Histogram.GetSampleCount(), m.Histogram.GetSampleSum()
}

// Whatever was observed before a scrape is in it, also what waits to be put into the
// histograms.
func TestScrapeSeesEveryObservation(t *testing.T) {
	r := newTestRecorder(t)
	for n := 1; n <= 3*maxPending; n++ {
		r.Launched(1e9)
		r.tidy()
		if count, sum := observed(t, r, lagHistogram); count != uint64(n) || sum != float64(n) {
			t.Fatalf("%d observations of %g s, want %d of %d s", count, sum, n, n)
		}
	}
	r.Varied([delay.NumDirections]int64{1e9, 2e9, 3e9})
	for d, want := range []float64{1, 2, 3} {
		if count, sum := observed(t, r, variationHistogram+d); r.twoWay && (count != 1 || sum != want) {
			t.Errorf("direction %d: %d observations of %g s, want one of %g s", d, count, sum, want)
		}
	}
	r.Burst(7)
	if count, sum := observed(t, r, burstHistogram); count != 1 || sum != 7 {
		t.Errorf("%d bursts of %g probes, want one of 7", count, sum)
	}
}

// The sender does not wait for a scrape, and nothing is lost by that.
func TestScrapeDoesNotHoldUpTheSender(t *testing.T) {
	r := newTestRecorder(t)
	p := &protocol.Probe{State: protocol.Lost}
	r.scraping.Lock()
	for range maxBacklog / 2 { // would never return
		r.Launched(1e9)
		r.Settled(p)
	}
	r.scraping.Unlock()
	if count, _ := observed(t, r, lagHistogram); count != maxBacklog/2 {
		t.Errorf("%d observations, want %d", count, maxBacklog/2)
	}
	if n := cap(r.pending) + cap(r.spare); n < maxBacklog/2 {
		t.Errorf("room for %d observations: the test did not make it wait", n)
	}

	// A scrape that never ends does hold it up, so that memory is bounded.
	r.scraping.Lock()
	var wg sync.WaitGroup
	wg.Go(func() {
		for range 2 * maxBacklog {
			r.Launched(1e9)
			r.tidy()
		}
	})
	for {
		r.mu.Lock()
		full := len(r.pending) >= maxBacklog
		r.mu.Unlock()
		if full {
			break
		}
	}
	r.scraping.Unlock()
	wg.Wait()
	if count, _ := observed(t, r, lagHistogram); count != maxBacklog/2+2*maxBacklog {
		t.Errorf("%d observations, want %d", count, maxBacklog/2+2*maxBacklog)
	}
}
