package main

import (
	"math/rand/v2"

	dto "github.com/prometheus/client_model/go"
)

// histogram is one whose buckets fill as they did between two captures.
type histogram struct {
	out      *dto.Histogram
	positive *side
	negative *side
	zero     float64   // per second
	classic  []float64 // per second and bucket, each alone
	counted  []uint64  // of classic buckets, each alone
	mean     float64
}

// side is the native buckets on one side of zero.
type side struct {
	deltas    []int64 // as they are exported
	counts    []uint64
	perSecond []float64
}

func newHistogram(now, was *dto.Histogram, seconds float64) *histogram {
	h := &histogram{
		out:      now,
		positive: newSide(now.PositiveSpan, now.PositiveDelta, was.GetPositiveSpan(), was.GetPositiveDelta(), seconds),
		negative: newSide(now.NegativeSpan, now.NegativeDelta, was.GetNegativeSpan(), was.GetNegativeDelta(), seconds),
		zero:     float64(now.GetZeroCount()-min(was.GetZeroCount(), now.GetZeroCount())) / seconds,
	}
	if n := now.GetSampleCount(); n > 0 {
		h.mean = now.GetSampleSum() / float64(n)
	}
	own := alone(now.Bucket)
	before := alone(was.GetBucket())
	for i, n := range own {
		grown := n
		if i < len(before) {
			grown -= min(before[i], n)
		}
		h.classic = append(h.classic, float64(grown)/seconds)
	}
	h.counted = own
	return h
}

// alone returns the counts of cumulative buckets, each for itself.
func alone(buckets []*dto.Bucket) []uint64 {
	var out []uint64
	last := uint64(0)
	for _, b := range buckets {
		out = append(out, b.GetCumulativeCount()-last)
		last = b.GetCumulativeCount()
	}
	return out
}

func newSide(spans []*dto.BucketSpan, deltas []int64, oldSpans []*dto.BucketSpan, oldDeltas []int64, seconds float64) *side {
	s := &side{deltas: deltas, counts: make([]uint64, len(deltas)), perSecond: make([]float64, len(deltas))}
	before := make(map[int32]int64)
	each(oldSpans, oldDeltas, func(_ int, index int32, count int64) { before[index] = count })
	each(spans, deltas, func(i int, index int32, count int64) {
		s.counts[i] = uint64(max(count, 0))
		s.perSecond[i] = float64(max(count-before[index], 0)) / seconds
	})
	return s
}

// each calls use with every bucket: its place among the deltas, its index and its count.
func each(spans []*dto.BucketSpan, deltas []int64, use func(i int, index int32, count int64)) {
	i, index, count := 0, int32(0), int64(0)
	for _, span := range spans {
		index += span.GetOffset()
		for range span.GetLength() {
			if i >= len(deltas) {
				return
			}
			count += deltas[i]
			use(i, index, count)
			i++
			index++
		}
	}
}

// advance fills the buckets and returns how many observations there were.
func (s *side) advance(r *rand.Rand, seconds float64) (n uint64) {
	last := int64(0)
	for i, rate := range s.perSecond {
		more := poisson(r, rate*seconds)
		s.counts[i] += more
		n += more
		s.deltas[i] = int64(s.counts[i]) - last
		last = int64(s.counts[i])
	}
	return n
}

func (h *histogram) advance(r *rand.Rand, seconds float64) {
	native := len(h.positive.deltas)+len(h.negative.deltas) > 0 || h.out.ZeroThreshold != nil
	var n uint64
	if native {
		zeros := poisson(r, h.zero*seconds)
		if h.out.ZeroCount != nil {
			*h.out.ZeroCount += zeros
		}
		n = zeros + h.positive.advance(r, seconds) + h.negative.advance(r, seconds)
	}
	total, drawn := uint64(0), uint64(0)
	for i, rate := range h.classic {
		more := poisson(r, rate*seconds)
		drawn += more
		h.counted[i] += more
		total += h.counted[i]
		*h.out.Bucket[i].CumulativeCount = total
	}
	if !native {
		n = drawn
	}
	if h.out.SampleCount != nil {
		*h.out.SampleCount += n
	}
	if h.out.SampleSum != nil {
		*h.out.SampleSum += float64(n) * h.mean
	}
}
