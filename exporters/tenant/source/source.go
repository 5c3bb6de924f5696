// Package source says what a source of vigia-exporter's metrics is: one folder
// below exporters/tenant for each.
package source

import (
	"context"
	"time"

	"vigia/internal/catalog"
	"vigia/internal/exposition"
	"vigia/internal/ports"
)

// Source reads one kind of data and emits it. The exporter runs sources one
// after the other, one scrape at a time, times them, and exports success,
// duration and age of each under its name. A source that fails emits nothing it
// does not know: missing series, never zeros.
type Source interface {
	// Name is the label "collector" and the name of the flag
	// --collector.NAME; lower case, digits and underscores.
	Name() string
	// Collect emits what is known now. It must be fast: what takes longer
	// than a read from the kernel belongs into a Poller.
	Collect(v *View, out *exposition.Page) error
}

// Background is a source that works between scrapes as well.
type Background interface {
	Source
	// Run works until ctx ends.
	Run(ctx context.Context)
}

// Aged is a source whose data may be older than the scrape.
type Aged interface {
	Source
	// Age returns the age of the data; false while there is none.
	Age() (time.Duration, bool)
}

// Attributer is a source that adds to View.Drops. It runs whenever drops are
// exported, even if its own series are not asked for.
type Attributer interface {
	Source
	AttributesDrops()
}

// View is what all sources of one scrape see.
type View struct {
	Ports  []ports.Port        // that exist, sorted by id
	Gone   []ports.Port        // that are gone, for as long as their series stay
	States []ports.SourceState // of the sources of identity
	// Deviceless is how many of Ports only a switch knows: their Index is 0.
	Deviceless int
	Drops      *Drops
	// Load is what ports carried so far in packets, both directions, by port:
	// netdev and openflow lay it down for those who split shared elements.
	Load map[string]uint64
	// Sent is what tenants sent so far in bytes, by port, as netdev and openflow lay it down.
	Sent map[string]uint64
	// Queues is what the queues of devices that are no ports let through so far in
	// bytes, by device, as qdisc lays it down.
	Queues map[string]uint64
	Detail bool // whether the tier "detail" is on
	Now    time.Time

	byIndex map[int]*ports.Port
}

// NewView returns the view of one scrape.
func NewView(list, gone []ports.Port, states []ports.SourceState, now time.Time) *View {
	v := &View{
		Ports: list, Gone: gone, States: states, Drops: NewDrops(), Now: now, byIndex: make(map[int]*ports.Port, len(list)),
		Load: make(map[string]uint64, len(list)), Sent: make(map[string]uint64, len(list)), Queues: make(map[string]uint64),
	}
	for i := range list {
		if list[i].Index == 0 {
			v.Deviceless++
			continue
		}
		v.byIndex[list[i].Index] = &list[i]
	}
	return v
}

// ByIndex returns the port with that interface index, or nil.
func (v *View) ByIndex(index int) *ports.Port { return v.byIndex[index] }

// Families finds metrics in the catalogue. *catalog.Factory is one.
type Families interface {
	Declared(name string) catalog.Metric
}

// Family returns the form in which a catalogued metric is emitted.
func Family(f Families, name string) *exposition.Family {
	return exposition.NewFamily(f.Declared(name))
}

// Truth is 1 for true.
func Truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
