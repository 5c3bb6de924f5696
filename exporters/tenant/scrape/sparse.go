package scrape

import (
	"time"

	"vigia/exporters/tenant/source"
	"vigia/internal/ports"
	"vigia/internal/zerofirst"
)

// zeroFirst decides how sparse counters appear. A drop reason has no series
// until it has occurred at its port.
type zeroFirst struct {
	watched map[string]bool // ports that were there at the scrape before; of the view, as the next
	present map[string]bool // and those that are now
	shown   map[source.DropKey]*zerofirst.Counter
	marked  map[string]bool // ports that have a series in shown
	list    []ports.Port    // as of the last time
	same    bool            // all ports are those of the last time
}

func newZeroFirst() *zeroFirst {
	return &zeroFirst{shown: make(map[source.DropKey]*zerofirst.Counter), marked: make(map[string]bool)}
}

func (z *zeroFirst) begin(v *source.View) {
	z.same = len(v.Gone) == 0 && len(z.present) == len(v.Ports) && source.SameList(z.list, v.Ports)
	z.list = v.Ports
	z.watched, z.present = z.present, v.IDs()
}

// show returns what to export, if anything. What a port had counted before it
// was watched is shown as it is: after a restart it is history, not growth.
func (z *zeroFirst) show(key source.DropKey, count uint64) (float64, bool) {
	c := z.shown[key]
	if c == nil {
		if count == 0 {
			return 0, false
		}
		c = new(zerofirst.Counter)
		z.shown[key], z.marked[key.Port] = c, true
	}
	shown, ok := c.Show(count, !z.watched[key.Port])
	return float64(shown), ok
}

// end forgets the series of ports that are gone. A series that is missing while
// its source fails is kept in mind.
func (z *zeroFirst) end() {
	if z.same {
		return
	}
	for key := range z.shown {
		if !z.present[key.Port] {
			delete(z.shown, key)
			delete(z.marked, key.Port)
		}
	}
}

// goneList remembers ports for a while after they are gone.
type goneList struct {
	ttl   time.Duration
	last  []ports.Port          // that there were, all of them
	ports map[string]ports.Port // that were there at the scrape before
	since map[string]time.Time  // of those that are gone
}

func newGoneList(ttl time.Duration) *goneList {
	return &goneList{ttl: ttl, ports: make(map[string]ports.Port), since: make(map[string]time.Time)}
}

// update takes the ports that exist and returns those that are gone, but not
// for longer than the TTL. A port whose tenant changed is a port still.
func (g *goneList) update(list []ports.Port, now time.Time) []ports.Port {
	if source.SameList(list, g.last) && len(g.since) == 0 {
		return nil
	}
	g.last = list
	here := make(map[string]bool, len(list))
	for i := range list {
		id := list[i].ID
		here[id] = true
		g.ports[id] = list[i]
		delete(g.since, id)
	}
	var gone []ports.Port
	for id, p := range g.ports {
		if here[id] {
			continue
		}
		since, known := g.since[id]
		if !known {
			since = now
			g.since[id] = now
		}
		if now.Sub(since) >= g.ttl {
			delete(g.ports, id)
			delete(g.since, id)
			continue
		}
		gone = append(gone, p)
	}
	return gone
}
