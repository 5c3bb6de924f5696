package app

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"vigia/internal/catalog"
	"vigia/internal/testutil"
	"vigia/probes/delay"
	"vigia/probes/health"
	"vigia/probes/protocol"
	stampprobe "vigia/probes/protocol/stamp"
	"vigia/probes/reflector"
	"vigia/probes/sender"
	"vigia/probes/sockets"
)

// sums adds up a family by the label dst.
func (s scrape) sums(family string) map[string]float64 {
	out := make(map[string]float64)
	if s[family] == nil {
		return out
	}
	for _, m := range s[family].Metric {
		for _, l := range m.Label {
			if l.GetName() == "dst" {
				out[l.GetValue()] += m.Counter.GetValue() + m.Gauge.GetValue()
			}
		}
	}
	return out
}

// TestEveryScrapeAddsUp scrapes as fast as it can while a third of the probes get
// lost, and demands of each scrape that its counters agree with each other.
func TestEveryScrapeAddsUp(t *testing.T) {
	left, right := network(t)
	start(t, node("b", right, "10.9.0.2"))
	testutil.Run(t, "ip", "netns", "exec", right, "nft", "add table inet t; add chain inet t c { type filter hook input priority 0; }; add rule inet t c udp dport 862 numgen inc mod 3 == 0 drop")
	var targets []string
	for i := range 10 {
		targets = append(targets, aim(fmt.Sprint("b", i), "stamp-64", left, "10.9.0.1", "10.9.0.2:862"))
	}
	config := strings.Replace(node("a", left, "10.9.0.1", targets...), "deadline: 1s", "deadline: 50ms", 1)
	a := start(t, config)
	scrapes := 0
	a.waitFor("a good number of losses", func() bool {
		s := a.scrape()
		scrapes++
		sent, received, lost := s.sums("vigia_probe_sent_total"), s.sums("vigia_probe_received_total"), s.sums("vigia_probe_lost_total")
		for dst, n := range sent {
			if n != received[dst]+lost[dst] {
				t.Errorf("scrape %d, %s: %v sent, %v received, %v lost", scrapes, dst, n, received[dst], lost[dst])
			}
		}
		for dst, n := range s.sums("vigia_probe_accounting_mismatch") {
			if n != 0 {
				t.Errorf("scrape %d, %s: mismatch %v", scrapes, dst, n)
			}
		}
		return lost["b0"] > 30
	})
}

func TestReloadOnSIGHUP(t *testing.T) {
	d := start(t, "node: a\nreflector: {listeners: [{address: \"127.0.0.1:28623\"}]}\n")
	d.write("node: a\n" + paths + "targets: [{dst: b, path: direct, tenant: t, probe: stamp-64, address: \"127.0.0.1:1\"}]\n")
	if err := syscall.Kill(syscall.Getpid(), syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	d.waitFor("the new target", func() bool { _, ok := d.scrape().value("vigia_probe_sent_total", "dst", "b"); return ok })
}

// TestStopsUnderLoad ends a daemon in the middle of its work; the clean-up of the
// fixture checks the exit code, and afterwards its port is free.
func TestStopsUnderLoad(t *testing.T) {
	left, right := network(t)
	b := start(t, node("b", right, "10.9.0.2"))
	a := start(t, node("a", left, "10.9.0.1", aim("b", "stamp-64", left, "10.9.0.1", "10.9.0.2:862")))
	a.waitFor("answers", func() bool { v, _ := a.scrape().value("vigia_probe_received_total"); return v > 10 })
	if code := b.stop(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if code := a.stop(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if code, _ := a.get("/-/healthy"); code != 0 {
		t.Errorf("still answers with %d", code)
	}
	again := start(t, node("b", right, "10.9.0.2"))
	again.waitFor("being ready", func() bool { code, _ := again.get("/-/ready"); return code == http.StatusOK })
}

// TestRecordersWhileScraped observes and gathers at the same time; the race
// detector watches, and no histogram may be inconsistent in itself.
func TestRecordersWhileScraped(t *testing.T) {
	c, err := catalog.Load()
	if err != nil {
		t.Fatal(err)
	}
	reg := prometheus.NewPedanticRegistry()
	all := newRecorders(c.NewFactory("probe", reg), reg, health.New(fstest.MapFS{}))
	var wg sync.WaitGroup
	stop := make(chan struct{})
	for i := range 3 {
		rec := all.recorder(sender.Target{Protocol: stampprobe.Protocol{}, Labels: sender.Labels{Src: "a", Dst: fmt.Sprint(i)}})
		wg.Go(func() {
			for ns := int64(1); ; ns += 997 {
				select {
				case <-stop:
					return
				default:
				}
				rec.Launched(ns)
				rec.Received(&protocol.Probe{Application: ns})
				rec.Settled(&protocol.Probe{State: protocol.Answered, ErrorBound: -1, Stamps: delay.Stamps{T4: ns}})
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
	all := newRecorders(c.NewFactory("probe", reg), reg, health.New(fstest.MapFS{}))
	labels := sender.Labels{Src: "a", Dst: "b", Path: "p", Tenant: "t", Probe: "c"}
	rec := all.recorder(sender.Target{Protocol: stampprobe.Protocol{}, Labels: labels})
	stamps := delay.Stamps{T1: 0, T2: 1000, T3: 51_000, T4: 53_000}
	for _, p := range []protocol.Probe{
		{State: protocol.Answered, Verdict: delay.Good, Stamps: stamps},
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
		"vigia_probe_rtt_application_seconds": 0, "vigia_probe_schedule_lag_seconds": 0, "vigia_probe_delay_variation_seconds": 0,
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

func TestListenerLabels(t *testing.T) {
	c, err := catalog.Load()
	if err != nil {
		t.Fatal(err)
	}
	reg := prometheus.NewRegistry()
	l := newListeners(c.NewFactory("probe", reg))
	red, own := sockets.Key{Netns: "red"}, sockets.Key{}
	l.counters(red).Rejected(reflector.RateLimited)
	l.counters(own).Overflowed(7)
	values := func() map[string]float64 {
		families, err := reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		out := make(map[string]float64)
		for _, f := range families {
			for _, m := range f.Metric {
				key := f.GetName()
				for _, l := range m.Label {
					key += " " + l.GetValue()
				}
				out[key] = m.Counter.GetValue()
			}
		}
		return out
	}
	got := values()
	if got["vigia_reflector_rejected_total red rate_limited"] != 1 || got["vigia_reflector_overflow_total _host"] != 7 || len(got) != 16 {
		t.Errorf("%d series: %v", len(got), got)
	}
	l.remove(red)
	l.counters(own) // its socket was opened again
	if got := values(); len(got) != 8 || got["vigia_reflector_overflow_total _host"] != 7 {
		t.Errorf("after one is gone: %v", got)
	}
	l.remove(own)
	if got := values(); len(got) != 0 {
		t.Errorf("after all are gone: %v", got)
	}
}

func TestStates(t *testing.T) {
	at := time.Unix(1, 0)
	for want, st := range map[string]sender.Status{
		"closed":     {Up: true},
		"unresolved": {Open: true},
	} {
		if got := state(&st); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	v := view(&sender.Status{Trouble: fmt.Errorf("x"), TroubleAt: at})
	if v.LastError != "x" || !v.LastErrorAt.Equal(at) || len(v.Lost) != 6 {
		t.Errorf("%+v", v)
	}
}
