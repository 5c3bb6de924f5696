package app

import (
	"vigia/isolation-agent/enforcer/limits"
	"vigia/isolation-agent/enforcer/limits/police"
	"vigia/isolation-agent/enforcer/limits/shape"
)

// mechanisms is the table of limit mechanisms, the best first: a limit is put by the
// first that suits the port and the limit.
func (s *service) mechanisms() []limits.Row {
	return []limits.Row{
		{Name: "shape", Mechanism: shape.New(s.Manager, s.classes())},
		{Name: "police", Mechanism: police.New(s.Manager)}, // suits every port that has the BPF program
	}
}

// classes returns who makes classes on the uplinks; nil without links.
func (s *service) classes() shape.Classes {
	if s.schedule == nil {
		return nil
	}
	return s.schedule.reconciler
}
