package export

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"vigia/internal/catalog"
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
}

// NewCollector returns a collector that is not registered yet.
func NewCollector(f *catalog.Factory, from Sources) *Collector {
	c := &Collector{from: from, labels: make(map[sender.Labels]*labelPairs)}
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
	c.from.Recorders.pairs.choose()
	for i := range status {
		if !c.from.Recorders.Hidden(status[i].Target.Labels) {
			c.collectTarget(out, &status[i])
		}
	}
	if len(c.labels) > 2*len(status) {
		clear(c.labels) // of targets that are gone
	}
	out <- withLabels(c.families[stray], nil, float64(totals.Stray))
	for p := range totals.Stamps {
		for s, n := range totals.Stamps[p] {
			out <- c.constant(timestamps, float64(n), sender.Point(p).String(), sender.Source(s).String())
		}
	}
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

func (c *Collector) collectTarget(out chan<- prometheus.Metric, st *sender.Status) {
	p := c.pairs(st.Target.Labels)
	n := &st.Counts
	isUp := 0.0
	if st.Up {
		isUp = 1
	}
	for family, v := range map[int]float64{
		sent: float64(n.Sent), received: float64(n.Received), late: float64(n.Late),
		duplicate: float64(n.Duplicate), reordered: float64(n.Reordered), corrupt: float64(n.Corrupt),
		skipped: float64(n.Skipped), inFlight: float64(st.InFlight),
		mismatch: float64(n.Mismatch(st.InFlight)), jitter: st.Jitter,
		interval: st.Target.Interval.Seconds(), deadline: st.Target.Deadline.Seconds(),
	} {
		out <- withLabels(c.families[family], p.base, v)
	}
	if !st.Target.Paused {
		out <- withLabels(c.families[up], p.base, isUp)
	}
	if n := st.Target.ECMPPaths; n > 0 {
		out <- withLabels(c.families[ecmpCoverage], p.base, coverage.Ratio(max(st.Target.Flows, 1), n))
	}
	for cause, v := range n.Lost {
		out <- withLabels(c.families[lost], p.cause[cause], float64(v))
	}
	for direction, v := range st.Rewritten {
		out <- withLabels(c.families[rewritten], p.direction[direction], float64(v))
	}
	if st.Target.Protocol.Traits().TwoWay && n.Received > 0 && st.ErrorBound >= 0 {
		for direction := range p.direction {
			out <- withLabels(c.families[errorBound], p.direction[direction], float64(st.ErrorBound)/1e9)
		}
	}
	judgement, recorded := c.from.Recorders.judgement(st.Target.Labels)
	for reason, v := range judgement.unfit {
		out <- withLabels(c.families[quarantined], p.unfit[reason], float64(v))
	}
	if recorded {
		c.collectObjectives(out, p, &judgement)
	}
	for verdict, v := range st.Quarantined {
		if delay.Verdict(verdict) != delay.Good {
			out <- withLabels(c.families[quarantined], p.quarantine[verdict], float64(v))
		}
	}
}

// collectObjectives exports what a target's samples are judged by, and how they were.
func (c *Collector) collectObjectives(out chan<- prometheus.Metric, p *labelPairs, j *judgement) {
	for kind, family := range [objective.NumKinds]int{objective.Delay: slow, objective.Jitter: unsteady} {
		out <- withLabels(c.families[judged], p.objective[kind], float64(j.judged[kind]))
		out <- withLabels(c.families[family], p.base, float64(j.bad[kind]))
		if bound := j.objectives[kind]; bound > 0 {
			out <- withLabels(c.families[objectiveInForce], p.objective[kind], bound.Seconds())
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
