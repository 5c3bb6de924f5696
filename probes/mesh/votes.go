package mesh

import (
	"cmp"
	"slices"
)

// Scope is the largest part of the site that has the peer and not the voter. It is what the
// voter's evidence speaks of: who stands beside a node in its rack and cannot reach it
// blames the node; who stands in another rack cannot tell the node from its rack.
type Scope uint8

// The scopes, from the nearest on.
const (
	ScopeNode Scope = iota
	ScopeRack
	ScopeZone
	numScopes
)

// String returns the scope as the label value scope.
func (s Scope) String() string { return [numScopes]string{"node", "rack", "zone"}[s] }

// Scopes are all scopes.
func Scopes() []Scope { return []Scope{ScopeNode, ScopeRack, ScopeZone} }

// Sight is what a node sees of a peer.
type Sight struct {
	Peer                  Node
	Doubtful, Unreachable bool
}

// Vote is what a node says of another, or of where it stands itself.
type Vote struct {
	Voter Node
	// Subject is the peer that the voter cannot reach. Of an Outside vote it is the voter
	// itself.
	Subject Node
	Scope   Scope
	// Outside says that the voter reaches its own rack (or zone: the scope) and nothing
	// outside of it.
	Outside bool
	// Share is the voter's part of all who can cast the vote: 1 over their number.
	Share float64
}

const (
	// most is the share of peers out of reach above which a node doubts itself,
	// nearlyAll from which on it takes a part of the site for cut off from its own.
	most      = 0.5
	nearlyAll = 0.9
	// fewOutside is from how many peers on, and fewGroups from how many racks or zones,
	// a node says that it is its own rack that is cut off and not they.
	fewOutside = 3
	fewGroups  = 2
)

// Votes returns what self says, given all that it sees; limit is how many votes at most. Who
// cannot reach most of its peers wherever they are says nothing: the fault is its own.
func (m *Mesh) Votes(self Node, sights []Sight, limit int) (votes []Vote) {
	var parts [numScopes]part
	for i := range sights {
		parts[m.distance(&self, &sights[i].Peer)].add(&sights[i])
	}
	if parts[ScopeNode].mostly() && parts[ScopeRack].mostly() && parts[ScopeZone].mostly() {
		return nil
	}
	spoken := numScopes // from this distance on, what is out of reach is laid to our own uplink
	outside := part{}
	for s := ScopeZone; s > ScopeNode; s-- {
		outside.join(&parts[s])
		if size := m.members(&self, s); size > 1 && parts[s].nearlyAll() && outside.nearlyAll() &&
			outside.peers >= fewOutside && len(outside.groups(s)) >= fewGroups && !m.within(&parts, s).mostly() {
			spoken = s
			votes = []Vote{{Voter: self, Subject: self, Scope: s, Outside: true, Share: 1 / float64(size)}}
		}
	}
	var others []Vote
	for i := range sights {
		peer := sights[i].Peer
		if sights[i].Unreachable && m.distance(&self, &peer) < spoken {
			others = append(others, Vote{Voter: self, Subject: peer, Scope: m.scope(&self, &peer)})
		}
	}
	// Each node leaves out others.
	mine := hash(self.Name)
	slices.SortFunc(others, func(a, b Vote) int {
		return cmp.Or(
			cmp.Compare(mix(mine*3+hash(a.Subject.Name)), mix(mine*3+hash(b.Subject.Name))),
			cmp.Compare(a.Subject.Name, b.Subject.Name),
		)
	})
	votes = append(votes, others...)
	votes = votes[:min(len(votes), max(limit, 0))]
	for i := range votes {
		if v := &votes[i]; !v.Outside {
			v.Share = 1 / float64(max(1, m.electorate(v.Subject.Name)[v.Scope]))
		}
	}
	return votes
}

// within returns the peers nearer than a distance.
func (m *Mesh) within(parts *[numScopes]part, s Scope) *part {
	var near part
	for i := range s {
		near.join(&parts[i])
	}
	return &near
}

// distance returns in which part of the site a peer is: the own rack, the own zone, another.
func (m *Mesh) distance(self, peer *Node) Scope {
	switch {
	case self.Rack != "" && self.Rack == peer.Rack:
		return ScopeNode
	case self.Zone == peer.Zone:
		return ScopeRack
	}
	return ScopeZone
}

// members returns how many nodes stand in the own rack (ScopeRack) or zone (ScopeZone).
func (m *Mesh) members(self *Node, s Scope) int {
	if s == ScopeRack {
		return m.inRack[self.Rack]
	}
	z, known := m.zone[self.Zone]
	if !known || len(m.inZone) < 2 {
		return 0
	}
	return m.inZone[z]
}

// scope returns the scope of a vote. A part that has one node alone is that node, and a
// zone of one rack is that rack.
func (m *Mesh) scope(self, peer *Node) Scope {
	mates := peer.Rack != "" && m.inRack[peer.Rack] > 1
	s := m.distance(self, peer)
	if s == ScopeZone && m.inZone[m.zone[peer.Zone]] <= max(1, m.inRack[peer.Rack]) {
		s = ScopeRack
	}
	if s == ScopeRack && !mates {
		s = ScopeNode
	}
	return s
}

// electorate counts the nodes that can cast a vote on a node, by scope. It is counted once
// for a node: that takes milliseconds among ten thousand.
func (m *Mesh) electorate(name string) (n [numScopes]int) {
	if known, ok := m.voters.Load(name); ok {
		return known.([numScopes]int)
	}
	subject, _ := m.Node(name)
	for _, p := range m.Probers(name) {
		n[m.scope(&p, &subject)]++
	}
	m.voters.Store(name, n)
	return n
}

// part is a part of the site, as a node sees it.
type part struct {
	peers, doubtful int
	nodes           []Node // of doubtful peers
}

func (p *part) add(s *Sight) {
	p.peers++
	if s.Doubtful || s.Unreachable {
		p.doubtful++
		p.nodes = append(p.nodes, s.Peer)
	}
}

func (p *part) join(o *part) {
	p.peers += o.peers
	p.doubtful += o.doubtful
	p.nodes = append(p.nodes, o.nodes...)
}

// mostly reports whether most of its peers are out of reach; a part without peers counts
// as such, since it is no evidence for the contrary.
func (p *part) mostly() bool { return p.peers == 0 || float64(p.doubtful) > most*float64(p.peers) }

// nearlyAll reports whether all but a few of its peers are out of reach.
func (p *part) nearlyAll() bool { return float64(p.doubtful) >= nearlyAll*float64(p.peers) }

// groups returns the racks or zones of the peers that are out of reach.
func (p *part) groups(s Scope) map[string]bool {
	groups := make(map[string]bool)
	for i := range p.nodes {
		n := &p.nodes[i]
		switch {
		case s == ScopeZone:
			groups[n.Zone] = true
		case n.Rack != "":
			groups["rack "+n.Rack] = true
		default:
			groups["node "+n.Name] = true
		}
	}
	return groups
}
