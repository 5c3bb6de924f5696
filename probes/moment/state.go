package moment

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"vigia/internal/statefile"
	"vigia/probes/sender"
)

// The file that keeps records over a restart.
const (
	stateVersion = 1
	// maxState bounds the file in bytes: the oldest records of bad targets are left out, then
	// good ones.
	maxState = 4 << 20
	// saveBad and saveGood are how long a new record waits for the file at most.
	saveBad  = 5 * time.Second
	saveGood = 5 * time.Minute
	// oldest is the age from which on a record is not read back.
	oldest = 7 * 24 * time.Hour
)

// state is what the file holds. Records are as /v1/moments shows them, one JSON text each.
type state struct {
	Version int               `json:"version"`
	Bad     []json.RawMessage `json:"bad"` // the oldest first
	Good    []json.RawMessage `json:"good"`
}

// differs notes that there is a record that the file lacks; mu is held.
func (w *Watch) differs() {
	if w.dirty.IsZero() {
		w.dirty = time.Now()
	}
}

// lastGood returns the last good record of a bad one's target; mu is held. One of before a restart
// counts where the far end is the same: what it was configured as is not known.
func (w *Watch) lastGood(m *Moment) *Moment {
	l := m.Labels()
	if good := w.good[l]; good != nil {
		return good
	}
	kept := w.kept[l]
	if kept == nil || kept.Hops == nil || m.Hops == nil || kept.Hops.To != m.Hops.To {
		return nil
	}
	return kept
}

// hasGood reports whether a target has a good record that is young enough; mu is held.
func (w *Watch) hasGood(l sender.Labels, now time.Time) bool {
	if w.good[l] != nil {
		return true
	}
	kept := w.kept[l]
	return kept != nil && now.Sub(kept.Time) < w.config.GoodInterval
}

// save replaces the file where it is time to; at zero it is the last chance.
func (w *Watch) save(now time.Time) {
	w.mu.Lock()
	wait := saveGood
	if n := len(w.moments); n > 0 && w.moments[n-1].Time.After(w.dirty.Add(-longest)) {
		wait = saveBad
	}
	if w.options.State == "" || w.dirty.IsZero() || !now.IsZero() && now.Sub(w.dirty) < wait {
		w.mu.Unlock()
		return
	}
	w.dirty = time.Time{}
	bad := append([]*Moment(nil), w.moments...)
	var good []*Moment
	for _, of := range []map[sender.Labels]*Moment{w.good, w.kept} {
		for _, m := range of {
			good = append(good, m)
		}
	}
	w.mu.Unlock()
	// Records do not change any more.
	if err := write(w.options.State, bad, good); err != nil {
		w.options.Logger.Error("cannot keep the records of bad moments over a restart", "err", err)
	}
}

// write writes what fits.
func write(path string, bad, good []*Moment) error {
	s, room := state{Version: stateVersion, Bad: []json.RawMessage{}, Good: []json.RawMessage{}}, maxState-1024
	take := func(to []json.RawMessage, m *Moment) ([]json.RawMessage, bool) {
		raw, err := json.Marshal(m)
		if err != nil || len(raw)+1 > room {
			return to, false
		}
		room -= len(raw) + 1
		return append(to, raw), true
	}
	fits := true
	for i := len(bad) - 1; i >= 0 && fits; i-- {
		s.Bad, fits = take(s.Bad, bad[i])
	}
	slices.Reverse(s.Bad)
	for _, m := range good {
		s.Good, _ = take(s.Good, m)
	}
	if err := statefile.Write(path, &s); err != nil {
		return fmt.Errorf("write records of moments: %w", err)
	}
	return nil
}

// restore reads the file. What cannot be read is said once and begun anew.
func (w *Watch) restore(now time.Time) {
	if w.options.State == "" {
		return
	}
	var s state
	err := statefile.Read(w.options.State, maxState, &s)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	if err == nil && s.Version != stateVersion {
		err = fmt.Errorf("%s has version %d, and %d is known here", w.options.State, s.Version, stateVersion)
	}
	var bad, good []*Moment
	if err == nil {
		if bad, err = decoded(s.Bad, now); err == nil {
			good, err = decoded(s.Good, now)
		}
	}
	if err != nil {
		w.options.Logger.Error("cannot read the records of bad moments of before the restart; there are none now", "err", err)
		return
	}
	w.moments = bad
	for _, m := range good[:min(len(good), maxGood)] {
		w.kept[m.Labels()] = m
	}
}

// decoded returns records that are not too old.
func decoded(raw []json.RawMessage, now time.Time) (out []*Moment, err error) {
	for _, r := range raw {
		var m Moment
		if err := json.Unmarshal(r, &m); err != nil {
			return nil, fmt.Errorf("a record is damaged: %w", err)
		}
		switch m.Why {
		case Good, Loss, Slow:
		default:
			return nil, fmt.Errorf("a record is damaged: it was made for %q", m.Why)
		}
		if age := now.Sub(m.Time); age < oldest && age > -time.Hour {
			out = append(out, &m)
		}
	}
	return out, nil
}
