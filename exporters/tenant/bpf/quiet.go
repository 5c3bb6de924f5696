package bpf

import (
	"slices"
	"time"

	"vigia/internal/bpf/vport"
)

// quiet remembers ports that have sent nothing that signals are made of. Most ports
// of a node are quiet most of the time, and their windows need not be read.
type quiet struct {
	ports []silence // in the order of the last snapshot's places
}

type silence struct {
	incarnation vport.Incarnation
	known       bool
	udp, tcp    uint64 // packets from the tenant
	since       time.Time
	signals     vport.Signals // when they were last read
}

// follow takes up what there is now, before signals.
func (q *quiet) follow(places []vport.Place) {
	if slices.EqualFunc(places, q.ports, func(p vport.Place, s silence) bool { return p.Incarnation == s.incarnation }) {
		return
	}
	before := make(map[vport.Incarnation]silence, len(q.ports))
	for _, s := range q.ports {
		before[s.incarnation] = s
	}
	q.ports = q.ports[:0]
	for _, p := range places {
		s := before[p.Incarnation]
		s.incarnation = p.Incarnation
		q.ports = append(q.ports, s)
	}
}

// signals returns the signals of the port at a position. Once the counters have stood
// still for longer than signals look back, there is nothing in them but the floods of
// the past.
func (q *quiet) signals(position int, now time.Time, place vport.Place, c *vport.Counters, read func(vport.Place) (vport.Signals, error)) (vport.Signals, error) {
	_, udp := c.OfferedUDP()
	tcp := c.OfferedTCP()
	was := &q.ports[position]
	still := was.known && was.udp == udp && was.tcp == tcp
	if still && now.Sub(was.since) > vport.SignalWindow+vport.Window {
		return vport.Signals{FloodSinceNs: was.signals.FloodSinceNs, FloodLastNs: was.signals.FloodLastNs}, nil
	}
	s, err := read(place)
	if err != nil {
		return s, err
	}
	if !still {
		was.known, was.udp, was.tcp, was.since = true, udp, tcp, now
	}
	was.signals = s
	return s, nil
}
