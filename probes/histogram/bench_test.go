package histogram

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"vigia/internal/catalog"
)

// The benchmarks put our histogram beside client_golang's, in turns within one run, and
// print the ratio: below 1 ours takes less. ADR 24 has the figures.

// delays are round-trip times of a quiet path.
func delays(n int) []int64 {
	rng := rand.New(rand.NewPCG(5, 6))
	values := make([]int64, n)
	for i := range values {
		values[i] = 20_000 + int64(rng.ExpFloat64()*5_000)
	}
	return values
}

// library makes histograms as the catalogue has client_golang make them.
func library(b *testing.B) func(i int) prometheus.Observer {
	b.Helper()
	c, err := catalog.Load()
	if err != nil {
		b.Fatal(err)
	}
	vec := c.NewFactory("probe", prometheus.NewRegistry()).Histogram("vigia_probe_rtt_seconds", catalog.ClassicDelayBuckets())
	return func(i int) prometheus.Observer {
		return vec.WithLabelValues("a", fmt.Sprint(i), "p", "t", "c")
	}
}

// turns measures two ways of doing n things, one after the other, again and again.
func turns(b *testing.B, n int, ours, theirs func()) {
	b.Helper()
	var own, other time.Duration
	for range b.N {
		start := time.Now()
		ours()
		between := time.Now()
		theirs()
		own, other = own+between.Sub(start), other+time.Since(between)
	}
	each := float64(b.N) * float64(n)
	b.ReportMetric(0, "ns/op") // of both together: says nothing
	b.ReportMetric(float64(own)/each, "ours-ns")
	b.ReportMetric(float64(other)/each, "library-ns")
	b.ReportMetric(float64(own)/float64(other), "ratio")
}

// BenchmarkObserveBesideClientGolang observes in one histogram again and again, and in
// the histograms of many targets in turn, which the processor's cache has forgotten by
// then.
func BenchmarkObserveBesideClientGolang(b *testing.B) {
	for _, targets := range []int{1, 5000} {
		b.Run(fmt.Sprintf("targets=%d", targets), func(b *testing.B) {
			of := library(b)
			layout, values := NewLayout(catalog.ClassicDelayBuckets()), delays(1<<14)
			ours, theirs := make([]*Histogram, targets), make([]prometheus.Observer, targets)
			for i := range targets {
				ours[i], theirs[i] = layout.New(), of(i)
				for _, v := range values[:100] {
					ours[i].Observe(v)
					theirs[i].Observe(float64(v) / 1e9)
				}
			}
			turns(b, len(values), func() {
				for i, v := range values {
					ours[i%targets].Observe(v)
				}
			}, func() {
				for i, v := range values {
					theirs[i%targets].Observe(float64(v) / 1e9)
				}
			})
		})
	}
}

// BenchmarkScrapeBesideClientGolang writes histograms out as a scrape does.
func BenchmarkScrapeBesideClientGolang(b *testing.B) {
	const targets = 500
	of, layout, values := library(b), NewLayout(catalog.ClassicDelayBuckets()), delays(500)
	ours, theirs := make([]*Histogram, targets), make([]prometheus.Metric, targets)
	for i := range targets {
		h := of(i)
		ours[i], theirs[i] = layout.New(), h.(prometheus.Metric)
		for _, v := range values {
			ours[i].Observe(v)
			h.Observe(float64(v) / 1e9)
		}
	}
	turns(b, targets, func() {
		for _, h := range ours {
			h.Write(new(dto.Histogram))
		}
	}, func() {
		for _, m := range theirs {
			if err := m.Write(new(dto.Metric)); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkMemoryBesideClientGolang makes histograms and observes in them: the bytes that
// stay.
func BenchmarkMemoryBesideClientGolang(b *testing.B) {
	const targets = 2000
	values := delays(500)
	var own, other float64
	for range b.N {
		layout := NewLayout(catalog.ClassicDelayBuckets())
		ours := make([]*Histogram, targets)
		own = retained(func() {
			for i := range ours {
				ours[i] = layout.New()
				for _, v := range values {
					ours[i].Observe(v)
				}
			}
		})
		of := library(b)
		theirs := make([]prometheus.Observer, targets)
		other = retained(func() {
			for i := range theirs {
				theirs[i] = of(i)
				for _, v := range values {
					theirs[i].Observe(float64(v) / 1e9)
				}
			}
		})
		runtime.KeepAlive(ours)
		runtime.KeepAlive(theirs)
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(own/targets, "ours-B")
	b.ReportMetric(other/targets, "library-B")
	b.ReportMetric(own/other, "ratio")
}

// retained returns how many bytes of the heap fn leaves behind.
func retained(fn func()) float64 {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	fn()
	runtime.GC()
	runtime.ReadMemStats(&after)
	return float64(after.HeapAlloc) - float64(before.HeapAlloc)
}
