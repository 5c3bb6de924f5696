package fastloop

import (
	"time"

	"vigia/internal/bpf/vport"
)

// Timing of a limit at the sender.
const (
	// MaxLease bounds how long a notice holds without another.
	MaxLease = 10 * time.Second
	// DefaultLease is what receivers ask for.
	DefaultLease = 2 * time.Second
	// growInterval is both how long a limit stays after a notice and the time
	// between steps of its growth.
	growInterval = 100 * time.Millisecond
	// steady is how much longer an explicit rate stays: receivers repeat it sooner for
	// as long as it holds.
	steady = 500 * time.Millisecond
	// shapeAfter is when shaping takes over from policing.
	shapeAfter = 2 * time.Second
	// released is the share of the ceiling from which a limit is of no use.
	released    = 0.95
	maxSeverity = 16
)

// Key names a limit: a port of this node and where it sends to.
type Key struct {
	Port        string
	Destination vport.Destination // vport.Everything for the whole port
}

// Order is an authorised notice.
type Order struct {
	Key
	Advised  float64 // bytes per second; 0 = none, halve
	Measured float64 // what arrives at the receiver, bytes per second
	Floor    float64 // never below, bytes per second
	Ceiling  float64 // what the port may have without a limit, bytes per second
	Link     float64 // rate of the link, bytes per second
	Severity uint8
	Lease    time.Duration
}

// Held is a limit of the fast loop.
type Held struct {
	Key
	Rate, Floor, Ceiling float64 // bytes per second
	Since, Told          time.Time
	Lease                time.Duration // of the last notice
	Severity             uint8
	Clamped              bool // the last advice was below the floor
	grown                time.Time
	link                 float64
}

// Expired tells whether the lease of the last notice is over. The limit then still
// grows, step by step, until it is of no use.
func (h *Held) Expired(now time.Time) bool { return now.Sub(h.Told) > h.Lease }

// Shaped tells whether the limit has been in force for so long that it shall shape.
func (h *Held) Shaped(now time.Time) bool { return now.Sub(h.Since) >= shapeAfter }

// Sender keeps the limits that receivers asked for. It does no I/O.
type Sender struct {
	held map[Key]*Held
}

// NewSender returns a sender without limits.
func NewSender() *Sender { return &Sender{held: map[Key]*Held{}} }

// Hold takes an order in and returns the limit that now holds.
func (s *Sender) Hold(now time.Time, o Order) *Held {
	h := s.held[o.Key]
	if h == nil {
		h = &Held{Key: o.Key, Rate: o.Ceiling, Since: now}
		s.held[o.Key] = h
	}
	rate := o.Advised
	if rate == 0 { // from the measured rate, not the line's: fewer halvings
		rate = h.Rate / 2
		if o.Measured > 0 {
			rate = min(h.Rate, o.Measured) / 2
		}
	}
	h.Floor, h.Ceiling, h.link = o.Floor, o.Ceiling, o.Link
	h.Clamped = rate < o.Floor
	h.Rate = min(max(rate, o.Floor), o.Ceiling)
	h.Told, h.grown, h.Severity = now, now, min(max(o.Severity, 1), maxSeverity)
	h.Lease = min(o.Lease, MaxLease)
	if o.Advised > 0 {
		h.grown = now.Add(steady)
	}
	return h
}

// Grow lets go of limits step by step. It returns those that changed and those
// that are over, which it forgets.
func (s *Sender) Grow(now time.Time) (changed []*Held, over []Key) {
	for key, h := range s.held {
		grew := false
		for now.Sub(h.grown) >= growInterval {
			h.grown = h.grown.Add(growInterval)
			h.Rate += max(h.link/100, h.Rate/16) / float64(h.Severity)
			grew = true
			if now.Sub(h.grown) > MaxLease { // long asleep: no need to count every step
				h.Rate = h.Ceiling
				h.grown = now
			}
		}
		switch {
		case h.Rate >= released*h.Ceiling:
			delete(s.held, key)
			over = append(over, key)
		case grew:
			changed = append(changed, h)
		}
	}
	return changed, over
}

// Drop forgets a limit and tells whether there was one.
func (s *Sender) Drop(key Key) bool {
	_, ok := s.held[key]
	delete(s.held, key)
	return ok
}

// List returns the limits.
func (s *Sender) List() []Held {
	out := make([]Held, 0, len(s.held))
	for _, h := range s.held {
		out = append(out, *h)
	}
	return out
}
