package sender

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// TestDropsExplainLosses gives drops to losses whose probes were sent at various
// readings of the counter.
func TestDropsExplainLosses(t *testing.T) {
	for _, tc := range []struct {
		name  string
		notes []uint32
		since []uint32
		want  []bool
	}{
		{"none", nil, []uint32{0}, []bool{false}},
		{"one each", []uint32{2}, []uint32{0, 0, 0}, []bool{true, true, false}},
		{"before it was sent", []uint32{5}, []uint32{5}, []bool{false}},
		{"the last", []uint32{5}, []uint32{4, 4}, []bool{true, false}},
		// A probe of a later moment that is settled first leaves the drops of the
		// earlier moment to those that were sent then.
		{"a later one first", []uint32{3, 6}, []uint32{3, 0, 0, 0, 3, 3, 0}, []bool{true, true, true, true, true, true, false}},
		{"in the middle", []uint32{9}, []uint32{4, 4, 0, 8}, []bool{true, true, true, true}},
		{"a reading that comes late", []uint32{5, 3, 5}, []uint32{0, 0, 0, 0, 0, 0}, []bool{true, true, true, true, true, false}},
	} {
		var d drops
		for _, n := range tc.notes {
			d.note(n)
		}
		var got []bool
		for _, s := range tc.since {
			got = append(got, d.take(s))
		}
		if !slices.Equal(got, tc.want) {
			t.Errorf("%s: %v, want %v", tc.name, got, tc.want)
		}
	}
}

// TestNoDropIsTakenTwice plays at random around the wrap of the counter and compares
// with a list of all drops.
func TestNoDropIsTakenTwice(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 3))
		const start = ^uint32(0) - 40
		d := drops{seen: start}
		var open []int // drops not taken, counted from start
		total := 0
		for range 200 {
			if rng.IntN(3) == 0 {
				for range rng.IntN(4) {
					open = append(open, total)
					total++
				}
				d.note(start + uint32(total))
				continue
			}
			since := max(0, total-rng.IntN(12))
			i := slices.IndexFunc(open, func(at int) bool { return at >= since })
			if got := d.take(start + uint32(since)); got != (i >= 0) {
				t.Fatalf("seed %d: a loss since %d of %d drops: %v, open are %v", seed, since, total, got, open)
			}
			if i >= 0 {
				open = slices.Delete(open, i, i+1)
			}
		}
	}
}

func TestDropsAreBounded(t *testing.T) {
	d := drops{}
	for i := range uint32(10_000) {
		d.note(10 * (i + 1))
		d.take(10*i + 5) // leaves a hole
	}
	if len(d.free) > maxSpans || cap(d.free) > 4*maxSpans {
		t.Errorf("%d spans, room for %d", len(d.free), cap(d.free))
	}
}
