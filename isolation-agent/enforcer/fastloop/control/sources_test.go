package control

import (
	"testing"
	"time"
)

// count takes in a reading of all counters.
func count(s *Sources, now time.Time, bytes map[Source]uint64) {
	s.Begin(now)
	for source, n := range bytes {
		s.Count(source, n)
	}
	s.End()
}

func TestSourcesOfAClassByWhatTheySend(t *testing.T) {
	s, now := NewSources(), time.Now()
	source := func(n byte, class uint32) Source {
		return Source{Link: 7, Class: class, From: MAC{n}, Destination: Address{10, 0, 0, 1}}
	}
	bytes := map[Source]uint64{}
	bytes[source(1, classB)] = 1e9 // long ago
	count(s, now, bytes)
	if top, n := s.Top(7, classB); n != 0 {
		t.Errorf("counts from before are rates: %+v", top)
	}
	bytes[source(2, classB)] += 800
	bytes[source(3, classB)] += 150
	bytes[source(4, classB)] += 50
	bytes[source(5, classA)] += 5000
	if s.Due(now.Add(sourceWindow / 2)) {
		t.Error("due too early")
	}
	now = now.Add(100 * time.Millisecond)
	count(s, now, bytes)
	top, n := s.Top(7, classB)
	if n != 3 || len(top) != 1 || top[0].Source != source(2, classB) || !near(top[0].Rate, 8000) || !near(top[0].Share, 0.8) {
		t.Errorf("top %+v of %d", top, n)
	}
	if top, _ := s.Top(8, classB); top != nil {
		t.Errorf("of another link: %+v", top)
	}
	for i := range byte(40) { // as many as get notices at once
		bytes[source(100+i, classA)] += 5000
	}
	count(s, now.Add(100*time.Millisecond), bytes)
	if top, n := s.Top(7, classA); len(top) != topSources || n != 40 {
		t.Errorf("%d of %d sources", len(top), n)
	}
}
