// Package discovery learns of nodes to probe from files and HTTP endpoints in the
// format that Prometheus defines for file_sd and http_sd: a list of groups, each of
// targets and labels.
package discovery

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"
)

// State is what is known of a source.
type State struct {
	Peers []Peer // by name
	// Vanished peers were there not longer than the grace period ago.
	Vanished []Peer
	Err      error // of the last look
	At       time.Time
}

// Manager keeps sources up to date.
type Manager struct {
	logger  *slog.Logger
	update  func()
	changed chan struct{}

	mu      sync.Mutex
	sources map[string]*source
}

type source struct {
	Source
	peers    []Peer
	vanished map[Peer]time.Time // when each was last there
	err      error
	due, at  time.Time
}

// New returns a manager that calls update, one call at a time, when what State
// returns has changed.
func New(logger *slog.Logger, update func()) *Manager {
	return &Manager{logger: logger, update: update, changed: make(chan struct{}, 1), sources: make(map[string]*source)}
}

// Set replaces the sources. What is known of those that stay is kept.
func (m *Manager) Set(sources []Source) {
	m.mu.Lock()
	defer m.mu.Unlock()
	before := m.sources
	m.sources = make(map[string]*source)
	for _, s := range sources {
		known := before[s.key()]
		if known == nil {
			known = &source{vanished: make(map[Peer]time.Time)}
		}
		known.Source = s
		known.due = time.Time{}
		m.sources[s.key()] = known
	}
	select {
	case m.changed <- struct{}{}:
	default:
	}
}

// State returns what is known of a source.
func (m *Manager) State(s *Source) State {
	m.mu.Lock()
	defer m.mu.Unlock()
	known := m.sources[s.key()]
	if known == nil {
		return State{}
	}
	st := State{Peers: known.peers, Err: known.err, At: known.at}
	for p := range known.vanished {
		st.Vanished = append(st.Vanished, p)
	}
	return st
}

// Run looks until ctx ends.
func (m *Manager) Run(ctx context.Context) {
	for ctx.Err() == nil {
		wait := time.Hour
		changed := false
		for _, s := range m.all() {
			var next time.Duration
			did := m.look(ctx, s, &next)
			changed = changed || did
			wait = min(wait, next)
		}
		if changed && ctx.Err() == nil {
			m.update()
		}
		select {
		case <-ctx.Done():
		case <-m.changed:
		case <-time.After(max(wait, 10*time.Millisecond)):
		}
	}
}

func (m *Manager) all() (out []*source) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range m.sources {
		out = append(out, s)
	}
	return out
}

// look reads a source that is due and forgets who vanished long ago; it reports
// whether anything changed. A source that cannot be read keeps what it had.
func (m *Manager) look(ctx context.Context, s *source, next *time.Duration) (changed bool) {
	m.mu.Lock()
	where, due := s.Source, s.due
	m.mu.Unlock()
	now := time.Now()
	var peers []Peer
	var err error
	if !due.After(now) {
		peers, err = where.fetch(ctx)
		now = time.Now()
		due = now.Add(where.Refresh)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if err != nil && (s.err == nil || s.err.Error() != err.Error()) {
		m.logger.Warn("cannot discover nodes; keeping those known", "err", err)
	}
	if due != s.due {
		s.err, s.at, s.due = err, now, due
	}
	if peers != nil {
		changed = s.replace(peers, now)
	}
	for p, last := range s.vanished {
		if left := s.Grace - now.Sub(last); left > 0 {
			due = earlier(due, now.Add(left))
			continue
		}
		delete(s.vanished, p)
		changed = true
	}
	*next = due.Sub(now)
	return changed
}

func (s *source) replace(peers []Peer, now time.Time) (changed bool) {
	for _, p := range s.peers {
		if !slices.Contains(peers, p) {
			s.vanished[p] = now
			changed = true
		}
	}
	for _, p := range peers {
		if _, back := s.vanished[p]; back || !slices.Contains(s.peers, p) {
			delete(s.vanished, p)
			changed = true
		}
	}
	s.peers = peers
	return changed
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
