package control

import "time"

// Timing of a limit at the sender.
const (
	// forgetAfter is when a limit is over, however little it has grown, because nobody
	// looked at it meanwhile.
	forgetAfter = 10 * time.Second
	// growInterval is both how long a limit stays after a notice and the time
	// between steps of its growth.
	growInterval = 100 * time.Millisecond
	// steady is how much longer an explicit rate stays: receivers repeat it sooner for
	// as long as it holds.
	steady = 500 * time.Millisecond
	// released is the share of the ceiling from which a limit is of no use.
	released    = 0.95
	maxSeverity = 16
)

// LimitKey names a limit: a port of this node and where it sends to.
type LimitKey struct {
	Port        string
	Destination Address // AllDestinations for the whole port
}

// Order is an authorised notice of a receiver.
type Order struct {
	LimitKey
	Advised  float64 // 0 = none, halve
	Measured float64 // what arrives at the receiver
	Floor    float64 // never below
	Ceiling  float64 // what the port may have without a limit
	Link     float64 // rate of the link
	Severity uint8
}

// Limit is what a port may send to a destination because a receiver asked for it.
type Limit struct {
	LimitKey
	Rate, Floor, Ceiling float64
	Since                time.Time
	Severity             uint8
	Clamped              bool      // the last advice was below the floor
	grownAt              time.Time // or when it may begin to grow
	link                 float64
}

// AtFloor reports whether the limit is as low as it may be.
func (l *Limit) AtFloor() bool { return l.Rate <= l.Floor*1.01 }

// Sender keeps the limits that receivers asked for.
type Sender struct {
	limits map[LimitKey]*Limit
}

// NewSender returns a sender without limits.
func NewSender() *Sender { return &Sender{limits: map[LimitKey]*Limit{}} }

// Len returns how many limits there are.
func (s *Sender) Len() int { return len(s.limits) }

// Obey takes an order in and returns the limit that is now in force. It stays the
// sender's, and is valid until the next call.
func (s *Sender) Obey(now time.Time, o Order) *Limit {
	l := s.limits[o.LimitKey]
	if l == nil {
		l = &Limit{LimitKey: o.LimitKey, Rate: o.Ceiling, Since: now}
		s.limits[o.LimitKey] = l
	}
	rate := o.Advised
	if rate == 0 { // from the measured rate, not the line's: fewer halvings
		rate = l.Rate / 2
		if o.Measured > 0 {
			rate = min(l.Rate, o.Measured) / 2
		}
	}
	l.Floor, l.Ceiling, l.link = o.Floor, o.Ceiling, o.Link
	l.Clamped = rate < o.Floor
	l.Rate = min(max(rate, o.Floor), o.Ceiling)
	l.grownAt, l.Severity = now, min(max(o.Severity, 1), maxSeverity)
	if o.Advised > 0 {
		l.grownAt = now.Add(steady)
	}
	return l
}

// Grow lets limits grow, step by step, since no receiver asks for less. It returns
// those that changed and those that are over, which it forgets.
func (s *Sender) Grow(now time.Time) (changed []*Limit, over []LimitKey) {
	for key, l := range s.limits {
		grew := false
		for now.Sub(l.grownAt) >= growInterval {
			l.grownAt = l.grownAt.Add(growInterval)
			l.Rate += max(l.link/100, l.Rate/16) / float64(l.Severity)
			grew = true
			if now.Sub(l.grownAt) > forgetAfter { // long asleep: no need to count every step
				l.Rate = l.Ceiling
				l.grownAt = now
			}
		}
		switch {
		case l.Rate >= released*l.Ceiling:
			delete(s.limits, key)
			over = append(over, key)
		case grew:
			changed = append(changed, l)
		}
	}
	return changed, over
}

// End forgets a limit and reports whether there was one.
func (s *Sender) End(key LimitKey) bool {
	_, there := s.limits[key]
	delete(s.limits, key)
	return there
}

// List returns the limits, in no order.
func (s *Sender) List() []Limit {
	out := make([]Limit, 0, len(s.limits))
	for _, l := range s.limits {
		out = append(out, *l)
	}
	return out
}
