// Package netdev is the source of what ports carry: bytes and packets as the programs
// at the ports count them, and errors and drops as the kernel counts them for their
// devices, from one RTM_GETSTATS dump.
//
// A device's own bytes are not comparable from one kind to the next: a super-frame is
// one packet with one header, a VLAN tag may be beside the frame, and a veth device with
// an XDP program leaves the Ethernet header out. They serve ports alone that cannot have
// a program.
package netdev

import (
	"vigia/exporters/tenant/source"
	"vigia/internal/bpf/vport"
	"vigia/internal/exposition"
	"vigia/internal/ports"
	"vigia/internal/rtnl"
)

// Counted tells what the programs at the ports count. *bpf.Readings is one.
type Counted interface {
	Of(v *source.View) (*vport.Snapshot, error)
	Final(of vport.Incarnation) (vport.Traffic, bool, error)
}

// Source emits bytes and packets and lays the devices' drops down.
type Source struct {
	conn    *rtnl.Conn
	counted Counted
	devices *rtnl.StatsTable
	last    scrape               // the one before
	spare   []reading            // memory
	gone    map[string]*farewell // ports that are gone

	bytes, packets, errors *exposition.Family
}

// scrape is what the ports of a scrape were found to carry.
type scrape struct {
	ports    []ports.Port
	readings []reading // of each
}

// reading is what a port carried so far.
type reading struct {
	known bool // it may be shown
	// programmed tells that the numbers are, or were, the program's. They are not
	// followed by the device's, which would look like a burst of traffic.
	programmed  bool
	incarnation vport.Incarnation
	traffic     [2]amount // by vport.Direction
	errors      [2]uint64
}

type amount struct{ bytes, packets uint64 }

// farewell is what is said of a port that is gone.
type farewell struct {
	reading
	final bool // its program's counters have ended
}

// New returns the source that reads devices by conn.
func New(f source.Families, conn *rtnl.Conn, c Counted) *Source {
	return &Source{
		conn: conn, counted: c, devices: &rtnl.StatsTable{}, gone: make(map[string]*farewell),
		bytes:   source.Family(f, "vigia_port_bytes_total"),
		packets: source.Family(f, "vigia_port_packets_total"),
		errors:  source.Family(f, "vigia_port_errors_total"),
	}
}

// AttributesDrops marks a source that adds to View.Drops.
func (s *Source) AttributesDrops() {}

// Collect emits the counters of all ports that have a device.
func (s *Source) Collect(v *source.View, out *exposition.Page) error {
	if err := s.conn.Stats(s.devices); err != nil {
		return err
	}
	snapshot, err := s.counted.Of(v)
	if err != nil {
		return err
	}
	before, now := s.last.of(v), s.spare[:0]
	for i := range v.Ports {
		p := &v.Ports[i]
		st := s.devices.Get(p.Index)
		if st == nil {
			now = append(now, before[i]) // it went since the list was made
			continue
		}
		r := read(p, st, snapshot, &before[i])
		now = append(now, r)
		s.emit(p, &r, out)
		drops(p, st, v)
		if r.known { // how much work packets are, the kernel's own say better: super-frames are one
			v.Carry(i, st.RxPackets+st.TxPackets, r.traffic[vport.FromTenant].bytes)
		}
	}
	err = s.farewells(v, snapshot, out)
	s.last, s.spare = scrape{v.Ports, now}, s.last.readings
	return err
}

// of returns what the ports of a view carried then, by their positions in the view.
func (l *scrape) of(v *source.View) []reading {
	if source.SameList(l.ports, v.Ports) && len(l.readings) == len(v.Ports) {
		return l.readings
	}
	byID := make(map[string]int, len(l.ports))
	for i := range l.ports {
		byID[l.ports[i].ID] = i
	}
	out := make([]reading, len(v.Ports))
	for i := range v.Ports {
		if at, ok := byID[v.Ports[i].ID]; ok {
			out[i] = l.readings[at]
		}
	}
	return out
}

// read returns what a port carried, by its program, or by its device if it never had one.
func read(p *ports.Port, st *rtnl.Stats, snapshot *vport.Snapshot, before *reading) (r reading) {
	received, transmitted := vport.FromTenant, vport.ToTenant
	if p.TenantSide {
		received, transmitted = transmitted, received
	}
	if position, ok := snapshot.Find(p.Index); ok {
		c := &snapshot.Counters[position]
		r = reading{known: true, programmed: true, incarnation: snapshot.Places[position].Incarnation, traffic: sum(&c.Bytes, &c.Packets)}
	} else if before.programmed {
		r = *before
		r.known = false
	} else {
		r.known = true
		r.traffic[received] = amount{st.RxBytes, st.RxPackets}
		r.traffic[transmitted] = amount{st.TxBytes, st.TxPackets}
	}
	r.errors[received], r.errors[transmitted] = st.RxErrors, st.TxErrors
	return r
}

// sum adds up the protocols.
func sum(bytes, packets *[2][6]uint64) (out [2]amount) {
	for d := range out {
		for i := range bytes[d] {
			out[d].bytes += bytes[d][i]
			out[d].packets += packets[d][i]
		}
	}
	return out
}

func (s *Source) emit(p *ports.Port, r *reading, out *exposition.Page) {
	for d, direction := range vport.Directions() {
		if r.known {
			out.Emit(s.bytes, float64(r.traffic[d].bytes), p.ID, p.Tenant, direction)
			out.Emit(s.packets, float64(r.traffic[d].packets), p.ID, p.Tenant, direction)
		}
		if r.errors[d] > 0 {
			out.Emit(s.errors, float64(r.errors[d]), p.ID, p.Tenant, direction)
		}
	}
}

// drops lays down what a device counts as dropped.
func drops(p *ports.Port, st *rtnl.Stats, v *source.View) {
	rx, tx := Viewpoint(p).Directions()
	v.Drops.Device(p.ID, p.Tenant, rx, st.RxDropped)
	v.Drops.Device(p.ID, p.Tenant, tx, st.TxDropped)
	if st.RxMissed > 0 { // no room in the receive ring; the kernel keeps it apart from dropped
		v.Drops.Add(p.ID, p.Tenant, rx, source.RingFull, st.RxMissed, source.Beside)
	}
}

// farewells emits the counters of ports that are gone: as their programs ended, or as
// they were last seen.
func (s *Source) farewells(v *source.View, snapshot *vport.Snapshot, out *exposition.Page) error {
	if len(v.Gone) == 0 {
		clear(s.gone)
		return nil
	}
	here := make(map[string]bool, len(v.Gone))
	for i := range v.Gone {
		p := &v.Gone[i]
		here[p.ID] = true
		g := s.gone[p.ID]
		if g == nil {
			g = &farewell{reading: s.last.reading(p.ID)}
			s.gone[p.ID] = g
		}
		if err := s.finish(g, snapshot); err != nil {
			return err
		}
		s.emit(p, &g.reading, out)
	}
	for id := range s.gone {
		if !here[id] {
			delete(s.gone, id)
		}
	}
	return nil
}

// reading returns what a port was last found to carry.
func (l *scrape) reading(id string) reading {
	for i := range l.ports {
		if l.ports[i].ID == id {
			return l.readings[i]
		}
	}
	return reading{}
}

// finish follows a program's counters until they end.
func (s *Source) finish(g *farewell, snapshot *vport.Snapshot) error {
	if g.final || g.incarnation == (vport.Incarnation{}) {
		return nil
	}
	position, ok := snapshot.Find(int(g.incarnation.Index))
	if ok && snapshot.Places[position].Incarnation == g.incarnation {
		c := &snapshot.Counters[position]
		g.known, g.traffic = true, sum(&c.Bytes, &c.Packets)
		return nil
	}
	last, ok, err := s.counted.Final(g.incarnation)
	if err != nil {
		return err
	}
	if ok {
		g.known, g.traffic = true, sum(&last.Bytes, &last.Packets)
	}
	g.final = true
	return nil
}

// Viewpoint returns where a port's device counts.
func Viewpoint(p *ports.Port) source.Viewpoint {
	if p.TenantSide {
		return source.TenantSide
	}
	return source.SwitchSide
}
