// Package kerneldrops is the source of why the kernel drops tenants' packets: the
// tracepoint kfree_skb, attributed to the port that sent or would have received them.
package kerneldrops

import (
	"vigia/exporters/tenant/source"
	"vigia/internal/bpf/drops"
	"vigia/internal/exposition"
	"vigia/internal/ports"
)

// Counter reads drops. *drops.Counter is one.
type Counter interface {
	Read(keep func(index int) bool, each func(e *drops.Event, count uint64)) error
	Lost() (uint64, error)
}

// Source attributes drops to ports.
type Source struct {
	counter Counter
	table   map[string]loss
	refused map[string]refusals // by port

	raw, lost *exposition.Family
}

// New returns the source that reads c.
func New(f source.Families, c Counter) *Source {
	return &Source{
		counter: c, table: losses(), refused: make(map[string]refusals),
		raw:  source.Family(f, "vigia_port_kernel_drops_total"),
		lost: source.Family(f, "vigia_exporter_kernel_drops_lost_total"),
	}
}

// AttributesDrops marks a source that adds to View.Drops.
func (s *Source) AttributesDrops() {}

// Collect adds the drops of ports, and in the tier "detail" emits the kernel's own
// names of the reasons.
func (s *Source) Collect(v *source.View, out *exposition.Page) error {
	raw := make(map[rawKey]uint64)
	refused := make(map[*ports.Port]uint64)
	err := s.counter.Read(func(index int) bool { return v.ByIndex(index) != nil }, func(e *drops.Event, count uint64) {
		p, direction := blame(v, e)
		if p == nil {
			return
		}
		if isOwnCopy(p, e) {
			if l, ours := meaning(s.table, e.Reason); ours && l.where == source.Within {
				v.Drops.NoLoss(p.ID, p.Tenant, direction, count)
			}
			return
		}
		if isRefused(p, e) {
			refused[p] += count
			return
		}
		l, ours := meaning(s.table, e.Reason)
		if !ours {
			return
		}
		v.Drops.Add(p.ID, p.Tenant, direction, l.reason, count, l.where)
		if v.Detail {
			raw[rawKey{p.ID, p.Tenant, direction, e.Reason, e.Protocol}] += count
		}
	})
	if err != nil {
		return err
	}
	s.addRefused(v, refused)
	lost, err := s.counter.Lost()
	if err != nil {
		return err
	}
	out.Emit(s.lost, float64(lost))
	for k, count := range raw {
		out.Emit(s.raw, float64(count), k.port, k.tenant, k.direction, k.reason, k.protocol)
	}
	return nil
}

type rawKey struct{ port, tenant, direction, reason, protocol string }

// blame returns the port that an event belongs to, seen from its tenant: a packet
// dropped on the port's device while it came in or went out there, or dropped
// further on, at a bridge, a tunnel or the uplink, after it came in by the port.
func blame(v *source.View, e *drops.Event) (*ports.Port, string) {
	if p := v.ByIndex(e.Device); p != nil {
		received, transmitted := viewpoint(p).Directions()
		if e.Arrival == e.Device {
			return p, received
		}
		return p, transmitted
	}
	if p := v.ByIndex(e.Arrival); p != nil {
		received, _ := viewpoint(p).Directions()
		return p, received
	}
	return nil, ""
}

func viewpoint(p *ports.Port) source.Viewpoint {
	if p.TenantSide {
		return source.TenantSide
	}
	return source.SwitchSide
}

// isOwnCopy tells that the packet dropped is the kernel's own copy of one that
// Open vSwitch's userspace datapath received from its packet socket: whatever
// the kernel then makes of it, above all OTHERHOST, is no loss.
// An internal port has no packet socket: what comes in there goes to the tenant.
func isOwnCopy(p *ports.Port, e *drops.Event) bool {
	return !p.TenantSide && p.DataPlane == ports.OVSUserspace && e.Arrival == p.Index
}

// isRefused tells that the packet was freed without a reason on the way into a port that
// Open vSwitch's userspace datapath reads, before the kernel received it: there Vigia's
// program is at XDP, and the driver says nothing of why it frees what that drops.
func isRefused(p *ports.Port, e *drops.Event) bool {
	return !p.TenantSide && p.DataPlane == ports.OVSUserspace && e.Device == p.Index && e.Arrival == 0 && e.Reason == "NOT_SPECIFIED"
}

// refusals are what was freed at a port by the scrape before, and how many of them no
// program of ours dropped.
type refusals struct{ freed, rest uint64 }

// addRefused adds of what was freed on the way into ports what the programs there did
// not drop themselves, which is counted as such. They are read first: what was freed
// since must not count until their next word, so it is the count of the scrape before that is compared.
func (s *Source) addRefused(v *source.View, freed map[*ports.Port]uint64) {
	kept := make(map[string]refusals, len(freed))
	for p, now := range freed {
		own := v.Drops.Counts[source.DropKey{Port: p.ID, Tenant: p.Tenant, Direction: source.FromTenant, Reason: source.RateLimit}]
		before, known := s.refused[p.ID]
		if !known || now < before.freed {
			before = refusals{freed: now}
		}
		rest := max(before.rest, before.freed-min(before.freed, own))
		kept[p.ID] = refusals{freed: now, rest: rest}
		v.Drops.Add(p.ID, p.Tenant, source.FromTenant, source.Other, rest, source.Beside)
	}
	s.refused = kept
}
