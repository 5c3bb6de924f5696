package bpf

import (
	"vigia/exporters/tenant/source"
	"vigia/internal/bpf/vport"
)

// Readings are what the programs count, read once a scrape for all sources that ask:
// so what they emit is of one moment, and sums fit. It is not for two scrapes at once.
type Readings struct {
	manager  *vport.Manager
	view     *source.View // of the scrape that the snapshot is of
	snapshot vport.Snapshot
	err      error
}

// NewReadings returns the readings by m.
func NewReadings(m *vport.Manager) *Readings { return &Readings{manager: m} }

// Of returns what the programs count at the scrape of a view. It is valid until the
// next scrape.
func (r *Readings) Of(v *source.View) (*vport.Snapshot, error) {
	if r.view != v {
		r.view, r.err = v, r.manager.Snapshot(&r.snapshot)
	}
	return &r.snapshot, r.err
}

// Final returns the last word of counters whose port is gone; false if there is none.
func (r *Readings) Final(of vport.Incarnation) (vport.Traffic, bool, error) {
	return r.manager.TenantTotals().Final(of)
}
