package bulk

import (
	"errors"
	"fmt"
	"io/fs"
	"time"

	"vigia/internal/statefile"
)

// stateVersion is that of the file, maxState its size in bytes at most.
const (
	stateVersion = 1
	maxState     = 64 << 10
)

// state is what the file remembers over a restart: the bytes that tests have taken
// from the budget of the last hour.
type state struct {
	Version int     `json:"version"`
	Spent   []spent `json:"spent"`
}

// spent are the bytes of a minute since 1970.
type spent struct {
	Minute int64  `json:"minute"`
	Bytes  uint64 `json:"bytes"`
}

// loadState reads the file; one that is not there remembers nothing.
func loadState(path string) (*state, error) {
	var s state
	err := statefile.Read(path, maxState, &s)
	if errors.Is(err, fs.ErrNotExist) {
		return &state{}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read what bulk tests have spent: %w", err)
	}
	if s.Version != stateVersion {
		return nil, fmt.Errorf("read what bulk tests have spent: %s has version %d, and %d is known here", path, s.Version, stateVersion)
	}
	return &s, nil
}

// save replaces the file; a crash leaves the old one or the new one.
func (s *state) save(path string) error {
	if err := statefile.Write(path, s); err != nil {
		return fmt.Errorf("write what bulk tests have spent: %w", err)
	}
	return nil
}

// state returns what was spent in the last hour.
func (b *budget) state(now time.Time) *state {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.advance(now)
	s := &state{Version: stateVersion, Spent: []spent{}}
	for m := b.last - minutes; m <= b.last; m++ {
		if n := b.spent[index(m)]; n > 0 {
			s.Spent = append(s.Spent, spent{Minute: m, Bytes: n})
		}
	}
	return s
}

// restore takes what was spent before a restart. Minutes of the future, as a clock that
// was wrong leaves them, count as the present one.
func (b *budget) restore(s *state, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.advance(now)
	for _, e := range s.Spent {
		if minute := min(e.Minute, b.last); minute >= b.last-minutes {
			at := &b.spent[index(minute)]
			*at += min(e.Bytes, maxSpent-min(*at, maxSpent))
		}
	}
}

// maxSpent bounds the bytes of a minute, so that sums do not wrap.
const maxSpent = uint64(1) << 56

// index returns where the bytes of a minute are.
func index(minute int64) int64 {
	n := int64(minutes + 1)
	return (minute%n + n) % n
}
