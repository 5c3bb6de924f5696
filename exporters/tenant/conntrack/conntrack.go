// Package conntrack is the source of connections by zone: OVN keeps one zone per
// logical port, so that a tenant that fills the table shows.
package conntrack

import (
	"context"
	"strconv"
	"time"

	"vigia/exporters/tenant/source"
	"vigia/internal/exposition"
)

// Source counts entries in the background: reading the table takes the kernel
// about a microsecond an entry.
type Source struct {
	zones  func() map[string]uint16
	poller *source.Poller[map[uint16]int]

	byPort, byZone *exposition.Family
}

// Every is how often the table is read.
const Every = 30 * time.Second

// New returns the source for the namespace. zones returns the zone of each
// logical port, as far as the switch says.
func New(f source.Families, netns string, zones func() map[string]uint16) *Source {
	return &Source{
		zones:  zones,
		poller: source.NewPoller(Every, func(ctx context.Context) (map[uint16]int, error) { return count(ctx, netns) }),
		byPort: source.Family(f, "vigia_port_conntrack_entries"),
		byZone: source.Family(f, "vigia_conntrack_zone_entries"),
	}
}

// Age returns the age of the newest count.
func (s *Source) Age() (time.Duration, bool) { return s.poller.Age() }

// Run counts until ctx ends.
func (s *Source) Run(ctx context.Context) { s.poller.Run(ctx) }

// Collect emits the newest count, at ports whose zone is known, else by zone.
func (s *Source) Collect(v *source.View, out *exposition.Page) error {
	counts, err := s.poller.Latest()
	if err != nil {
		return err
	}
	owned := make(map[uint16]bool)
	zones := s.zones()
	for i := range v.Ports {
		p := &v.Ports[i]
		if zone, ok := zones[p.ID]; ok && !owned[zone] {
			owned[zone] = true
			out.Emit(s.byPort, float64(counts[zone]), p.ID, p.Tenant)
		}
	}
	for zone, n := range counts {
		if !owned[zone] {
			out.Emit(s.byZone, float64(n), strconv.Itoa(int(zone)))
		}
	}
	return nil
}
