// Package identity is the source of who is who: ports, tenants and their names.
package identity

import (
	"slices"
	"sync"

	"vigia/exporters/tenant/source"
	"vigia/internal/exposition"
	"vigia/internal/ports"
)

// Tenant gives a tenant's id a name.
type Tenant struct {
	ID   string `yaml:"id"`
	Name string `yaml:"name"`
}

// Source emits the identity of ports and tenants.
type Source struct {
	mu      sync.Mutex
	tenants []Tenant

	up, portInfo, tenantInfo, count *exposition.Family
}

// New returns the source with the tenants' names.
func New(f source.Families, tenants []Tenant) *Source {
	return &Source{
		tenants:    slices.Clone(tenants),
		up:         source.Family(f, "vigia_port_up"),
		portInfo:   source.Family(f, "vigia_port_info"),
		tenantInfo: source.Family(f, "vigia_tenant_info"),
		count:      source.Family(f, "vigia_exporter_ports"),
	}
}

// Name is the collector's name.
func (s *Source) Name() string { return "identity" }

// SetTenants swaps the names.
func (s *Source) SetTenants(tenants []Tenant) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tenants = slices.Clone(tenants)
}

// Collect emits who is there. A port that is gone is down.
func (s *Source) Collect(v *source.View, out *exposition.Page) error {
	s.mu.Lock()
	tenants := s.tenants
	s.mu.Unlock()
	for _, t := range tenants {
		out.Emit(s.tenantInfo, 1, t.ID, t.Name)
	}
	resolved := 0
	for i := range v.Ports {
		p := &v.Ports[i]
		if p.Tenant != ports.Unresolved {
			resolved++
		}
		s.port(p, p.Up, out)
	}
	for i := range v.Gone {
		s.port(&v.Gone[i], false, out)
	}
	out.Emit(s.count, float64(resolved), "resolved")
	out.Emit(s.count, float64(len(v.Ports)-resolved), "unresolved")
	out.Emit(s.count, float64(len(v.Gone)), "gone")
	return nil
}

func (s *Source) port(p *ports.Port, up bool, out *exposition.Page) {
	out.Emit(s.up, source.Truth(up), p.ID, p.Tenant)
	hook := "none"
	if p.Index != 0 {
		hook = p.Hook().String()
	}
	out.Emit(s.portInfo, 1, p.ID, p.Tenant, p.Device, p.Bridge, p.DataPlane, p.Network, p.Workload, p.MAC, hook, p.Source)
}
