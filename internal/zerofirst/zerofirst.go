// Package zerofirst shows counters that have no series until they count something. Such a series
// begins with zeros, so that rate() and increase() do not lose its first increment.
package zerofirst

// Scrapes is how often a new series is shown as zero: two servers may scrape in turns.
const Scrapes = 2

// Counter is the state of one sparse counter. Its zero value has counted nothing yet.
type Counter struct {
	known bool
	zeros uint8 // how often zero has yet to be shown
}

// Known reports whether the counter has a series.
func (c *Counter) Known() bool { return c.known }

// Show returns what to export of a counter at a scrape, if anything. Of one that is seen for the
// first time, history says that it counted before anybody looked: it is shown as it is, for that
// is no growth.
func (c *Counter) Show(count uint64, history bool) (shown uint64, ok bool) {
	if !c.known {
		if count == 0 {
			return 0, false
		}
		c.known = true
		if !history {
			c.zeros = Scrapes
		}
	}
	if c.zeros > 0 {
		c.zeros--
		return 0, true
	}
	return count, true
}
