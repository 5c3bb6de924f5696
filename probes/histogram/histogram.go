// Package histogram keeps native histograms of delays in little memory and time.
//
// A probe is observed seven times, and the general-purpose histogram, which any
// number of goroutines may observe at once, takes more time for that than all
// other user-space work on the probe. This one is guarded by its owner.
package histogram

import (
	"math"
	"slices"
	"time"

	dto "github.com/prometheus/client_model/go"
	"google.golang.org/protobuf/types/known/timestamppb"
)

const (
	// schema 3 has eight buckets per doubling (growth factor 1.09).
	schema           = 3
	bucketsPerDouble = 1 << schema
	// minSchema is where a histogram gives up saving buckets; at 1 all delays
	// from the zero threshold to 100 s make 62.
	minSchema = 1
	// minReset is how long a histogram keeps its buckets at least: before that, too
	// many of them cost resolution, and after it the histogram begins anew
	// (Prometheus native histogram specification, limits of the bucket count).
	minReset = time.Hour
	// zeroThreshold is below the resolution of a software time stamp. Delays up
	// to it count as zero.
	zeroThreshold = 1.0 / (1 << 24)
	// maxBuckets is how many buckets may be populated before the resolution is
	// halved.
	maxBuckets = 160
	// maxDelay bounds the range of buckets of delays, in nanoseconds; larger ones
	// are counted as this, and fully in the sum.
	maxDelay = int64(100e9)
	// maxCount does the same for counts.
	maxCount = int64(1 << 20)
)

// Histogram is a native histogram with classic buckets beside it. The zero value
// is not usable. It is not safe for concurrent use.
type Histogram struct {
	layout  *Layout
	began   time.Time // when it was made or last reset
	schema  int32
	count   uint64
	zero    uint64
	sum     float64
	above   buckets  // of positive delays
	below   buckets  // of negative ones
	classic []uint64 // not cumulative
}

// Layout is what histograms of one family have in common.
type Layout struct {
	bounds  []float64                 // upper, of the classic buckets
	inside  [bucketsPerDouble]float64 // lower bounds of the native buckets within [0.5, 1)
	classic []int64                   // bounds in nanoseconds
	limit   int64                     // of the range of buckets, in nanoseconds
	now     func() time.Time
}

// NewLayout returns a layout with these upper bounds of classic buckets, in
// seconds and ascending.
func NewLayout(classic []float64) *Layout {
	l := &Layout{bounds: slices.Clone(classic), limit: maxDelay, now: time.Now}
	for i := range l.inside {
		l.inside[i] = math.Exp2(float64(i)/bucketsPerDouble) / 2
	}
	for _, b := range classic {
		l.classic = append(l.classic, int64(math.Round(b*1e9)))
	}
	return l
}

// NewCountLayout returns a layout for what OfCount returns.
func NewCountLayout(classic []float64) *Layout {
	l := NewLayout(classic)
	l.limit = maxCount * second
	return l
}

// second is one unit of what is exported, in nanoseconds.
const second = int64(1e9)

// OfCount returns what to observe for a number of things rather than a delay.
func OfCount(n uint64) int64 { return int64(min(n, uint64(maxCount))) * second }

// New returns an empty histogram.
func (l *Layout) New() *Histogram {
	return &Histogram{layout: l, schema: schema, classic: make([]uint64, len(l.classic)+1), began: l.now()}
}

// Reset begins the histogram anew, at full resolution. To Prometheus that is a counter
// reset, which the time of creation tells.
func (h *Histogram) Reset() { *h = *h.layout.New() }

// Observe counts a delay in nanoseconds; it may be negative.
func (h *Histogram) Observe(ns int64) {
	if h.schema < schema && h.old() {
		h.Reset() // to get back the resolution that it lost when it was young
	}
	h.count++
	h.sum += float64(ns) / 1e9
	at := 0
	for at < len(h.layout.classic) && ns > h.layout.classic[at] {
		at++
	}
	h.classic[at]++

	side, size := &h.above, min(ns, h.layout.limit)
	if ns < 0 {
		side, size = &h.below, -max(ns, -h.layout.limit)
	}
	seconds := float64(size) / 1e9
	if seconds <= zeroThreshold {
		h.zero++
		return
	}
	key := h.layout.key(seconds)
	for s := h.schema; s < schema; s++ {
		key = half(key)
	}
	side.add(key)
	if h.above.populated+h.below.populated > maxBuckets {
		h.limitBuckets(ns)
	}
}

// old reports whether the histogram may begin anew.
func (h *Histogram) old() bool { return h.layout.now().Sub(h.began) >= minReset }

// limitBuckets makes room when an observation has made one bucket too many: an old
// histogram begins anew with it, a young one loses resolution.
func (h *Histogram) limitBuckets(ns int64) {
	switch {
	case h.old():
		h.Reset()
		h.Observe(ns)
	case h.schema > minSchema:
		h.schema--
		h.above.halve()
		h.below.halve()
	}
}

// Count returns how many delays were observed.
func (h *Histogram) Count() uint64 { return h.count }

// Quantile returns the upper bound, in nanoseconds, of the bucket that holds the delay
// which at least the share q of all do not exceed; 0 of an empty histogram.
func (h *Histogram) Quantile(q float64) int64 {
	left := int64(math.Ceil(q * float64(h.count)))
	bound := 0.0
	for i := len(h.below.counts) - 1; i >= 0 && left > 0; i-- {
		if n := h.below.counts[i]; n > 0 {
			left -= int64(n)
			bound = -h.upper(h.below.first + i - 1)
		}
	}
	if left > 0 && h.zero > 0 {
		left -= int64(h.zero)
		bound = zeroThreshold
	}
	for i := 0; i < len(h.above.counts) && left > 0; i++ {
		if n := h.above.counts[i]; n > 0 {
			left -= int64(n)
			bound = h.upper(h.above.first + i)
		}
	}
	return int64(math.Round(bound * 1e9))
}

// upper returns the upper bound of a native bucket in seconds.
func (h *Histogram) upper(key int) float64 {
	return math.Exp2(float64(key) / float64(int(1)<<h.schema))
}

// key returns the index of the native bucket at schema 3: key k holds the values
// in (2^((k-1)/8), 2^(k/8)].
func (l *Layout) key(v float64) int {
	fraction, exponent := math.Frexp(v)
	at := 0
	for at < bucketsPerDouble && fraction > l.inside[at] {
		at++
	}
	return at + (exponent-1)*bucketsPerDouble
}

// half returns the index of the bucket of twice the width.
func half(key int) int { return (key + 1) >> 1 }

// buckets are counts by consecutive keys from first on.
type buckets struct {
	first     int
	counts    []uint64
	populated int
}

// growth is how many buckets are added at once where there is none yet.
const growth = 8

func (b *buckets) add(key int) {
	switch {
	case len(b.counts) == 0:
		b.first, b.counts = key-growth/2, make([]uint64, growth)
	case key < b.first:
		more := b.first - key + growth
		b.counts = slices.Insert(b.counts, 0, make([]uint64, more)...)
		b.first -= more
	case key >= b.first+len(b.counts):
		b.counts = append(b.counts, make([]uint64, key-b.first-len(b.counts)+growth)...)
	}
	c := &b.counts[key-b.first]
	if *c == 0 {
		b.populated++
	}
	*c++
}

func (b *buckets) halve() {
	old := *b
	*b = buckets{}
	for i, n := range old.counts {
		if n > 0 {
			b.add(half(old.first + i))
			b.counts[half(old.first+i)-b.first] += n - 1
		}
	}
}

// Write fills in the exported form.
func (h *Histogram) Write(out *dto.Histogram) {
	threshold, schemaNow := float64(zeroThreshold), h.schema
	count, zero, sum := h.count, h.zero, h.sum
	out.SampleCount, out.SampleSum = &count, &sum
	out.CreatedTimestamp = timestamppb.New(h.began)
	out.Schema, out.ZeroThreshold, out.ZeroCount = &schemaNow, &threshold, &zero
	out.PositiveSpan, out.PositiveDelta = h.above.spans()
	out.NegativeSpan, out.NegativeDelta = h.below.spans()
	out.Bucket = make([]*dto.Bucket, len(h.layout.bounds))
	storage := make([]struct {
		bucket dto.Bucket
		count  uint64
	}, len(h.layout.bounds))
	var cumulative uint64
	for i := range h.layout.bounds {
		s := &storage[i]
		cumulative += h.classic[i]
		s.count = cumulative
		s.bucket.CumulativeCount, s.bucket.UpperBound = &s.count, &h.layout.bounds[i]
		out.Bucket[i] = &s.bucket
	}
}

// maxGap is how many empty buckets are written out rather than beginning another
// span.
const maxGap = 2

// spans returns the populated buckets as spans and deltas (Prometheus native
// histogram specification).
func (b *buckets) spans() (spans []*dto.BucketSpan, deltas []int64) {
	var last int64
	end := 0 // key after the last bucket written
	put := func(n uint64) {
		*spans[len(spans)-1].Length++
		deltas = append(deltas, int64(n)-last)
		last = int64(n)
	}
	for i, n := range b.counts {
		if n == 0 {
			continue
		}
		key := b.first + i
		if gap := key - end; len(spans) == 0 || gap > maxGap {
			offset, length := int32(gap), uint32(0)
			spans = append(spans, &dto.BucketSpan{Offset: &offset, Length: &length})
		} else {
			for range gap {
				put(0)
			}
		}
		put(n)
		end = key + 1
	}
	return spans, deltas
}
