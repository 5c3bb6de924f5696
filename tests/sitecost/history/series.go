package main

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	kitlog "github.com/go-kit/log"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb"
	"github.com/prometheus/prometheus/tsdb/chunkenc"

	"vigia/tests/sitecost/names"
)

// series is what is known of one: when it is sampled, and how its values go on.
type series struct {
	labels   labels.Labels
	interval int64 // milliseconds
	phase    int64
	until    int64 // when it was sampled last
	seed     uint64

	counter   bool
	whole     bool
	about     float64 // of a gauge its last value, of a counter its first
	perSecond float64
	native    *native

	// Of a tenant's port: where it is plugged, -1 otherwise.
	node, place int
	generations map[int]labels.Labels
}

// native is a native histogram: its layout, and how its buckets fill.
type native struct {
	last                           *histogram.Histogram
	positive, negative             []float64 // a second, by bucket
	positiveCounts, negativeCounts []float64
	zero, sum                      float64 // a second
	zeroCount, sampledSum          float64
}

// learn reads every series of a data directory. Of the ports that were at one place one after the other, the newest is
// kept: each would be given the whole past of the place.
func learn(folder string) (learned []*series, err error) {
	db, err := tsdb.OpenDBReadOnly(folder, kitlog.NewNopLogger())
	if err != nil {
		return nil, err
	}
	defer func() {
		if e := db.Close(); err == nil {
			err = e
		}
	}()
	q, err := db.Querier(context.Background(), math.MinInt64, math.MaxInt64)
	if err != nil {
		return nil, err
	}
	defer q.Close()
	set := q.Select(false, nil, labels.MustNewMatcher(labels.MatchNotEqual, labels.MetricName, ""))
	places := make(map[string]*series)
	for set.Next() {
		s := watch(set.At())
		if s == nil {
			continue
		}
		if s.node >= 0 {
			l, _ := s.labelsAt(0, 0)
			if other := places[l.String()]; other != nil {
				if other.until < s.until {
					*other = *s
				}
				continue
			}
			places[l.String()] = s
		}
		learned = append(learned, s)
	}
	return learned, set.Err()
}

// seen is what a series' samples tell.
type seen struct {
	n           int
	first, last int64
	from, to    float64
	whole       bool
	was, is     *histogram.Histogram
}

// alone is the interval of a series with one sample: it was sampled more rarely than what was learned lasted.
const alone = 15 * 60 * 1000

// watch returns what a series is like, or nil for one without samples.
func watch(in storage.Series) *series {
	w := seen{whole: true}
	it := in.Iterator(nil)
	for kind := it.Next(); kind != chunkenc.ValNone; kind = it.Next() {
		switch kind {
		case chunkenc.ValFloat:
			t, v := it.At()
			if value.IsStaleNaN(v) {
				continue
			}
			if w.n == 0 {
				w.first, w.from = t, v
			}
			w.last, w.to = t, v
			w.whole = w.whole && v == math.Trunc(v)
		case chunkenc.ValHistogram:
			t, h := it.AtHistogram()
			if value.IsStaleNaN(h.Sum) {
				continue
			}
			if w.is == nil {
				w.first, w.was = t, h.Copy()
			}
			w.last, w.is = t, h.Copy()
		default:
			continue
		}
		w.n++
	}
	if it.Err() != nil || w.n == 0 {
		return nil
	}
	return w.series(in.Labels())
}

func (w *seen) series(l labels.Labels) *series {
	name := l.Get(labels.MetricName)
	seconds := max(float64(w.last-w.first)/1000, 1)
	interval := int64(alone)
	if w.n > 1 {
		interval = snap((w.last - w.first) / int64(w.n-1))
	}
	s := &series{labels: l, interval: interval, until: w.last, seed: l.Hash(), whole: w.whole, node: -1}
	s.phase = w.last % s.interval
	s.counter = !strings.Contains(name, ":") && slices.ContainsFunc([]string{"_total", "_count", "_sum", "_bucket"}, func(end string) bool { return strings.HasSuffix(name, end) })
	s.about = w.to
	if s.counter {
		s.perSecond = max(w.to-w.from, 0) / seconds
	}
	if w.is != nil {
		s.native = newNative(w.was, w.is, seconds)
	}
	if node, place, _, ok := names.ParsePort(l.Get("port")); ok {
		s.node, s.place, s.generations = node, place, make(map[int]labels.Labels)
	}
	return s
}

// snap returns the interval that is meant.
func snap(ms int64) int64 {
	for _, meant := range []int64{1000, 5000, 15_000, 60_000} {
		if ms <= meant*13/10 {
			return meant
		}
	}
	return 60_000
}

func newNative(was, is *histogram.Histogram, seconds float64) *native {
	n := &native{last: is}
	n.positive, n.positiveCounts = filling(was.PositiveSpans, was.PositiveBuckets, is.PositiveSpans, is.PositiveBuckets, seconds)
	n.negative, n.negativeCounts = filling(was.NegativeSpans, was.NegativeBuckets, is.NegativeSpans, is.NegativeBuckets, seconds)
	n.zero, n.zeroCount = math.Max(float64(is.ZeroCount)-float64(was.ZeroCount), 0)/seconds, float64(is.ZeroCount)
	n.sum, n.sampledSum = (is.Sum-was.Sum)/seconds, is.Sum
	return n
}

// filling returns how fast each bucket fills, and how full it is.
func filling(oldSpans []histogram.Span, old []int64, spans []histogram.Span, deltas []int64, seconds float64) (rates, counts []float64) {
	before := make(map[int32]int64)
	each(oldSpans, old, func(index int32, count int64) { before[index] = count })
	each(spans, deltas, func(index int32, count int64) {
		rates = append(rates, float64(max(count-before[index], 0))/seconds)
		counts = append(counts, float64(count))
	})
	return rates, counts
}

func each(spans []histogram.Span, deltas []int64, use func(index int32, count int64)) {
	i, index, count := 0, int32(0), int64(0)
	for _, span := range spans {
		index += span.Offset
		for range span.Length {
			count += deltas[i]
			use(index, count)
			i++
			index++
		}
	}
}

// epoch is when all counters of the past began.
const epoch = 1_600_000_000_000

// at returns the histogram so many seconds after the epoch.
func (n *native) at(seconds float64) *histogram.Histogram {
	h := *n.last
	var total uint64
	h.PositiveBuckets, total = filled(n.positive, n.positiveCounts, seconds)
	h.Count = total
	h.NegativeBuckets, total = filled(n.negative, n.negativeCounts, seconds)
	h.ZeroCount = uint64(n.zeroCount + n.zero*seconds)
	h.Count += total + h.ZeroCount
	h.Sum = n.sampledSum + n.sum*seconds
	return &h
}

func filled(rates, counts []float64, seconds float64) (deltas []int64, total uint64) {
	deltas = make([]int64, len(rates))
	last := int64(0)
	for i, rate := range rates {
		now := int64(counts[i] + rate*seconds)
		deltas[i], last = now-last, now
		total += uint64(now)
	}
	return deltas, total
}

// span is a time from start to before stop, in milliseconds; before dense there is one sample in thin.
type span struct{ start, stop, dense, thin int64 }

// write appends the samples of a span.
func (s *series) write(app storage.Appender, in span, life time.Duration) (samples int, err error) {
	step := func(t int64) int64 {
		if t < in.dense {
			return max(in.thin/s.interval, 1) * s.interval
		}
		return s.interval
	}
	each := step(in.start)
	first := (in.start-s.phase+each-1)/each*each + s.phase
	// What the head gave for the labels before: it need not be looked up again.
	var ref storage.SeriesRef
	generation := 0
	for t := first; t < in.stop; t += step(t) {
		seconds := float64(t-epoch) / 1000
		l, g := s.labelsAt(t, life)
		if g != generation {
			ref, generation = 0, g
		}
		if s.native != nil {
			ref, err = app.AppendHistogram(ref, l, t, s.native.at(seconds), nil)
		} else {
			ref, err = app.Append(ref, l, t, s.value(seconds))
		}
		if err != nil {
			return samples, fmt.Errorf("append to %s: %w", l, err)
		}
		samples++
	}
	return samples, nil
}

// wavers is by how much values that are no whole numbers do.
const wavers = 0.05

func (s *series) value(seconds float64) float64 {
	switch {
	case s.counter && s.whole:
		return math.Floor(s.about + s.perSecond*seconds)
	case s.counter:
		return s.about + s.perSecond*seconds
	case s.whole:
		return s.about
	default:
		return s.about * (1 + wavers*noise(s.seed^uint64(seconds)))
	}
}

// noise returns a number from -1 to 1 that is the same for the same seed (splitmix64).
func noise(seed uint64) float64 {
	seed += 0x9e3779b97f4a7c15
	seed = (seed ^ seed>>30) * 0xbf58476d1ce4e5b9
	seed = (seed ^ seed>>27) * 0x94d049bb133111eb
	seed ^= seed >> 31
	return float64(seed>>11)/(1<<52) - 1
}

// labelsAt returns the labels, with the port that was at the place at the time, and that port's generation.
func (s *series) labelsAt(t int64, life time.Duration) (l labels.Labels, generation int) {
	if s.node < 0 {
		return s.labels, 0
	}
	generation = names.Generation(s.node, s.place, time.UnixMilli(t), life)
	if l, ok := s.generations[generation]; ok {
		return l, generation
	}
	l = labels.NewBuilder(s.labels).Set("port", names.Port(s.node, s.place, generation)).Labels(nil)
	s.generations[generation] = l
	return l, generation
}
