package export

import (
	"maps"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"vigia/internal/catalog"
	"vigia/internal/zerofirst"
	"vigia/probes/accounting"
	"vigia/probes/coverage"
	"vigia/probes/delay"
	"vigia/probes/health"
	"vigia/probes/objective"
	"vigia/probes/sender"
)

// Sources are what a Collector reads.
type Sources struct {
	Targets    Targets
	Recorders  *Recorders
	Host       Host
	Clock      Clock
	Objectives Objectives
	Paths      Paths
}

// Collector exports the counters of all targets as they were at one moment, so
// that what adds up inside adds up in every scrape.
type Collector struct {
	from     Sources
	families [numFamilies]*catalog.Series

	mu     sync.Mutex
	status []sender.Status
	labels map[sender.Labels]*labelPairs
	stamps map[[2]int]*zerofirst.Counter
	round  uint64 // scrapes so far
}

// The families that the collector exports.
const (
	sent = iota
	received
	lost
	late
	duplicate
	reordered
	corrupt
	skipped
	quarantined
	judged
	slow
	unsteady
	objectiveInForce
	rewritten
	errorBound
	inFlight
	mismatch
	jitter
	interval
	deadline
	up
	ecmpCoverage
	stray
	timestamps
	pathInfo
	pressure
	steal
	throttled
	unfit
	busy
	burning
	clockBound
	numFamilies
)

// labelPairs are a target's labels as they are exported.
type labelPairs struct {
	base       []*dto.LabelPair
	cause      [accounting.NumCauses][]*dto.LabelPair
	quarantine [delay.NumVerdicts][]*dto.LabelPair
	direction  [delay.RoundTrip][]*dto.LabelPair
	unfit      [health.NumReasons][]*dto.LabelPair
	objective  [objective.NumKinds][]*dto.LabelPair

	round uint64 // the last scrape at which there was such a target
	shown bool   // it had series then
	rare  rare
}

// rare are the counters of a target that have series once they have counted something.
type rare struct {
	base       [numRare]zerofirst.Counter
	lost       [accounting.NumCauses]zerofirst.Counter
	rewritten  [delay.RoundTrip]zerofirst.Counter
	unfit      [health.NumReasons]zerofirst.Counter
	quarantine [delay.NumVerdicts]zerofirst.Counter
	judged     [objective.NumKinds]zerofirst.Counter
}

// Places in rare.base.
const (
	rareLate = iota
	rareDuplicate
	rareReordered
	rareCorrupt
	rareSkipped
	numRare
)

// NewCollector returns a collector that is not registered yet.
func NewCollector(f *catalog.Factory, from Sources) *Collector {
	c := &Collector{from: from, labels: make(map[sender.Labels]*labelPairs), stamps: make(map[[2]int]*zerofirst.Counter)}
	for i, name := range [numFamilies]string{
		sent: "vigia_probe_sent_total", received: "vigia_probe_received_total", lost: "vigia_probe_lost_total",
		late: "vigia_probe_late_total", duplicate: "vigia_probe_duplicate_total",
		reordered: "vigia_probe_reordered_total", corrupt: "vigia_probe_corrupt_total",
		skipped: "vigia_probe_skipped_total", quarantined: "vigia_probe_quarantined_total",
		judged: "vigia_probe_judged_total", slow: "vigia_probe_slow_total", unsteady: "vigia_probe_unsteady_total",
		objectiveInForce: "vigia_probe_objective_seconds",
		rewritten:        "vigia_probe_dscp_rewritten_total", errorBound: "vigia_probe_clock_error_bound_seconds",
		pressure: "vigia_probe_host_cpu_pressure_ratio", steal: "vigia_probe_host_steal_ratio",
		throttled: "vigia_probe_host_throttled_seconds_total", unfit: "vigia_probe_host_unfit",
		busy:     "vigia_probe_host_busy_seconds_total",
		inFlight: "vigia_probe_in_flight", mismatch: "vigia_probe_accounting_mismatch",
		jitter: "vigia_probe_jitter_seconds", interval: "vigia_probe_interval_seconds",
		deadline: "vigia_probe_deadline_seconds", up: "vigia_probe_target_up", ecmpCoverage: "vigia_probe_ecmp_coverage_ratio",
		stray: "vigia_probe_stray_total", timestamps: "vigia_probe_timestamps_total", pathInfo: "vigia_path_info", burning: "vigia_probe_objective_burning",
		clockBound: "vigia_probe_host_clock_error_bound_seconds",
	} {
		c.families[i] = f.Series(name)
	}
	return c
}

// Describe lists the families.
func (c *Collector) Describe(out chan<- *prometheus.Desc) {
	for _, f := range c.families {
		out <- f.Desc()
	}
}

// Collect takes a snapshot and exports it.
func (c *Collector) Collect(out chan<- prometheus.Metric) {
	c.mu.Lock()
	defer c.mu.Unlock()
	status, totals, err := c.from.Targets.Snapshot(c.status[:0])
	c.status = status
	if err != nil {
		return // stopping; missing series are honest, zeros would not be
	}
	c.round++
	c.from.Recorders.pairs.choose()
	for i := range status {
		c.collectTarget(out, &status[i])
	}
	if len(c.labels) > 2*len(status) {
		maps.DeleteFunc(c.labels, func(_ sender.Labels, p *labelPairs) bool { return p.round != c.round })
	}
	out <- withLabels(c.families[stray], nil, float64(totals.Stray))
	c.collectStamps(out, &totals)
	c.collectHealth(out)
	for tenant, burns := range c.from.Objectives.State(time.Now()) {
		v := 0.0
		if burns {
			v = 1
		}
		out <- c.constant(burning, v, tenant)
	}
	for _, p := range c.from.Paths() {
		out <- c.constant(pathInfo, 1, p.Name, p.Dataplane, p.Encap, p.Mode, p.Security, p.Layer, p.Placement)
	}
}

// collectHealth exports what is known of this host.
func (c *Collector) collectHealth(out chan<- prometheus.Metric) {
	reading := c.from.Host.Reading()
	for family, v := range map[int]float64{
		pressure: reading.CPUPressure, steal: reading.Steal, throttled: reading.ThrottledSeconds,
	} {
		if v >= 0 {
			out <- withLabels(c.families[family], nil, v)
		}
	}
	out <- withLabels(c.families[busy], nil, c.from.Host.Busy().Seconds())
	if r := c.from.Clock.Read(); r.Synchronized {
		out <- c.constant(clockBound, r.Bound.Seconds(), string(r.Source))
	}
	for reason := range health.Reason(health.ScheduleLag) {
		v := 0.0
		if c.from.Host.Unfit(reason) {
			v = 1
		}
		out <- c.constant(unfit, v, reason.String())
	}
}

// collectStamps exports who stamped probes; most points have one source.
func (c *Collector) collectStamps(out chan<- prometheus.Metric, totals *sender.Totals) {
	for p := range totals.Stamps {
		for s, n := range totals.Stamps[p] {
			state := c.stamps[[2]int{p, s}]
			if state == nil {
				state = new(zerofirst.Counter)
				c.stamps[[2]int{p, s}] = state
			}
			v, ok := state.Show(n, c.round == 1)
			if c.from.Recorders.all.Load() {
				v, ok = n, true
			}
			if ok {
				out <- c.constant(timestamps, float64(v), sender.Point(p).String(), sender.Source(s).String())
			}
		}
	}
}

// target is what a scrape exports of one target.
type target struct {
	*Collector
	out     chan<- prometheus.Metric
	labels  *labelPairs
	all     bool // also what has not occurred
	history bool // what it has counted so far was before anybody looked
}

func (c *Collector) collectTarget(out chan<- prometheus.Metric, st *sender.Status) {
	l := st.Target.Labels
	if c.from.Recorders.Hidden(l) {
		if p := c.labels[l]; p != nil {
			p.round, p.shown = c.round, false
		}
		return
	}
	p := c.pairs(l)
	t := target{Collector: c, out: out, labels: p, all: c.from.Recorders.all.Load(), history: !p.shown}
	p.round, p.shown = c.round, true
	t.collectCounts(st)
	t.collectState(st)
	judgement, recorded := c.from.Recorders.judgement(l)
	for reason, v := range judgement.unfit {
		t.rare(quarantined, &p.rare.unfit[reason], p.unfit[reason], v)
	}
	for verdict, v := range st.Quarantined {
		if delay.Verdict(verdict) != delay.Good {
			t.rare(quarantined, &p.rare.quarantine[verdict], p.quarantine[verdict], v)
		}
	}
	if recorded {
		t.collectObjectives(&judgement)
	}
}

func (t *target) emit(family int, labels []*dto.LabelPair, v float64) {
	t.out <- withLabels(t.families[family], labels, v)
}

// rare exports a counter that has a series once it has counted something.
func (t *target) rare(family int, state *zerofirst.Counter, labels []*dto.LabelPair, count uint64) {
	if v, ok := state.Show(count, t.history); t.all {
		t.emit(family, labels, float64(count))
	} else if ok {
		t.emit(family, labels, float64(v))
	}
}

// collectCounts exports what became of probes.
func (t *target) collectCounts(st *sender.Status) {
	p, n := t.labels, &st.Counts
	t.emit(sent, p.base, float64(n.Sent))
	t.emit(received, p.base, float64(n.Received))
	t.emit(mismatch, p.base, float64(n.Mismatch(st.InFlight)))
	for place, one := range [numRare]struct {
		family int
		count  uint64
	}{
		rareLate: {late, n.Late}, rareDuplicate: {duplicate, n.Duplicate}, rareReordered: {reordered, n.Reordered},
		rareCorrupt: {corrupt, n.Corrupt}, rareSkipped: {skipped, n.Skipped},
	} {
		t.rare(one.family, &p.rare.base[place], p.base, one.count)
	}
	twoWay := st.Target.Protocol.Traits().TwoWay
	for cause, v := range n.Lost {
		// Loss in the network is always there, so that none of it is 0 and not unknown.
		if c := accounting.Cause(cause); c == accounting.Unknown || twoWay && c.InNetwork() {
			t.emit(lost, p.cause[cause], float64(v))
			continue
		}
		t.rare(lost, &p.rare.lost[cause], p.cause[cause], v)
	}
	for direction, v := range st.Rewritten {
		t.rare(rewritten, &p.rare.rewritten[direction], p.direction[direction], v)
	}
}

// collectState exports how the target is.
func (t *target) collectState(st *sender.Status) {
	p := t.labels
	t.emit(jitter, p.base, st.Jitter)
	if t.all {
		t.emit(inFlight, p.base, float64(st.InFlight))
		t.emit(interval, p.base, st.Target.Interval.Seconds())
		t.emit(deadline, p.base, st.Target.Deadline.Seconds())
	}
	if !st.Target.Paused {
		isUp := 0.0
		if st.Up {
			isUp = 1
		}
		t.emit(up, p.base, isUp)
	}
	if n := st.Target.ECMPPaths; n > 0 {
		t.emit(ecmpCoverage, p.base, coverage.Ratio(max(st.Target.Flows, 1), n))
	}
	if st.Target.Protocol.Traits().TwoWay && st.Counts.Received > 0 && st.ErrorBound >= 0 {
		for direction := range p.direction {
			t.emit(errorBound, p.direction[direction], float64(st.ErrorBound)/1e9)
		}
	}
}

// collectObjectives exports what a target's samples are judged by, and how they were, from the
// first that was judged: while the objective is being learned there is nothing to tell.
func (t *target) collectObjectives(j *judgement) {
	p := t.labels
	for kind, family := range [objective.NumKinds]int{objective.Delay: slow, objective.Jitter: unsteady} {
		n, bad := j.judged[kind], j.bad[kind]
		if v, ok := p.rare.judged[kind].Show(n, t.history); t.all || ok {
			if !t.all && v == 0 {
				n, bad = 0, 0
			}
			t.emit(judged, p.objective[kind], float64(n))
			t.emit(family, p.base, float64(bad))
		}
		if bound := j.objectives[kind]; bound > 0 {
			t.emit(objectiveInForce, p.objective[kind], bound.Seconds())
		}
	}
}

func (c *Collector) pairs(l sender.Labels) *labelPairs {
	if p := c.labels[l]; p != nil {
		return p
	}
	values := labelValues(l)
	p := &labelPairs{base: c.families[sent].Labels(values...)}
	for cause := range p.cause {
		p.cause[cause] = c.families[lost].Labels(append(values[:len(values):len(values)], accounting.Cause(cause).String())...)
	}
	for direction := range p.direction {
		p.direction[direction] = c.families[rewritten].Labels(append(values[:len(values):len(values)], delay.Direction(direction).String())...)
	}
	for reason := range p.unfit {
		p.unfit[reason] = c.families[quarantined].Labels(append(values[:len(values):len(values)], health.Reason(reason).String())...)
	}
	for verdict := range p.quarantine {
		if delay.Verdict(verdict) == delay.Good {
			continue // no reason to keep a sample out
		}
		p.quarantine[verdict] = c.families[quarantined].Labels(append(values[:len(values):len(values)], delay.Verdict(verdict).String())...)
	}
	for kind := range p.objective {
		p.objective[kind] = c.families[judged].Labels(append(values[:len(values):len(values)], objective.Kind(kind).String())...)
	}
	c.labels[l] = p
	return p
}

func (c *Collector) constant(family int, v float64, labels ...string) prometheus.Metric {
	return c.families[family].Sample(v, labels...)
}

func withLabels(f *catalog.Series, labels []*dto.LabelPair, v float64) prometheus.Metric {
	return &metric{family: f, labels: labels, value: v}
}

// metric is one value with labels that were made before.
type metric struct {
	family *catalog.Series
	labels []*dto.LabelPair
	value  float64
}

// Desc returns the family's descriptor.
func (m *metric) Desc() *prometheus.Desc { return m.family.Desc() }

// Write fills in the exported form.
func (m *metric) Write(out *dto.Metric) error {
	out.Label = m.labels
	if m.family.Type() == prometheus.CounterValue {
		out.Counter = &dto.Counter{Value: &m.value}
	} else {
		out.Gauge = &dto.Gauge{Value: &m.value}
	}
	return nil
}
