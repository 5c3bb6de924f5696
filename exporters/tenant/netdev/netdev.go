// Package netdev is the source of what ports carry: the kernel's own counters of
// their devices, from one RTM_GETSTATS dump.
package netdev

import (
	"vigia/exporters/tenant/source"
	"vigia/internal/exposition"
	"vigia/internal/ports"
	"vigia/internal/rtnl"
)

// Source emits bytes and packets and lays the devices' drops down.
type Source struct {
	conn      *rtnl.Conn
	now, last *rtnl.StatsTable      // of this scrape and the one before
	gone      map[string]rtnl.Stats // the last word of ports that are gone

	bytes, packets, errors *exposition.Family
}

// New returns the source that reads by conn.
func New(f source.Families, conn *rtnl.Conn) *Source {
	return &Source{
		conn: conn, now: &rtnl.StatsTable{}, last: &rtnl.StatsTable{}, gone: make(map[string]rtnl.Stats),
		bytes:   source.Family(f, "vigia_port_bytes_total"),
		packets: source.Family(f, "vigia_port_packets_total"),
		errors:  source.Family(f, "vigia_port_errors_total"),
	}
}

// AttributesDrops marks a source that adds to View.Drops.
func (s *Source) AttributesDrops() {}

// Collect emits the counters of all ports that have a device.
func (s *Source) Collect(v *source.View, out *exposition.Page) error {
	s.now, s.last = s.last, s.now
	if err := s.conn.Stats(s.now); err != nil {
		s.now, s.last = s.last, s.now // what is known of ports stays known
		return err
	}
	for i := range v.Ports {
		p := &v.Ports[i]
		if st := s.now.Get(p.Index); st != nil { // else it went since the list was made
			s.emit(p, st, v, out)
			sent := st.RxBytes
			if _, tx := Viewpoint(p).Directions(); tx == source.FromTenant {
				sent = st.TxBytes
			}
			v.Carry(i, st.RxPackets+st.TxPackets, sent)
		}
	}
	s.lastWords(v, out)
	return nil
}

// lastWords emits the counters of ports that are gone, as they were last seen.
func (s *Source) lastWords(v *source.View, out *exposition.Page) {
	if len(v.Gone) == 0 {
		clear(s.gone)
		return
	}
	here := make(map[string]bool, len(v.Gone))
	for i := range v.Gone {
		p := &v.Gone[i]
		here[p.ID] = true
		st, known := s.gone[p.ID]
		if !known {
			last := s.last.Get(p.Index)
			if last == nil {
				continue
			}
			st = *last
			s.gone[p.ID] = st
		}
		s.emit(p, &st, v, out)
	}
	for id := range s.gone {
		if !here[id] {
			delete(s.gone, id)
		}
	}
}

func (s *Source) emit(p *ports.Port, st *rtnl.Stats, v *source.View, out *exposition.Page) {
	rx, tx := Viewpoint(p).Directions()
	out.Emit(s.bytes, float64(st.RxBytes), p.ID, p.Tenant, rx)
	out.Emit(s.bytes, float64(st.TxBytes), p.ID, p.Tenant, tx)
	out.Emit(s.packets, float64(st.RxPackets), p.ID, p.Tenant, rx)
	out.Emit(s.packets, float64(st.TxPackets), p.ID, p.Tenant, tx)
	if st.RxErrors > 0 {
		out.Emit(s.errors, float64(st.RxErrors), p.ID, p.Tenant, rx)
	}
	if st.TxErrors > 0 {
		out.Emit(s.errors, float64(st.TxErrors), p.ID, p.Tenant, tx)
	}
	v.Drops.Device(p.ID, p.Tenant, rx, st.RxDropped)
	v.Drops.Device(p.ID, p.Tenant, tx, st.TxDropped)
	if st.RxMissed > 0 { // no room in the receive ring; the kernel keeps it apart from dropped
		v.Drops.Add(p.ID, p.Tenant, rx, source.RingFull, st.RxMissed, source.Beside)
	}
}

// Viewpoint returns where a port's device counts.
func Viewpoint(p *ports.Port) source.Viewpoint {
	if p.TenantSide {
		return source.TenantSide
	}
	return source.SwitchSide
}
