package app

import (
	"vigia/isolation-agent/enforcer/limits"
	"vigia/isolation-agent/enforcer/limits/police"
	"vigia/isolation-agent/enforcer/limits/shape"
)

// mechanisms is the table of limit mechanisms. The first row that suits a port
// and a limit is used; the last one suits every port that has the BPF program.
func (s *service) mechanisms() []limits.Row {
	var table []limits.Row
	if s.schedule != nil {
		table = append(table, limits.Row{Name: "shape", Mechanism: shape.New(s.Manager, s.schedule.reconciler)})
	}
	return append(table,
		limits.Row{Name: "police", Mechanism: police.New(s.Manager)},
	)
}
