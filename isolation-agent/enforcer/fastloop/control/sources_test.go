package control

import (
	"math/rand/v2"
	"runtime"
	"testing"
	"time"
)

const roomForSources = 4096

// count takes in a reading of what came from each source since the last one.
func count(s *Sources, now time.Time, bytes map[Source]uint64) {
	s.Begin(now)
	for source, n := range bytes {
		s.Count(source, n)
	}
}

func TestSourcesOfAClassByWhatTheySend(t *testing.T) {
	s, now := NewSources(roomForSources), time.Now()
	source := func(n byte, class uint32) Source {
		return Source{Link: 7, Class: class, From: MAC{n}, Destination: Address{10, 0, 0, 1}}
	}
	count(s, now, map[Source]uint64{source(1, classB): 1e9}) // long ago
	if top, n := s.Top(7, classB); n != 0 {
		t.Errorf("counts from before are rates: %+v", top)
	}
	bytes := map[Source]uint64{source(1, classB): 0, source(2, classB): 800, source(3, classB): 150, source(4, classB): 50, source(5, classA): 5000}
	if s.Due(now.Add(sourceWindow / 2)) {
		t.Error("due too early")
	}
	now = now.Add(100 * time.Millisecond)
	count(s, now, bytes)
	top, n := s.Top(7, classB)
	if n != 3 || len(top) != 1 || top[0].Source != source(2, classB) || !near(top[0].Rate, 8000) || !near(top[0].Share, 0.8) {
		t.Errorf("top %+v of %d", top, n)
	}
	if top, _ := s.Top(8, classB); len(top) != 0 {
		t.Errorf("of another link: %+v", top)
	}
	for i := range byte(40) { // as many as get notices at once
		bytes[source(100+i, classA)] += 5000
	}
	count(s, now.Add(100*time.Millisecond), bytes)
	if top, n := s.Top(7, classA); len(top) != topSources || n != 41 {
		t.Errorf("%d of %d sources", len(top), n)
	}
}

func TestASourceThatIsCountedInPartsIsOne(t *testing.T) {
	s, now := NewSources(roomForSources), time.Now()
	count(s, now, nil)
	s.Begin(now.Add(100 * time.Millisecond))
	unknown := Source{Link: 7, Class: classB, Host: Address{10, 0, 0, 2}}
	for range 4096 { // destinations that nobody listed
		s.Count(unknown, 100)
	}
	s.Count(Source{Link: 7, Class: classB, From: MAC{1}}, 1000)
	top, n := s.Top(7, classB)
	if n != 2 || len(top) != 1 || top[0].Source != unknown || !near(top[0].Share, 4096./4106) || s.Len() != 2 {
		t.Errorf("top %+v of %d", top, n)
	}
}

// TestWhatIsSentMakesNothingGrow drives a million pairs of MAC address and destination
// through readings, and one in which all of them come at once.
func TestWhatIsSentMakesNothingGrow(t *testing.T) {
	const pairs = 1_000_000
	random := rand.New(rand.NewPCG(3, 4))
	s, now := NewSources(roomForSources), time.Now()
	heavy := Source{Link: 1, Class: classB, From: MAC{0xff}}
	reading := func(n int) {
		now = now.Add(sourceWindow)
		s.Begin(now)
		for i := range n {
			if i%16 == 0 {
				s.Count(heavy, 1500)
			}
			a, b := random.Uint64(), random.Uint32()
			s.Count(Source{
				Link: 1, Class: classB, From: MAC{byte(a), byte(a >> 8), byte(a >> 16), byte(a >> 24), byte(a >> 32), byte(a >> 40)},
				Destination: Address{byte(b), byte(b >> 8), byte(b >> 16), byte(b >> 24)},
			}, 60)
		}
	}
	check := func() {
		t.Helper()
		top, n := s.Top(1, classB)
		if s.Len() > roomForSources || n > roomForSources || len(top) > topSources || top[0].Source != heavy {
			t.Fatalf("%d sources are kept, %d of the class, %d get notices, the largest is %+v", s.Len(), n, len(top), top[0])
		}
	}
	count(s, now, nil)
	for range 3 { // its tables are as large as they get
		reading(roomForSources)
		check()
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range pairs / roomForSources {
		reading(roomForSources)
		check()
	}
	reading(pairs)
	check()
	runtime.ReadMemStats(&after)
	if allocated := after.TotalAlloc - before.TotalAlloc; allocated > 1<<20 {
		t.Errorf("%d bytes were allocated for %d pairs", allocated, 2*pairs)
	}
	if got := testing.AllocsPerRun(10, func() { reading(roomForSources); s.Top(1, classB) }); got > 0 {
		t.Errorf("%v allocations a reading", got)
	}
	now = now.Add(sourceWindow)
	s.Begin(now)
	if s.Len() != 0 {
		t.Errorf("%d are kept from one reading to the next", s.Len())
	}
}
