package mesh

import (
	"math/rand/v2"
	"strings"
	"testing"
)

func names(claims []Claim) string {
	out := make([]string, 0, len(claims))
	for _, c := range claims {
		out = append(out, c.Name)
	}
	return strings.Join(out, " ")
}

func TestChoose(t *testing.T) {
	claims := []Claim{
		{Name: "worse", Cost: 10, Severity: 9},
		{Name: "bad", Cost: 10, Severity: 4},
		{Name: "shown", Cost: 10, Severity: 1, Shown: true},
		{Name: "asked", Cost: 10, Asked: true},
		{Name: "alike", Cost: 10, Severity: 4},
		{Name: "large", Cost: 100, Severity: 99},
	}
	for budget, want := range map[int]string{
		0: "", 9: "", 10: "asked", 20: "asked shown", 30: "asked shown worse", 49: "asked shown worse alike",
		59: "asked shown worse alike bad", 150: "asked shown large worse alike bad",
	} {
		if got := names(Choose(claims, budget)); got != want {
			t.Errorf("of %d: %q, want %q", budget, got, want)
		}
	}
}

// The budget holds, and who has series keeps them while others come.
func TestChooseHolds(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 5))
	for range 500 {
		var claims []Claim
		shown := 0
		for i := range 1 + random.IntN(40) {
			c := Claim{Index: i, Cost: 1 + random.IntN(50), Severity: random.IntN(96), Name: strings.Repeat("n", i)}
			if c.Shown = shown+c.Cost <= 300 && random.IntN(2) == 0; c.Shown {
				shown += c.Cost
			}
			claims = append(claims, c)
		}
		budget, kept := 300, 0
		for _, c := range Choose(claims, 300) {
			budget -= c.Cost
			if c.Shown {
				kept += c.Cost
			}
		}
		if budget < 0 || kept != shown {
			t.Fatalf("%d left of the budget, %d of %d series kept", budget, kept, shown)
		}
	}
}
