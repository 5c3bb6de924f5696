package programs

import (
	"time"

	"vigia/internal/bpf/vport"
)

// quiet remembers ports that have sent nothing that signals are made of. Most ports
// of a node are quiet most of the time, and their windows need not be read.
type quiet map[vport.Life]silence

type silence struct {
	udp, tcp uint64 // packets from the tenant
	since    time.Time
	signals  vport.Signals // when they were last read
}

// signals returns a port's signals. Once the counters have stood still for longer
// than signals look back, there is nothing in them but the floods of the past.
func (q quiet) signals(now time.Time, place vport.Place, c *vport.Counters, read func(vport.Place) (vport.Signals, error)) (vport.Signals, error) {
	_, udp := c.OfferedUDP()
	tcp := c.OfferedTCP()
	was, known := q[place.Life]
	still := known && was.udp == udp && was.tcp == tcp
	if still && now.Sub(was.since) > vport.SignalWindow+vport.Window {
		return vport.Signals{FloodSinceNs: was.signals.FloodSinceNs, FloodLastNs: was.signals.FloodLastNs}, nil
	}
	s, err := read(place)
	if err != nil {
		return s, err
	}
	if !still {
		was = silence{udp: udp, tcp: tcp, since: now}
	}
	was.signals = s
	q[place.Life] = was
	return s, nil
}

func (q quiet) forget(places []vport.Place) {
	if len(q) <= len(places) {
		return
	}
	live := make(map[vport.Life]bool, len(places))
	for _, p := range places {
		live[p.Life] = true
	}
	for life := range q {
		if !live[life] {
			delete(q, life)
		}
	}
}
