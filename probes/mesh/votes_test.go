package mesh

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

// world is what nodes can reach.
type world struct {
	mesh  *Mesh
	nodes []Node
	// cut reports whether a does not get an answer of b.
	cut func(a, b Node) bool
	// silent are nodes of whom nothing is heard.
	silent func(Node) bool
}

// votes returns those of all nodes.
func (w *world) votes(limit int) (votes []Vote) {
	for _, n := range w.nodes {
		if w.silent != nil && w.silent(n) {
			continue
		}
		var sights []Sight
		for _, p := range w.mesh.Peers(n) {
			cut := w.cut(n, p)
			sights = append(sights, Sight{Peer: p, Doubtful: cut, Unreachable: cut})
		}
		votes = append(votes, w.mesh.Votes(n, sights, limit)...)
	}
	return votes
}

// accused returns who is to blame, as text.
func accused(votes []Vote) string {
	var out []string
	for _, a := range Accuse(votes) {
		text := a.Scope.String() + " " + a.Name
		if a.Uplink {
			text = "uplink of " + text
		}
		out = append(out, text)
	}
	return strings.Join(out, ", ")
}

// dead cuts off whoever it says, of whom nothing is heard.
func (w *world) dead(is func(Node) bool) {
	w.silent = is
	w.cut = func(a, b Node) bool { return is(a) || is(b) }
}

// uplink cuts all that passes a border.
func (w *world) uplink(inside func(Node) bool) {
	w.cut = func(a, b Node) bool { return inside(a) != inside(b) }
}

func rack(name string) func(Node) bool { return func(n Node) bool { return n.Rack == name } }
func zone(name string) func(Node) bool { return func(n Node) bool { return n.Zone == name } }
func oneOf(names ...string) func(Node) bool {
	return func(n Node) bool {
		for _, name := range names {
			if n.Name == name {
				return true
			}
		}
		return false
	}
}

// example is a fault of a site, and who is to be blamed.
type example struct {
	name  string
	nodes []Node
	rule  Rule
	fault func(*world)
	want  string
}

func examples() []example {
	flat, racks, zones := make([]Node, 0, 40), site(200, 20), zoned(400, 10)
	for i := range 40 {
		flat = append(flat, Node{Name: fmt.Sprintf("compute%d", i)})
	}
	return []example{
		{"nothing", racks, Rule{PerNode: 8}, func(w *world) { w.dead(oneOf()) }, ""},
		{"a node", racks, Rule{PerNode: 8}, func(w *world) { w.dead(oneOf("compute7")) }, "node compute7"},
		{"a node without racks", flat, Rule{PerNode: 8}, func(w *world) { w.dead(oneOf("compute7")) }, "node compute7"},
		{"one of three nodes", racks[:3], Rule{}, func(w *world) { w.dead(oneOf("compute1")) }, "node compute1"},
		{"nodes of a rack", racks, Rule{PerNode: 8}, func(w *world) { w.dead(oneOf("compute3", "compute7", "compute9")) }, "node compute3, node compute7, node compute9"},
		{"nodes here and there", zones, Rule{PerNode: 8, PerZone: 2}, func(w *world) { w.dead(oneOf("compute3", "compute113", "compute399")) }, "node compute113, node compute3, node compute399"},
		{"a rack", racks, Rule{PerNode: 8}, func(w *world) { w.dead(rack("r3")) }, "rack r3"},
		{"two racks", racks, Rule{PerNode: 8}, func(w *world) {
			w.dead(func(n Node) bool { return n.Rack == "r3" || n.Rack == "r5" })
		}, "rack r3, rack r5"},
		{"a rack of a zone", zones, Rule{PerNode: 8, PerZone: 2}, func(w *world) { w.dead(rack("r12")) }, "rack r12"},
		{"a rack and a node", racks, Rule{PerNode: 8}, func(w *world) {
			w.dead(func(n Node) bool { return n.Rack == "r3" || n.Name == "compute7" })
		}, "node compute7, rack r3"},
		{"an uplink", racks, Rule{PerNode: 8}, func(w *world) { w.uplink(rack("r3")) }, "uplink of rack r3"},
		{"an uplink in a zone", zones, Rule{PerNode: 8, PerZone: 2}, func(w *world) { w.uplink(rack("r3")) }, "uplink of rack r3"},
		{"an uplink by which one hears of it", racks, Rule{PerNode: 8}, func(w *world) {
			w.uplink(rack("r3"))
			w.silent = rack("r3")
		}, "rack r3"},
		{"a zone", zones, Rule{PerNode: 8, PerZone: 2}, func(w *world) { w.dead(zone("z2")) }, "zone z2"},
		{"the uplink of a zone", zones, Rule{PerNode: 8, PerZone: 2}, func(w *world) { w.uplink(zone("z2")) }, "uplink of zone z2"},
		{"all of a zone probed", zones, Rule{Within: WithinZone, PerZone: 4}, func(w *world) { w.dead(rack("r12")) }, "rack r12"},
		{"a prober that reaches nobody", racks, Rule{PerNode: 8}, func(w *world) {
			w.cut = func(a, _ Node) bool { return a.Name == "compute7" }
		}, ""},
		{"a node that answers nobody", racks, Rule{PerNode: 8}, func(w *world) {
			w.cut = func(a, b Node) bool { return a.Name == "compute7" || b.Name == "compute7" }
		}, "node compute7"},
		{"one pair", racks, Rule{PerNode: 8}, func(w *world) {
			w.cut = func(a, b Node) bool { return a.Name == "compute7" && b.Name == "compute9" }
		}, ""},
		{"one pair both ways", racks, Rule{PerNode: 8}, func(w *world) {
			pair := oneOf("compute7", "compute9")
			w.cut = func(a, b Node) bool { return pair(a) && pair(b) }
		}, ""},
		{"both of two nodes", racks[:2], Rule{}, func(w *world) { w.dead(oneOf("compute1")) }, ""}, // it may be the other
	}
}

func TestWhoIsToBlame(t *testing.T) {
	for _, c := range examples() {
		w := &world{mesh: New(c.nodes, c.rule), nodes: c.nodes}
		c.fault(w)
		if got := accused(w.votes(4)); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// manyVotes are the votes of all examples, all of them and some of them left out at random.
func manyVotes() map[string][]Vote {
	random := rand.New(rand.NewPCG(9, 9))
	all := make(map[string][]Vote)
	for _, c := range examples() {
		w := &world{mesh: New(c.nodes, c.rule), nodes: c.nodes}
		c.fault(w)
		votes := w.votes(4)
		all[c.name] = votes
		for _, heard := range []float64{0.3, 0.6} {
			var some []Vote
			for _, v := range votes {
				if random.Float64() < heard {
					some = append(some, v)
				}
			}
			all[fmt.Sprintf("%s, %v of the votes", c.name, heard)] = some
		}
	}
	return all
}

// Who reaches hardly anybody says nothing, and who reaches its rack alone says that.
func TestAbstaining(t *testing.T) {
	nodes := zoned(400, 10)
	m := New(nodes, Rule{PerNode: 8, PerZone: 2})
	votes := func(out func(i int, p Node) bool) []Vote {
		var sights []Sight
		for i, p := range m.Peers(nodes[0]) {
			sights = append(sights, Sight{Peer: p, Doubtful: out(i, p), Unreachable: out(i, p)})
		}
		return m.Votes(nodes[0], sights, 100)
	}
	if got := votes(func(int, Node) bool { return true }); got != nil {
		t.Errorf("reaches nobody: %+v", got)
	}
	if got := votes(func(i int, _ Node) bool { return i%4 != 0 }); got != nil {
		t.Errorf("reaches one in four: %+v", got)
	}
	if got := votes(func(i int, _ Node) bool { return i%4 == 0 }); len(got) != 6 { // of 23
		t.Errorf("reaches three in four: %+v", got)
	}
	got := votes(func(_ int, p Node) bool { return p.Rack != nodes[0].Rack })
	if len(got) != 1 || !got[0].Outside || got[0].Scope != ScopeRack || got[0].Share != 0.1 {
		t.Errorf("reaches its rack alone: %+v", got)
	}
	got = votes(func(_ int, p Node) bool { return p.Zone != nodes[0].Zone })
	if len(got) != 1 || !got[0].Outside || got[0].Scope != ScopeZone || got[0].Share != 0.01 {
		t.Errorf("reaches its zone alone: %+v", got)
	}
}

// The votes that all nodes cast on a dead one add up to the whole of each scope.
func TestSharesAddUp(t *testing.T) {
	nodes := zoned(400, 10)
	w := &world{mesh: New(nodes, Rule{PerNode: 8, PerZone: 2}), nodes: nodes}
	w.dead(oneOf("compute42"))
	sums := make(map[Scope]float64)
	for _, v := range w.votes(9) {
		if v.Subject.Name != "compute42" || v.Outside {
			t.Errorf("%+v", v)
		}
		sums[v.Scope] += v.Share
	}
	for _, s := range Scopes() {
		if sums[s] < 1-rounding || sums[s] > 1+rounding {
			t.Errorf("%v: %v", s, sums[s])
		}
	}
}

// Where there is not room for all votes, each node leaves out others.
func TestFewVotes(t *testing.T) {
	nodes := site(100, 50)
	w := &world{mesh: New(nodes, Rule{PerNode: 8}), nodes: nodes}
	w.dead(oneOf("compute1", "compute2", "compute3"))
	if n := len(w.votes(0)); n != 0 {
		t.Errorf("%d votes of none", n)
	}
	subjects := make(map[string]int)
	for _, v := range w.votes(1) {
		subjects[v.Subject.Name]++
	}
	if len(subjects) != 3 {
		t.Errorf("only on %v", subjects)
	}
}

// A few stray votes accuse nobody, and do not turn a dead rack into dead nodes.
func TestStrayVotes(t *testing.T) {
	nodes := site(200, 20)
	w := &world{mesh: New(nodes, Rule{PerNode: 8}), nodes: nodes}
	stray := []Vote{
		{Voter: nodes[60], Subject: nodes[61], Scope: ScopeNode, Share: 1.0 / 19},
		{Voter: nodes[62], Subject: nodes[61], Scope: ScopeNode, Share: 1.0 / 19},
		{Voter: nodes[60], Subject: nodes[60], Scope: ScopeRack, Share: 1.0 / 20, Outside: true},
		{Voter: nodes[5], Subject: nodes[100], Scope: ScopeRack, Share: 1}, // alone
	}
	if got := accused(stray); got != "" {
		t.Errorf("accused of stray votes: %s", got)
	}
	w.uplink(rack("r3")) // compute60 to compute79
	w.silent = func(n Node) bool { return n.Rack == "r3" && n.Name != "compute60" && n.Name != "compute62" }
	if got := accused(append(w.votes(4), stray...)); got != "rack r3" {
		t.Errorf("%q, want rack r3", got)
	}
}
