package histogram

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestQuantiles compares with the sorted values: never less, and by one bucket more at most.
func TestQuantiles(t *testing.T) {
	layout := NewLayout(nil)
	if got := layout.New().Quantile(0.5); got != 0 {
		t.Errorf("of nothing: %d", got)
	}
	rng := rand.New(rand.NewPCG(3, 4))
	for name, draw := range map[string]func() float64{
		"delays":     func() float64 { return 1e6 * rng.ExpFloat64() },
		"signed":     func() float64 { return 1e6 * rng.NormFloat64() },
		"negative":   func() float64 { return -1e6 * rng.ExpFloat64() },
		"wide":       func() float64 { return math.Exp(25 * rng.Float64()) },
		"many zeros": func() float64 { return max(0, 1e6*rng.NormFloat64()) },
	} {
		h := layout.New()
		all := make([]int64, 0, 5000)
		for range 5000 {
			ns := int64(draw())
			all = append(all, ns)
			h.Observe(ns)
		}
		slices.Sort(all)
		width := math.Exp2(1/math.Exp2(float64(h.schema))) * (1 + 1e-9)
		for _, q := range []float64{0.01, 0.25, 0.5, 0.9, 0.99, 1} {
			exact := all[int(math.Ceil(q*float64(len(all))))-1]
			got := h.Quantile(q)
			most := float64(exact) * width
			if exact < 0 {
				most = float64(exact) / width
			}
			// What is in the zero bucket may be anything of it.
			if zero := math.Ceil(zeroThreshold * 1e9); math.Abs(float64(exact)) <= zero {
				most = max(most, zero)
			}
			if float64(got) < float64(exact)-1 || float64(got) > most+1 {
				t.Errorf("%s: the quantile %g is %d, want %d to %g", name, q, got, exact, most)
			}
		}
	}
}
