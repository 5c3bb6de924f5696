package export

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"vigia/internal/catalog"
	"vigia/probes/delay"
	"vigia/probes/health"
	"vigia/probes/objective"
	"vigia/probes/protocol"
	stampprobe "vigia/probes/protocol/stamp"
	"vigia/probes/sender"
	"vigia/probes/twin"
)

func newTestRecorder(t *testing.T) *recorder {
	t.Helper()
	c, err := catalog.Load()
	if err != nil {
		t.Fatal(err)
	}
	reg := prometheus.NewPedanticRegistry()
	all := newRecorders(c.NewFactory("probe", reg), reg, health.New(t.TempDir()))
	return all.New(sender.Target{Protocol: stampprobe.Protocol{}, Labels: sender.Labels{Src: "a", Dst: "b"}}).(*recorder)
}

// newRecorders returns recorders whose host is judged by a monitor.
func newRecorders(f *catalog.Factory, reg prometheus.Registerer, monitor *health.Monitor, protocols ...protocol.Protocol) *Recorders {
	return NewRecorders(f, reg, Context{Host: monitor, Objectives: objective.New(), Judges: newBook(), Twins: twin.New()}, protocols)
}

// newBook returns the objectives of these targets; others learn them.
func newBook(targets ...objective.Target) *objective.Book {
	book := objective.NewBook("", slog.New(slog.DiscardHandler))
	book.Set(targets)
	return book
}

// unfitCounts returns how many samples of a target were taken while the host was not fit.
func unfitCounts(r *Recorders, l sender.Labels) [health.NumReasons]uint64 {
	j, _ := r.judgement(l)
	return j.unfit
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
		r.observe(rttHistogram, 1e9)
		r.flushWhenFull()
		if count, sum := observed(t, r, rttHistogram); count != uint64(n) || sum != float64(n) {
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
		r.observe(rttHistogram, 1e9)
		r.Settled(p)
	}
	r.scraping.Unlock()
	if count, _ := observed(t, r, rttHistogram); count != maxBacklog/2 {
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
			r.observe(rttHistogram, 1e9)
			r.flushWhenFull()
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
	if count, _ := observed(t, r, rttHistogram); count != maxBacklog/2+2*maxBacklog {
		t.Errorf("%d observations, want %d", count, maxBacklog/2+2*maxBacklog)
	}
}

// TestRecordersWhileScraped observes and gathers at the same time; the race
// detector watches, and no histogram may be inconsistent in itself.
func TestRecordersWhileScraped(t *testing.T) {
	c, err := catalog.Load()
	if err != nil {
		t.Fatal(err)
	}
	reg := prometheus.NewPedanticRegistry()
	all := newRecorders(c.NewFactory("probe", reg), reg, health.New(t.TempDir()))
	all.ShowAll(true)
	var wg sync.WaitGroup
	stop := make(chan struct{})
	for i := range 3 {
		rec := all.New(sender.Target{Protocol: stampprobe.Protocol{}, Labels: sender.Labels{Src: "a", Dst: fmt.Sprint(i)}})
		wg.Go(func() {
			for ns := int64(1); ; ns += 997 {
				select {
				case <-stop:
					return
				default:
				}
				rec.Launched(ns)
				rec.Settled(&protocol.Probe{State: protocol.Answered, Application: ns, Own: protocol.Own{Known: true, Send: 1, Read: 2}, ErrorBound: -1, Stamps: delay.Stamps{T4: ns}})
				rec.Varied([delay.NumDirections]int64{ns, -ns, 0})
			}
		})
	}
	for range 50 {
		families, err := reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		if len(families) != numHistograms-4 { // no twin, no bound of the clocks, a fit host
			t.Fatalf("%d families", len(families))
		}
		for _, f := range families {
			for _, m := range f.Metric {
				checkHistogram(t, f.GetName(), m.Histogram)
			}
		}
	}
	close(stop)
	wg.Wait()
}

func checkHistogram(t *testing.T, name string, h *dto.Histogram) {
	t.Helper()
	n := h.GetZeroCount()
	for _, deltas := range [][]int64{h.PositiveDelta, h.NegativeDelta} {
		var level int64
		for _, d := range deltas {
			level += d
			n += uint64(level)
		}
	}
	if n != h.GetSampleCount() {
		t.Fatalf("%s: %d in buckets, count %d", name, n, h.GetSampleCount())
	}
	var last uint64
	for _, b := range h.Bucket {
		if b.GetCumulativeCount() < last || b.GetCumulativeCount() > h.GetSampleCount() {
			t.Fatalf("%s: classic bucket %g has %d of %d", name, b.GetUpperBound(), b.GetCumulativeCount(), h.GetSampleCount())
		}
		last = b.GetCumulativeCount()
	}
}

// TestRecorderTakesGoodSamplesOnly hands over records of every kind.
func TestRecorderTakesGoodSamplesOnly(t *testing.T) {
	c, err := catalog.Load()
	if err != nil {
		t.Fatal(err)
	}
	reg := prometheus.NewRegistry()
	all := newRecorders(c.NewFactory("probe", reg), reg, health.New(t.TempDir()))
	labels := sender.Labels{Src: "a", Dst: "b", Path: "p", Tenant: "t", Probe: "c"}
	rec := all.New(sender.Target{Protocol: stampprobe.Protocol{}, Labels: labels})
	all.ShowAll(true)
	stamps := delay.Stamps{T1: 0, T2: 1000, T3: 51_000, T4: 53_000}
	own := protocol.Own{Known: true, Send: 5_000, Read: 40_000_000}
	for _, p := range []protocol.Probe{
		{State: protocol.Answered, Verdict: delay.Good, Stamps: stamps, Application: 53_000, Own: own},
		{State: protocol.Answered, Verdict: delay.NoKernelStamp, Stamps: stamps, Application: 7_000, ByExchange: true},
		{State: protocol.Answered, Verdict: delay.NoKernelStamp, Stamps: stamps, Application: 40_100_000}, // with our waking
		{State: protocol.Answered, Verdict: delay.ClockStep, Stamps: stamps},
		{State: protocol.Answered, Verdict: delay.NoKernelStamp, Stamps: stamps},
		{State: protocol.Answered, Verdict: delay.Implausible, Stamps: stamps},
		{State: protocol.Lost, Stamps: stamps},
	} {
		p.ErrorBound = -1
		rec.Settled(&p)
	}
	sums := func() map[string]float64 {
		families, err := reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		out := make(map[string]float64)
		for _, f := range families {
			for _, m := range f.Metric {
				out[f.GetName()] += m.Histogram.GetSampleSum()
			}
		}
		return out
	}
	want := map[string]float64{
		"vigia_probe_rtt_seconds": 3e-6, "vigia_probe_reflector_residence_seconds": 50e-6,
		"vigia_probe_rtt_application_seconds": 60e-6, "vigia_probe_own_delay_seconds": 40.005e-3, "vigia_probe_schedule_lag_seconds": 0, "vigia_probe_delay_variation_seconds": 0,
		"vigia_probe_loss_burst_packets": 0,
	}
	if diff := cmp.Diff(want, sums()); diff != "" {
		t.Errorf("sums (-want +got):\n%s", diff)
	}
	rec.Removed()
	if got := sums(); len(got) != 0 {
		t.Errorf("after the target is gone: %v", got)
	}
}

// TestUnfitHostQuarantines steals time and lags, and looks where the samples go.
func TestUnfitHostQuarantines(t *testing.T) {
	c, err := catalog.Load()
	if err != nil {
		t.Fatal(err)
	}
	host := t.TempDir()
	stat := func(line string) {
		if err := os.MkdirAll(filepath.Join(host, "proc"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(host, "proc/stat"), []byte(line), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	stat("cpu  100 0 0 0 0 0 0 0\n")
	monitor := health.New(host)
	reg := prometheus.NewRegistry()
	all := newRecorders(c.NewFactory("probe", reg), reg, monitor)
	all.SetMaxOnewayError(time.Microsecond)
	labels := sender.Labels{Src: "a", Dst: "b", Path: "p", Tenant: "t", Probe: "c"}
	rec := all.New(sender.Target{Protocol: stampprobe.Protocol{}, Labels: labels})
	sample := func() {
		rec.Settled(&protocol.Probe{State: protocol.Answered, Application: 5000, Own: protocol.Own{Known: true}, ErrorBound: 1000, Stamps: delay.Stamps{T2: 1000, T3: 2000, T4: 5000}})
	}
	counts := func() map[string]uint64 {
		families, err := reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		out := make(map[string]uint64)
		for _, f := range families {
			for _, m := range f.Metric {
				out[f.GetName()] += m.Histogram.GetSampleCount()
			}
		}
		return out
	}
	sample()
	if got := counts(); got["vigia_probe_rtt_seconds"] != 1 || got["vigia_probe_rtt_application_seconds"] != 1 ||
		got["vigia_probe_oneway_delay_seconds"] != 2 || got["vigia_probe_rtt_quarantined_seconds"] != 0 {
		t.Errorf("fit: %v", got)
	}
	late := protocol.Probe{
		State: protocol.Answered, Application: 5000, Own: protocol.Own{Known: true}, Intended: -int64(time.Second), // sent at 0
		Verdict: delay.NoKernelStamp, // at the other end
	}
	rec.Settled(&late)
	if got := counts(); got["vigia_probe_rtt_application_seconds"] != 1 || got["vigia_probe_rtt_application_quarantined_seconds"] != 1 {
		t.Errorf("late: %v", got)
	}
	stat("cpu  150 0 0 0 0 0 0 50\n")
	monitor.Update()
	sample()
	if got := counts(); got["vigia_probe_rtt_seconds"] != 1 || got["vigia_probe_rtt_application_seconds"] != 1 ||
		got["vigia_probe_oneway_delay_seconds"] != 2 || got["vigia_probe_rtt_quarantined_seconds"] != 1 ||
		got["vigia_probe_rtt_application_quarantined_seconds"] != 2 {
		t.Errorf("stolen: %v", got)
	}
	if got := unfitCounts(all, labels); got != [health.NumReasons]uint64{health.Steal: 1, health.ScheduleLag: 1} {
		t.Errorf("reasons %v", got)
	}
}

// What vigia-probe adds itself is bounded in memory also while no probe is answered and nobody
// scrapes.
func TestLagsDoNotPileUp(t *testing.T) {
	r := newTestRecorder(t)
	for range 10 * maxPending {
		r.Launched(1e6)
	}
	o := r.owner.own
	if waiting := len(o.recorder.pending); waiting >= maxPending {
		t.Errorf("%d lags wait", waiting)
	}
	var m dto.Metric
	if err := o.recorder.series[lagSeries].Write(&m); err != nil {
		t.Fatal(err)
	}
	if n := m.Histogram.GetSampleCount(); n != 10*maxPending || len(m.Label) != 0 {
		t.Errorf("%d lags are counted with labels %v, want %d without", n, m.Label, 10*maxPending)
	}
}
