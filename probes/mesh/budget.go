package mesh

import (
	"cmp"
	"slices"
)

// Claim is a pair that wants series of its own.
type Claim struct {
	Index    int  // the caller's
	Cost     int  // in series
	Asked    bool // by an operator
	Shown    bool // it has series already
	Severity int
	Name     string // decides among equals
}

// Choose returns which claims get series within a budget: those that were asked for, then
// those that have them already, then the worst. A claim that does not fit leaves its place to
// those after it.
func Choose(claims []Claim, budget int) (chosen []Claim) {
	slices.SortFunc(claims, func(a, b Claim) int {
		return cmp.Or(
			first(a.Asked, b.Asked), first(a.Shown, b.Shown), cmp.Compare(b.Severity, a.Severity), cmp.Compare(a.Name, b.Name),
		)
	})
	for _, c := range claims {
		if c.Cost <= budget {
			budget -= c.Cost
			chosen = append(chosen, c)
		}
	}
	return chosen
}

func first(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}
