package control

import (
	"cmp"
	"slices"
	"time"
)

const (
	topSources = 16 // of a class that get notices at once
	enough     = 0.8
	// sourceWindow is the time over which shares are taken.
	sourceWindow = 50 * time.Millisecond
)

// Source is who sends into a class, as far as it can be told: what a sender may have made
// up, and what nobody has listed, is left zero, so that it cannot become many sources.
type Source struct {
	Link        int
	Class       uint32
	Host        Address // outer source address; zero outside a tunnel
	Destination Address // inner destination address; zero for any
	From        MAC     // inner; zero for any
}

// Share is one source of a class and what comes from it.
type Share struct {
	Source Source
	Rate   float64
	Share  float64 // of the class
}

// classKey names a class behind a link.
type classKey struct {
	link  int
	class uint32
}

type sourceCount struct {
	source Source
	bytes  uint64
	next   int // of the same class in Sources.counts; -1 = none
}

// Sources turns what came from each source into rates. Every source of a class shares its
// queue, so that what it loses is in proportion to what it sends.
//
// A reading is Begin, Count for each source with what came since the last reading, End.
// Nothing is kept from one reading to the next, and one has room for so many sources: what
// is sent makes nothing grow.
type Sources struct {
	most    int
	counts  []sourceCount // never more than most
	at      map[Source]int
	first   map[classKey]int // in counts
	last    time.Time
	dt      float64 // seconds between the last two readings
	fresh   bool    // what came since the reading before says nothing of now
	scratch []Share
}

// NewSources returns sources of which nothing has been read, with room for so many.
func NewSources(most int) *Sources {
	return &Sources{
		most: most, counts: make([]sourceCount, 0, most), at: make(map[Source]int, most), first: map[classKey]int{}, scratch: make([]Share, 0, most),
	}
}

// Len returns how many sources the last reading had.
func (s *Sources) Len() int { return len(s.counts) }

// Due reports whether counters should be read again.
func (s *Sources) Due(now time.Time) bool { return now.Sub(s.last) >= sourceWindow }

// Begin starts a reading.
func (s *Sources) Begin(now time.Time) {
	s.dt = now.Sub(s.last).Seconds()
	s.fresh = s.last.IsZero() || s.dt > 1
	s.last = now
	s.counts = s.counts[:0]
	clear(s.at)
	clear(s.first)
}

// Count takes in how many bytes came from a source since the last reading; of one that is
// counted more than once, the sum. A source for which there is no room is left out.
func (s *Sources) Count(source Source, bytes uint64) {
	if s.fresh {
		return
	}
	if i, known := s.at[source]; known {
		s.counts[i].bytes += bytes
		return
	}
	if len(s.counts) == s.most {
		return
	}
	key, i := classKey{source.Link, source.Class}, len(s.counts)
	next, known := s.first[key]
	if !known {
		next = -1
	}
	s.counts = append(s.counts, sourceCount{source, bytes, next})
	s.at[source], s.first[key] = i, i
}

// Top returns the largest sources of a class that together make at least 80% of it, the
// largest first, and how many sources the class has. They are valid until the next call.
func (s *Sources) Top(link int, class uint32) ([]Share, int) {
	all, sum := s.scratch[:0], 0.0
	i, known := s.first[classKey{link, class}]
	for known && i >= 0 {
		c := &s.counts[i]
		if c.bytes > 0 {
			rate := float64(c.bytes) / s.dt
			all = append(all, Share{Source: c.source, Rate: rate})
			sum += rate
		}
		i = c.next
	}
	slices.SortFunc(all, func(a, b Share) int { return cmp.Compare(b.Rate, a.Rate) })
	var covered float64
	for i := range all {
		all[i].Share = all[i].Rate / sum
		covered += all[i].Share
		if i+1 == topSources || covered >= enough {
			return all[:i+1], len(all)
		}
	}
	return all, len(all)
}
