package protocol

import (
	"net/netip"
	"slices"
)

// maxSessions is how many identifiers there are.
const maxSessions = 1<<16 - 1

// Table finds the sessions of a socket.
type Table struct {
	byID   map[uint16]*Session
	byPeer map[netip.AddrPort][]*Session
	nextID uint16
	used   [1 << 16 / 64]uint64 // identifiers ever given out
}

// NewTable returns an empty table, whose first session gets an identifier or the next.
func NewTable(firstID uint16) *Table {
	return &Table{byID: make(map[uint16]*Session), byPeer: make(map[netip.AddrPort][]*Session), nextID: firstID}
}

// Len returns the number of sessions.
func (t *Table) Len() int { return len(t.byID) }

// Add gives the session an identifier of its own (RFC 8972 section 3: not zero). It
// returns false when there is none left, which only a reload of very many targets can
// reach for a moment.
func (t *Table) Add(s *Session) bool {
	id, ok := t.Reserve()
	if !ok {
		return false
	}
	s.ID = id
	t.byID[id] = s
	t.AddPeer(s)
	return true
}

// Reserve takes an identifier that no session of the table has: what returns it answers none
// of them. It returns false when there is none left.
func (t *Table) Reserve() (id uint16, ok bool) {
	if len(t.byID) == maxSessions {
		return 0, false
	}
	for t.nextID == 0 || t.byID[t.nextID] != nil {
		t.nextID++
	}
	id = t.nextID
	t.used[id/64] |= 1 << (id % 64)
	t.nextID++
	return id, true
}

// Remove forgets the session.
func (t *Table) Remove(s *Session) {
	delete(t.byID, s.ID)
	t.RemovePeer(s)
	s.ID = 0
}

// AddPeer notes the session's address, when it has one.
func (t *Table) AddPeer(s *Session) {
	if s.Address.IsValid() {
		t.byPeer[s.Address] = append(t.byPeer[s.Address], s)
	}
}

// RemovePeer forgets the session's address.
func (t *Table) RemovePeer(s *Session) {
	peers := slices.DeleteFunc(t.byPeer[s.Address], func(o *Session) bool { return o == s })
	if len(peers) == 0 {
		delete(t.byPeer, s.Address)
		return
	}
	t.byPeer[s.Address] = peers
}

// ByID returns the session with the identifier, or nil.
func (t *Table) ByID(id uint16) *Session { return t.byID[id] }

// Peers returns the sessions with the address.
func (t *Table) Peers(a netip.AddrPort) []*Session { return t.byPeer[a] }

// All calls fn for each session until it returns false.
func (t *Table) All(fn func(*Session) bool) {
	for _, s := range t.byID {
		if !fn(s) {
			return
		}
	}
}

// Match finds the session that an answer from an address belongs to. ours is false when
// it comes from no target of this socket; it is true with no session when it can only be
// a damaged one.
func (t *Table) Match(from netip.AddrPort, h *Header) (s *Session, ours bool) {
	if s = t.byID[h.ID]; s != nil && s.Address == from {
		return s, true
	}
	peers := t.byPeer[from]
	if len(peers) == 0 {
		return nil, false
	}
	if h.Anonymous {
		for _, s := range peers {
			if s.expects(h) {
				return s, true
			}
		}
	}
	if t.used[h.ID/64]&(1<<(h.ID%64)) != 0 && t.byID[h.ID] == nil {
		return nil, false // an answer to a session that is gone
	}
	return nil, true
}

// expects reports whether an answer returns the nonce of a probe of this session.
func (s *Session) expects(h *Header) bool {
	sequence, ok := s.Window.Expand(h.Sequence)
	if !ok {
		return false
	}
	slot := s.Window.Lookup(sequence)
	return slot != nil && slot.Value.Nonce == h.Nonce
}
