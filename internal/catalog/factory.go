package catalog

import (
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
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
// another type, is a mistake in the program and panics, as regexp.MustCompile does;
// so is making a series with a label value that the catalogue does not list.
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
	v.MetricVec = checked(m, v.MetricVec)
	f.reg.MustRegister(v)
	return v
}

// Gauge registers a gauge with its catalogued labels.
func (f *Factory) Gauge(name string) *prometheus.GaugeVec {
	m := f.lookup(name, Gauge)
	v := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: m.Name, Help: m.Help}, m.Labels)
	v.MetricVec = checked(m, v.MetricVec)
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
	v.MetricVec = checked(m, v.MetricVec)
	f.reg.MustRegister(v)
	return v
}

// checked returns a vector that makes its series by v, after a look at their label
// values. A series that is there is found as fast as in v itself.
func checked(m Metric, v *prometheus.MetricVec) *prometheus.MetricVec {
	if len(m.Values) == 0 {
		return v
	}
	closed := m.Closed()
	return prometheus.NewMetricVec(newDesc(m), func(values ...string) prometheus.Metric {
		check(m.Name, closed, values)
		series, err := v.GetMetricWithLabelValues(values...)
		if err != nil {
			panic(err) // another number of values
		}
		v.DeleteLabelValues(values...) // v is a maker; the vector around it keeps what it made
		return series
	})
}

func newDesc(m Metric) *prometheus.Desc { return prometheus.NewDesc(m.Name, m.Help, m.Labels, nil) }

// Series is a metric whose samples a program makes itself. A histogram that it
// keeps must have the native layout of Factory.Histogram: schema 3, at most 160
// buckets, and a zero threshold of 2^-24 s.
type Series struct {
	name   string
	desc   *prometheus.Desc
	value  prometheus.ValueType
	closed []*Closed
}

// Series returns the metric of that name.
func (f *Factory) Series(name string) *Series {
	m := f.Declared(name)
	s := &Series{name: m.Name, desc: newDesc(m), value: prometheus.GaugeValue, closed: m.Closed()}
	switch m.Type {
	case Counter:
		s.value = prometheus.CounterValue
	case Histogram:
		s.value = prometheus.UntypedValue // it has no single value
	}
	return s
}

// Desc returns the metric's descriptor.
func (s *Series) Desc() *prometheus.Desc { return s.desc }

// Type returns the type of the metric's samples.
func (s *Series) Type() prometheus.ValueType { return s.value }

// Labels returns the pairs of a series with those values, in the order of the
// metric's labels, to be made once and used for every sample of it.
func (s *Series) Labels(values ...string) []*dto.LabelPair {
	check(s.name, s.closed, values)
	return prometheus.MakeLabelPairs(s.desc, values)
}

// Sample returns a sample of a counter or gauge.
func (s *Series) Sample(v float64, values ...string) prometheus.Metric {
	check(s.name, s.closed, values)
	return prometheus.MustNewConstMetric(s.desc, s.value, v, values...)
}

// OnFastPage returns the metric of that name, for the page that is scraped every second. One
// that the catalogue does not have there is a mistake in the program and panics.
func (f *Factory) OnFastPage(name string) Metric {
	m := f.Declared(name)
	if !m.OnFastPage() {
		panic(fmt.Sprintf("metric %s is not on %s in the catalogue", name, FastPage))
	}
	return m
}

// Declared returns the metric of that name, for programs that write it themselves.
func (f *Factory) Declared(name string) Metric {
	m, ok := f.metrics[name]
	if !ok {
		panic(fmt.Sprintf("metric %s is not in the catalogue of this part", name))
	}
	return m
}
