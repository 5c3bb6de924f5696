package coverage

import (
	"math"
	"math/rand/v2"
	"testing"
)

func TestRatio(t *testing.T) {
	for _, c := range []struct {
		flows, paths int
		want         float64
	}{{1, 1, 1}, {0, 4, 0}, {4, 0, 0}, {1, 4, 0.25}, {2, 2, 0.75}, {16, 16, 1 - math.Pow(15.0/16, 16)}, {115, 16, 0.9994}} {
		if got := Ratio(c.flows, c.paths); math.Abs(got-c.want) > 1e-4 {
			t.Errorf("%d flows on %d paths: %v, want %v", c.flows, c.paths, got, c.want)
		}
	}
}

// Simulation: flows thrown on paths at random take the expected share.
func TestRatioAgainstSimulation(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	const rounds, flows, paths = 4000, 12, 8
	taken := 0
	for range rounds {
		var hit [paths]bool
		for range flows {
			hit[random.IntN(paths)] = true
		}
		for _, h := range hit {
			if h {
				taken++
			}
		}
	}
	got, want := float64(taken)/rounds/paths, Ratio(flows, paths)
	if math.Abs(got-want) > 0.01 {
		t.Errorf("simulated %v, computed %v", got, want)
	}
}

// Flows is the least number that reaches the ratio.
func TestFlows(t *testing.T) {
	for paths := 1; paths <= 64; paths++ {
		for _, ratio := range []float64{0.5, 0.9, 0.99, 0.9999} {
			n := Flows(paths, ratio)
			if Ratio(n, paths) < ratio-1e-6 || n > 1 && Ratio(n-1, paths) >= ratio {
				t.Errorf("%d paths at %v: %d flows cover %v, one less %v", paths, ratio, n, Ratio(n, paths), Ratio(n-1, paths))
			}
		}
	}
}
