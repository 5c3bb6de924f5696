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
	forgetSource = 30 * time.Second
)

// Source is who sends into a class, as the receiver sees it.
type Source struct {
	Link        int
	Class       uint32
	Host        Address // outer source address; zero outside a tunnel
	Destination Address // inner destination address; zero if no IP
	From, To    MAC     // inner
}

// Share is one source of a class and what comes from it.
type Share struct {
	Source Source
	Rate   float64
	Share  float64 // of the class
}

type sourceCount struct {
	bytes uint64
	rate  float64
	seen  time.Time
}

// Sources turns counters of what came from each source into rates. Every source of a
// class shares its queue, so that what it loses is in proportion to what it sends.
//
// A reading of all counters is Begin, Count for each source, End.
type Sources struct {
	counts map[Source]*sourceCount
	last   time.Time
	dt     float64 // seconds between the last two readings
	fresh  bool    // older counts say nothing of now
}

// NewSources returns sources without history.
func NewSources() *Sources { return &Sources{counts: map[Source]*sourceCount{}} }

// Due reports whether counters should be read again.
func (s *Sources) Due(now time.Time) bool { return now.Sub(s.last) >= sourceWindow }

// Begin starts a reading.
func (s *Sources) Begin(now time.Time) {
	s.dt = now.Sub(s.last).Seconds()
	s.fresh = s.last.IsZero() || s.dt > 1
	s.last = now
}

// Count takes in how many bytes came from a source so far.
func (s *Sources) Count(source Source, bytes uint64) {
	c := s.counts[source]
	if c == nil {
		c = &sourceCount{}
		s.counts[source] = c
		if !s.fresh {
			c.rate = float64(bytes) / s.dt
		}
	} else if c.rate = 0; !s.fresh && bytes >= c.bytes {
		c.rate = float64(bytes-c.bytes) / s.dt
	}
	c.bytes, c.seen = bytes, s.last
}

// End finishes a reading: what was not counted sends nothing.
func (s *Sources) End() {
	for source, c := range s.counts {
		if c.seen != s.last {
			c.rate = 0
			if s.last.Sub(c.seen) > forgetSource {
				delete(s.counts, source)
			}
		}
	}
}

// Top returns the largest sources of a class that together make at least 80% of
// it, the largest first, and how many sources the class has.
func (s *Sources) Top(link int, class uint32) ([]Share, int) {
	var all []Share
	var sum float64
	for source, c := range s.counts {
		if source.Link == link && source.Class == class && c.rate > 0 {
			all = append(all, Share{Source: source, Rate: c.rate})
			sum += c.rate
		}
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
