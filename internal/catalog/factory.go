package catalog

import (
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Native histogram layout: factor 1.1 resolves a quantile to about 5 %, 160
// buckets cover 17 doublings, and a reset at most once an hour keeps rate()
// honest (Prometheus native histogram specification).
const (
	nativeFactor     = 1.1
	nativeMaxBuckets = 160
	nativeMinReset   = time.Hour
	// nativeZeroThreshold is 2^-24 s, about 60 ns, below the resolution of a
	// software time stamp.
	nativeZeroThreshold = 1.0 / (1 << 24)
)

// ClassicDelayBuckets are the upper bounds, in seconds, of the classic buckets
// that text scrapers see beside a native histogram of delays.
func ClassicDelayBuckets() []float64 {
	return []float64{
		10e-6, 20e-6, 50e-6, 100e-6, 200e-6, 500e-6,
		1e-3, 2e-3, 5e-3, 10e-3, 20e-3, 50e-3, 100e-3, 250e-3, 1,
	}
}

// Factory builds the metrics of one part from the catalogue and registers them.
// Asking for a metric that the catalogue does not declare for the part, or with
// another type, is a mistake in the program and panics, as regexp.MustCompile does.
type Factory struct {
	metrics map[string]Metric
	reg     prometheus.Registerer
}

// NewFactory returns a factory for the part's metrics that registers with reg.
func (c *Catalog) NewFactory(part string, reg prometheus.Registerer) *Factory {
	f := &Factory{metrics: make(map[string]Metric), reg: reg}
	for _, m := range c.Part(part) {
		f.metrics[m.Name] = m
	}
	return f
}

func (f *Factory) lookup(name string, t Type) Metric {
	m, ok := f.metrics[name]
	if !ok {
		panic(fmt.Sprintf("metric %s is not in the catalogue of this part", name))
	}
	if m.Type != t {
		panic(fmt.Sprintf("metric %s is a %s in the catalogue, not a %s", name, m.Type, t))
	}
	return m
}

// Counter registers a counter with its catalogued labels.
func (f *Factory) Counter(name string) *prometheus.CounterVec {
	m := f.lookup(name, Counter)
	v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: m.Name, Help: m.Help}, m.Labels)
	f.reg.MustRegister(v)
	return v
}

// Gauge registers a gauge with its catalogued labels.
func (f *Factory) Gauge(name string) *prometheus.GaugeVec {
	m := f.lookup(name, Gauge)
	v := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: m.Name, Help: m.Help}, m.Labels)
	f.reg.MustRegister(v)
	return v
}

// Histogram registers a native histogram with classic buckets beside it. The
// observations may be negative.
func (f *Factory) Histogram(name string, classic []float64) *prometheus.HistogramVec {
	m := f.lookup(name, Histogram)
	v := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:                            m.Name,
		Help:                            m.Help,
		Buckets:                         classic,
		NativeHistogramBucketFactor:     nativeFactor,
		NativeHistogramMaxBucketNumber:  nativeMaxBuckets,
		NativeHistogramMinResetDuration: nativeMinReset,
		NativeHistogramZeroThreshold:    nativeZeroThreshold,
	}, m.Labels)
	f.reg.MustRegister(v)
	return v
}

// HistogramDesc returns the descriptor of a histogram that the program keeps
// itself. It must have the native layout of Histogram: schema 3, at most 160
// buckets, and a zero threshold of 2^-24 s.
func (f *Factory) HistogramDesc(name string) *prometheus.Desc {
	m := f.lookup(name, Histogram)
	return prometheus.NewDesc(m.Name, m.Help, m.Labels, nil)
}

// Declared returns the metric of that name, for programs that write it themselves.
func (f *Factory) Declared(name string) Metric {
	m, ok := f.metrics[name]
	if !ok {
		panic(fmt.Sprintf("metric %s is not in the catalogue of this part", name))
	}
	return m
}

// Desc returns the descriptor of a metric whose values are computed at scrape
// time, with its Prometheus value type.
func (f *Factory) Desc(name string) (*prometheus.Desc, prometheus.ValueType) {
	m, ok := f.metrics[name]
	if !ok || m.Type == Histogram {
		panic(fmt.Sprintf("metric %s is not a counter or gauge in the catalogue of this part", name))
	}
	valueType := prometheus.GaugeValue
	if m.Type == Counter {
		valueType = prometheus.CounterValue
	}
	return prometheus.NewDesc(m.Name, m.Help, m.Labels, nil), valueType
}
