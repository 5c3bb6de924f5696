package bpf

import (
	"vigia/exporters/tenant/source"
	"vigia/internal/bpf/vport"
	"vigia/internal/catalog"
	"vigia/internal/exposition"
	"vigia/internal/ports"
)

// signalReader reads the flood signals of all ports. *vport.Manager is one.
type signalReader interface {
	SnapshotSignals(s *vport.SignalSnapshot) error
}

// portLister lists the ports that have a device, always in the same memory while they
// stay what they are. *ports.Inventory is one.
type portLister interface {
	Ports() ([]ports.Port, []ports.SourceState)
}

// Fast makes the exporter's fast page: the ports whose UDP looks like a flood, or soon may.
// It reads the flood signals alone, so that it costs a small part of a scrape.
type Fast struct {
	signals   signalReader
	inventory portLister
	snapshot  vport.SignalSnapshot
	list      []ports.Port
	byIndex   map[int]int // positions in list, by interface

	score, udpPorts, watched *exposition.Family
}

// NewFast returns the page of what m counts at the ports of an inventory.
func NewFast(f *catalog.Factory, m signalReader, inventory portLister) *Fast {
	return &Fast{
		signals: m, inventory: inventory,
		score:    exposition.NewFamily(f.OnFastPage("vigia_port_flood_score")),
		udpPorts: exposition.NewFamily(f.OnFastPage("vigia_port_udp_destination_ports")),
		watched:  exposition.NewFamily(f.OnFastPage("vigia_exporter_flood_watched_ports")),
	}
}

// Write emits two series for each port with a flood score of 30 or more, and the number of
// ports that were looked at.
func (f *Fast) Write(out *exposition.Page) error {
	if err := f.signals.SnapshotSignals(&f.snapshot); err != nil {
		return err
	}
	f.follow()
	watched := 0
	for i, place := range f.snapshot.Places {
		at, ok := f.byIndex[int(place.Incarnation.Index)]
		if !ok {
			continue // its identity is not known now, or it is about to be let go
		}
		watched++
		if s := &f.snapshot.Signals[i]; s.FloodScore >= suspicious {
			p := &f.list[at]
			out.Emit(f.score, s.FloodScore, p.ID, p.Tenant)
			out.Emit(f.udpPorts, s.DestinationPorts, p.ID, p.Tenant)
		}
	}
	out.Emit(f.watched, float64(watched))
	return nil
}

// follow looks again which interface is which port, if any has changed.
func (f *Fast) follow() {
	list, _ := f.inventory.Ports()
	if f.byIndex != nil && source.SameList(f.list, list) {
		return
	}
	f.list, f.byIndex = list, make(map[int]int, len(list))
	for i := range list {
		f.byIndex[list[i].Index] = i
	}
}
