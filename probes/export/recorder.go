package export

import (
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"vigia/internal/catalog"
	"vigia/internal/realtime"
	"vigia/internal/zerofirst"
	"vigia/probes/delay"
	"vigia/probes/health"
	"vigia/probes/histogram"
	"vigia/probes/mesh"
	"vigia/probes/objective"
	"vigia/probes/protocol"
	"vigia/probes/records"
	"vigia/probes/sender"
)

// The histogram families of a target.
const (
	rttHistogram = iota
	applicationHistogram
	residenceHistogram
	burstHistogram
	quarantineHistogram            // of kernel timestamps, while the host was not fit
	applicationQuarantineHistogram // of user space, the same
	variationHistogram
	taxHistogram
	onewayHistogram
	ownHistogram // of all targets together
	lagHistogram // likewise
	numHistograms

	taxSeries    = variationHistogram + delay.NumDirections
	onewaySeries = taxSeries + 1
	numSeries    = onewaySeries + delay.RoundTrip
)

// Context is what decides where a measurement goes: whether the host is fit, what the tenant
// was promised, what the target's objectives are, and which target it is compared with.
type Context struct {
	Host       Host
	Objectives Objectives
	Judges     Judges
	Twins      Twins
}

// Recorders keep the histograms and the last records of all targets, and export the
// histograms.
type Recorders struct {
	context Context
	kinds   [numHistograms]*catalog.Series
	delays  *histogram.Layout
	signed  *histogram.Layout
	counts  *histogram.Layout
	all     atomic.Bool // targets have all series, also of what has not occurred
	// maxError is how far clocks may be apart for one-way delays, in nanoseconds.
	maxError atomic.Int64
	metered  map[string]protocol.Metrics // by the name of the protocol
	began    time.Time                   // seconds are numbered from here

	pairs *pairs
	own   *own

	mu      sync.Mutex
	targets map[sender.Labels]*recorder
}

// NewRecorders registers the families, and those that protocols have of their own.
func NewRecorders(f *catalog.Factory, reg prometheus.Registerer, context Context, protocols []protocol.Protocol) *Recorders {
	decades := []float64{-0.1, -0.01, -1e-3, -100e-6, -10e-6, 0, 10e-6, 100e-6, 1e-3, 0.01, 0.1}
	r := &Recorders{
		context: context,
		delays:  histogram.NewLayout(catalog.ClassicDelayBuckets()),
		signed:  histogram.NewLayout(decades),
		counts:  histogram.NewCountLayout([]float64{1, 2, 3, 5, 10, 20, 50, 100, 1000}),
		metered: make(map[string]protocol.Metrics),
		began:   time.Now(),
		targets: make(map[sender.Labels]*recorder),
	}
	for _, p := range protocols {
		if m, ok := p.(protocol.Metered); ok {
			r.metered[p.Traits().Name] = m.Metrics(f)
		}
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
		ownHistogram:         "vigia_probe_own_delay_seconds",
		quarantineHistogram:  "vigia_probe_rtt_quarantined_seconds",

		applicationQuarantineHistogram: "vigia_probe_rtt_application_quarantined_seconds",
	} {
		r.kinds[i] = f.Series(name)
	}
	r.pairs = newPairs(r, f)
	r.own = newOwn(r)
	reg.MustRegister(r)
	return r
}

// Describe lists the families.
func (r *Recorders) Describe(out chan<- *prometheus.Desc) {
	for _, k := range r.kinds {
		out <- k.Desc()
	}
	for _, f := range r.pairs.families {
		out <- f.Desc()
	}
}

// Collect exports the histograms of every target, pairs of meshes only while they have series
// of their own, and what is added up of these.
func (r *Recorders) Collect(out chan<- prometheus.Metric) {
	r.pairs.choose()
	r.pairs.collect(out)
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.targets) > 0 {
		r.own.collect(out)
	}
	for _, t := range r.targets {
		if t.hidden.Load() {
			t.shown = false
			continue
		}
		for i := range t.series {
			if t.has(i) {
				out <- t.export(i)
			}
		}
		t.shown = true
	}
}

// export returns what is exported of the i-th histogram.
func (r *recorder) export(i int) prometheus.Metric {
	s := &r.series[i]
	if i != burstHistogram || r.owner.all.Load() {
		return s
	}
	r.scraping.Lock()
	count := s.values.Count()
	r.scraping.Unlock()
	if shown, ok := r.bursts.Show(count, !r.shown); ok && shown == 0 {
		return &series{recorder: r, desc: s.desc, labels: s.labels, values: r.owner.counts.New()}
	}
	return s
}

// recorder observes the measurements of one target.
type recorder struct {
	owner  *Recorders
	labels sender.Labels

	twoWay          bool             // the other end leaves stamps, and so each way has its delays
	protocolMetrics protocol.Metrics // of the protocol; nil for most

	// The sender must never wait for a scrape, which the kernel may have stopped in
	// favour of the sender itself: of the locks it waits for mu alone, which is held
	// for moments.
	mu      sync.Mutex
	pending []observation             // not in the histograms yet
	unfit   [health.NumReasons]uint64 // samples taken while the host was not fit
	judge   *objective.Judge
	recent  *recent
	// fit tells whether the host was at the last good sample, wasFit at that before.
	fit, wasFit bool
	// Of a pair of a mesh: what it counts for the node, what of its judge is counted
	// already, and where.
	pair          mesh.Pair
	counts, taken tally
	group         *group
	member        Member

	hidden atomic.Bool // the target has no series of its own

	scraping sync.Mutex // guards the histograms; taken before mu
	series   [numSeries]series
	spare    []observation // to be pending next

	dumping sync.Mutex
	records records.Ring

	// Of scrapes, of which there is one at a time: whether the target had series at the one
	// before, and how that of runs of losses begins.
	shown  bool
	bursts zerofirst.Counter
}

const (
	// maxPending is how many observations of a target are put into its histograms
	// at once. Each probe touches six histograms; by the target's next probe the
	// processor's cache has forgotten them, so that one at a time took twice as long.
	maxPending = 32
	// maxBacklog is how many the sender may collect while a scrape has the histograms.
	maxBacklog = 1 << 14
)

// observation is a delay in nanoseconds for the series-th histogram.
type observation struct {
	ns     int64
	series int32
}

// series is one histogram with its labels.
type series struct {
	recorder *recorder
	desc     *prometheus.Desc
	labels   []*dto.LabelPair
	values   *histogram.Histogram
}

// ShowAll says whether targets have all series that they can have, or those of what has occurred
// and of what rules and panels read.
func (r *Recorders) ShowAll(all bool) { r.all.Store(all) }

// SetMaxOnewayError says how far clocks may be apart for one-way delays.
func (r *Recorders) SetMaxOnewayError(d time.Duration) { r.maxError.Store(int64(d)) }

// New returns the recorder of a new target; its series exist from then on.
func (r *Recorders) New(t sender.Target) sender.Recorder {
	l := t.Labels
	values := labelValues(l)
	traits := t.Protocol.Traits()
	rec := &recorder{
		owner: r, labels: l, judge: r.context.Judges.Of(l), twoWay: traits.TwoWay, protocolMetrics: r.metered[traits.Name],
		recent:  newRecent(l),
		pending: make([]observation, 0, maxPending), spare: make([]observation, 0, maxPending),
	}
	for i := range variationHistogram {
		layout := r.delays
		if i == burstHistogram {
			layout = r.counts
		}
		rec.series[i] = series{
			recorder: rec, desc: r.kinds[i].Desc(), labels: r.kinds[i].Labels(values...), values: layout.New(),
		}
	}
	kind := r.kinds[variationHistogram]
	for d := range delay.Direction(delay.NumDirections) {
		labels := kind.Labels(append(values[:len(values):len(values)], d.String())...)
		rec.series[variationHistogram+int(d)] = series{recorder: rec, desc: kind.Desc(), labels: labels, values: r.signed.New()}
	}
	kind = r.kinds[onewayHistogram]
	for d := range delay.RoundTrip {
		labels := kind.Labels(append(values[:len(values):len(values)], d.String())...)
		rec.series[onewaySeries+int(d)] = series{recorder: rec, desc: kind.Desc(), labels: labels, values: r.signed.New()}
	}
	kind = r.kinds[taxHistogram]
	rec.series[taxSeries] = series{recorder: rec, desc: kind.Desc(), labels: kind.Labels(values...), values: r.signed.New()}
	r.pairs.mu.Lock()
	defer r.pairs.mu.Unlock()
	r.pairs.join(rec)
	if rec.protocolMetrics != nil && !rec.hidden.Load() {
		rec.protocolMetrics.Added(values)
	}
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
	case residenceHistogram: // the application's round trip without the network's
		return r.twoWay && r.owner.all.Load()
	case variationHistogram + int(delay.Forward), variationHistogram + int(delay.Reverse):
		expected = r.twoWay
	case burstHistogram:
		expected = r.owner.all.Load()
	case quarantineHistogram, applicationQuarantineHistogram, onewaySeries, onewaySeries + 1:
		expected = false
	case taxSeries:
		expected = r.owner.context.Twins.Compared(r.labels)
	}
	if expected {
		return true
	}
	r.scraping.Lock()
	defer r.scraping.Unlock()
	r.flush()
	return r.series[i].values.Count() > 0
}

func (r *recorder) observe(family int, ns int64) {
	r.mu.Lock()
	r.add(family, ns)
	r.mu.Unlock()
}

// add keeps an observation for the histograms; mu is held.
func (r *recorder) add(family int, ns int64) {
	r.pending = append(r.pending, observation{ns: ns, series: int32(family)})
}

// flushWhenFull puts what is pending into the histograms when it is worth it and nobody reads
// them.
func (r *recorder) flushWhenFull() {
	r.mu.Lock()
	waiting := len(r.pending)
	r.mu.Unlock()
	if waiting < maxPending || waiting < maxBacklog && !r.scraping.TryLock() {
		return
	}
	if waiting >= maxBacklog {
		r.scraping.Lock()
	}
	r.flush()
	r.scraping.Unlock()
}

// flush puts what is pending into the histograms; scraping is held.
func (r *recorder) flush() {
	r.mu.Lock()
	batch := r.pending
	r.pending = r.spare
	mine := r.group
	var counts tally
	if mine != nil {
		counts = r.take()
	}
	r.mu.Unlock()
	for _, o := range batch {
		r.series[o.series].values.Observe(o.ns)
	}
	if mine != nil {
		mine.add(batch, &counts)
	}
	r.spare = batch[:0]
}

// Launched observes the schedule's lag. It is one for all targets, which share the sender.
func (r *recorder) Launched(lag int64) { r.owner.own.launched(lag) }

// application observes what an application's request would have taken, and reports whether that is known and the
// host was fit.
func (r *recorder) application(p *protocol.Probe) bool {
	if p.Own.Known {
		r.owner.own.observe(&p.Own)
	}
	if !p.ApplicationKnown() {
		return false
	}
	reason, unfit := r.owner.context.Host.Application(p.Lag())
	if !unfit {
		r.observe(applicationHistogram, p.Application)
		return true
	}
	r.mu.Lock()
	r.unfit[reason]++
	r.add(applicationQuarantineHistogram, p.Application)
	r.mu.Unlock()
	return false
}

// Settled keeps the record of a probe and observes the delays of one with good
// stamps.
func (r *recorder) Settled(p *protocol.Probe) {
	now := time.Now()
	r.watch(p, now)
	comparable := p.State == protocol.Answered && r.application(p) && p.ByExchange && p.Verdict != delay.Good
	good := p.State == protocol.Answered && p.Verdict == delay.Good
	r.dumping.Lock()
	r.records.Add(p, now.UnixNano())
	r.dumping.Unlock()
	unfit := false
	if good {
		_, unfit = r.owner.context.Host.Kernel()
	}
	limit := int64(0)
	r.mu.Lock()
	if good {
		r.fit, r.wasFit = !unfit, r.fit
		if unfit {
			r.add(quarantineHistogram, p.Stamps.RTT())
			good = false
		} else {
			r.delays(p)
			r.judge.Sample(objective.Delay, p.Stamps.RTT())
			limit = int64(r.judge.Objective(objective.Delay))
		}
	}
	r.countRecent(p, now, limit)
	if r.group != nil {
		r.count(p, limit, now)
	}
	r.mu.Unlock()
	r.flushWhenFull()
	if good || comparable {
		r.owner.context.Twins.Settled(r.labels, p, r)
	}
	if r.protocolMetrics != nil && !r.hidden.Load() {
		r.protocolMetrics.Settled(labelValues(r.labels), p)
	}
}

// delays observes the delays of a probe with good stamps.
func (r *recorder) delays(p *protocol.Probe) {
	s := &p.Stamps
	r.add(rttHistogram, s.RTT())
	if s.OneClock {
		return
	}
	r.add(residenceHistogram, s.Residence())
	// The error bound is of the systems' clocks, and says nothing of the devices'.
	if s.Source == delay.Kernel && p.ErrorBound >= 0 && p.ErrorBound <= r.owner.maxError.Load() {
		r.add(onewaySeries+int(delay.Forward), s.T2-s.T1)
		r.add(onewaySeries+int(delay.Reverse), s.T4-s.T3)
	}
}

// judgement is what became of the samples of a target.
type judgement struct {
	unfit       [health.NumReasons]uint64 // taken while the host was not fit
	judged, bad [objective.NumKinds]uint64
	objectives  objective.Bounds // in force
}

// judgement returns that of a target; ok is false for one that is gone.
func (r *Recorders) judgement(l sender.Labels) (j judgement, ok bool) {
	r.mu.Lock()
	rec := r.targets[l]
	r.mu.Unlock()
	if rec == nil {
		return j, false
	}
	rec.mu.Lock()
	defer rec.mu.Unlock()
	j.unfit = rec.unfit
	for k := range objective.Kind(objective.NumKinds) {
		j.judged[k], j.bad[k] = rec.judge.Counts(k)
		j.objectives[k] = rec.judge.Objective(k)
	}
	return j, true
}

// watch counts the probe for the tenant's objective. Without good stamps, what an
// application's request would have taken is the next best; where that is not known, the
// probe is answered and not slow.
func (r *recorder) watch(p *protocol.Probe, now time.Time) {
	var rtt int64
	switch {
	case p.Verdict == delay.Good:
		rtt = p.Stamps.RTT()
	case p.ApplicationKnown():
		rtt = p.Application
	}
	r.owner.context.Objectives.Probe(r.labels.Tenant, p.State == protocol.Answered, time.Duration(rtt), now)
}

// Taxed observes how much longer a probe took than its twin.
func (r *recorder) Taxed(ns int64) { r.observe(taxSeries, ns) }

// Varied observes the variation of the delay, and judges it when the host was fit at both
// ends of it.
func (r *recorder) Varied(v [delay.NumDirections]int64) {
	r.mu.Lock()
	for d := range v {
		if r.twoWay || delay.Direction(d) == delay.RoundTrip {
			r.add(variationHistogram+d, v[d])
		}
	}
	if r.fit && r.wasFit {
		r.judge.Sample(objective.Jitter, max(v[delay.RoundTrip], -v[delay.RoundTrip]))
	}
	r.mu.Unlock()
}

// Burst observes the length of a run of losses.
func (r *recorder) Burst(probes uint64) {
	r.observe(burstHistogram, histogram.OfCount(probes))
}

// SourceChanged begins the histograms of delays anew: one that held stamps of two
// clocks would say nothing of either.
func (r *recorder) SourceChanged() {
	r.scraping.Lock()
	defer r.scraping.Unlock()
	r.flush()
	for i := range r.series {
		switch i {
		case applicationHistogram, applicationQuarantineHistogram, burstHistogram:
		default:
			r.series[i].values.Reset()
		}
	}
}

// Finished has no meaning for targets without end.
func (r *recorder) Finished() {}

// Removed takes the series away.
func (r *recorder) Removed() {
	r.scraping.Lock()
	r.flush() // the pair's counts stay in what the node exports
	r.scraping.Unlock()
	r.owner.mu.Lock()
	defer r.owner.mu.Unlock()
	delete(r.owner.targets, r.labels)
	if r.protocolMetrics != nil {
		r.protocolMetrics.Removed(labelValues(r.labels))
	}
}

// Desc returns the family's descriptor.
func (s *series) Desc() *prometheus.Desc { return s.desc }

// Write fills in the exported form.
func (s *series) Write(out *dto.Metric) error {
	realtime.Yield() // a scrape reads thousands of histograms
	out.Label, out.Histogram = s.labels, new(dto.Histogram)
	s.recorder.scraping.Lock()
	defer s.recorder.scraping.Unlock()
	s.recorder.flush()
	s.values.Write(out.Histogram)
	return nil
}

// Recent returns the last n records of a target, the oldest first.
func (r *Recorders) Recent(l sender.Labels, n int) []*records.Line {
	r.mu.Lock()
	rec := r.targets[l]
	r.mu.Unlock()
	if rec == nil {
		return nil
	}
	rec.dumping.Lock()
	defer rec.dumping.Unlock()
	return rec.records.Recent(n, l)
}

// Write writes the records of the targets that are wanted as JSON Lines, in the order of
// their labels. none is called in place of it when there is no such target.
func (r *Recorders) Write(w io.Writer, wanted func(sender.Labels) bool, none func()) error {
	r.mu.Lock()
	var found []*recorder
	for l, rec := range r.targets {
		if wanted(l) {
			found = append(found, rec)
		}
	}
	r.mu.Unlock()
	if len(found) == 0 {
		none()
		return nil
	}
	slices.SortFunc(found, func(a, b *recorder) int { return a.labels.Compare(&b.labels) })
	for _, rec := range found {
		rec.dumping.Lock()
		copied := rec.records.Clone()
		rec.dumping.Unlock()
		if err := copied.Write(w, rec.labels); err != nil {
			return fmt.Errorf("write records: %w", err)
		}
	}
	return nil
}
