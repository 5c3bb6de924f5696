package export

import (
	"log/slog"
	"strconv"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"vigia/internal/catalog"
	"vigia/probes/bulk"
	"vigia/probes/sender"
)

// Bulk exports what bulk tests measure.
type Bulk struct {
	logger *slog.Logger

	transferred, retransmits, lost, sent, received, refused, duplicate, reordered, seconds, runs *prometheus.CounterVec

	goodput, jitter, rtt, minRTT, deliveryRate *prometheus.GaugeVec

	mu    sync.Mutex
	tests map[bulkKey]bulkTest
}

// bulkKey identifies a test; bulkTest is one with its labels.
type bulkKey struct {
	labels   sender.Labels
	rate     string
	machines int
}

func keyOf(t *bulk.Target) bulkKey { return bulkKey{t.Labels, t.RateName, t.Machines()} }

type bulkTest struct {
	protocol bulk.Protocol
	values   []string
}

// NewBulk registers the metrics; left tells what is left of the hourly budget.
func NewBulk(f *catalog.Factory, reg prometheus.Registerer, logger *slog.Logger, left func() uint64) *Bulk {
	m := &Bulk{
		logger:       logger,
		transferred:  f.Counter("vigia_bulk_transferred_bytes_total"),
		retransmits:  f.Counter("vigia_bulk_retransmits_total"),
		lost:         f.Counter("vigia_bulk_lost_packets_total"),
		sent:         f.Counter("vigia_bulk_sent_packets_total"),
		received:     f.Counter("vigia_bulk_received_packets_total"),
		refused:      f.Counter("vigia_bulk_refused_packets_total"),
		duplicate:    f.Counter("vigia_bulk_duplicate_packets_total"),
		reordered:    f.Counter("vigia_bulk_reordered_packets_total"),
		seconds:      f.Counter("vigia_bulk_duration_seconds_total"),
		runs:         f.Counter("vigia_bulk_runs_total"),
		goodput:      f.Gauge("vigia_bulk_goodput_bytes_per_second"),
		jitter:       f.Gauge("vigia_bulk_jitter_seconds"),
		rtt:          f.Gauge("vigia_bulk_rtt_seconds"),
		minRTT:       f.Gauge("vigia_bulk_rtt_min_seconds"),
		deliveryRate: f.Gauge("vigia_bulk_delivery_rate_bytes_per_second"),
		tests:        make(map[bulkKey]bulkTest),
	}
	reg.MustRegister(&budgetGauge{series: f.Series("vigia_bulk_budget_remaining_bytes"), left: left})
	return m
}

// budgetGauge reads the budget when it is scraped.
type budgetGauge struct {
	series *catalog.Series
	left   func() uint64
}

func (g *budgetGauge) Describe(out chan<- *prometheus.Desc) { out <- g.series.Desc() }

func (g *budgetGauge) Collect(out chan<- prometheus.Metric) {
	out <- g.series.Sample(float64(g.left()))
}

// The causes of lost packets.
const (
	lostByNetwork  = "network"
	lostByReceiver = "receiver_overflow"
)

func (m *Bulk) common(p bulk.Protocol) []*prometheus.CounterVec {
	out := []*prometheus.CounterVec{m.transferred, m.seconds}
	if p == bulk.TCP {
		return append(out, m.retransmits)
	}
	return append(out, m.sent, m.received, m.refused, m.duplicate, m.reordered)
}

// Set makes the series of new tests, at zero, and takes those of removed ones
// away.
func (m *Bulk) Set(groups [][]bulk.Target) {
	m.mu.Lock()
	defer m.mu.Unlock()
	wanted := make(map[bulkKey]bulkTest)
	for _, g := range groups {
		for i := range g {
			t := &g[i]
			values := append(labelValues(t.Labels), string(t.Protocol), t.RateName, strconv.Itoa(t.Machines()))
			wanted[keyOf(t)] = bulkTest{protocol: t.Protocol, values: values}
		}
	}
	for key, test := range m.tests {
		if w, ok := wanted[key]; !ok || w.protocol != test.protocol {
			m.remove(test)
		}
	}
	m.tests = wanted
	for _, test := range wanted {
		for _, c := range m.common(test.protocol) {
			c.WithLabelValues(test.values...)
		}
		for _, r := range bulk.Results() {
			m.runs.WithLabelValues(test.with(string(r))...)
		}
		if test.protocol == bulk.UDP {
			m.lost.WithLabelValues(test.with(lostByNetwork)...)
			m.lost.WithLabelValues(test.with(lostByReceiver)...)
		}
	}
}

// with returns the labels and one more.
func (t *bulkTest) with(value string) []string {
	return append(t.values[:len(t.values):len(t.values)], value)
}

func (m *Bulk) remove(t bulkTest) {
	for _, c := range m.common(t.protocol) {
		c.DeleteLabelValues(t.values...)
	}
	for _, g := range []*prometheus.GaugeVec{m.goodput, m.jitter, m.rtt, m.minRTT, m.deliveryRate} {
		g.DeleteLabelValues(t.values...)
	}
	for _, r := range bulk.Results() {
		m.runs.DeleteLabelValues(t.with(string(r))...)
	}
	m.lost.DeleteLabelValues(t.with(lostByNetwork)...)
	m.lost.DeleteLabelValues(t.with(lostByReceiver)...)
}

// Done takes the outcome of a test.
func (m *Bulk) Done(t *bulk.Target, o *bulk.Outcome) {
	m.mu.Lock()
	defer m.mu.Unlock()
	test, ok := m.tests[keyOf(t)]
	if !ok || test.protocol != t.Protocol {
		return // removed while it ran
	}
	m.runs.WithLabelValues(test.with(string(o.Result))...).Inc()
	if o.Err != nil {
		m.logger.Info("cannot complete a bulk test", "dst", t.Labels.Dst, "path", t.Labels.Path, "tenant", t.Labels.Tenant,
			"probe", t.Labels.Probe, "rate", t.RateName, "machines", t.Machines(), "result", o.Result, "err", o.Err)
	}
	if o.Result != bulk.Completed {
		return // half a test says nothing about throughput
	}
	m.transferred.WithLabelValues(test.values...).Add(float64(o.Bytes))
	m.seconds.WithLabelValues(test.values...).Add(o.Duration.Seconds())
	m.goodput.WithLabelValues(test.values...).Set(o.Goodput())
	if t.Protocol == bulk.TCP {
		m.retransmits.WithLabelValues(test.values...).Add(float64(o.Retransmits))
		m.rtt.WithLabelValues(test.values...).Set(o.RTT.Seconds())
		m.minRTT.WithLabelValues(test.values...).Set(o.MinRTT.Seconds())
		m.deliveryRate.WithLabelValues(test.values...).Set(float64(o.DeliveryRate))
		return
	}
	for c, n := range map[*prometheus.CounterVec]uint64{
		m.sent: o.Packets, m.received: o.Received, m.refused: o.Refused, m.duplicate: o.Duplicate, m.reordered: o.Reordered,
	} {
		c.WithLabelValues(test.values...).Add(float64(n))
	}
	m.lost.WithLabelValues(test.with(lostByNetwork)...).Add(float64(o.Lost()))
	m.lost.WithLabelValues(test.with(lostByReceiver)...).Add(float64(o.Dropped))
	m.jitter.WithLabelValues(test.values...).Set(o.Jitter.Seconds())
}
