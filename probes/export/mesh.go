package export

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"vigia/internal/catalog"
	"vigia/internal/exposition"
	"vigia/internal/realtime"
	"vigia/probes/accounting"
	"vigia/probes/delay"
	"vigia/probes/health"
	"vigia/probes/histogram"
	"vigia/probes/mesh"
	"vigia/probes/objective"
	"vigia/probes/protocol"
	"vigia/probes/sender"
)

// Site is a list of nodes of which this node probes its share.
type Site struct {
	Mesh *mesh.Mesh
	Self mesh.Node
}

// Member is a target that is a pair of a mesh. It has series of its own only while it is bad
// or asked for, and is otherwise part of what is exported for the node.
type Member struct {
	Site     *Site
	Peer     mesh.Node
	Interval time.Duration
	Paused   bool
	Cost     int  // series that it has at most
	Asked    bool // by the configuration
}

// Membership is all that Recorders need to know of meshes.
type Membership struct {
	Members map[sender.Labels]Member
	Budget  int // series of all pairs at most
}

// Bounds of what is exported for meshes.
const (
	// maxGroups is how many series of a family the node has; what is beyond goes into
	// the zone overflow.
	maxGroups = 64
	overflow  = "_overflow"
	// chooseEvery is how often it is decided which pairs have series.
	chooseEvery = int64(time.Second)
	// maxAsked is how many nodes can be asked for at once.
	maxAsked = 1000
	// MinAsk and MaxAsk bound for how long.
	MinAsk = time.Minute
	MaxAsk = 24 * time.Hour
)

// zonePair is what pairs are added up by.
type zonePair struct{ src, srcZone, dstZone, path, tenant, probe string }

func (z *zonePair) values() []string {
	return []string{z.src, z.srcZone, z.dstZone, z.path, z.tenant, z.probe}
}

// tally is what happened to the probes of a pair, or of many.
type tally struct {
	sent    uint64
	lost    [numFaults]uint64
	judged  [objective.NumKinds]uint64
	tooMuch [objective.NumKinds]uint64 // slow, unsteady
}

func (t *tally) add(o *tally) {
	t.sent += o.sent
	for i := range t.lost {
		t.lost[i] += o.lost[i]
	}
	for i := range t.judged {
		t.judged[i] += o.judged[i]
		t.tooMuch[i] += o.tooMuch[i]
	}
}

// fault says where a probe was lost.
type fault uint8

const (
	inNetwork fault = iota
	atHost          // at a socket of either end
	numFaults
)

func (f fault) String() string { return [numFaults]string{"network", "host"}[f] }

// faultOf returns where a probe was lost.
func faultOf(c accounting.Cause) fault {
	if c.InNetwork() {
		return inNetwork
	}
	return atHost
}

// outcome returns what a settled probe says of the pair. A buffer that was full says nothing
// of the way. That the kernel could not send does: so it tells that a neighbour does not
// answer ARP.
func outcome(p *protocol.Probe) mesh.Outcome {
	switch {
	case p.State == protocol.Answered:
		return mesh.Fine
	case p.Cause == accounting.LocalOverflow || p.Cause == accounting.ReflectorOverflow:
		return mesh.Nothing
	}
	return mesh.Lost
}

// group adds up the pairs of a node between two zones.
type group struct {
	mu        sync.Mutex
	counts    tally
	rtt       *histogram.Histogram
	variation *histogram.Histogram
	tax       *histogram.Histogram
	labels    *groupLabels
}

type groupLabels struct {
	base      []*dto.LabelPair
	fault     [numFaults][]*dto.LabelPair
	objective [objective.NumKinds][]*dto.LabelPair
}

// add takes what happened to a pair since it was last asked.
func (g *group) add(batch []observation, counts *tally) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.counts.add(counts)
	for _, o := range batch {
		switch o.series {
		case rttHistogram:
			g.rtt.Observe(o.ns)
		case int32(variationHistogram) + int32(delay.RoundTrip):
			g.variation.Observe(o.ns)
		case taxSeries:
			g.tax.Observe(o.ns)
		}
	}
}

// The families that are exported for the node.
const (
	meshSent = iota
	meshLost
	meshJudged
	meshSlow
	meshUnsteady
	meshRTT
	meshVariation
	meshTax
	meshPairs
	numMeshFamilies
)

// The states of pairs that are counted.
var pairStates = []string{"probed", "bad", "asked", "exported", "left_out"}

// pairs say which pairs of meshes have series, and add up all.
type pairs struct {
	owner    *Recorders
	families [numMeshFamilies]*catalog.Series

	mu         sync.Mutex // taken before that of the owner
	membership Membership
	groups     map[zonePair]*group
	asked      map[string]int64 // by node, until when, as of now
	chosen     int64            // when, as of now; 0: never
	states     map[string]int
}

func newPairs(owner *Recorders, f *catalog.Factory) *pairs {
	p := &pairs{owner: owner, groups: make(map[zonePair]*group), asked: make(map[string]int64)}
	for i, name := range [numMeshFamilies]string{
		meshSent: "vigia_probe_mesh_sent_total", meshLost: "vigia_probe_mesh_lost_total",
		meshJudged: "vigia_probe_mesh_judged_total", meshSlow: "vigia_probe_mesh_slow_total",
		meshUnsteady: "vigia_probe_mesh_unsteady_total", meshRTT: "vigia_probe_mesh_rtt_seconds",
		meshVariation: "vigia_probe_mesh_delay_variation_seconds", meshTax: "vigia_probe_mesh_overlay_tax_seconds", meshPairs: "vigia_probe_mesh_pairs",
	} {
		p.families[i] = f.Series(name)
	}
	return p
}

// now returns the time in nanoseconds of a clock that is never set.
func (p *pairs) now() int64 { return int64(time.Since(p.owner.began)) }

// SetMesh says which targets are pairs of meshes. Those that are none have all their series.
func (r *Recorders) SetMesh(m Membership) {
	p := r.pairs
	p.mu.Lock()
	defer p.mu.Unlock()
	p.membership, p.chosen = m, 0
	before := p.groups
	p.groups = make(map[zonePair]*group)
	for _, l := range slices.SortedFunc(maps.Keys(m.Members), func(a, b sender.Labels) int { return a.Compare(&b) }) {
		z := p.zonePair(l)
		if g := before[z]; g != nil {
			p.groups[z] = g
		}
		p.group(z)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, rec := range r.targets {
		p.join(rec)
	}
}

// zonePair returns what a pair is added up by.
func (p *pairs) zonePair(l sender.Labels) zonePair {
	m := p.membership.Members[l]
	return zonePair{l.Src, m.Site.Self.Zone, m.Peer.Zone, l.Path, l.Tenant, l.Probe}
}

// group returns the group of pairs, a new one unless there are too many.
func (p *pairs) group(z zonePair) *group {
	g := p.groups[z]
	if g == nil && len(p.groups) >= maxGroups {
		z = zonePair{z.src, overflow, overflow, overflow, overflow, overflow}
		g = p.groups[z]
	}
	if g != nil {
		return g
	}
	labels := &groupLabels{base: p.families[meshSent].Labels(z.values()...)}
	for i := range labels.fault {
		labels.fault[i] = p.families[meshLost].Labels(append(z.values(), fault(i).String())...)
	}
	for i := range labels.objective {
		labels.objective[i] = p.families[meshJudged].Labels(append(z.values(), objective.Kind(i).String())...)
	}
	g = &group{rtt: p.owner.delays.New(), variation: p.owner.signed.New(), tax: p.owner.signed.New(), labels: labels}
	p.groups[z] = g
	return g
}

// join makes a recorder the one of a pair, or of a target with all its series. What it has
// counted before stays where it was counted.
func (p *pairs) join(rec *recorder) {
	var mine *group
	m, member := p.membership.Members[rec.labels]
	if member {
		mine = p.group(p.zonePair(rec.labels))
	}
	rec.scraping.Lock()
	defer rec.scraping.Unlock()
	rec.flush()
	rec.mu.Lock()
	defer rec.mu.Unlock()
	counts := rec.take() // since the flush; or of a target that was none of a mesh, which nobody counts
	if rec.group != nil {
		rec.group.add(nil, &counts)
	}
	if member != (rec.member.Site != nil) {
		rec.hidden.Store(member) // until it is chosen
	}
	rec.group, rec.member = mine, m
}

// Ask gives the pairs with a node series of their own for some time; MinAsk to MaxAsk.
func (r *Recorders) Ask(dst string, ttl time.Duration) error {
	p := r.pairs
	if ttl < MinAsk || ttl > MaxAsk {
		return fmt.Errorf("ttl %v is out of bounds; write %v to %v", ttl, MinAsk, MaxAsk)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	known := false
	for l := range p.membership.Members {
		known = known || l.Dst == dst
	}
	if !known {
		return fmt.Errorf("dst %q is no node that is probed as part of a mesh; /debug/targets lists those that are probed", dst)
	}
	now := p.now()
	for name, until := range p.asked {
		if now >= until {
			delete(p.asked, name)
		}
	}
	if _, again := p.asked[dst]; !again && len(p.asked) >= maxAsked {
		return errors.New("too many nodes are asked for; wait until their time is over")
	}
	p.asked[dst], p.chosen = now+int64(ttl), 0
	return nil
}

// PairState is what is known of a pair.
type PairState struct {
	Dst         string `json:"dst"`
	Path        string `json:"path"`
	Tenant      string `json:"tenant"`
	Probe       string `json:"probe"`
	Rack        string `json:"rack"`
	Zone        string `json:"zone"`
	Bad         bool   `json:"bad"`
	Unreachable bool   `json:"unreachable"`
	Asked       bool   `json:"asked"`
	Exported    bool   `json:"exported"` // the pair has series of its own
}

// Pairs returns the state of every pair, in the order of their labels.
func (r *Recorders) Pairs() (states []PairState) {
	p := r.pairs
	p.choose()
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.now()
	r.mu.Lock()
	defer r.mu.Unlock()
	states = []PairState{}
	keys := slices.SortedFunc(maps.Keys(p.membership.Members), func(a, b sender.Labels) int { return a.Compare(&b) })
	for _, l := range keys {
		rec := r.targets[l]
		if rec == nil {
			continue
		}
		rec.mu.Lock()
		m := rec.member
		states = append(states, PairState{
			Dst: l.Dst, Path: l.Path, Tenant: l.Tenant, Probe: l.Probe, Rack: m.Peer.Rack, Zone: m.Peer.Zone,
			Bad: rec.pair.Bad(now), Unreachable: rec.pair.Unreachable(now, m.Interval),
			Asked: m.Asked || now < p.asked[l.Dst], Exported: !rec.hidden.Load(),
		})
		rec.mu.Unlock()
	}
	return states
}

// choose decides which pairs have series, unless it has done so a moment ago.
func (p *pairs) choose() {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.now()
	if p.chosen != 0 && now-p.chosen < chooseEvery || len(p.membership.Members) == 0 && p.states == nil {
		return
	}
	p.chosen = now
	found, claims := p.claims(now)
	chosen := make(map[int]bool)
	for _, c := range mesh.Choose(claims, p.membership.Budget) {
		chosen[c.Index] = true
	}
	p.states["exported"], p.states["left_out"] = len(chosen), len(claims)-len(chosen)
	for i, rec := range found {
		rec.show(chosen[i])
	}
}

// claims returns all recorders of pairs, and those among them that want series. It counts
// the states anew.
func (p *pairs) claims(now int64) (found []*recorder, claims []mesh.Claim) {
	p.states = make(map[string]int)
	p.owner.mu.Lock()
	defer p.owner.mu.Unlock()
	for l := range p.membership.Members {
		rec := p.owner.targets[l]
		if rec == nil {
			continue
		}
		found = append(found, rec)
		rec.mu.Lock()
		m, bad, severity := &rec.member, rec.pair.Bad(now), rec.pair.Severity()
		rec.mu.Unlock()
		asked := m.Asked || now < p.asked[l.Dst]
		for state, is := range map[string]bool{"probed": !m.Paused, "bad": bad, "asked": asked} {
			if is {
				p.states[state]++
			}
		}
		if bad || asked {
			claims = append(claims, mesh.Claim{
				Index: len(found) - 1, Cost: m.Cost, Asked: asked, Shown: !rec.hidden.Load(), Severity: severity,
				Name: strings.Join([]string{l.Dst, l.Path, l.Tenant, l.Probe}, " "),
			})
		}
	}
	return found, claims
}

// show gives the target series of its own, or takes them away.
func (r *recorder) show(shown bool) {
	if r.hidden.Swap(!shown) == !shown || r.protocolMetrics == nil {
		return
	}
	if shown {
		r.protocolMetrics.Added(labelValues(r.labels))
		return
	}
	r.protocolMetrics.Removed(labelValues(r.labels))
}

// take returns what happened since it was last called; mu is held.
func (r *recorder) take() tally {
	t := r.counts
	r.counts = tally{}
	for k := range objective.Kind(objective.NumKinds) {
		judged, bad := r.judge.Counts(k)
		t.judged[k], t.tooMuch[k] = judged-r.taken.judged[k], bad-r.taken.tooMuch[k]
		r.taken.judged[k], r.taken.tooMuch[k] = judged, bad
	}
	return t
}

// count keeps what a settled probe says of the pair; mu is held. limit is the objective of
// delay in nanoseconds if the probe's round trip is good enough to be judged, else 0.
func (r *recorder) count(p *protocol.Probe, limit int64, now time.Time) {
	r.counts.sent++
	if p.State == protocol.Lost {
		r.counts.lost[faultOf(p.Cause)]++
	}
	o := outcome(p)
	if o == mesh.Fine && limit > 0 && p.Stamps.RTT() > limit {
		o = mesh.Slow
	}
	r.pair.Settled(o, int64(now.Sub(r.owner.began)))
}

// Hidden reports whether a target has no series of its own at the moment.
func (r *Recorders) Hidden(l sender.Labels) bool {
	r.mu.Lock()
	rec := r.targets[l]
	r.mu.Unlock()
	return rec != nil && rec.hidden.Load()
}

// collect exports what is added up.
func (p *pairs) collect(out chan<- prometheus.Metric) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.membership.Members) == 0 {
		return
	}
	p.owner.mu.Lock()
	for l := range p.membership.Members {
		if rec := p.owner.targets[l]; rec != nil {
			rec.scraping.Lock()
			rec.flush()
			rec.scraping.Unlock()
		}
	}
	p.owner.mu.Unlock()
	for _, g := range p.groups {
		p.collectGroup(out, g)
	}
	for _, state := range pairStates {
		out <- p.families[meshPairs].Sample(float64(p.states[state]), state)
	}
}

func (p *pairs) collectGroup(out chan<- prometheus.Metric, g *group) {
	g.mu.Lock()
	counts, compared := g.counts, g.tax.Count() > 0
	g.mu.Unlock()
	out <- withLabels(p.families[meshSent], g.labels.base, float64(counts.sent))
	for i, n := range counts.lost {
		out <- withLabels(p.families[meshLost], g.labels.fault[i], float64(n))
	}
	for i, n := range counts.judged {
		out <- withLabels(p.families[meshJudged], g.labels.objective[i], float64(n))
	}
	out <- withLabels(p.families[meshSlow], g.labels.base, float64(counts.tooMuch[objective.Delay]))
	out <- withLabels(p.families[meshUnsteady], g.labels.base, float64(counts.tooMuch[objective.Jitter]))
	out <- &groupHistogram{g, p.families[meshRTT].Desc(), g.rtt}
	out <- &groupHistogram{g, p.families[meshVariation].Desc(), g.variation}
	if compared {
		out <- &groupHistogram{g, p.families[meshTax].Desc(), g.tax}
	}
}

// groupHistogram is a histogram of a group.
type groupHistogram struct {
	group  *group
	desc   *prometheus.Desc
	values *histogram.Histogram
}

// Desc returns the family's descriptor.
func (h *groupHistogram) Desc() *prometheus.Desc { return h.desc }

// Write fills in the exported form.
func (h *groupHistogram) Write(out *dto.Metric) error {
	realtime.Yield()
	out.Label, out.Histogram = h.group.labels.base, new(dto.Histogram)
	h.group.mu.Lock()
	defer h.group.mu.Unlock()
	h.values.Write(out.Histogram)
	return nil
}

// Votes returns what this node says of nodes that it cannot reach; at most so many votes. A
// host that is not fit to measure says nothing.
func (r *Recorders) Votes(limit int) (votes []mesh.Vote) {
	for reason := range health.Reason(health.ScheduleLag) {
		if r.context.Host.Unfit(reason) {
			return nil
		}
	}
	said := make(map[string]bool)
	for site, sights := range r.pairs.sights() {
		for _, v := range site.Mesh.Votes(site.Self, sights, limit) {
			if key := fmt.Sprint(v.Outside, v.Scope, " ", v.Subject.Name); !said[key] {
				said[key] = true
				votes = append(votes, v)
			}
		}
	}
	return votes[:min(len(votes), limit)]
}

// sights returns what is seen of all peers, by site. A peer is out of reach when it is by
// every path and class.
func (p *pairs) sights() map[*Site][]mesh.Sight {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.now()
	type peer struct {
		site *Site
		name string
	}
	seen := make(map[peer]*mesh.Sight)
	p.owner.mu.Lock()
	defer p.owner.mu.Unlock()
	for l := range p.membership.Members {
		rec := p.owner.targets[l]
		if rec == nil {
			continue
		}
		rec.mu.Lock()
		m := rec.member
		doubtful, unreachable := rec.pair.Doubtful(now, m.Interval), rec.pair.Unreachable(now, m.Interval)
		rec.mu.Unlock()
		if m.Paused || m.Site == nil {
			continue
		}
		key := peer{m.Site, l.Dst}
		s := seen[key]
		if s == nil {
			s = &mesh.Sight{Peer: m.Peer, Doubtful: true, Unreachable: true}
			seen[key] = s
		}
		s.Doubtful, s.Unreachable = s.Doubtful && doubtful, s.Unreachable && unreachable
	}
	sights := make(map[*Site][]mesh.Sight)
	for key, s := range seen {
		sights[key.site] = append(sights[key.site], *s)
	}
	return sights
}

// votes are the series of what this node says of nodes that it cannot reach. There are none
// while it reaches all.
type votes struct{ peer, outside *exposition.Family }

func newVotes(f *catalog.Factory) votes {
	return votes{
		peer:    exposition.NewFamily(f.OnFastPage("vigia_probe_unreachable_ratio")),
		outside: exposition.NewFamily(f.OnFastPage("vigia_probe_outside_unreachable_ratio")),
	}
}

// emit writes votes on a page.
func (v *votes) emit(out *exposition.Page, all []mesh.Vote) {
	for i := range all {
		vote, s := &all[i], &all[i].Subject
		if vote.Outside {
			out.Emit(v.outside, vote.Share, s.Name, s.Rack, s.Zone, vote.Scope.String())
			continue
		}
		out.Emit(v.peer, vote.Share, vote.Voter.Name, s.Name, s.Rack, s.Zone, vote.Scope.String())
	}
}
