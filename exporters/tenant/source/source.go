// Package source says what a source of vigia-exporter's metrics is: one folder
// below exporters/tenant for each.
package source

import (
	"context"
	"time"

	"vigia/internal/catalog"
	"vigia/internal/exposition"
)

// Source reads one kind of data and emits it. The exporter runs sources one
// after the other, one scrape at a time, times them, and exports success,
// duration and age of each under its name. A source that fails emits nothing it
// does not know: missing series, never zeros.
//
// The name of its folder, of the flag --collector.NAME and of the label "collector" are
// one; lower case and digits.
type Source interface {
	// Collect emits what is known now. It must be fast: what takes longer
	// than a read from the kernel belongs into a Poller.
	Collect(v *View, out *exposition.Page) error
}

// Phase is when in a scrape a source runs. Within a phase the order means nothing: no
// source may need what another one of its phase records in the View.
type Phase int

// The phases of a scrape, in their order.
const (
	Identify  Phase = iota // who the ports are
	Collect                // what the kernel and switches have counted
	Reconcile              // what takes off its own counts what others have counted already
	Attribute              // what splits shared elements by what all others have recorded
)

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
