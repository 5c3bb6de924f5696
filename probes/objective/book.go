package objective

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"vigia/internal/statefile"
	"vigia/probes/histogram"
	"vigia/probes/sender"
)

// Target is a target whose samples are judged.
type Target struct {
	Labels sender.Labels
	// Identity tells what is probed, and how: what was learned of another is forgotten.
	Identity string
	// Bounds are what the operator wants; zero values are learned.
	Bounds Bounds
}

// Book has the objectives of all targets, and remembers over a restart those that were
// learned.
type Book struct {
	path    string
	logger  *slog.Logger
	layout  *histogram.Layout
	now     func() time.Time
	began   time.Time
	changed atomic.Bool // since the file was written

	mu      sync.Mutex
	targets map[sender.Labels]*entry
	// restored is what the file had of targets that have not come yet: discovery takes
	// its time.
	restored map[sender.Labels]remembered
}

type entry struct {
	identity string
	judge    *Judge
}

// patience is how long targets that the file remembers may take to come.
const patience = time.Hour

// NewBook returns a book that has what the file at path remembers; without a path it
// remembers nothing over a restart.
func NewBook(path string, logger *slog.Logger) *Book {
	return newBook(path, logger, time.Now)
}

func newBook(path string, logger *slog.Logger, now func() time.Time) *Book {
	b := &Book{
		path: path, logger: logger, layout: histogram.NewLayout(nil), now: now, began: now(),
		targets: make(map[sender.Labels]*entry),
	}
	if path == "" {
		return b
	}
	restored, err := load(path)
	if err != nil {
		logger.Error("cannot read the learned objectives; they are learned anew", "err", err)
	}
	b.restored = restored
	return b
}

// Set replaces the targets. One that is what it was keeps its objectives and counts; one
// that is probed in another way keeps its counts, and learns anew.
func (b *Book) Set(targets []Target) {
	b.mu.Lock()
	defer b.mu.Unlock()
	before := b.targets
	b.targets = make(map[sender.Labels]*entry, len(targets))
	for _, t := range targets {
		e := before[t.Labels]
		switch {
		case e == nil:
			e = &entry{identity: t.Identity, judge: &Judge{book: b}}
			if r, ok := b.restored[t.Labels]; ok && r.Identity == t.Identity {
				e.judge.setLearned(r.bounds())
			}
		case e.identity != t.Identity:
			e.identity = t.Identity
			e.judge.setLearned(Bounds{})
		}
		delete(b.restored, t.Labels)
		e.judge.setBounds(t.Bounds)
		b.targets[t.Labels] = e
	}
	b.changed.Store(true)
}

// Of returns the judge of a target; that of one which the book does not have is kept by
// nobody else.
func (b *Book) Of(l sender.Labels) *Judge {
	b.mu.Lock()
	defer b.mu.Unlock()
	if e := b.targets[l]; e != nil {
		return e.judge
	}
	return &Judge{book: b}
}

// saveInterval is how often what was learned is written down.
const saveInterval = time.Minute

// Run writes down what was learned until ctx ends, and then once more.
func (b *Book) Run(ctx context.Context) {
	if b.path == "" {
		return
	}
	tick := time.NewTicker(saveInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			b.save()
			return
		case <-tick.C:
			b.save()
		}
	}
}

// save writes down what was learned, if that has changed.
func (b *Book) save() {
	if b.path == "" || !b.changed.Swap(false) {
		return
	}
	if err := statefile.Write(b.path, b.contents()); err != nil {
		b.changed.Store(true)
		b.logger.Error("cannot remember the learned objectives over a restart", "err", err)
	}
}

// The version of the file, its size in bytes and number of targets at most.
const (
	stateVersion  = 1
	maxState      = 64 << 20
	maxRemembered = 50_000
	maxRememberNs = int64(1000 * time.Second)
)

// contents are what the file remembers.
type contents struct {
	Version int          `json:"version"`
	Targets []remembered `json:"targets"`
}

// remembered is what was learned of a target.
type remembered struct {
	Src      string `json:"src"`
	Dst      string `json:"dst"`
	Path     string `json:"path"`
	Tenant   string `json:"tenant"`
	Probe    string `json:"probe"`
	Identity string `json:"identity"`
	Delay    int64  `json:"delay_ns,omitempty"`
	Jitter   int64  `json:"jitter_ns,omitempty"`
}

func (r *remembered) bounds() Bounds {
	return Bounds{Delay: time.Duration(r.Delay), Jitter: time.Duration(r.Jitter)}
}

// contents returns what is to be remembered.
func (b *Book) contents() contents {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := contents{Version: stateVersion, Targets: []remembered{}}
	for l, e := range b.targets {
		bounds := e.judge.learnedBounds()
		if bounds == (Bounds{}) {
			continue
		}
		s.Targets = append(s.Targets, remembered{
			Src: l.Src, Dst: l.Dst, Path: l.Path, Tenant: l.Tenant, Probe: l.Probe,
			Identity: e.identity, Delay: int64(bounds[Delay]), Jitter: int64(bounds[Jitter]),
		})
	}
	if b.now().Sub(b.began) > patience {
		b.restored = nil
	}
	for _, r := range b.restored {
		s.Targets = append(s.Targets, r)
	}
	s.Targets = s.Targets[:min(len(s.Targets), maxRemembered)]
	return s
}

// load reads the file; one that is not there remembers nothing.
func load(path string) (map[sender.Labels]remembered, error) {
	var s contents
	err := statefile.Read(path, maxState, &s)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read learned objectives: %w", err)
	case s.Version != stateVersion:
		return nil, fmt.Errorf("read learned objectives: %s has version %d, and %d is known here", path, s.Version, stateVersion)
	case len(s.Targets) > maxRemembered:
		return nil, fmt.Errorf("read learned objectives: %s has %d targets, and %d are possible", path, len(s.Targets), maxRemembered)
	}
	restored := make(map[sender.Labels]remembered, len(s.Targets))
	for i, r := range s.Targets {
		for name, ns := range map[string]int64{"delay_ns": r.Delay, "jitter_ns": r.Jitter} {
			if ns < 0 || ns > maxRememberNs {
				return nil, fmt.Errorf("read learned objectives: %s: targets[%d].%s: %d is not between 0 and %d", path, i, name, ns, maxRememberNs)
			}
		}
		restored[sender.Labels{Src: r.Src, Dst: r.Dst, Path: r.Path, Tenant: r.Tenant, Probe: r.Probe}] = r
	}
	return restored, nil
}
