package bulk

import (
	"fmt"
	"testing"
	"time"

	"vigia/probes/sender"
)

func TestLease(t *testing.T) {
	var l LinkLocks
	release, ok := l.acquire("uplink", 0, 1)
	if !ok {
		t.Fatal("a free link is refused")
	}
	if _, ok := l.acquire("uplink", 0, 1); ok {
		t.Error("two tests share a link")
	}
	other, ok := l.acquire("storage", 0, 1)
	if !ok {
		t.Error("another link is refused")
	}
	release()
	if _, ok := l.acquire("uplink", 0, 1); !ok {
		t.Error("the link is not free again")
	}
	release() // again: it must not free the lock of the next
	if _, ok := l.acquire("uplink", 0, 1); ok {
		t.Error("a link was released twice")
	}
	other()
}

// Connections of one test have a link together, as many as the test has, and nobody else's does.
func TestLeaseOfSeveralConnections(t *testing.T) {
	var l LinkLocks
	first, ok := l.acquire("uplink", 7, 2)
	if !ok {
		t.Fatal("a free link is refused")
	}
	second, ok := l.acquire("uplink", 7, 9)
	if !ok {
		t.Fatal("the second connection of a test is refused")
	}
	for test, what := range map[uint64]string{7: "a third connection of two", 8: "another test", 0: "a test of one connection"} {
		if _, ok := l.acquire("uplink", test, 9); ok {
			t.Errorf("%s shares the link", what)
		}
	}
	first()
	first()
	if _, ok := l.acquire("uplink", 8, 1); ok {
		t.Error("the link is free while a connection of its test is under way")
	}
	second()
	if _, ok := l.acquire("uplink", 8, 1); !ok {
		t.Error("the link is not free again")
	}
}

// The bytes of any 60 minutes stay within the limit, and what was not sent is
// there again.
func TestBudget(t *testing.T) {
	b := budget{}
	b.setLimit(1000)
	now := time.Unix(1_800_000_000, 0)
	refund, ok := b.take(now, 700)
	if !ok || b.left(now) != 300 {
		t.Fatalf("ok %v, %d left", ok, b.left(now))
	}
	if _, ok := b.take(now, 301); ok {
		t.Error("more than is left was given")
	}
	refund(200)
	if b.left(now) != 500 {
		t.Errorf("%d left", b.left(now))
	}
	if _, ok := b.take(now.Add(30*time.Minute), 500); !ok || b.left(now.Add(59*time.Minute)) != 0 {
		t.Errorf("%d left after an hour's spending", b.left(now.Add(59*time.Minute)))
	}
	if got := b.left(now.Add(62 * time.Minute)); got != 500 {
		t.Errorf("%d left when the first is over an hour ago", got)
	}
	refund(500) // too late to matter
	if got := b.left(now.Add(62 * time.Minute)); got != 500 {
		t.Errorf("%d left", got)
	}
	if got := b.left(now.Add(1000 * time.Hour)); got != 1000 {
		t.Errorf("%d left after a long time", got)
	}
	b.setLimit(100)
	if got := b.left(now.Add(1000 * time.Hour)); got != 100 {
		t.Errorf("%d left of a new limit", got)
	}
}

// In every slot each node takes part in at most one test, both ends agree, and
// over a cycle every ordered pair has exactly one turn.
func TestSlots(t *testing.T) {
	for n := 2; n <= 17; n++ {
		s := Slots{Length: time.Second}
		for i := range n {
			s.Nodes = append(s.Nodes, fmt.Sprintf("node%02d", (i*19)%n*3))
		}
		turns := make(map[[2]string]int)
		rounds := n - 1 + n%2
		for slot := range int64(2 * rounds) {
			busy := make(map[string]bool)
			for _, node := range s.Nodes {
				peer, ok := s.peer(node, slot)
				if !ok {
					continue
				}
				turns[[2]string{node, peer}]++
				if node == peer || busy[node] || busy[peer] {
					t.Fatalf("%d nodes, slot %d: %s tests %s, and one of them is busy", n, slot, node, peer)
				}
				busy[node], busy[peer] = true, true
			}
			if s.cycle(slot) != 0 || s.cycle(slot+int64(2*rounds)) != 1 {
				t.Errorf("%d nodes: slot %d is in cycle %d", n, slot, s.cycle(slot))
			}
		}
		if len(turns) != n*(n-1) {
			t.Errorf("%d nodes: %d of %d pairs have a turn", n, len(turns), n*(n-1))
		}
		for pair, count := range turns {
			if count != 1 {
				t.Errorf("%d nodes: %v has %d turns", n, pair, count)
			}
		}
	}
	s := Slots{Nodes: []string{"a", "b"}, Length: time.Second}
	if _, ok := s.peer("stranger", 0); ok {
		t.Error("a stranger has a turn")
	}
}

// Groups take turns, with and without slots for the whole site.
func TestTurns(t *testing.T) {
	group := func(dst, probe string) []Target {
		return []Target{{Labels: sender.Labels{Dst: dst, Probe: probe}}}
	}
	p := Plan{Node: "a", Groups: [][]Target{group("b", "one"), group("b", "two"), group("c", "one")}}
	seen := make(map[sender.Labels]int)
	for slot := range int64(6) {
		seen[p.turn(slot)[0].Labels]++
	}
	if len(seen) != 3 {
		t.Errorf("without slots: %v", seen)
	}
	clear(seen)
	p.Slots.Nodes = []string{"a", "b", "c"}
	for slot := range int64(24) { // four cycles
		if g := p.turn(slot); g != nil {
			seen[g[0].Labels]++
		}
	}
	want := map[sender.Labels]int{{Dst: "b", Probe: "one"}: 2, {Dst: "b", Probe: "two"}: 2, {Dst: "c", Probe: "one"}: 4}
	if fmt.Sprint(seen) != fmt.Sprint(want) {
		t.Errorf("with slots: %v, want %v", seen, want)
	}
	clear(seen)
	p.Groups = append(p.Groups, group("a", "itself"))
	for slot := range int64(36) { // six cycles
		if g := p.turn(slot); g != nil {
			seen[g[0].Labels]++
		}
	}
	want = map[sender.Labels]int{
		{Dst: "b", Probe: "one"}: 2, {Dst: "b", Probe: "two"}: 2, {Dst: "c", Probe: "one"}: 3, {Dst: "a", Probe: "itself"}: 5,
	}
	if fmt.Sprint(seen) != fmt.Sprint(want) {
		t.Errorf("with tests of the node with itself: %v, want %v", seen, want)
	}
	p.Groups = nil
	if p.turn(0) != nil {
		t.Error("a turn without groups")
	}
}
