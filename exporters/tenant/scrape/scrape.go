// Package scrape runs the sources of vigia-exporter and answers GET /metrics.
package scrape

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"vigia/exporters/tenant/source"
	"vigia/internal/exposition"
	"vigia/internal/ports"
	"vigia/internal/zerofirst"
)

// drops is the name of the engine's own collector: the drops by reason, from all
// sources that attribute them.
const drops = "drops"

// seriesPerPort is the budget of the default tier.
const seriesPerPort = 10

// Inventory lists the ports. *ports.Inventory is one.
type Inventory interface {
	EveryPort() ([]ports.Port, []ports.SourceState)
}

// Collector is a source with the name by which operators know it, and its place in a
// scrape.
type Collector struct {
	Name   string
	Phase  source.Phase
	Source source.Source
}

// Options set an engine up.
type Options struct {
	Collectors []Collector // in any order
	Inventory  Inventory
	Families   source.Families
	Logger     *slog.Logger
	Detail     bool          // the tier "detail" is on
	Series     int           // series of one collector at most; a tenth as many ports have series of their own
	Gone       time.Duration // how long a port's series stay when it is gone
	Now        func() time.Time
}

// Engine runs sources, one scrape at a time.
type Engine struct {
	opts     Options
	families struct {
		drops, success, duration, age, limited, overflow, series *exposition.Family
	}

	mu         sync.Mutex
	page       *exposition.Page
	views      source.Views
	limiter    *exposition.Limiter
	remainders *source.Remainders
	zeroFirst  *zeroFirst
	gone       *goneList
	succeeded  map[string]time.Time // when a source last worked
	failing    map[string]string    // what was last logged
	cut        map[string]uint64    // samples kept out, by collector
	limited    map[string]*zerofirst.Counter
}

// New returns an engine. Two collectors with one name are a mistake in the program.
func New(o Options) *Engine {
	e := &Engine{
		opts: o, page: exposition.NewPage(nil), limiter: exposition.NewLimiter(o.Series / seriesPerPort),
		remainders: source.NewRemainders(), zeroFirst: newZeroFirst(), gone: newGoneList(o.Gone),
		succeeded: make(map[string]time.Time), failing: make(map[string]string), cut: make(map[string]uint64), limited: make(map[string]*zerofirst.Counter),
	}
	// Those of one phase go in the order of their names, so that pages look alike.
	e.opts.Collectors = slices.SortedFunc(slices.Values(o.Collectors), func(a, b Collector) int {
		return cmp.Or(cmp.Compare(a.Phase, b.Phase), cmp.Compare(a.Name, b.Name))
	})
	seen := make(map[string]bool)
	for _, name := range e.Names() {
		if seen[name] {
			panic(fmt.Sprintf("two collectors are named %q", name))
		}
		seen[name] = true
	}
	f := &e.families
	f.drops = source.Family(o.Families, "vigia_port_drops_total")
	f.success = source.Family(o.Families, "vigia_exporter_collector_success")
	f.duration = source.Family(o.Families, "vigia_exporter_collector_duration_seconds")
	f.age = source.Family(o.Families, "vigia_exporter_source_age_seconds")
	f.limited = source.Family(o.Families, "vigia_exporter_series_limited_total")
	f.overflow = source.Family(o.Families, "vigia_exporter_overflow_ports")
	f.series = source.Family(o.Families, "vigia_exporter_series")
	return e
}

// Names returns the names that collect[] takes.
func (e *Engine) Names() []string {
	var names []string
	for _, c := range e.opts.Collectors {
		names = append(names, c.Name)
	}
	return append(names, drops)
}

// Run works for the sources that work between scrapes until ctx ends.
func (e *Engine) Run(ctx context.Context) {
	var wg sync.WaitGroup
	for _, c := range e.opts.Collectors {
		if b, ok := c.Source.(source.Background); ok {
			wg.Go(func() { b.Run(ctx) })
		}
	}
	wg.Wait()
}

// check returns an error that names a collector that is not there.
func (e *Engine) check(only []string) error {
	names := e.Names()
	for _, name := range only {
		if !slices.Contains(names, name) {
			return fmt.Errorf("collect[]: %q is no collector here; these are: %s", name, strings.Join(names, ", "))
		}
	}
	return nil
}

// scrape runs the sources, or only those named, and hands the page to use, which
// must be done with it when it returns.
func (e *Engine) scrape(only []string, use func(*exposition.Page) error) error {
	wanted := func(name string) bool { return len(only) == 0 || slices.Contains(only, name) }
	e.mu.Lock()
	defer e.mu.Unlock()
	list, states := e.opts.Inventory.EveryPort()
	now := e.opts.Now()
	v := e.views.Next(list, e.gone.update(list, now), states, now)
	v.Detail = e.opts.Detail
	v.Drops.Marked = e.zeroFirst.marked
	overflow := e.limiter.Admit(portIDs(v))
	page := e.page
	page.Reset(e.limiter)
	complete := true
	for _, c := range e.opts.Collectors {
		_, attributes := c.Source.(source.Attributer)
		switch {
		case wanted(c.Name):
			complete = e.run(c, v, page) && complete
		case attributes && wanted(drops):
			complete = e.run(c, v, exposition.NewPage(nil)) && complete
		}
	}
	if wanted(drops) {
		page.Quota(e.opts.Series)
		e.drops(v, page, complete)
		e.cut[drops] += uint64(page.Quota(-1))
	}
	page.Overflow()
	e.self(page, states, overflow)
	return use(page)
}

func portIDs(v *source.View) []string {
	ids := make([]string, 0, len(v.Ports)+len(v.Gone))
	for i := range v.Ports {
		ids = append(ids, v.Ports[i].ID)
	}
	for i := range v.Gone {
		ids = append(ids, v.Gone[i].ID)
	}
	return ids
}

// run runs one collector within its share of the series and reports on it.
func (e *Engine) run(c Collector, v *source.View, page *exposition.Page) bool {
	name, f := c.Name, &e.families
	page.Quota(e.opts.Series)
	start := time.Now()
	err := c.Source.Collect(v, page)
	took := time.Since(start)
	e.cut[name] += uint64(page.Quota(-1))
	if err == nil {
		e.succeeded[name] = v.Now
	}
	e.log(name, err)
	page.Emit(f.success, source.Truth(err == nil), name)
	page.Emit(f.duration, took.Seconds(), name)
	if aged, ok := c.Source.(source.Aged); ok {
		if age, known := aged.Age(); known {
			page.Emit(f.age, age.Seconds(), name)
		}
	} else if at, ok := e.succeeded[name]; ok {
		page.Emit(f.age, v.Now.Sub(at).Seconds(), name)
	}
	return err == nil
}

// log says once when a source breaks and when it works again.
func (e *Engine) log(name string, err error) {
	switch was := e.failing[name]; {
	case err != nil && err.Error() != was:
		e.failing[name] = err.Error()
		e.opts.Logger.Warn("cannot collect", "collector", name, "err", err)
	case err == nil && was != "":
		delete(e.failing, name)
		e.opts.Logger.Info("collector works again", "collector", name)
	}
}

// drops emits what the sources have recorded. While one of them fails, what it
// would attribute must not appear as unattributed: the remainder is left out.
func (e *Engine) drops(v *source.View, page *exposition.Page, complete bool) {
	if complete {
		v.Drops.Settle(e.remainders)
	}
	e.zeroFirst.begin(v)
	for key, count := range v.Drops.Counts {
		if value, ok := e.zeroFirst.show(key, count); ok {
			page.Emit(e.families.drops, value, key.Port, key.Tenant, key.Direction, string(key.Reason))
		}
	}
	e.zeroFirst.end()
}

func (e *Engine) self(page *exposition.Page, states []ports.SourceState, overflow int) {
	f := &e.families
	for _, s := range states {
		page.Emit(f.success, source.Truth(s.Err == nil), s.Name)
		if s.Age > 0 {
			page.Emit(f.age, s.Age.Seconds(), s.Name)
		}
	}
	for _, name := range e.Names() {
		if e.limited[name] == nil {
			e.limited[name] = new(zerofirst.Counter)
		}
		cut, ok := e.limited[name].Show(e.cut[name], false)
		if ok || e.opts.Detail {
			page.Emit(f.limited, float64(cut), name)
		}
	}
	page.Emit(f.overflow, float64(overflow))
	page.Emit(f.series, float64(page.Series()+1))
}
