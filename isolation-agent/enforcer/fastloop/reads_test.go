package fastloop

import (
	"fmt"
	"maps"
	"testing"

	"vigia/internal/testutil"
	"vigia/isolation-agent/enforcer/fastloop/control"
)

// readings returns what was last read of the classes that are there.
func (s *linkState) readings() map[uint32]control.Reading {
	out := map[uint32]control.Reading{}
	for i := range s.rows {
		if r := &s.rows[i]; r.known {
			out[r.id] = r.reading
		}
	}
	return out
}

// TestFewClassesAreReadOneByOne: and what is read is the same either way.
func TestFewClassesAreReadOneByOne(t *testing.T) {
	for _, tc := range []struct {
		active, all int
		want        bool
	}{{0, 1, true}, {8, 8, true}, {8, 9, true}, {9, 9, false}, {9, 45, true}, {12, 64, true}, {13, 64, false}, {64, 64, false}, {1000, 5000, true}, {1001, 5000, false}} {
		if got := single(tc.active, tc.all); got != tc.want {
			t.Errorf("%d of %d one by one: %v", tc.active, tc.all, got)
		}
	}
	l, _, pins := newSizedLoop(t, benchTenants)
	arrive(t, l, pins)
	s := l.links[0]
	if err := l.read(s); err != nil { // every class is new: all at once
		t.Fatal(err)
	}
	if len(s.active) != len(s.rows) || len(s.classes) < len(s.rows) {
		t.Fatalf("%d of %d classes are active, %d were listed", len(s.active), len(s.rows), len(s.classes))
	}
	all := s.readings()
	s.rows[0].known = false
	s.classes = s.classes[:0]
	if err := l.read(s); err != nil {
		t.Fatal(err)
	}
	if len(s.active) != 1 || len(s.classes) != 0 || !maps.Equal(all, s.readings()) {
		t.Errorf("%d classes are active, %d were listed, and what was read differs: %v", len(s.active), len(s.classes), !maps.Equal(all, s.readings()))
	}
}

// BenchmarkReads puts reading some classes one by one beside reading all at once: where the
// first is quicker decides what link.go's single does.
func BenchmarkReads(b *testing.B) {
	for _, tenants := range []int{64, 1000, 5000} {
		l, _, _ := newSizedLoop(b, tenants)
		s := l.links[0]
		if err := l.read(s); err != nil {
			b.Fatal(err)
		}
		for _, part := range []int{4, 8, 16, 32} {
			b.Run(fmt.Sprintf("%d/one_in_%d", tenants, part), func(b *testing.B) {
				s.active = s.active[:0]
				for i := range len(s.rows) / part {
					s.active = append(s.active, i)
				}
				testutil.BesideCPU(b, "all", func() {
					if err := l.readEach(s); err != nil {
						b.Fatal(err)
					}
				}, func() {
					if err := l.readAll(s); err != nil {
						b.Fatal(err)
					}
				})
			})
		}
	}
}
