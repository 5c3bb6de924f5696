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
	// A limit is written again when its rate falls, or rises, by that share of it.
	movedDown = 0.01
	movedUp   = 0.002
)

// LimitKey names a limit: a port of this node and where it sends to.
type LimitKey struct {
	Port        string
	Destination Address // AllDestinations for the whole port
}

// Group is what shares one floor: all that the ports of a contract send to one asking node.
type Group struct {
	Contract string
	Asker    string
}

// Order is an authorised notice of a receiver, for one port.
type Order struct {
	LimitKey
	Group
	Advised  float64 // of all ports that one notice is about, together; 0 = none, halve
	Measured float64 // what arrives at the receiver, likewise
	Floor    float64 // of the group, which together never has less
	Ceiling  float64 // what the port may have without a limit
	Link     float64 // rate of the link
	Severity uint8
}

// Limit is what a port may send to a destination because a receiver asked for it. Where
// several did, it is the lowest of what they ask for.
type Limit struct {
	LimitKey
	Rate, Ceiling float64
	Floor         float64 // its share of the group's
	Since         time.Time
	Severity      uint8
	Clamped       bool // the last advice was below the floor
}

// AtFloor reports whether the limit is as low as it may be.
func (l *Limit) AtFloor() bool { return l.Rate <= l.Floor*1.01 }

// hold is an order in force.
type hold struct {
	Order
	asked   float64 // what the asker lets it have, and what it has grown to since
	rate    float64 // of it what the group leaves
	floor   float64 // its share of the group's
	offered float64 // what it wants to send, for its share
	clamped bool
	grownAt time.Time // or when it may begin to grow
}

// Sender keeps the limits that receivers asked for.
type Sender struct {
	groups     map[Group]map[LimitKey]*hold
	holds      map[LimitKey][]*hold // the same by limit
	limits     map[LimitKey]*Limit
	demands    map[LimitKey]*demand
	measuredAt time.Time
}

// NewSender returns a sender without limits.
func NewSender() *Sender {
	return &Sender{groups: map[Group]map[LimitKey]*hold{}, holds: map[LimitKey][]*hold{}, limits: map[LimitKey]*Limit{}, demands: map[LimitKey]*demand{}}
}

// Len returns how many limits there are.
func (s *Sender) Len() int { return len(s.limits) }

// Get returns a limit; nil if there is none.
func (s *Sender) Get(key LimitKey) *Limit { return s.limits[key] }

// Obey takes in the orders of one notice, for different ports. It returns the limits that are
// now in force for them, in their order, and then those of others that changed, since they share
// a floor. They stay the sender's, and are valid until the next call.
func (s *Sender) Obey(now time.Time, orders ...Order) []*Limit {
	parts := s.parts(orders)
	touched, ordered := map[Group]bool{}, make(map[LimitKey]bool, len(orders))
	for i := range orders {
		s.take(now, &orders[i], parts[i])
		s.held(orders[i].LimitKey, touched)
		ordered[orders[i].LimitKey] = true
	}
	changed := s.settle(now, touched, ordered)
	out := make([]*Limit, 0, len(changed))
	for i := range orders {
		out = append(out, s.limits[orders[i].LimitKey])
	}
	for _, l := range changed {
		if !ordered[l.LimitKey] {
			out = append(out, l)
		}
	}
	return out
}

// take puts an order into force; part is its part of what its notice says.
func (s *Sender) take(now time.Time, o *Order, part float64) {
	h := s.groups[o.Group][o.LimitKey]
	if h == nil {
		h = &hold{rate: o.Ceiling}
		if s.groups[o.Group] == nil {
			s.groups[o.Group] = map[LimitKey]*hold{}
		}
		if len(s.holds[o.LimitKey]) == 0 { // it is counted from now on
			s.begin(now, o.LimitKey)
		}
		s.groups[o.Group][o.LimitKey] = h
		s.holds[o.LimitKey] = append(s.holds[o.LimitKey], h)
	}
	h.Order = *o
	h.Advised, h.Measured = o.Advised*part, o.Measured*part
	h.asked, h.grownAt = min(h.Advised, 2*o.Ceiling), now.Add(steady)
	if o.Advised == 0 { // from the measured rate, not the line's: fewer halvings
		h.asked, h.grownAt = h.rate/2, now
		if o.Measured > 0 {
			h.asked = min(h.rate, h.Measured) / 2
		}
	}
	h.Severity = min(max(o.Severity, 1), maxSeverity)
	s.demands[o.LimitKey].claims(h)
}

// settle shares the floors of groups, and returns the limits that this changed, and those that
// must be written anew.
func (s *Sender) settle(now time.Time, groups map[Group]bool, anew map[LimitKey]bool) (changed []*Limit) {
	for g := range groups { // all of them, before any limit is the lowest of several
		s.share(s.groups[g])
	}
	seen := map[LimitKey]bool{}
	for g := range groups {
		for key := range s.groups[g] {
			if seen[key] {
				continue
			}
			seen[key] = true
			if l, differs := s.lowest(now, key, anew[key]); differs {
				changed = append(changed, l)
			}
		}
	}
	return changed
}

// lowest brings a limit to the lowest of what is held of it, if that differs by enough or is
// wanted anew.
func (s *Sender) lowest(now time.Time, key LimitKey, anew bool) (l *Limit, differs bool) {
	low := s.holds[key][0]
	for _, h := range s.holds[key] {
		if h.rate < low.rate {
			low = h
		}
	}
	l = s.limits[key]
	if l == nil {
		l = &Limit{LimitKey: key, Since: now}
		s.limits[key] = l
	}
	l.Floor, l.Ceiling, l.Severity, l.Clamped = low.floor, low.Ceiling, low.Severity, low.clamped
	if differs = anew || low.rate < l.Rate*(1-movedDown) || low.rate > l.Rate*(1+movedUp); differs {
		l.Rate = low.rate
	}
	return l, differs
}

// Grow lets limits grow, step by step, since no receiver asks for less. It returns
// those that changed and those that are over, which it forgets.
func (s *Sender) Grow(now time.Time) (changed []*Limit, over []LimitKey) {
	if len(s.groups) == 0 {
		return nil, nil
	}
	touched, anew := map[Group]bool{}, map[LimitKey]bool{}
	for g, members := range s.groups {
		for key, h := range members {
			if h.grow(now, len(members)) {
				touched[g], anew[key] = true, true
			}
		}
	}
	for g := range touched {
		s.share(s.groups[g])
	}
	for g, members := range s.groups {
		for _, h := range outgrown(members) {
			s.drop(h)
			touched[g] = true
			if s.held(h.LimitKey, touched) == 0 {
				over = append(over, h.LimitKey)
			}
		}
	}
	return s.settle(now, touched, anew), over
}

// grow grows what the asker lets it have, and reports whether it did. Ports of a group grow
// together as fast as one.
func (h *hold) grow(now time.Time, members int) (grew bool) {
	rate := h.rate
	for now.Sub(h.grownAt) >= growInterval {
		h.grownAt = h.grownAt.Add(growInterval)
		rate += max(h.Link/100/float64(members), rate/16) / float64(h.Severity)
		grew = true
		if now.Sub(h.grownAt) > forgetAfter { // long asleep: no need to count every step
			rate = 2 * h.Ceiling
			h.grownAt = now
		}
	}
	if grew {
		h.asked = rate
	}
	return grew
}

// Release takes back what one asker ordered of a limit. It returns those that changed, and
// reports whether the limit is over.
func (s *Sender) Release(now time.Time, group Group, key LimitKey) (changed []*Limit, over bool) {
	h := s.groups[group][key]
	if h == nil {
		return nil, false
	}
	s.drop(h)
	touched := map[Group]bool{group: true}
	left := s.held(key, touched)
	return s.settle(now, touched, nil), left == 0
}

// Replaced returns the limits to single destinations whose place an order takes because it is for the whole port, and their
// asker does not repeat them: what goes to one of them would have that limit alone, which so grows.
func (s *Sender) Replaced(now time.Time, o *Order) (keys []LimitKey) {
	if o.Destination != AllDestinations {
		return nil
	}
	for key, h := range s.groups[o.Group] {
		if key.Port == o.Port && key.Destination != AllDestinations && !now.Before(h.grownAt) {
			keys = append(keys, key)
		}
	}
	return keys
}

// held enters the groups that hold a limit, and returns how many there are.
func (s *Sender) held(key LimitKey, groups map[Group]bool) int {
	for _, h := range s.holds[key] {
		groups[h.Group] = true
	}
	return len(s.holds[key])
}

// End forgets a limit, whoever asked for it, and reports whether there was one.
func (s *Sender) End(key LimitKey) bool {
	_, there := s.limits[key]
	for len(s.holds[key]) > 0 {
		s.drop(s.holds[key][0])
	}
	return there
}

// drop forgets an order, and the limit with the last one of it.
func (s *Sender) drop(h *hold) {
	members := s.groups[h.Group]
	if delete(members, h.LimitKey); len(members) == 0 {
		delete(s.groups, h.Group)
	}
	left := s.holds[h.LimitKey]
	for i := range left {
		if left[i] == h {
			left = append(left[:i], left[i+1:]...)
			break
		}
	}
	s.holds[h.LimitKey] = left
	if len(left) == 0 {
		s.moves(h.LimitKey)
		delete(s.holds, h.LimitKey)
		delete(s.limits, h.LimitKey)
	}
}

// List returns the limits, in no order.
func (s *Sender) List() []Limit {
	out := make([]Limit, 0, len(s.limits))
	for _, l := range s.limits {
		out = append(out, *l)
	}
	return out
}
