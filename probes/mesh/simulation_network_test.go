package mesh_test

// The simulation plays faults of large sites under a virtual clock: every probe of every pair that
// a fault or a stray loss touches, every scrape and every evaluation of the rules happens at its
// time. Who probes whom, what a pair is taken for, what a node says of others, who is
// accused and which pairs have series is decided by package mesh itself.

import (
	"fmt"

	"vigia/probes/mesh"
)

// Site is what is simulated.
type Site struct {
	Nodes, PerRack, Zones int
	Rule                  mesh.Rule
}

// network is a site, prepared for many runs.
type network struct {
	nodes []mesh.Node
	mesh  *mesh.Mesh
	// Pair number offset[i]+k is that of node i with its k-th peer.
	offset  []int32
	prober  []int32 // by pair
	peer    []int32 // by pair
	inverse [][]int32
	racks   [][]int32 // nodes of each
	rackOf  []int32
	zoneOf  []int32
	zones   int
}

func newNetwork(s Site) *network {
	w := &network{zones: s.Zones}
	racks := (s.Nodes + s.PerRack - 1) / s.PerRack
	w.racks = make([][]int32, racks)
	for i := range s.Nodes {
		r := i / s.PerRack
		z := r * s.Zones / racks
		n := mesh.Node{Name: fmt.Sprintf("node%d", i), Rack: fmt.Sprintf("rack%d", r)}
		if s.Zones > 1 {
			n.Zone = fmt.Sprintf("zone%d", z)
		}
		w.nodes = append(w.nodes, n)
		w.racks[r] = append(w.racks[r], int32(i))
		w.rackOf, w.zoneOf = append(w.rackOf, int32(r)), append(w.zoneOf, int32(z))
	}
	w.mesh = mesh.New(w.nodes, s.Rule)
	index := make(map[string]int32, len(w.nodes))
	for i := range w.nodes {
		index[w.nodes[i].Name] = int32(i)
	}
	w.inverse = make([][]int32, len(w.nodes))
	for i := range w.nodes {
		w.offset = append(w.offset, int32(len(w.peer)))
		for _, p := range w.mesh.Peers(w.nodes[i]) {
			to := index[p.Name]
			w.inverse[to] = append(w.inverse[to], int32(len(w.peer)))
			w.peer, w.prober = append(w.peer, to), append(w.prober, int32(i))
		}
	}
	w.offset = append(w.offset, int32(len(w.peer)))
	return w
}

// of calls f with every pair that a node is part of.
func (w *network) of(node int32, f func(pair int32)) {
	for p := w.offset[node]; p < w.offset[node+1]; p++ {
		f(p)
	}
	for _, p := range w.inverse[node] {
		f(p)
	}
}
