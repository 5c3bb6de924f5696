// Package ovskernel is the source of upcalls by port: how often Open vSwitch's kernel
// datapath asks ovs-vswitchd about a port's packets, and how often in vain.
package ovskernel

import (
	"errors"

	"vigia/exporters/tenant/source"
	"vigia/internal/exposition"
	"vigia/internal/ovskernel"
)

// Source lists the ports of kernel datapaths.
type Source struct {
	list    func() ([]ovskernel.Vport, error)
	close   func() error
	upcalls *exposition.Family
}

// New returns the source for the namespace given by name or path.
func New(f source.Families, netns string) (*Source, error) {
	conn, err := ovskernel.Dial(netns)
	if err != nil {
		return nil, err
	}
	return &Source{list: conn.Vports, close: conn.Close, upcalls: source.Family(f, "vigia_port_upcalls_total")}, nil
}

// AttributesDrops marks a source that adds to View.Drops.
func (s *Source) AttributesDrops() {}

// Close frees the socket.
func (s *Source) Close() error { return s.close() }

// Collect emits upcalls by port. A kernel without a datapath, where Open vSwitch
// switches in user space, has none.
func (s *Source) Collect(v *source.View, out *exposition.Page) error {
	list, err := s.list()
	if errors.Is(err, ovskernel.ErrNoDatapath) {
		return nil
	}
	if err != nil {
		return err
	}
	for i := range list {
		vp := &list[i]
		p := v.ByIndex(vp.Index)
		if p == nil || !vp.HasUpcalls || vp.Index == 0 {
			continue
		}
		out.Emit(s.upcalls, float64(vp.Upcalls), p.ID, p.Tenant, "success")
		out.Emit(s.upcalls, float64(vp.LostUpcalls), p.ID, p.Tenant, "lost")
		received, _ := source.SwitchSide.Directions()
		v.Drops.Add(p.ID, p.Tenant, received, source.UpcallLost, vp.LostUpcalls, source.Beside)
	}
	return nil
}
