package mesh

import (
	"fmt"
	"math/rand/v2"
	"slices"
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
		got := Peers(self, nodes, 8)
		if !slices.Equal(got, Peers(self, shuffled, 8)) {
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
	if got := Peers(nodes[0], nodes, 0); len(got) != 2 {
		t.Errorf("full mesh: %v", got)
	}
	if got := Peers(nodes[0], nodes, 1); len(got) != 1 {
		t.Errorf("without racks nobody shares one: %v", got)
	}
	if got := Peers(nodes[0], nodes, 9); len(got) != 2 {
		t.Errorf("more than there are: %v", got)
	}
	if got := Peers(nodes[0], nodes[:1], 3); len(got) != 0 {
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
	before, after := New(nodes), New(rest)
	for _, self := range nodes {
		peers := before.Peers(self, 8)
		for _, p := range peers {
			probed[p.Name]++
		}
		if self == gone {
			continue
		}
		kept := 0
		now := after.Peers(self, 8)
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
	got := Peers(Node{Name: "compute0"}, site(100, 1), 4)
	names := make([]string, 0, 4)
	for _, n := range got {
		names = append(names, n.Name)
	}
	if want := []string{"compute18", "compute53", "compute77", "compute85"}; !slices.Equal(names, want) {
		t.Errorf("got %q, want %q", names, want)
	}
}
