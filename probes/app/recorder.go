package app

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"vigia/internal/catalog"
	"vigia/probes/delay"
	"vigia/probes/flight"
	"vigia/probes/health"
	"vigia/probes/histogram"
	"vigia/probes/objective"
	"vigia/probes/sender"
	"vigia/probes/timestamping"
	"vigia/probes/twin"
)

// The histogram families of a target.
const (
	rttHistogram = iota
	applicationHistogram
	residenceHistogram
	lagHistogram
	burstHistogram
	quarantineHistogram            // kernel to kernel, while the host was not fit
	applicationQuarantineHistogram // of user space, the same
	variationHistogram
	taxHistogram
	onewayHistogram
	numHistograms

	taxSeries    = variationHistogram + delay.NumDirections
	onewaySeries = taxSeries + 1
	numSeries    = onewaySeries + delay.RoundTrip
)

// recorders keeps the histograms of all targets and exports them.
type recorders struct {
	descs  [numHistograms]*prometheus.Desc
	delays *histogram.Layout
	signed *histogram.Layout
	twins  *twin.Pairs
	health *health.Monitor
	// maxError is how far clocks may be apart for one-way delays, in nanoseconds.
	maxError   atomic.Int64
	counts     *histogram.Layout
	objectives *objective.Watch

	mu      sync.Mutex
	targets map[sender.Labels]*recorder
}

// newRecorders registers the families.
func newRecorders(f *catalog.Factory, reg prometheus.Registerer, monitor *health.Monitor) *recorders {
	decades := []float64{-0.1, -0.01, -1e-3, -100e-6, -10e-6, 0, 10e-6, 100e-6, 1e-3, 0.01, 0.1}
	r := &recorders{
		delays:     histogram.NewLayout(catalog.ClassicDelayBuckets()),
		signed:     histogram.NewLayout(decades),
		twins:      twin.New(),
		health:     monitor,
		objectives: objective.New(),
		counts:     histogram.NewCountLayout([]float64{1, 2, 3, 5, 10, 20, 50, 100, 1000}),
		targets:    make(map[sender.Labels]*recorder),
	}
	for i, name := range [numHistograms]string{
		rttHistogram:         "vigia_probe_rtt_seconds",
		applicationHistogram: "vigia_probe_rtt_application_seconds",
		residenceHistogram:   "vigia_probe_reflector_residence_seconds",
		lagHistogram:         "vigia_probe_schedule_lag_seconds",
		burstHistogram:       "vigia_probe_loss_burst_packets",
		variationHistogram:   "vigia_probe_delay_variation_seconds",
		taxHistogram:         "vigia_probe_overlay_tax_seconds",
		onewayHistogram:      "vigia_probe_oneway_delay_seconds",
		quarantineHistogram:  "vigia_probe_rtt_quarantined_seconds",

		applicationQuarantineHistogram: "vigia_probe_rtt_application_quarantined_seconds",
	} {
		r.descs[i] = f.HistogramDesc(name)
	}
	reg.MustRegister(r)
	return r
}

// Describe lists the families.
func (r *recorders) Describe(out chan<- *prometheus.Desc) {
	for _, d := range r.descs {
		out <- d
	}
}

// Collect exports the histograms of every target.
func (r *recorders) Collect(out chan<- prometheus.Metric) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, t := range r.targets {
		for i := range t.series {
			if t.has(i) {
				out <- &t.series[i]
			}
		}
	}
}

// recorder observes the measurements of one target.
type recorder struct {
	owner  *recorders
	labels sender.Labels

	mu     sync.Mutex // guards the histograms
	twoWay bool       // the other end leaves stamps, and so each way has its delays
	series [numSeries]series
	unfit  [health.NumReasons]uint64 // samples that the host spoilt
	flight flight.Ring
}

// series is one histogram with its labels.
type series struct {
	recorder *recorder
	desc     *prometheus.Desc
	labels   []*dto.LabelPair
	values   *histogram.Histogram
}

// recorder returns the recorder of a new target; its series exist from then on.
func (r *recorders) recorder(t sender.Target) sender.Recorder {
	l := t.Labels
	values := labelValues(l)
	rec := &recorder{owner: r, labels: l, twoWay: t.Channel.Protocol == timestamping.UDP}
	for i := range variationHistogram {
		layout := r.delays
		if i == burstHistogram {
			layout = r.counts
		}
		rec.series[i] = series{
			recorder: rec, desc: r.descs[i], labels: prometheus.MakeLabelPairs(r.descs[i], values), values: layout.New(),
		}
	}
	desc := r.descs[variationHistogram]
	for d := range delay.Direction(delay.NumDirections) {
		labels := prometheus.MakeLabelPairs(desc, append(values[:len(values):len(values)], d.String()))
		rec.series[variationHistogram+int(d)] = series{recorder: rec, desc: desc, labels: labels, values: r.signed.New()}
	}
	desc = r.descs[onewayHistogram]
	for d := range delay.RoundTrip {
		labels := prometheus.MakeLabelPairs(desc, append(values[:len(values):len(values)], d.String()))
		rec.series[onewaySeries+int(d)] = series{recorder: rec, desc: desc, labels: labels, values: r.signed.New()}
	}
	desc = r.descs[taxHistogram]
	rec.series[taxSeries] = series{recorder: rec, desc: desc, labels: prometheus.MakeLabelPairs(desc, values), values: r.signed.New()}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.targets[l] = rec
	return rec
}

// has reports whether the target can have observations in its i-th histogram, or
// had when its class had another protocol.
func (r *recorder) has(i int) bool {
	expected := true
	switch i {
	case residenceHistogram, variationHistogram + int(delay.Forward), variationHistogram + int(delay.Reverse):
		expected = r.twoWay
	case quarantineHistogram, applicationQuarantineHistogram, onewaySeries, onewaySeries + 1:
		expected = false
	case taxSeries:
		expected = r.owner.twins.Compared(r.labels)
	}
	if expected {
		return true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.series[i].values.Count() > 0
}

func labelValues(l sender.Labels) []string {
	return []string{l.Src, l.Dst, l.Path, l.Tenant, l.Probe}
}

func (r *recorder) observe(family int, ns int64) {
	r.mu.Lock()
	r.series[family].values.Observe(ns)
	r.mu.Unlock()
}

// Launched observes the schedule's lag.
func (r *recorder) Launched(lag int64) { r.observe(lagHistogram, lag) }

// Received observes what an application would have seen.
func (r *recorder) Received(p *sender.Probe) {
	reason, unfit := r.owner.health.Application(p.Lag())
	if !unfit {
		r.observe(applicationHistogram, p.Application)
		return
	}
	r.mu.Lock()
	r.unfit[reason]++
	r.series[applicationQuarantineHistogram].values.Observe(p.Application)
	r.mu.Unlock()
}

// Settled keeps the record of a probe and observes the delays of one with good
// stamps.
func (r *recorder) Settled(p *sender.Probe) {
	r.judge(p)
	good := p.State == sender.Answered && p.Verdict == delay.Good
	now := time.Now().UnixNano()
	r.mu.Lock()
	r.flight.Add(p, now)
	if good {
		if _, unfit := r.owner.health.Kernel(); unfit {
			r.series[quarantineHistogram].values.Observe(p.Stamps.RTT())
			good = false
		} else {
			r.delays(p)
		}
	}
	r.mu.Unlock()
	if good {
		r.owner.twins.Settled(r.labels, p, r)
	}
}

// delays observes the delays of a probe with good stamps.
func (r *recorder) delays(p *sender.Probe) {
	s := &p.Stamps
	r.series[rttHistogram].values.Observe(s.RTT())
	if s.OneClock {
		return
	}
	r.series[residenceHistogram].values.Observe(s.Residence())
	// The error bound is of the systems' clocks, and says nothing of the devices'.
	if s.Source == delay.Kernel && p.ErrorBound >= 0 && p.ErrorBound <= r.owner.maxError.Load() {
		r.series[onewaySeries+int(delay.Forward)].values.Observe(s.T2 - s.T1)
		r.series[onewaySeries+int(delay.Reverse)].values.Observe(s.T4 - s.T3)
	}
}

// unfitCounts returns how many samples of a target the host spoilt, by reason.
func (r *recorders) unfitCounts(l sender.Labels) (counts [health.NumReasons]uint64) {
	r.mu.Lock()
	rec := r.targets[l]
	r.mu.Unlock()
	if rec != nil {
		rec.mu.Lock()
		counts = rec.unfit
		rec.mu.Unlock()
	}
	return counts
}

// judge counts the probe for the tenant's objective. Without good stamps, what the
// application saw is the next best.
func (r *recorder) judge(p *sender.Probe) {
	rtt := p.Application
	if p.Verdict == delay.Good {
		rtt = p.Stamps.RTT()
	}
	r.owner.objectives.Probe(r.labels.Tenant, p.State == sender.Answered, time.Duration(rtt), time.Now())
}

// Taxed observes how much longer a probe took than its twin.
func (r *recorder) Taxed(ns int64) { r.observe(taxSeries, ns) }

// Varied observes the variation of the delay.
func (r *recorder) Varied(v [delay.NumDirections]int64) {
	r.mu.Lock()
	for d := range v {
		if r.twoWay || delay.Direction(d) == delay.RoundTrip {
			r.series[variationHistogram+d].values.Observe(v[d])
		}
	}
	r.mu.Unlock()
}

// Burst observes the length of a run of losses.
func (r *recorder) Burst(probes uint64) {
	r.mu.Lock()
	r.series[burstHistogram].values.ObserveCount(probes)
	r.mu.Unlock()
}

// SourceChanged begins the histograms of delays anew: one that held stamps of two
// clocks would say nothing of either.
func (r *recorder) SourceChanged() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.series {
		switch i {
		case applicationHistogram, applicationQuarantineHistogram, lagHistogram, burstHistogram:
		default:
			r.series[i].values.Reset()
		}
	}
}

// Finished has no meaning for targets without end.
func (r *recorder) Finished() {}

// Removed takes the series away.
func (r *recorder) Removed() {
	r.owner.mu.Lock()
	defer r.owner.mu.Unlock()
	delete(r.owner.targets, r.labels)
}

// Desc returns the family's descriptor.
func (s *series) Desc() *prometheus.Desc { return s.desc }

// Write fills in the exported form.
func (s *series) Write(out *dto.Metric) error {
	out.Label, out.Histogram = s.labels, new(dto.Histogram)
	s.recorder.mu.Lock()
	defer s.recorder.mu.Unlock()
	s.values.Write(out.Histogram)
	return nil
}
