package mesh

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
)

func site(n, perRack int) (nodes []Node) {
	for i := range n {
		nodes = append(nodes, Node{Name: fmt.Sprintf("compute%d", i), Rack: fmt.Sprintf("r%d", i/perRack)})
	}
	return nodes
}

// Whatever the order of the list, the same peers come out: the whole rack and k
// others, each once, never oneself.
func TestPeers(t *testing.T) {
	nodes := site(200, 10)
	shuffled := slices.Clone(nodes)
	rand.New(rand.NewPCG(1, 1)).Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
	for _, self := range nodes {
		got := New(nodes, Rule{PerNode: 8}).Peers(self)
		if !slices.Equal(got, New(shuffled, Rule{PerNode: 8}).Peers(self)) {
			t.Fatalf("%s: the order of the list matters", self.Name)
		}
		inside := 0
		for i, p := range got {
			if p.Name == self.Name || i > 0 && got[i-1].Name >= p.Name {
				t.Errorf("%s probes %v", self.Name, got)
			}
			if p.Rack == self.Rack {
				inside++
			}
		}
		if len(got) != 17 || inside != 9 {
			t.Errorf("%s has %d peers, %d of them in its rack", self.Name, len(got), inside)
		}
	}
}

func TestAllAndFew(t *testing.T) {
	nodes := []Node{{Name: "a"}, {Name: "b"}, {Name: "c"}}
	if got := New(nodes, Rule{}).Peers(nodes[0]); len(got) != 2 {
		t.Errorf("full mesh: %v", got)
	}
	if got := New(nodes, Rule{PerNode: 1}).Peers(nodes[0]); len(got) != 1 {
		t.Errorf("without racks nobody shares one: %v", got)
	}
	if got := New(nodes, Rule{PerNode: 9}).Peers(nodes[0]); len(got) != 2 {
		t.Errorf("more than there are: %v", got)
	}
	if got := New(nodes[:1], Rule{PerNode: 3}).Peers(nodes[0]); len(got) != 0 {
		t.Errorf("alone: %v", got)
	}
}

// Nodes are probed about equally often, and a node that leaves changes only the
// pairs with it.
func TestBalanceAndStability(t *testing.T) {
	nodes := site(1000, 1)
	probed := make(map[string]int)
	gone := nodes[500]
	rest := slices.Concat(nodes[:500], nodes[501:])
	before, after := New(nodes, Rule{PerNode: 8}), New(rest, Rule{PerNode: 8})
	for _, self := range nodes {
		peers := before.Peers(self)
		for _, p := range peers {
			probed[p.Name]++
		}
		if self == gone {
			continue
		}
		kept := 0
		now := after.Peers(self)
		for _, p := range peers {
			if slices.Contains(now, p) {
				kept++
			}
		}
		want := 8
		if slices.Contains(peers, gone) {
			want = 7
		}
		if kept != want {
			t.Errorf("%s kept %d of its peers, want %d", self.Name, kept, want)
		}
	}
	most := 0
	for _, n := range probed {
		most = max(most, n)
	}
	// Poisson with mean 8: above 24 once in a million.
	if most > 24 || len(probed) < 990 {
		t.Errorf("%d of 1000 are probed, one by %d", len(probed), most)
	}
}

// The hash is part of the protocol between versions.
func TestHashStays(t *testing.T) {
	got := New(site(100, 1), Rule{PerNode: 4}).Peers(Node{Name: "compute0"})
	names := make([]string, 0, 4)
	for _, n := range got {
		names = append(names, n.Name)
	}
	if want := []string{"compute18", "compute53", "compute77", "compute85"}; !slices.Equal(names, want) {
		t.Errorf("got %q, want %q", names, want)
	}
}

// zoned has racks of ten, and so many racks in a zone.
func zoned(n, racks int) (nodes []Node) {
	nodes = site(n, 10)
	for i := range nodes {
		nodes[i].Zone = fmt.Sprintf("z%d", i/(10*racks))
	}
	return nodes
}

// Zones have their own draws, so that each pair of zones is probed.
func TestZones(t *testing.T) {
	nodes := zoned(400, 10)
	for _, c := range []struct {
		rule                Rule
		rack, zone, perZone int
	}{
		{Rule{PerNode: 8, PerZone: 2}, 9, 8, 2},
		{Rule{PerNode: 0, PerZone: 3}, 9, 90, 3},
		{Rule{PerNode: 8, PerZone: 2, Within: WithinZone}, 9, 90, 2},
	} {
		m := New(nodes, c.rule)
		for _, self := range nodes {
			rack, zones := 0, make(map[string]int)
			for _, p := range m.Peers(self) {
				if p.Rack == self.Rack {
					rack++
				} else {
					zones[p.Zone]++
				}
			}
			for z := range 4 {
				name, want := fmt.Sprintf("z%d", z), c.perZone
				if name == self.Zone {
					want = c.zone
				}
				if rack != c.rack || zones[name] != want {
					t.Fatalf("%+v: %s probes %d of its rack and %v", c.rule, self.Name, rack, zones)
				}
			}
		}
	}
}

// Who probes a node is the inverse of whom nodes probe.
func TestProbers(t *testing.T) {
	nodes := zoned(240, 6)
	for _, rule := range []Rule{
		{},
		{PerNode: 1},
		{PerNode: 8},
		{PerNode: 100},
		{PerNode: 8, PerZone: 2},
		{PerNode: 4, Within: WithinZone},
		{PerZone: 3, Within: WithinZone},
	} {
		m := New(nodes, rule)
		want := make(map[string][]Node)
		for _, n := range nodes {
			for _, p := range m.Peers(n) {
				want[p.Name] = append(want[p.Name], n)
			}
		}
		for _, n := range nodes {
			if got := m.Probers(n.Name); !slices.Equal(got, want[n.Name]) {
				t.Fatalf("%+v: %s is probed by %v, want %v", rule, n.Name, got, want[n.Name])
			}
		}
	}
	if got := New(nodes, Rule{}).Probers("nobody"); got != nil {
		t.Errorf("a node that is not there is probed by %v", got)
	}
}

// BenchmarkPlan prints what a node's own plan takes, from the list of all nodes, by how many there are.
func BenchmarkPlan(b *testing.B) {
	for _, n := range []int{10, 100, 1000, 5000} {
		nodes := site(n, 40)
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			for b.Loop() {
				New(nodes, Rule{PerNode: 16}).Peers(nodes[0])
			}
		})
	}
}
