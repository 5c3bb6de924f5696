package mesh_test

import (
	"math/rand/v2"
	"slices"
	"time"

	"vigia/probes/mesh"
)

// What happens when, in virtual time. A run is as long as two faults in a row may take.
const (
	second   = int64(time.Second)
	duration = 40 * second
	// Faults begin between firstFault and lastFault, and last to the end.
	firstFault = 8 * second
	lastFault  = 20 * second
	deadline   = second
	interval   = second
	// objective is what a round trip may take; latency what it does.
	objective = 10 * int64(time.Millisecond)
	latency   = 300 * int64(time.Microsecond)
)

// kind is a kind of fault.
type kind uint8

// Those up to zoneUplink must be named. The others must not be, but for what they really
// make unreachable.
const (
	deadNode     kind = iota // the host
	deadLink                 // its way to the others alone: it runs, and may be heard of
	deadProcess              // vigia-probe alone
	deadRack                 // all nodes of a rack at once
	rackUplink               // all is well inside a rack
	zoneUplink               // likewise
	lossyNode                // loses 5 to 30 % of all its packets
	lossyUplink              // of a rack, 2 to 10 %
	oneWay                   // packets of one node to another are lost
	flappingNode             // up and down every few seconds
	flappingPair             // the way between two nodes, likewise
	slowNode                 // stopped for 0.5 to 5 s again and again
	starvedNode              // its probes are lost one in three, its answers not
	delayedNode              // 20 ms to 1.5 s are added to its packets
	numKinds
)

// String returns the kind as the report names it.
func (k kind) String() string {
	return [numKinds]string{
		"dead node", "dead link of a node", "dead vigia-probe", "dead rack", "dead uplink of a rack", "dead uplink of a zone", "node that loses 5 to 30 %",
		"uplink that loses 2 to 10 %", "one direction of a pair cut", "flapping node", "flapping pair", "node that stops for 0.5 to 5 s",
		"prober that loses 1 in 3", "node with 20 ms to 1.5 s more delay",
	}[k]
}

// mustBeNamed reports whether faults of the kind are to be named.
func (k kind) mustBeNamed() bool { return k <= zoneUplink }

// fault is one fault of a run.
type fault struct {
	kind        kind
	node, other int32 // or the rack or zone
	from        int64
	loss        float64
	delay       int64
	windows     []span // when it is in force, where that is not from from on
}

type span struct{ from, to int64 }

// active reports whether the fault is in force.
func (f *fault) active(at int64) bool {
	if at < f.from {
		return false
	}
	if f.windows == nil {
		return true
	}
	return f.window(at) != nil
}

// window returns the one that is in force.
func (f *fault) window(at int64) *span {
	i, _ := slices.BinarySearchFunc(f.windows, at, func(s span, at int64) int {
		if s.to <= at {
			return -1
		}
		return 1
	})
	if i < len(f.windows) && f.windows[i].from <= at {
		return &f.windows[i]
	}
	return nil
}

// windows returns times in force of shortest to longest, with as much between them.
func windows(random *rand.Rand, from, shortest, longest int64) (out []span) {
	for at := from; at < duration; {
		s := span{at, at + shortest + random.Int64N(longest-shortest)}
		out = append(out, s)
		at = s.to + shortest + random.Int64N(longest-shortest)
	}
	return out
}

// plan draws the faults of a run: up to three that must be named, each in a rack of its own and
// in fewer than half of the racks, since the others must have a majority; and up to four that must not, anywhere.
func (r *run) plan() {
	w, random := r.network, r.random
	start := func() int64 { return firstFault + random.Int64N(lastFault-firstFault) }
	if w.zones > 2 && random.IntN(40) == 0 {
		r.faults = append(r.faults, fault{kind: zoneUplink, node: random.Int32N(int32(w.zones)), from: start()})
	} else {
		racks := random.Perm(len(w.racks))[:random.IntN(1+min(3, (len(w.racks)-1)/2))]
		for _, rack := range racks {
			nodes := w.racks[rack]
			switch k := kind(random.IntN(int(zoneUplink))); k {
			case deadRack, rackUplink:
				r.faults = append(r.faults, fault{kind: k, node: int32(rack), from: start()})
			default:
				from := start()
				for _, i := range random.Perm(len(nodes))[:1+random.IntN(3)] {
					r.faults = append(r.faults, fault{kind: k, node: nodes[i], from: from})
				}
			}
		}
	}
	for range random.IntN(5) {
		r.noise(lossyNode+kind(random.IntN(int(numKinds-lossyNode))), start())
	}
}

// noise adds faults of a kind that is not to be named.
func (r *run) noise(k kind, from int64) {
	w, random := r.network, r.random
	one := func() int32 { return random.Int32N(int32(len(w.nodes))) }
	f := fault{kind: k, node: one(), from: from}
	count := 1
	switch k {
	case lossyNode:
		f.loss = 0.05 + 0.25*random.Float64()
	case lossyUplink:
		f.node, f.loss = random.Int32N(int32(len(w.racks))), 0.02+0.08*random.Float64()
	case oneWay, flappingPair:
		count = 1 + random.IntN(5)
	case slowNode, starvedNode:
		count = 1 + random.IntN(max(1, len(w.nodes)/50))
		f.loss = 1.0 / 3
	case delayedNode:
		f.delay = 20*int64(time.Millisecond) + random.Int64N(1480*int64(time.Millisecond))
	}
	for range count {
		pair := random.Int32N(int32(len(w.peer)))
		switch k {
		case oneWay, flappingPair:
			f.node, f.other = w.prober[pair], w.peer[pair]
		case slowNode, starvedNode:
			f.node = one()
		}
		f.windows = nil
		switch k {
		case flappingNode, flappingPair:
			f.windows = windows(random, from, second/2, 6*second)
		case slowNode:
			f.windows = windows(random, from, second/2, 5*second)
		}
		r.faults = append(r.faults, f)
	}
}

// touches calls f with every pair that a fault may concern.
func (w *network) touches(f *fault, touch func(pair int32)) {
	switch f.kind {
	case deadRack, rackUplink, lossyUplink:
		for _, n := range w.racks[f.node] {
			w.of(n, touch)
		}
	case zoneUplink:
		for n := range w.nodes {
			if w.zoneOf[n] == f.node {
				w.of(int32(n), touch)
			}
		}
	case oneWay, flappingPair:
		w.of(f.node, func(p int32) {
			if w.prober[p] == f.other || w.peer[p] == f.other {
				touch(p)
			}
		})
	default:
		w.of(f.node, touch)
	}
}

// trip says what a fault does to a probe of a pair that is sent at a time: whether it is lost
// for sure, with what probability else, and how much later the answer is.
func (w *network) trip(f *fault, pair int32, at int64) (lost bool, probability float64, delay int64) {
	if !f.active(at) {
		return false, 0, 0
	}
	a, b := w.prober[pair], w.peer[pair]
	end := a == f.node || b == f.node
	switch f.kind {
	case deadNode, deadLink, deadProcess, flappingNode, slowNode:
		return end, 0, 0
	case deadRack:
		return w.rackOf[a] == f.node || w.rackOf[b] == f.node, 0, 0
	case rackUplink:
		return (w.rackOf[a] == f.node) != (w.rackOf[b] == f.node), 0, 0
	case zoneUplink:
		return (w.zoneOf[a] == f.node) != (w.zoneOf[b] == f.node), 0, 0
	case oneWay, flappingPair:
		return end && (a == f.other || b == f.other), 0, 0 // a round trip takes both directions
	case lossyNode:
		if end {
			return false, f.loss, 0
		}
	case lossyUplink:
		if (w.rackOf[a] == f.node) != (w.rackOf[b] == f.node) {
			return false, f.loss, 0
		}
	case starvedNode:
		if a == f.node {
			return false, f.loss, 0
		}
	case delayedNode:
		if end {
			return false, 0, f.delay
		}
	}
	return false, 0, 0
}

// silences reports whether nothing is heard of a node at a time; inBand, whether scrapes take
// the ways that are measured.
func (w *network) silences(f *fault, node int32, at int64, inBand bool) bool {
	if !f.active(at) {
		return false
	}
	switch f.kind {
	case deadNode, deadProcess, slowNode:
		return f.node == node
	case deadRack:
		return f.node == w.rackOf[node]
	case deadLink, flappingNode:
		return inBand && f.node == node
	case rackUplink:
		return inBand && f.node == w.rackOf[node]
	case zoneUplink:
		return inBand && f.node == w.zoneOf[node]
	}
	return false
}

// wanted returns what is to be said of a fault.
func (w *network) wanted(f *fault, inBand bool) mesh.Accused {
	switch f.kind {
	case deadRack:
		return mesh.Accused{Scope: mesh.ScopeRack, Name: w.nodes[w.racks[f.node][0]].Rack}
	case rackUplink:
		return mesh.Accused{Scope: mesh.ScopeRack, Name: w.nodes[w.racks[f.node][0]].Rack, Uplink: !inBand}
	case zoneUplink:
		i := slices.Index(w.zoneOf, f.node)
		return mesh.Accused{Scope: mesh.ScopeZone, Name: w.nodes[i].Zone, Uplink: !inBand}
	}
	return mesh.Accused{Name: w.nodes[f.node].Name}
}

// lingering is for how long after its end a fault may still be named: its last losses are
// settled, and what was said of them is scraped and evaluated.
const lingering = 5 * second

// explains reports whether an accusation is right because of a fault.
func (w *network) explains(f *fault, a mesh.Accused, at int64) bool {
	recent := at >= f.from
	if f.windows != nil {
		recent = slices.ContainsFunc(f.windows, func(s span) bool { return s.from <= at && at <= s.to+lingering })
	}
	if !recent {
		return false
	}
	switch f.kind {
	case deadNode, deadLink, deadProcess, deadRack:
		return a == w.wanted(f, false)
	case rackUplink, zoneUplink: // out of reach from outside is true, too
		a.Uplink = true
		return a == w.wanted(f, false)
	case flappingNode, slowNode:
		return a == mesh.Accused{Name: w.nodes[f.node].Name}
	case delayedNode: // nothing comes before the deadline
		return f.delay+latency >= deadline && a == mesh.Accused{Name: w.nodes[f.node].Name}
	}
	return false
}
