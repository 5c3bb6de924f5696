// Package bpf is the source of what the BPF programs at the ports count:
// protocols by tenant, what limits drop, and the signals of a flood.
package bpf

import (
	"fmt"
	"time"

	"vigia/exporters/tenant/source"
	"vigia/internal/bpf/vport"
	"vigia/internal/exposition"
	"vigia/internal/ports"
	"vigia/internal/zerofirst"
)

// Source reads the pinned maps.
type Source struct {
	manager  *vport.Manager
	readings *Readings
	totals   *totals
	quiet    quiet
	clock    wallClock
	seen     map[string]*protocolsSeen // by tenant

	created, protocolBytes, protocolPackets                  *exposition.Family
	udpPackets, udpPorts, udpReplies, floodScore, floodBegan *exposition.Family
	newFlows, fragments, sizes                               *exposition.Family
}

// New returns the source of what r reads by m.
func New(f source.Families, m *vport.Manager, r *Readings) *Source {
	return &Source{
		manager: m, readings: r, totals: newTotals(m.TenantTotals()), clock: newWallClock(),
		seen:            make(map[string]*protocolsSeen),
		created:         source.Family(f, "vigia_port_created_timestamp_seconds"),
		protocolBytes:   source.Family(f, "vigia_tenant_protocol_bytes_total"),
		protocolPackets: source.Family(f, "vigia_tenant_protocol_packets_total"),
		udpPackets:      source.Family(f, "vigia_port_udp_packets"),
		udpPorts:        source.Family(f, "vigia_port_udp_destination_ports"),
		udpReplies:      source.Family(f, "vigia_port_udp_reply_ratio"),
		floodScore:      source.Family(f, "vigia_port_flood_score"),
		newFlows:        source.Family(f, "vigia_port_new_flows"),
		fragments:       source.Family(f, "vigia_port_udp_fragments"),
		sizes:           source.Family(f, "vigia_tenant_packet_size_bytes"),
		floodBegan:      source.Family(f, "vigia_port_flood_detected_timestamp_seconds"),
	}
}

// AttributesDrops marks a source that adds to View.Drops.
func (s *Source) AttributesDrops() {}

// Collect emits what the programs count. A port without a program has no such
// series, and an error says how many there are.
func (s *Source) Collect(v *source.View, out *exposition.Page) error {
	snapshot, err := s.readings.Of(v)
	if err != nil {
		return err
	}
	places := snapshot.Places
	s.totals.begin()
	s.quiet.follow(places)
	watched := 0
	for i, place := range places {
		counters := &snapshot.Counters[i]
		p := v.ByIndex(int(place.Incarnation.Index))
		tenant := ""
		if p != nil {
			tenant = p.Tenant
		}
		if err := s.totals.add(place.Incarnation, tenant, counters); err != nil {
			return err
		}
		if p == nil {
			continue // its identity is not known now, or it is about to be let go
		}
		watched++
		if err := s.port(v, p, i, place, counters, out); err != nil {
			return err
		}
	}
	if err := s.totals.end(); err != nil {
		return err
	}
	s.emitTotals(v, out)
	if missing := len(v.Ports) - v.Deviceless - watched; missing > 0 {
		return fmt.Errorf("%d ports have no program yet; /debug/ports says why", missing)
	}
	return nil
}

func (s *Source) port(v *source.View, p *ports.Port, position int, place vport.Place, c *vport.Counters, out *exposition.Page) error {
	signals, err := s.quiet.signals(position, v.Now, place, c, s.manager.SignalsPlace)
	if err != nil {
		return err
	}
	if v.Detail {
		out.Emit(s.created, s.clock.at(c.SinceNs), p.ID, p.Tenant)
	}
	v.Drops.Add(p.ID, p.Tenant, source.FromTenant, source.RateLimit, c.PolicedPackets, source.Beside)
	s.signals(v, p, &signals, out)
	return nil
}

// suspicious is the flood score from which on a port's signals are exported one
// by one, and on the fast page at all: less than half of what VigiaUdpFlood asks for.
const suspicious = 30

func (s *Source) signals(v *source.View, p *ports.Port, sig *vport.Signals, out *exposition.Page) {
	if sig.FloodSinceNs != 0 {
		out.Emit(s.floodBegan, s.clock.at(sig.FloodSinceNs), p.ID, p.Tenant)
	}
	if sig.FloodScore < suspicious && !v.Detail {
		return
	}
	out.Emit(s.floodScore, sig.FloodScore, p.ID, p.Tenant)
	out.Emit(s.udpPackets, float64(sig.UDPPackets), p.ID, p.Tenant)
	out.Emit(s.udpPorts, sig.DestinationPorts, p.ID, p.Tenant)
	out.Emit(s.udpReplies, sig.ReplyRatio, p.ID, p.Tenant)
	out.Emit(s.newFlows, sig.NewFlows, p.ID, p.Tenant)
	out.Emit(s.fragments, float64(sig.Fragments), p.ID, p.Tenant)
}

// protocolsSeen are the protocols of a tenant that have series, by direction.
type protocolsSeen [2][6]zerofirst.Counter

// emitTotals emits what tenants had: each protocol once it has occurred, and in the tier "detail"
// all of them, their packets and the sizes of frames.
func (s *Source) emitTotals(v *source.View, out *exposition.Page) {
	for tenant, t := range s.totals.byTenant() {
		if v.Detail {
			s.emitDetail(tenant, t, out)
			continue
		}
		seen := s.seen[tenant]
		history := seen == nil // of before the exporter started, or from before it knew the tenant
		if history {
			seen = new(protocolsSeen)
			s.seen[tenant] = seen
		}
		for d, direction := range vport.Directions() {
			for i, protocol := range vport.Protocols() {
				if bytes, ok := seen[d][i].Show(t.Bytes[d][i], history); ok {
					out.Emit(s.protocolBytes, float64(bytes), tenant, direction, protocol)
				}
			}
		}
	}
}

func (s *Source) emitDetail(tenant string, t *vport.Traffic, out *exposition.Page) {
	bounds := vport.SizeBounds()
	for d, direction := range vport.Directions() {
		for i, protocol := range vport.Protocols() {
			out.Emit(s.protocolBytes, float64(t.Bytes[d][i]), tenant, direction, protocol)
			out.Emit(s.protocolPackets, float64(t.Packets[d][i]), tenant, direction, protocol)
		}
		cumulative, bytes := distribution(t, d)
		out.Histogram(s.sizes, bounds[:], cumulative, bytes, tenant, direction)
	}
}

// distribution returns a direction's cumulative frame sizes and the sum of all.
func distribution(c *vport.Traffic, direction int) (cumulative []uint64, bytes float64) {
	total := uint64(0)
	for _, n := range c.Sizes[direction] {
		total += n
		cumulative = append(cumulative, total)
	}
	for _, n := range c.Bytes[direction] {
		bytes += float64(n)
	}
	return cumulative, bytes
}

// wallClock turns instants of CLOCK_MONOTONIC into Unix time, always the same
// for the same instant, whatever the clocks do in between.
type wallClock struct {
	known map[uint64]float64
}

const maxKnownInstants = 1 << 16

func newWallClock() wallClock { return wallClock{known: make(map[uint64]float64)} }

func (w *wallClock) at(monotonic uint64) float64 {
	if t, ok := w.known[monotonic]; ok {
		return t
	}
	if len(w.known) >= maxKnownInstants {
		clear(w.known)
	}
	t := float64(vport.WallTime(monotonic).Round(time.Microsecond).UnixMicro()) / 1e6
	w.known[monotonic] = t
	return t
}
