// Package programs is the source of what the BPF programs at the ports count:
// protocols by tenant, what limits drop, and the signals of a flood.
package programs

import (
	"errors"
	"time"

	"vigia/exporters/tenant/source"
	"vigia/internal/bpf/vport"
	"vigia/internal/exposition"
	"vigia/internal/ports"
)

// Source reads the pinned maps.
type Source struct {
	manager *vport.Manager
	totals  tenantTotals
	clock   wallClock

	created, protocolBytes, protocolPackets                  *exposition.Family
	udpPackets, udpPorts, udpReplies, floodScore, floodBegan *exposition.Family
	newFlows, fragments, sizes                               *exposition.Family
}

// New returns the source that reads by m.
func New(f source.Families, m *vport.Manager) *Source {
	return &Source{
		manager: m, totals: newTenantTotals(), clock: newWallClock(),
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

// Name is the collector's name.
func (s *Source) Name() string { return "bpf" }

// AttributesDrops marks a source that adds to View.Drops.
func (s *Source) AttributesDrops() {}

// Collect emits what the programs count. A port without a program has no such
// series; the error of the last one is returned.
func (s *Source) Collect(v *source.View, out *exposition.Page) error {
	var failed error
	present := make(map[incarnation]bool, len(v.Ports))
	for i := range v.Ports {
		p := &v.Ports[i]
		counters, err := s.manager.Read(p.Index)
		if errors.Is(err, vport.ErrNotAttached) {
			failed = err
			continue
		}
		if err != nil {
			return err
		}
		signals, err := s.manager.Signals(p.Index)
		if err != nil {
			return err
		}
		key := incarnation{p.Index, counters.SinceNs}
		present[key] = true
		s.totals.add(p.Tenant, key, &counters)
		out.Emit(s.created, s.clock.at(counters.SinceNs), p.ID, p.Tenant)
		v.Drops.Add(p.ID, p.Tenant, source.FromTenant, source.RateLimit, counters.PolicedPackets, source.Beside)
		s.signals(v, p, &signals, out)
	}
	s.totals.forget(present)
	s.emitTotals(v, out)
	return failed
}

// suspicious is the flood score from which on a port's signals are exported one
// by one: less than half of what VigiaUdpFlood asks for.
const suspicious = 30

func (s *Source) signals(v *source.View, p *ports.Port, sig *vport.Signals, out *exposition.Page) {
	out.Emit(s.floodScore, sig.FloodScore, p.ID, p.Tenant)
	if sig.FloodSinceNs != 0 {
		out.Emit(s.floodBegan, s.clock.at(sig.FloodSinceNs), p.ID, p.Tenant)
	}
	if sig.FloodScore < suspicious && !v.Detail {
		return
	}
	out.Emit(s.udpPackets, float64(sig.UDPPackets), p.ID, p.Tenant)
	out.Emit(s.udpPorts, sig.DestinationPorts, p.ID, p.Tenant)
	out.Emit(s.udpReplies, sig.ReplyRatio, p.ID, p.Tenant)
	out.Emit(s.newFlows, sig.NewFlows, p.ID, p.Tenant)
	out.Emit(s.fragments, float64(sig.Fragments), p.ID, p.Tenant)
}

func (s *Source) emitTotals(v *source.View, out *exposition.Page) {
	directions, protocols := vport.Directions(), vport.Protocols()
	bounds := vport.SizeBounds()
	for tenant, t := range s.totals.byTenant {
		for d, direction := range directions {
			for i, protocol := range protocols {
				out.Emit(s.protocolBytes, float64(t.Bytes[d][i]), tenant, direction, protocol)
				out.Emit(s.protocolPackets, float64(t.Packets[d][i]), tenant, direction, protocol)
			}
			if v.Detail {
				cumulative, bytes := distribution(t, d)
				out.Histogram(s.sizes, bounds[:], cumulative, bytes, tenant, direction)
			}
		}
	}
}

// distribution returns a direction's cumulative frame sizes and the sum of all.
func distribution(c *vport.Counters, direction int) (cumulative []uint64, bytes float64) {
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

// incarnation is one life of a port's counters.
type incarnation struct {
	index   int
	sinceNs uint64
}

// tenantTotals sums the ports' counters by tenant so that the sums only grow: a
// port that goes away takes nothing with it.
type tenantTotals struct {
	byTenant map[string]*vport.Counters
	last     map[incarnation]vport.Counters
}

func newTenantTotals() tenantTotals {
	return tenantTotals{byTenant: make(map[string]*vport.Counters), last: make(map[incarnation]vport.Counters)}
}

// add counts what the port carried since it was last seen.
func (t *tenantTotals) add(tenant string, key incarnation, now *vport.Counters) {
	sum := t.byTenant[tenant]
	if sum == nil {
		sum = &vport.Counters{}
		t.byTenant[tenant] = sum
	}
	before := t.last[key]
	for d := range now.Bytes {
		for i := range now.Bytes[d] {
			sum.Bytes[d][i] += now.Bytes[d][i] - before.Bytes[d][i]
			sum.Packets[d][i] += now.Packets[d][i] - before.Packets[d][i]
		}
		for i := range now.Sizes[d] {
			sum.Sizes[d][i] += now.Sizes[d][i] - before.Sizes[d][i]
		}
	}
	t.last[key] = *now
}

// forget drops what is known of ports that are gone.
func (t *tenantTotals) forget(present map[incarnation]bool) {
	for key := range t.last {
		if !present[key] {
			delete(t.last, key)
		}
	}
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
