package histogram

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"google.golang.org/protobuf/testing/protocmp"

	"vigia/internal/catalog"
)

// reference returns the general-purpose histogram of the catalogue.
func reference(t *testing.T, classic []float64) prometheus.Metric {
	t.Helper()
	c, err := catalog.Load()
	if err != nil {
		t.Fatal(err)
	}
	h := c.NewFactory("probe", prometheus.NewRegistry()).Histogram("vigia_probe_rtt_seconds", classic)
	return h.WithLabelValues("a", "b", "c", "d", "e").(prometheus.Metric)
}

func exported(t *testing.T, m prometheus.Metric) *dto.Histogram {
	t.Helper()
	var out dto.Metric
	if err := m.Write(&out); err != nil {
		t.Fatal(err)
	}
	h := out.Histogram
	h.CreatedTimestamp = nil
	return h
}

// written returns what a histogram exports, without the time of its creation.
func written(h *Histogram) *dto.Histogram {
	var out dto.Histogram
	h.Write(&out)
	out.CreatedTimestamp = nil
	return &out
}

// TestEqualsTheGeneralHistogram observes the same delays in both histograms and
// compares what they export, field by field.
func TestEqualsTheGeneralHistogram(t *testing.T) {
	classic := []float64{-1e-3, 0, 10e-6, 20e-6, 1e-3, 1}
	for name, draw := range map[string]func(*rand.Rand) int64{
		"nothing":         nil,
		"one value":       func(*rand.Rand) int64 { return 12_345 },
		"around zero":     func(r *rand.Rand) int64 { return r.Int64N(200) - 100 },
		"a quiet path":    func(r *rand.Rand) int64 { return 20_000 + int64(r.ExpFloat64()*3_000) },
		"signed":          func(r *rand.Rand) int64 { return int64(r.NormFloat64() * 30_000) },
		"classic bounds":  func(r *rand.Rand) int64 { return []int64{-1e6, 0, 10_000, 20_000, 1e6, 1e9}[r.IntN(6)] },
		"powers of two":   func(r *rand.Rand) int64 { return int64(math.Exp2(float64(r.IntN(20)+7)) * 1e9 / (1 << 30)) },
		"two far clumps":  func(r *rand.Rand) int64 { return []int64{5_000, 900_000_000}[r.IntN(2)] + r.Int64N(2_000) },
		"wide, not wider": func(r *rand.Rand) int64 { return int64(1_000 * math.Exp2(r.Float64()*18)) },
	} {
		t.Run(name, func(t *testing.T) {
			general, ours := reference(t, classic), NewLayout(classic).New()
			rng := rand.New(rand.NewPCG(1, 2))
			for range 5_000 {
				if draw == nil {
					break
				}
				ns := draw(rng)
				general.(prometheus.Observer).Observe(float64(ns) / 1e9)
				ours.Observe(ns)
			}
			got := written(ours)
			want := exported(t, general)
			if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
				t.Errorf("(-general +ours):\n%s", diff)
			}
		})
	}
}

func total(h *dto.Histogram) (n int64, populated int) {
	for _, deltas := range [][]int64{h.PositiveDelta, h.NegativeDelta} {
		var level int64
		for _, d := range deltas {
			level += d
			n += level
			if level > 0 {
				populated++
			}
		}
	}
	return n + int64(h.GetZeroCount()), populated
}

// TestBucketsAreBounded observes every order of magnitude in both directions.
func TestBucketsAreBounded(t *testing.T) {
	h := NewLayout(nil).New()
	rng := rand.New(rand.NewPCG(3, 4))
	const samples = 100_000
	for range samples {
		ns := int64(math.Exp2(rng.Float64() * 45)) // up to 10 hours
		if rng.IntN(2) == 0 {
			ns = -ns
		}
		h.Observe(ns)
	}
	out := &dto.Histogram{}
	h.Write(out)
	n, populated := total(out)
	if n != samples || out.GetSampleCount() != samples {
		t.Errorf("%d of %d observations are in buckets", n, samples)
	}
	if populated > maxBuckets {
		t.Errorf("%d populated buckets, want at most %d", populated, maxBuckets)
	}
	if out.GetSchema() != minSchema {
		t.Errorf("schema %d", out.GetSchema())
	}
}

func TestHalvingKeepsEveryObservation(t *testing.T) {
	h := NewLayout(nil).New()
	for ns := int64(100); ns < 50e9; ns += ns/12 + 1 {
		h.Observe(ns)
	}
	before := written(h)
	n, populated := total(before)
	if n != int64(h.count) || populated > maxBuckets || h.schema >= schema {
		t.Errorf("%d of %d observations in %d buckets of schema %d", n, h.count, populated, h.schema)
	}
	// The same values at the coarser schema from the start give the same.
	again := NewLayout(nil).New()
	again.layout.now = func() time.Time { return again.began }
	again.schema = h.schema
	for ns := int64(100); ns < 50e9; ns += ns/12 + 1 {
		again.Observe(ns)
	}
	after := written(again)
	if diff := cmp.Diff(after, before, protocmp.Transform()); diff != "" {
		t.Errorf("(-coarse from the start +halved):\n%s", diff)
	}
}

// spread observes more different delays than there may be buckets.
func spread(h *Histogram) {
	for ns := int64(100); ns < 50e9; ns += ns/12 + 1 {
		h.Observe(ns)
	}
}

// TestResets follows a histogram over hours by a clock of its own: within the first it
// loses resolution and nothing else; after it, it begins anew, once, with the
// observation that made it, and says so by its time of creation.
func TestResets(t *testing.T) {
	l := NewLayout([]float64{1e-3})
	now := time.Unix(1_800_000_000, 0)
	start := now
	l.now = func() time.Time { return now }
	created := func(h *Histogram) time.Time {
		var out dto.Histogram
		h.Write(&out)
		return out.CreatedTimestamp.AsTime()
	}
	wide, narrow := l.New(), l.New()
	now = now.Add(minReset - time.Nanosecond)
	spread(wide)
	narrow.Observe(7_000)
	all := wide.Count()
	if wide.schema >= schema || !created(wide).Equal(start) || wide.above.populated > maxBuckets {
		t.Fatalf("before the hour is over: schema %d, created %v", wide.schema, created(wide))
	}
	now = now.Add(time.Nanosecond)
	wide.Observe(5_000)
	narrow.Observe(7_000)
	if wide.Count() != 1 || wide.schema != schema || !created(wide).Equal(now) || wide.sum != 5e-6 || wide.classic[0] != 1 {
		t.Errorf("after an hour: %d observations of %d, schema %d, sum %g, created %v", wide.Count(), all, wide.schema, wide.sum, created(wide))
	}
	if narrow.Count() != 2 || !created(narrow).Equal(start) {
		t.Error("a histogram with room for all was reset")
	}
	// Full resolution, but old: the first bucket too many begins it anew.
	reset := now
	now = now.Add(3 * minReset)
	spread(narrow)
	if got := narrow.Count(); !created(narrow).Equal(now) || got == 0 || got >= all {
		t.Errorf("an old histogram that overflows: %d observations of %d, created %v", got, all, created(narrow))
	}
	if !created(wide).Equal(reset) {
		t.Error("a histogram that nobody touched was reset")
	}
	// It is young again, so what follows costs resolution and no observation.
	before := narrow.Count()
	spread(narrow)
	if narrow.Count() != before+all || narrow.schema >= schema || narrow.above.populated > maxBuckets {
		t.Errorf("%d observations of %d, schema %d", narrow.Count(), before+all, narrow.schema)
	}
}

func TestWriteIsACopy(t *testing.T) {
	h := NewLayout([]float64{1}).New()
	h.Observe(5)
	out := &dto.Histogram{}
	h.Write(out)
	h.Observe(7_000)
	if out.GetSampleCount() != 1 || out.Bucket[0].GetCumulativeCount() != 1 || len(out.PositiveDelta) != 0 {
		t.Errorf("what was exported changed: %v", out)
	}
}

func TestSteadyObservationDoesNotAllocate(t *testing.T) {
	h := NewLayout(catalog.ClassicDelayBuckets()).New()
	observe := func() {
		for ns := int64(-50_000); ns < 50_000; ns += 997 {
			h.Observe(ns)
		}
	}
	observe()
	if allocs := testing.AllocsPerRun(100, observe); allocs != 0 {
		t.Errorf("%v allocations, want 0", allocs)
	}
}

func BenchmarkObserve(b *testing.B) {
	h := NewLayout(catalog.ClassicDelayBuckets()).New()
	rng := rand.New(rand.NewPCG(5, 6))
	values := make([]int64, 1024)
	for i := range values {
		values[i] = 20_000 + int64(rng.ExpFloat64()*5_000)
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		h.Observe(values[i%len(values)])
	}
}

// decode turns spans and deltas back into counts by key.
func decode(spans []*dto.BucketSpan, deltas []int64) map[int]int64 {
	counts := make(map[int]int64)
	key, at := 0, 0
	var level int64
	for _, s := range spans {
		key += int(s.GetOffset())
		for range s.GetLength() {
			level += deltas[at]
			if level != 0 {
				counts[key] = level
			}
			key, at = key+1, at+1
		}
	}
	return counts
}

// TestSpansTellEveryBucket fills buckets at random places and reads them back.
func TestSpansTellEveryBucket(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 9))
		var b buckets
		want := make(map[int]int64)
		for range rng.IntN(60) {
			key := rng.IntN(120) - 60
			b.add(key)
			want[key]++
		}
		spans, deltas := b.spans()
		if diff := cmp.Diff(want, decode(spans, deltas)); diff != "" {
			t.Fatalf("seed %d (-want +got):\n%s", seed, diff)
		}
		if b.populated != len(want) {
			t.Fatalf("seed %d: %d populated, want %d", seed, b.populated, len(want))
		}
		for i, s := range spans {
			if i > 0 && s.GetOffset() <= maxGap {
				t.Fatalf("seed %d: a span begins %d after another", seed, s.GetOffset())
			}
		}
	}
}

// TestKeysHoldTheirBounds checks that a bucket's upper bound is in it and the next
// number is not.
func TestKeysHoldTheirBounds(t *testing.T) {
	l := NewLayout(nil)
	for key := -180; key <= 60; key++ {
		bound := math.Exp2(float64(key) / bucketsPerDouble)
		if key%bucketsPerDouble != 0 {
			continue // other bounds are rounded
		}
		if got := l.key(bound); got != key {
			t.Errorf("%g is in bucket %d, want %d", bound, got, key)
		}
		if got := l.key(math.Nextafter(bound, 1e9)); got != key+1 {
			t.Errorf("just above %g is bucket %d, want %d", bound, got, key+1)
		}
		middle := bound * math.Exp2(-0.5/bucketsPerDouble)
		if got := l.key(middle); got != key {
			t.Errorf("%g is in bucket %d, want %d", middle, got, key)
		}
	}
}

func TestHalfKeys(t *testing.T) {
	for key, want := range map[int]int{-3: -1, -2: -1, -1: 0, 0: 0, 1: 1, 2: 1, 3: 2, 4: 2} {
		if got := half(key); got != want {
			t.Errorf("%d: %d, want %d", key, got, want)
		}
	}
}
