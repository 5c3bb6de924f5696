// Package identity is the source of who is who: ports, tenants and their names.
package identity

import (
	"slices"
	"sync"

	"vigia/exporters/tenant/source"
	"vigia/internal/exposition"
	"vigia/internal/node"
	"vigia/internal/ports"
)

// Source emits the identity of ports and tenants.
type Source struct {
	mu      sync.Mutex
	tenants []Tenant // of the configuration
	file    names
	ports   []ports.Port      // as they were last emitted
	block   *exposition.Block // and how that is written

	up, portInfo, tenantInfo, count *exposition.Family
}

// New returns the source with the tenants' names, and the path of a file with more
// of them, or "".
func New(f source.Families, tenants []Tenant, file string) *Source {
	return &Source{
		tenants: slices.Clone(tenants), file: newNames(file),
		up:         source.Family(f, "vigia_port_up"),
		portInfo:   source.Family(f, "vigia_port_info"),
		tenantInfo: source.Family(f, "vigia_tenant_info"),
		count:      source.Family(f, "vigia_exporter_ports"),
	}
}

// SetTenants swaps the names.
func (s *Source) SetTenants(tenants []Tenant) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tenants = slices.Clone(tenants)
}

// Collect emits who is there. A port that is gone is down.
func (s *Source) Collect(v *source.View, out *exposition.Page) error {
	err := s.names(v, out)
	resolved := 0
	for i := range v.Ports {
		if v.Ports[i].Tenant != ports.Unresolved {
			resolved++
		}
	}
	s.list(v, out)
	out.Emit(s.count, float64(resolved), "resolved")
	out.Emit(s.count, float64(len(v.Ports)-resolved), "unresolved")
	out.Emit(s.count, float64(len(v.Gone)), "gone")
	return err
}

// names emits the names of tenants: all that the configuration has, and of the
// file's, which are the whole cloud's, those that have ports here.
func (s *Source) names(v *source.View, out *exposition.Page) error {
	s.mu.Lock()
	tenants := s.tenants
	s.mu.Unlock()
	named := make(map[string]bool)
	for _, t := range tenants {
		out.Emit(s.tenantInfo, 1, t.ID, t.Name)
		named[t.ID] = true
	}
	byID, err := s.file.read()
	if len(byID) == 0 {
		return err
	}
	for _, list := range [][]ports.Port{v.Ports, v.Gone} {
		for i := range list {
			id := list[i].Tenant
			if name := byID[id]; name != "" && !named[id] {
				out.Emit(s.tenantInfo, 1, id, name)
				named[id] = true
			}
		}
	}
	return err
}

// list emits the ports. While they stay what they are, that is what it was before.
func (s *Source) list(v *source.View, out *exposition.Page) {
	if s.block != nil && len(v.Gone) == 0 && source.SameList(s.ports, v.Ports) && out.Repeat(s.block) {
		return
	}
	block := out.Record(func() {
		for i := range v.Ports {
			s.port(v, &v.Ports[i], v.Ports[i].Up, out)
		}
		for i := range v.Gone {
			s.port(v, &v.Gone[i], false, out)
		}
	})
	if s.ports, s.block = v.Ports, block; len(v.Gone) > 0 {
		s.block = nil // they go by and by
	}
}

// port emits one port. Most are up, which need not be said of each.
func (s *Source) port(v *source.View, p *ports.Port, up bool, out *exposition.Page) {
	if !up || v.Detail {
		out.Emit(s.up, source.Truth(up), p.ID, p.Tenant)
	}
	hook := "none"
	if p.Index != 0 {
		hook = node.Hook(p).String()
	}
	out.Emit(s.portInfo, 1, p.ID, p.Tenant, p.Device, p.Bridge, p.DataPlane, p.Network, p.Workload, p.MAC, hook, p.Source)
}
