// Package fence keeps leaders of the past from giving commands.
//
// Replicas of the isolation agent elect a leader for a term, and every command
// carries it. A leader that was paused and does not know yet that another one
// followed it sends an older term, and is refused.
package fence

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"github.com/cilium/ebpf"
)

// ErrStale means that a later leader has given commands already.
var ErrStale = errors.New("an older leader's command")

// Fence remembers the highest term in a pinned map, so that a restart, or a death
// between any two steps, forgets nothing. A reboot does: it ends every limit, too.
type Fence struct {
	mu      sync.Mutex
	term    *ebpf.Map
	highest uint64
}

const mapName = "enforcer_term"

// Open makes or takes over the map below the pin directory, which is on a bpffs.
func Open(pinDir string) (*Fence, error) {
	dir := filepath.Join(pinDir, "enforcer")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make folder of the term: %w", err)
	}
	m, err := ebpf.NewMapWithOptions(&ebpf.MapSpec{
		Name: mapName, Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 1, Pinning: ebpf.PinByName,
	}, ebpf.MapOptions{PinPath: dir})
	if err != nil {
		return nil, fmt.Errorf("open map %s: %w", mapName, err)
	}
	f := &Fence{term: m}
	if err := m.Lookup(uint32(0), &f.highest); err != nil {
		return nil, errors.Join(fmt.Errorf("read the highest term: %w", err), m.Close())
	}
	return f, nil
}

// Close lets go of the map. The term stays.
func (f *Fence) Close() error { return f.term.Close() }

// Term returns the highest term seen, 0 if none.
func (f *Fence) Term() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.highest
}

// Admit lets a command of a term through, and remembers a new one before the
// command takes effect. It returns ErrStale if the term is older than the highest.
func (f *Fence) Admit(term uint64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case term < f.highest:
		return fmt.Errorf("term %d is older than %d: %w", term, f.highest, ErrStale)
	case term == f.highest:
		return nil
	}
	if err := f.term.Put(uint32(0), term); err != nil {
		return fmt.Errorf("keep term %d: %w", term, err)
	}
	f.highest = term
	return nil
}
