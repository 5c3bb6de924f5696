package mesh_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"vigia/probes/mesh"
)

// What is around the nodes.
const (
	scrapeInterval = second
	evaluation     = second
	// pending is how long the rules wait before an alert fires (for).
	pending = 2 * second
	// scrapeFailure is how often a scrape fails for no reason.
	scrapeFailure = 0.005
	votesPerNode  = 4
	pairCost      = 48 // series of a pair
	pairBudget    = 1000
)

// strayLoss are the shares of probes that are lost without a fault, one of them in each run.
var strayLoss = []float64{0, 1e-5, 1e-4, 1e-3}

// run is one run. Its memory is used again for the next.
type run struct {
	network *network
	random  *rand.Rand
	faults  []fault
	inBand  bool // scrapes take the ways that are measured

	number  []int32 // by pair, its number among those that are played, from 1
	active  []played
	nodes   []int32   // those that have such a pair
	pairs   [][]int32 // of each, by node
	scrapes []int64   // when each is scraped next, by node
	votes   map[int32][]mesh.Vote
	since   map[mesh.Accused]int64
	sights  []mesh.Sight
	outcome Outcome
}

// played is a pair that something happens to.
type played struct {
	pair    int32
	faults  []int32
	strays  []int32 // numbers of probes that are lost without a fault, in order
	next    int32   // number of the next probe
	settles int64   // when
	result  mesh.Outcome
	phase   int64
	state   mesh.Pair
}

// Outcome is what came of one run.
type Outcome struct {
	Named   []Named
	False   []mesh.Accused
	Bad     int // pairs of one node that were bad at the end, at most
	LeftOut int // pairs of one node without series of their own, at most
}

// Named is a fault that was to be named.
type Named struct {
	kind  kind
	After int64 // nanoseconds until an alert fired; negative: none did
}

func newRun(w *network) *run {
	return &run{network: w, number: make([]int32, len(w.peer)), pairs: make([][]int32, len(w.nodes)), scrapes: make([]int64, len(w.nodes))}
}

// play plays one run; the same seed and number give the same.
func (r *run) play(seed, number uint64) Outcome {
	r.random = rand.New(rand.NewPCG(seed, number))
	for _, n := range r.nodes {
		r.pairs[n] = nil
	}
	for i := range r.active {
		r.number[r.active[i].pair] = 0
	}
	r.faults, r.active, r.nodes, r.outcome = r.faults[:0], r.active[:0], r.nodes[:0], Outcome{}
	r.votes, r.since = make(map[int32][]mesh.Vote), make(map[mesh.Accused]int64)
	r.inBand = r.random.IntN(2) == 0
	r.plan()
	r.strays(strayLoss[r.random.IntN(len(strayLoss))])
	for i := range r.faults {
		r.network.touches(&r.faults[i], func(pair int32) {
			p := r.pair(pair)
			if n := len(p.faults); n == 0 || p.faults[n-1] != int32(i) {
				p.faults = append(p.faults, int32(i))
			}
		})
	}
	for i := range r.faults {
		if f := &r.faults[i]; f.kind.mustBeNamed() {
			r.outcome.Named = append(r.outcome.Named, Named{f.kind, -1})
		}
	}
	r.begin()
	for at := r.random.Int64N(evaluation); at < duration; at += evaluation {
		r.proceed(at)
		r.evaluate(at)
	}
	r.count()
	return r.outcome
}

// pair returns a pair that is played from now on.
func (r *run) pair(pair int32) *played {
	if r.number[pair] == 0 {
		r.active = append(r.active, played{pair: pair, phase: r.random.Int64N(interval)})
		r.number[pair] = int32(len(r.active))
	}
	return &r.active[r.number[pair]-1]
}

// strays draws the probes that are lost without a fault, jumping from one to the next.
func (r *run) strays(loss float64) {
	if loss == 0 {
		return
	}
	perPair := duration / interval
	total := int64(len(r.network.peer)) * perPair
	for at := int64(-1); ; {
		at += 1 + int64(math.Log(1-r.random.Float64())/math.Log1p(-loss))
		if at >= total {
			return
		}
		p := r.pair(int32(at / perPair))
		p.strays = append(p.strays, int32(at%perPair))
	}
}

// begin sends the first probe of every pair.
func (r *run) begin() {
	for i := range r.active {
		p := &r.active[i]
		r.send(p)
		n := r.network.prober[p.pair]
		if r.pairs[n] == nil {
			r.nodes = append(r.nodes, n)
		}
		r.pairs[n] = append(r.pairs[n], int32(i))
	}
	slices.Sort(r.nodes)
	for _, n := range r.nodes {
		r.scrapes[n] = r.random.Int64N(scrapeInterval)
	}
}

// proceed lets happen all that does until the rules are evaluated: probes are settled and sent,
// and nodes are scraped, each at its time. What happens to a node's pairs concerns nobody
// else before the next scrape of the node, and so nodes take their turns.
func (r *run) proceed(until int64) {
	for _, n := range r.nodes {
		for ; r.scrapes[n] <= until; r.scrapes[n] += scrapeInterval {
			at := r.scrapes[n]
			doubts := false
			for _, i := range r.pairs[n] {
				p := &r.active[i]
				for p.settles <= at {
					p.state.Settled(p.result, p.settles)
					r.send(p)
				}
				doubts = doubts || p.state.Unreachable(at, time.Duration(interval))
			}
			r.scrape(n, at, doubts)
		}
	}
}

// send sends the next probe of a pair, and decides what becomes of it and when.
func (r *run) send(p *played) {
	at := p.phase + int64(p.next)*interval
	lost, took := false, latency
	if len(p.strays) > 0 && p.strays[0] == p.next {
		lost, p.strays = true, p.strays[1:]
	}
	for _, i := range p.faults {
		sure, probability, delay := r.network.trip(&r.faults[i], p.pair, at)
		if sure || probability > 0 && r.random.Float64() < probability {
			lost = true
		}
		took += delay
	}
	p.next++
	settles := at + took
	switch {
	case lost || took > deadline:
		p.result, settles = mesh.Lost, at+deadline
	case took > objective:
		p.result = mesh.Slow
	default:
		p.result = mesh.Fine
	}
	// Who is stopped settles when it runs again.
	for _, i := range p.faults {
		f := &r.faults[i]
		if f.kind == slowNode && f.node == r.network.prober[p.pair] {
			if s := f.window(settles); s != nil {
				settles = s.to
			}
		}
	}
	p.settles = max(settles, p.settles)
}

// scrape asks a node for its votes; it has none unless a peer is out of reach.
func (r *run) scrape(node int32, at int64, doubts bool) {
	delete(r.votes, node)
	if !doubts {
		return
	}
	w := r.network
	for i := range r.faults {
		if w.silences(&r.faults[i], node, at, r.inBand) {
			return
		}
	}
	if r.random.Float64() < scrapeFailure {
		return
	}
	sights := r.sights[:0]
	for p := w.offset[node]; p < w.offset[node+1]; p++ {
		s := mesh.Sight{Peer: w.nodes[w.peer[p]]}
		if n := r.number[p]; n != 0 {
			state := &r.active[n-1].state
			s.Doubtful, s.Unreachable = state.Doubtful(at, time.Duration(interval)), state.Unreachable(at, time.Duration(interval))
		}
		sights = append(sights, s)
	}
	r.sights = sights
	if votes := w.mesh.Votes(w.nodes[node], sights, votesPerNode); len(votes) > 0 {
		r.votes[node] = votes
	}
}

// evaluate does what the rules do.
func (r *run) evaluate(at int64) {
	var votes []mesh.Vote
	for _, n := range r.nodes {
		votes = append(votes, r.votes[n]...)
	}
	now := make(map[mesh.Accused]int64)
	for _, a := range mesh.Accuse(votes) {
		began, before := r.since[a]
		if !before {
			began = at
		}
		now[a] = began
		if at-began >= pending {
			r.fire(a, at)
		}
	}
	r.since = now
}

// fire notes an alert that fires.
func (r *run) fire(a mesh.Accused, at int64) {
	right, named := false, 0
	for i := range r.faults {
		f := &r.faults[i]
		right = right || r.network.explains(f, a, at)
		if !f.kind.mustBeNamed() {
			continue
		}
		if n := &r.outcome.Named[named]; n.After < 0 && at >= f.from && a == r.network.wanted(f, r.inBand) {
			n.After = at - f.from
		}
		named++
	}
	if !right {
		r.outcome.False = append(r.outcome.False, a)
	}
}

// count looks at which pairs would have series at the end.
func (r *run) count() {
	claims := make(map[int32][]mesh.Claim)
	for i := range r.active {
		p := &r.active[i]
		if p.state.Bad(duration) {
			n := r.network.prober[p.pair]
			claims[n] = append(claims[n], mesh.Claim{Cost: pairCost, Severity: p.state.Severity(), Name: r.network.nodes[r.network.peer[p.pair]].Name})
		}
	}
	for _, wanted := range claims {
		all := len(wanted)
		r.outcome.Bad = max(r.outcome.Bad, all)
		r.outcome.LeftOut = max(r.outcome.LeftOut, all-len(mesh.Choose(wanted, pairBudget)))
	}
}
