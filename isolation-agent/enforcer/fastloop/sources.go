package fastloop

import (
	"cmp"
	"slices"
	"time"

	"vigia/internal/bpf/classify"
)

const (
	topSources = 16 // of a class that are told at once
	enough     = 0.8
	// sourceWindow is the time over which shares are taken.
	sourceWindow = 50 * time.Millisecond
	forgetSource = 30 * time.Second
)

// Share is one source of a class and what comes from it.
type Share struct {
	Source classify.Source
	Rate   float64 // bytes per second
	Share  float64 // of the class
}

type sourceCount struct {
	bytes uint64
	rate  float64
	seen  time.Time
}

// Sources turns the classifier's counters into rates. Every source of a class
// shares its queue, so that what it loses is in proportion to what it sends.
type Sources struct {
	counts map[classify.Source]*sourceCount
	last   time.Time
}

// NewSources returns sources without history.
func NewSources() *Sources { return &Sources{counts: map[classify.Source]*sourceCount{}} }

// Due tells whether counters should be read again.
func (s *Sources) Due(now time.Time) bool { return now.Sub(s.last) >= sourceWindow }

// Update takes in a reading of all counters.
func (s *Sources) Update(now time.Time, read func(func(classify.Source, classify.Arrival)) error) error {
	dt := now.Sub(s.last).Seconds()
	fresh := s.last.IsZero() || dt > 1 // older counts say nothing of now
	s.last = now
	err := read(func(source classify.Source, a classify.Arrival) {
		c := s.counts[source]
		if c == nil {
			c = &sourceCount{}
			s.counts[source] = c
			if !fresh {
				c.rate = float64(a.Bytes) / dt
			}
		} else if c.rate = 0; !fresh && a.Bytes >= c.bytes {
			c.rate = float64(a.Bytes-c.bytes) / dt
		}
		c.bytes, c.seen = a.Bytes, now
	})
	for source, c := range s.counts {
		if c.seen != now {
			c.rate = 0
			if now.Sub(c.seen) > forgetSource {
				delete(s.counts, source)
			}
		}
	}
	return err
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
