package simulation

import (
	"container/heap"
	"math"
	"math/rand/v2"
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
	playing []bool // by node, whether any of its pairs is played
	votes   map[int32][]mesh.Vote
	since   map[mesh.Accused]int64
	events  queue
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
	return &run{network: w, number: make([]int32, len(w.peer)), playing: make([]bool, len(w.nodes))}
}

// play plays one run; the same seed and number give the same.
func (r *run) play(seed, number uint64) Outcome {
	r.random = rand.New(rand.NewPCG(seed, number))
	clear(r.playing)
	for i := range r.active {
		r.number[r.active[i].pair] = 0
	}
	r.faults, r.active, r.events, r.outcome = r.faults[:0], r.active[:0], r.events[:0], Outcome{}
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
	r.schedule()
	for len(r.events) > 0 {
		e := heap.Pop(&r.events).(event)
		if e.at >= duration {
			break
		}
		r.happen(e)
	}
	r.count()
	return r.outcome
}

// pair returns a pair that is played from now on.
func (r *run) pair(pair int32) *played {
	if r.number[pair] == 0 {
		r.active = append(r.active, played{pair: pair, phase: r.random.Int64N(interval)})
		r.number[pair] = int32(len(r.active))
		r.playing[r.network.prober[pair]] = true
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

// event is what happens next to a pair, a node or the rules.
type event struct {
	at    int64
	what  what
	index int32
}

type what uint8

const (
	settle what = iota
	scrape
	evaluate
)

type queue []event

func (q queue) Len() int           { return len(q) }
func (q queue) Less(i, j int) bool { return q[i].at < q[j].at }
func (q queue) Swap(i, j int)      { q[i], q[j] = q[j], q[i] }
func (q *queue) Push(x any)        { *q = append(*q, x.(event)) }
func (q *queue) Pop() any {
	last := (*q)[len(*q)-1]
	*q = (*q)[:len(*q)-1]
	return last
}

func (r *run) schedule() {
	for i := range r.active {
		r.send(int32(i))
		r.events = append(r.events, event{r.active[i].settles, settle, int32(i)})
	}
	for n, playing := range r.playing {
		if playing {
			r.events = append(r.events, event{r.random.Int64N(scrapeInterval), scrape, int32(n)})
		}
	}
	r.events = append(r.events, event{r.random.Int64N(evaluation), evaluate, 0})
	heap.Init(&r.events)
}

func (r *run) happen(e event) {
	switch e.what {
	case settle:
		p := &r.active[e.index]
		p.state.Settled(p.result, e.at)
		r.send(e.index)
		heap.Push(&r.events, event{p.settles, settle, e.index})
	case scrape:
		r.scrape(e.index, e.at)
		heap.Push(&r.events, event{e.at + scrapeInterval, scrape, e.index})
	case evaluate:
		r.evaluate(e.at)
		heap.Push(&r.events, event{e.at + evaluation, evaluate, 0})
	}
}

// send sends the next probe of a pair, and decides what becomes of it and when.
func (r *run) send(index int32) {
	p := &r.active[index]
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

// scrape asks a node for its votes.
func (r *run) scrape(node int32, at int64) {
	delete(r.votes, node)
	for i := range r.faults {
		if r.network.silences(&r.faults[i], node, at, r.inBand) {
			return
		}
	}
	if r.random.Float64() < scrapeFailure {
		return
	}
	w := r.network
	var sights []mesh.Sight
	any := false
	for p := w.offset[node]; p < w.offset[node+1]; p++ {
		s := mesh.Sight{Peer: w.nodes[w.peer[p]]}
		if n := r.number[p]; n != 0 {
			state := &r.active[n-1].state
			s.Doubtful, s.Unreachable = state.Doubtful(at, time.Duration(interval)), state.Unreachable(at, time.Duration(interval))
			any = any || s.Unreachable
		}
		sights = append(sights, s)
	}
	if !any {
		return
	}
	if votes := w.mesh.Votes(w.nodes[node], sights, votesPerNode); len(votes) > 0 {
		r.votes[node] = votes
	}
}

// evaluate does what the rules do.
func (r *run) evaluate(at int64) {
	var votes []mesh.Vote
	for n := range r.playing {
		votes = append(votes, r.votes[int32(n)]...)
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
