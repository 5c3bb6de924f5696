// Package coverage says how many of the equal-cost paths of a network a set of
// flows takes. A router chooses the path of a flow by a hash of its addresses and
// ports, so each flow takes any of m paths with the same probability, and n flows
// leave a given path out with probability (1-1/m)^n.
package coverage

import "math"

// Ratio returns the share of paths that flows are expected to take, which is also
// the probability that a given path, the bad one, is among them; 0 to 1.
func Ratio(flows, paths int) float64 {
	if flows <= 0 || paths <= 0 {
		return 0
	}
	return -math.Expm1(float64(flows) * math.Log1p(-1/float64(paths)))
}

// Flows returns how many flows it takes to cover paths with the ratio, which is
// less than 1.
func Flows(paths int, ratio float64) int {
	if paths <= 1 {
		return 1
	}
	return max(1, int(math.Ceil(math.Log1p(-ratio)/math.Log1p(-1/float64(paths))-1e-9)))
}
