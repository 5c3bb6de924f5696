// Package leaderterm refuses commands of leaders of an earlier term.
//
// Replicas of the isolation agent elect a leader for a term, and every command
// carries the term's number (a fencing token). A leader that was paused and does not
// know yet that another one followed it sends a lower number, and is refused.
//
// One wild number must not lock every later leader out: a term may be a step above
// the highest so far and no more, and the leader learns the highest from the state.
package leaderterm

import (
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/cilium/ebpf"

	"vigia/internal/node"
)

// ErrStale means that a later leader has given commands already.
var ErrStale = errors.New("a command of an earlier leader")

// ErrTooFar means that no leader can have come this far since the last command.
var ErrTooFar = errors.New("a term too far above the highest")

// MaxStep is how far a term may be above the highest so far. A leader follows the
// one before it by 1, or by what the state says of this node.
const MaxStep = 1 << 20

// last is beyond what leaders follow. A term that is kept from an earlier version, which
// took any, and is higher, is forgotten.
const last = 1 << 62

// Store remembers the highest term in a pinned map, so that a restart, or a death
// between any two steps, forgets nothing. A reboot does: it ends every limit, too.
type Store struct {
	mu      sync.Mutex
	term    *ebpf.Map
	highest uint64
}

const mapName = "enforcer_term"

// Open makes or takes over the map below the pin directory, which is on a bpffs.
func Open(pinDir string) (*Store, error) {
	dir := node.EnforcerPins(pinDir)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make folder of the term: %w", err)
	}
	m, err := ebpf.NewMapWithOptions(&ebpf.MapSpec{
		Name: mapName, Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 1, Pinning: ebpf.PinByName,
	}, ebpf.MapOptions{PinPath: dir})
	if err != nil {
		return nil, fmt.Errorf("open map %s: %w", mapName, err)
	}
	s := &Store{term: m}
	if err := m.Lookup(uint32(0), &s.highest); err != nil {
		return nil, errors.Join(fmt.Errorf("read the highest term: %w", err), m.Close())
	}
	if s.highest >= last {
		if err := m.Put(uint32(0), uint64(0)); err != nil {
			return nil, errors.Join(fmt.Errorf("forget term %d: %w", s.highest, err), m.Close())
		}
		s.highest = 0
	}
	return s, nil
}

// Close lets go of the map. The term stays.
func (s *Store) Close() error { return s.term.Close() }

// Highest returns the highest term seen, 0 if none.
func (s *Store) Highest() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.highest
}

// Admit lets a command of a term through, and remembers a new one before the
// command takes effect. It returns ErrStale if the term is older than the highest,
// and ErrTooFar if it is more than MaxStep above it.
func (s *Store) Admit(term uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case term < s.highest:
		return fmt.Errorf("term %d is older than %d: %w", term, s.highest, ErrStale)
	case term == s.highest:
		return nil
	case term-s.highest > MaxStep:
		return fmt.Errorf("term %d is more than %d above %d: %w", term, MaxStep, s.highest, ErrTooFar)
	}
	if err := s.term.Put(uint32(0), term); err != nil {
		return fmt.Errorf("keep term %d: %w", term, err)
	}
	s.highest = term
	return nil
}
