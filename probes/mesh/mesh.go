// Package mesh says who probes whom. Every node computes the same from the list of
// all, without a coordinator: everybody within a rack, and outside of it the k that
// rendezvous hashing ranks highest (Thaler and Ravishankar 1998). When a node comes
// or goes only the pairs with it change.
package mesh

import (
	"cmp"
	"container/heap"
	"slices"
)

// Node is a node and where it stands. Nodes without a rack share none.
type Node struct{ Name, Rack string }

// Peers returns the nodes that self probes, by name: all of its rack, and of the
// others the k that rank highest, or all when k is 0.
func Peers(self Node, nodes []Node, k int) []Node {
	return newMesh(nodes).peers(self, k)
}

// Mesh is a list of nodes, prepared for many questions.
type Mesh struct {
	nodes  []Node
	hashes []uint64
}

// New prepares a list of nodes.
func New(nodes []Node) *Mesh { return newMesh(nodes) }

func newMesh(nodes []Node) *Mesh {
	m := &Mesh{nodes: nodes, hashes: make([]uint64, len(nodes))}
	for i := range nodes {
		m.hashes[i] = hash(nodes[i].Name)
	}
	return m
}

// Peers is the function of the same name.
func (m *Mesh) Peers(self Node, k int) []Node { return m.peers(self, k) }

func (m *Mesh) peers(self Node, k int) (out []Node) {
	mine := hash(self.Name)
	top := &ranks{}
	for i := range m.nodes {
		n := &m.nodes[i]
		switch {
		case n.Name == self.Name:
			continue
		case k == 0 || n.Rack != "" && n.Rack == self.Rack:
			out = append(out, *n)
			continue
		}
		r := rank{weight: mix(mine*3 + m.hashes[i]), index: i}
		switch {
		case top.Len() < k:
			heap.Push(top, r)
		case m.less((*top)[0], r):
			(*top)[0] = r
			heap.Fix(top, 0)
		}
	}
	for _, r := range *top {
		out = append(out, m.nodes[r.index])
	}
	slices.SortFunc(out, func(a, b Node) int { return cmp.Compare(a.Name, b.Name) })
	return out
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
