package control

import (
	"math"
	"time"
)

const (
	// demandWindow is the time over which it is counted what limits are offered.
	demandWindow = 50 * time.Millisecond
	// demandKept is how long it is remembered: who takes a limit back and asks again does not
	// make the ports' shares unknown.
	demandKept = 10 * time.Second
	// idleShare is the part of a floor that is shared by all alike, so that a port that has
	// sent nothing may begin.
	idleShare = 1.0 / 64
)

// demand is what a limit is offered, as this node counts it.
type demand struct {
	bytes  uint64    // when it was last counted
	at     time.Time // and when that was
	rate   float64   // the larger of the last two: who comes in bursts wants its bursts
	latest float64
	known  bool
	most   float64 // of a new limit: what goes through the one that had its packets until now
}

// begin counts a new limit from now on. What it was offered before is remembered.
func (s *Sender) begin(now time.Time, key LimitKey) {
	d := s.demands[key]
	if d == nil {
		d = &demand{}
		s.demands[key] = d
	}
	d.bytes, d.at, d.most = 0, now, math.MaxFloat64
	whole := LimitKey{Port: key.Port, Destination: AllDestinations}
	if w := s.demands[whole]; len(s.holds[whole]) > 0 && w.known {
		d.most = w.rate
	}
}

// claims takes in what an asker says that a limit is offered: it counts until that is counted here,
// for all askers alike, since different shares would leave less of the floor than all of it.
func (d *demand) claims(h *hold) {
	claimed := h.Measured
	if claimed == 0 {
		claimed = h.asked
	}
	if !d.known {
		d.rate = max(d.rate, min(claimed, h.Link))
	}
}

// count takes in how many bytes a limit has been offered in all.
func (d *demand) count(now time.Time, bytes uint64, most float64) {
	dt := now.Sub(d.at).Seconds()
	if dt < demandWindow.Seconds()/2 { // too short to tell
		return
	}
	if bytes < d.bytes { // the limit is a new one
		d.bytes = 0
	}
	rate := min(float64(bytes-d.bytes)/dt, most)
	d.bytes, d.at, d.most = bytes, now, math.MaxFloat64
	d.rate, d.latest, d.known = max(rate, d.latest), rate, true
}

// Measure counts what the limits are offered, when it is time to: read returns the bytes so
// far. It returns the limits that this changed.
func (s *Sender) Measure(now time.Time, read func(LimitKey) (bytes uint64, ok bool)) []*Limit {
	if len(s.demands) == 0 || now.Sub(s.measuredAt) < demandWindow {
		return nil
	}
	s.measuredAt = now
	touched := map[Group]bool{}
	for key, list := range s.holds {
		if bytes, ok := read(key); ok {
			s.demands[key].count(now, bytes, list[0].Link)
		}
		for _, h := range list {
			touched[h.Group] = true
		}
	}
	for key, d := range s.demands {
		if len(s.holds[key]) == 0 && now.Sub(d.at) > demandKept {
			delete(s.demands, key)
		}
	}
	return s.settle(now, touched, nil)
}

// moves lets what went through a limit that is over count for that of the whole port, which has
// it from now on.
func (s *Sender) moves(key LimitKey) {
	whole := LimitKey{Port: key.Port, Destination: AllDestinations}
	if from, to := s.demands[key], s.demands[whole]; key != whole && to != nil && from.known {
		to.rate, to.latest = to.rate+min(from.rate, from.most), to.latest+min(from.latest, from.most)
	}
}

// parts divides what a notice says of several ports among them, by what they send.
func (s *Sender) parts(orders []Order) []float64 {
	out, sum := make([]float64, len(orders)), 0.0
	for i := range orders {
		if d := s.demands[orders[i].LimitKey]; d != nil && d.known {
			out[i] = d.rate
			sum += d.rate
		}
	}
	for i := range out {
		out[i] = part(out[i], sum, len(out))
	}
	return out
}

// part returns the share of one of n that sends so much of a sum.
func part(rate, sum float64, n int) float64 {
	if sum <= 0 || n == 1 {
		return 1 / float64(n)
	}
	return (1-idleShare)*rate/sum + idleShare/float64(n)
}

// share divides a group's floor by what its members want to send, and gives them what their
// asker lets them have beyond. All together have what was asked for, but never less than the floor.
func (s *Sender) share(members map[LimitKey]*hold) {
	var floor, asked, wanted float64
	for _, h := range members {
		d := s.demands[h.LimitKey]
		h.offered = min(d.rate, d.most)
		floor, asked, wanted = max(floor, h.Floor), asked+h.asked, wanted+h.offered
	}
	beyond := 0.0
	for _, h := range members {
		h.floor = floor * part(h.offered, wanted, len(members))
		h.clamped = h.asked < h.floor
		beyond += max(0, h.asked-h.floor)
	}
	for _, h := range members {
		h.rate = h.floor
		if asked > floor && beyond > 0 {
			h.rate += (asked - floor) * max(0, h.asked-h.floor) / beyond
		}
		h.rate = min(h.rate, h.Ceiling)
	}
}

// outgrown returns the members that their limits are of no use to: all together may have what
// the contract may at most, and each its share of it.
func outgrown(members map[LimitKey]*hold) (out []*hold) {
	var asked, ceiling, wanted float64
	for _, h := range members {
		asked, ceiling, wanted = asked+h.asked, max(ceiling, h.Ceiling), wanted+h.offered
	}
	if asked < released*ceiling {
		return nil
	}
	for _, h := range members {
		alike := 1 / float64(len(members))
		if h.asked >= released*h.Ceiling*max(alike, part(h.offered, wanted, len(members))) {
			out = append(out, h)
		}
	}
	return out
}
