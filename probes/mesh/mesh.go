// Package mesh is what nodes that probe each other agree on: who probes whom, which pairs are
// worth series of their own, and who is to blame when many cannot be reached.
//
// Every node computes the same from the list of all, without a coordinator: everybody
// within a rack or zone is probed, and outside of it the k that rendezvous hashing ranks
// highest (Thaler and Ravishankar 1998). When a node comes or goes only the pairs with it
// change.
package mesh

import (
	"cmp"
	"container/heap"
	"slices"
	"sync"
)

// Node is a node and where it stands. Nodes without a rack share none; those without a
// zone are a zone of their own.
type Node struct{ Name, Rack, Zone string }

// Area is a part of the site.
type Area string

// The areas within which everybody can be probed.
const (
	WithinRack Area = "rack"
	WithinZone Area = "zone"
)

// Rule says how many are probed.
type Rule struct {
	// Within is the area of which everybody is probed; empty stands for WithinRack.
	Within Area
	// PerNode is how many of the others are probed; 0: all.
	PerNode int
	// PerZone is how many of each other zone are probed; PerNode then counts those of the
	// own zone alone. 0: PerNode counts all, in whatever zone they are.
	PerZone int
}

// Mesh is a list of nodes, prepared for many questions.
type Mesh struct {
	rule   Rule
	nodes  []Node
	hashes []uint64
	zones  []int // by node, the index of its zone
	zone   map[string]int
	inZone []int // nodes of each zone
	inRack map[string]int
	byName map[string]int
	voters sync.Map // by name, how many can cast a vote of each scope on the node
}

// New prepares a list of nodes.
func New(nodes []Node, rule Rule) *Mesh {
	m := &Mesh{
		rule: rule, nodes: nodes, hashes: make([]uint64, len(nodes)), zones: make([]int, len(nodes)),
		zone: make(map[string]int), inRack: make(map[string]int), byName: make(map[string]int, len(nodes)),
	}
	for i := range nodes {
		n := &nodes[i]
		m.hashes[i] = hash(n.Name)
		m.byName[n.Name] = i
		z, known := m.zone[n.Zone]
		if !known {
			z = len(m.zone)
			m.zone[n.Zone] = z
			m.inZone = append(m.inZone, 0)
		}
		m.zones[i] = z
		m.inZone[z]++
		if n.Rack != "" {
			m.inRack[n.Rack]++
		}
	}
	return m
}

// Node returns the node of that name as it is in the list.
func (m *Mesh) Node(name string) (n Node, ok bool) {
	i, ok := m.byName[name]
	if ok {
		n = m.nodes[i]
	}
	return n, ok
}

// always reports whether both probe each other whatever the hash says.
func (m *Mesh) always(a, b *Node) bool {
	if m.rule.Within == WithinZone && a.Zone == b.Zone {
		return true
	}
	return a.Rack != "" && a.Rack == b.Rack
}

// draw returns of how many the node draws of another's part of the site, 0 being all, and
// the number of that part: nodes of one number compete.
func (m *Mesh) draw(self *Node, zone int) (k, part int) {
	switch own, known := m.zone[self.Zone]; {
	case m.rule.PerZone == 0:
		return m.rule.PerNode, 0
	case known && own == zone:
		return m.rule.PerNode, zone
	}
	return m.rule.PerZone, zone
}

// Peers returns the nodes that self probes, by name.
func (m *Mesh) Peers(self Node) (out []Node) {
	mine := hash(self.Name)
	top := make([]ranks, len(m.inZone))
	for i := range m.nodes {
		n := &m.nodes[i]
		if n.Name == self.Name {
			continue
		}
		k, part := m.draw(&self, m.zones[i])
		if k == 0 || m.always(&self, n) {
			out = append(out, *n)
			continue
		}
		r := rank{weight: mix(mine*3 + m.hashes[i]), index: i}
		switch best := &top[part]; {
		case best.Len() < k:
			heap.Push(best, r)
		case m.less((*best)[0], r):
			(*best)[0] = r
			heap.Fix(best, 0)
		}
	}
	for _, best := range top {
		for _, r := range best {
			out = append(out, m.nodes[r.index])
		}
	}
	slices.SortFunc(out, func(a, b Node) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// Probers returns the nodes that probe the one of that name, in the order of the list.
func (m *Mesh) Probers(name string) (out []Node) {
	x, ok := m.byName[name]
	if !ok {
		return nil
	}
	for i := range m.nodes {
		if i != x && m.probes(i, x) {
			out = append(out, m.nodes[i])
		}
	}
	return out
}

// probes reports whether node i probes node x.
func (m *Mesh) probes(i, x int) bool {
	self := &m.nodes[i]
	if m.always(self, &m.nodes[x]) {
		return true
	}
	k, part := m.draw(self, m.zones[x])
	if k == 0 {
		return true
	}
	r := rank{weight: mix(m.hashes[i]*3 + m.hashes[x]), index: x}
	// Weights are uniform: so many are expected to rank higher. Where these are far more
	// than k there is no need to count them; the odds that it was wrong are 1e-7.
	if expected := (1 - float64(r.weight)/(1<<64)) * float64(m.competitors(i, part)); expected > float64(2*k+16) {
		return false
	}
	higher := 0
	for j := range m.nodes {
		n := &m.nodes[j]
		if j == i || j == x || m.rule.PerZone != 0 && m.zones[j] != part || m.always(self, n) {
			continue
		}
		if m.less(r, rank{weight: mix(m.hashes[i]*3 + m.hashes[j]), index: j}) {
			if higher++; higher == k {
				return false
			}
		}
	}
	return true
}

// competitors returns how many nodes of a part of the site node i draws from.
func (m *Mesh) competitors(i, part int) int {
	own := m.inRack[m.nodes[i].Rack]
	if m.rule.Within == WithinZone {
		own = m.inZone[m.zones[i]]
	}
	switch {
	case m.rule.PerZone == 0:
		return len(m.nodes) - own
	case part == m.zones[i]:
		return m.inZone[part] - own
	}
	return m.inZone[part]
}

// less orders by weight, and by name should two be alike.
func (m *Mesh) less(a, b rank) bool {
	return a.weight < b.weight || a.weight == b.weight && m.nodes[a.index].Name < m.nodes[b.index].Name
}

type rank struct {
	weight uint64
	index  int
}

// ranks is a heap with the lowest on top.
type ranks []rank

func (r ranks) Len() int           { return len(r) }
func (r ranks) Less(i, j int) bool { return r[i].weight < r[j].weight }
func (r ranks) Swap(i, j int)      { r[i], r[j] = r[j], r[i] }
func (r *ranks) Push(x any)        { *r = append(*r, x.(rank)) }
func (r *ranks) Pop() any {
	last := (*r)[len(*r)-1]
	*r = (*r)[:len(*r)-1]
	return last
}

// hash is FNV-1a of 64 bits, spread by mix. It must never change: nodes of
// different versions would disagree.
func hash(s string) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * 1099511628211
	}
	return mix(h)
}

// mix is the finaliser of SplitMix64 (Steele, Lea and Flood 2014).
func mix(h uint64) uint64 {
	h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>27) * 0x94d049bb133111eb
	return h ^ h>>31
}
