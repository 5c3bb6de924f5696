package app

import (
	"slices"

	"vigia/internal/ports"
	"vigia/isolation-agent/enforcer/limits"
	"vigia/isolation-agent/enforcer/limits/ingress"
	"vigia/isolation-agent/enforcer/limits/police"
	"vigia/isolation-agent/enforcer/limits/shape"
)

// mechanisms is the table of limit mechanisms, the best first: a limit is put by the
// first that suits the port and the limit.
func (s *service) mechanisms() []limits.Row {
	table := []limits.Row{
		{Name: "shape", Mechanism: shape.New(s.Manager, s.classes())},
		{Name: "police", Mechanism: police.New(s.Manager)}, // suits every port that has the BPF program
	}
	if remote := s.config.Node.Sources.OVSDB; remote != "" { // and this one those that can have none
		table = append(table, limits.Row{Name: "ingress", Mechanism: ingress.New(remote)})
	}
	return table
}

// everyPort has limits know ports without a device in the kernel as well.
type everyPort struct{ *ports.Inventory }

// Ports returns every port.
func (e everyPort) Ports() ([]ports.Port, []ports.SourceState) { return e.EveryPort() }

// Lookup returns the port with that id, of every kind.
func (e everyPort) Lookup(id string) (ports.Port, bool) {
	if port, ok := e.Inventory.Lookup(id); ok {
		return port, true
	}
	every, _ := e.EveryPort()
	i := slices.IndexFunc(every, func(p ports.Port) bool { return p.ID == id })
	if i < 0 {
		return ports.Port{}, false
	}
	return every[i], true
}

// classes returns who makes classes on the uplinks; nil without links.
func (s *service) classes() shape.Classes {
	if s.schedule == nil {
		return nil
	}
	return s.schedule.reconciler
}
