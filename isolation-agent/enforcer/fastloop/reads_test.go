package fastloop

import (
	"fmt"
	"maps"
	"testing"

	"vigia/internal/bpf/classify"
	"vigia/internal/testutil"
	"vigia/isolation-agent/enforcer/fastloop/control"
	"vigia/isolation-agent/enforcer/scheduling"
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

// TestArrivalsFindTheirClassWhateverTheirOrder lists them as the kernel may: other links' among
// them, a class that nobody knows, and in another order once classes have come and gone.
func TestArrivalsFindTheirClassWhateverTheirOrder(t *testing.T) {
	s := &linkState{}
	s.setClasses(map[uint32]control.ClassConfig{scheduling.DefaultClass: {}, 11: {}, 12: {}, 13: {}})
	s.ifb = 7
	of := func(link int, class uint32, bytes uint64) classify.ClassArrival {
		return classify.ClassArrival{Class: classify.Class{Link: link, ID: class}, Arrival: classify.Arrival{Bytes: bytes}}
	}
	arrived := func() map[uint32]uint64 {
		out := map[uint32]uint64{}
		for i := range s.rows {
			out[s.rows[i].id] = s.rows[i].arrived
		}
		return out
	}
	for i, tc := range []struct {
		list []classify.ClassArrival
		want map[uint32]uint64
	}{
		{nil, map[uint32]uint64{scheduling.DefaultClass: 0, 11: 0, 12: 0, 13: 0}},
		{[]classify.ClassArrival{of(7, 11, 1), of(8, 12, 99), of(7, 12, 2)}, map[uint32]uint64{scheduling.DefaultClass: 0, 11: 1, 12: 2, 13: 0}},
		{[]classify.ClassArrival{of(7, 11, 3), of(8, 12, 99), of(7, 12, 4)}, map[uint32]uint64{scheduling.DefaultClass: 0, 11: 3, 12: 4, 13: 0}},
		{[]classify.ClassArrival{of(7, 12, 5), of(7, 77, 99), of(7, 0, 6), of(7, 13, 7), of(8, 11, 99), of(7, 11, 8)}, map[uint32]uint64{scheduling.DefaultClass: 6, 11: 8, 12: 5, 13: 7}},
		{[]classify.ClassArrival{of(7, 13, 9)}, map[uint32]uint64{scheduling.DefaultClass: 6, 11: 8, 12: 5, 13: 9}},
	} {
		if s.arrive(tc.list); !maps.Equal(arrived(), tc.want) {
			t.Errorf("list %d: %v, want %v", i, arrived(), tc.want)
		}
	}
	s.setClasses(map[uint32]control.ClassConfig{scheduling.DefaultClass: {}, 13: {}})
	s.ifb = 7
	s.arrive([]classify.ClassArrival{of(7, 11, 10), of(7, 13, 11)})
	if want := map[uint32]uint64{scheduling.DefaultClass: 0, 13: 11}; !maps.Equal(arrived(), want) {
		t.Errorf("with fewer classes: %v, want %v", arrived(), want)
	}
}
