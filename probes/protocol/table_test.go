package protocol

import (
	"net/netip"
	"testing"

	"vigia/probes/accounting"
)

var from = netip.MustParseAddrPort("10.0.0.1:862")

func newSession(address netip.AddrPort) *Session {
	return &Session{Address: address, Window: accounting.NewWindow[Probe](new(accounting.Counts), 1)}
}

// send sends a probe with a nonce.
func (s *Session) send(nonce uint64) uint64 {
	slot := s.Window.Begin(1)
	slot.Value.Nonce = nonce
	return slot.Sequence
}

func TestIdentifiersOnASocket(t *testing.T) {
	table := NewTable(0xffff)
	seen := make(map[uint16]bool)
	var first *Session
	for range 5 {
		s := newSession(from)
		if !table.Add(s) || s.ID == 0 || seen[s.ID] {
			t.Fatalf("identifier %d", s.ID)
		}
		seen[s.ID] = true
		if first == nil {
			first = s
		}
	}
	if table.Len() != 5 || table.ByID(first.ID) != first {
		t.Errorf("%d sessions", table.Len())
	}
	if s, ours := table.Match(from, &Header{ID: first.ID}); s != first || !ours {
		t.Error("a session is not found by its identifier")
	}
	if s, ours := table.Match(netip.MustParseAddrPort("10.0.0.1:863"), &Header{ID: first.ID}); s != nil || ours {
		t.Error("a session is found from another port")
	}
	if s, ours := table.Match(from, &Header{ID: 0x1234}); s != nil || !ours {
		t.Error("an unknown identifier from a target is not its damage")
	}
	reserved, ok := table.Reserve()
	if !ok || reserved == 0 || seen[reserved] || table.Len() != 5 {
		t.Errorf("%d is reserved, %v", reserved, ok)
	}
	if s, ours := table.Match(from, &Header{ID: reserved}); s != nil || ours {
		t.Error("an answer to a trace is somebody's damage")
	}
	gone := first.ID
	table.Remove(first)
	if s, ours := table.Match(from, &Header{ID: gone}); s != nil || ours {
		t.Error("an answer to a session that is gone is somebody's damage")
	}
	if len(table.Peers(from)) != 4 || first.ID != 0 {
		t.Errorf("%d sessions at the address, want 4", len(table.Peers(from)))
	}
	visited := 0
	table.All(func(*Session) bool { visited++; return visited < 3 })
	if visited != 3 {
		t.Errorf("%d sessions visited, want 3", visited)
	}
}

// TestAnonymousAnswers are told apart by what they return alone.
func TestAnonymousAnswers(t *testing.T) {
	table := NewTable(1)
	a, b := newSession(from), newSession(from)
	table.Add(a)
	table.Add(b)
	a.send(100)
	a.send(101)
	b.send(200)
	for _, tc := range []struct {
		sequence uint32
		nonce    uint64
		want     *Session
	}{{0, 100, a}, {1, 101, a}, {0, 200, b}, {1, 200, nil}, {0, 101, nil}, {7, 100, nil}} {
		s, ours := table.Match(from, &Header{Anonymous: true, Sequence: tc.sequence, Nonce: tc.nonce})
		if s != tc.want || !ours {
			t.Errorf("%+v: %p, %v", tc, s, ours)
		}
	}
	// One that is not anonymous, and has no identifier all the same, is damaged.
	if s, ours := table.Match(from, &Header{Sequence: 0, Nonce: 100}); s != nil || !ours {
		t.Error("a session was found without its identifier")
	}
}

// TestSessionsWithoutAddress have an identifier and nobody's answers.
func TestSessionsWithoutAddress(t *testing.T) {
	table := NewTable(1)
	s := newSession(netip.AddrPort{})
	table.Add(s)
	if len(table.Peers(netip.AddrPort{})) != 0 {
		t.Error("a session without an address has peers")
	}
	table.RemovePeer(s) // nothing to remove
	s.Address = from
	table.AddPeer(s)
	if got, ours := table.Match(from, &Header{ID: s.ID}); got != s || !ours {
		t.Error("the session is not found at its new address")
	}
	table.RemovePeer(s)
	if _, ours := table.Match(netip.MustParseAddrPort("10.0.0.9:1"), &Header{ID: s.ID}); ours {
		t.Error("a stranger's datagram is ours")
	}
}

// TestIdentifiersRunOut gives out all there are, and one again that has become free.
func TestIdentifiersRunOut(t *testing.T) {
	table := NewTable(40_000)
	var last *Session
	for i := range maxSessions {
		last = &Session{}
		if !table.Add(last) {
			t.Fatalf("no identifier for session %d", i)
		}
	}
	if table.Add(&Session{}) {
		t.Error("there were more identifiers than there are")
	}
	free := last.ID
	table.Remove(last)
	if s := (&Session{}); !table.Add(s) || s.ID != free {
		t.Errorf("identifier %d, want %d", s.ID, free)
	}
}
