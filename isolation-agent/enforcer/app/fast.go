package app

import (
	"vigia/internal/catalog"
	"vigia/internal/exposition"
	"vigia/isolation-agent/enforcer/limits"
)

// fast makes the enforcer's fast page: the limits in force.
type fast struct {
	limits *limits.Limits
	limit  *exposition.Family
}

func newFast(f *catalog.Factory, l *limits.Limits) *fast {
	return &fast{limits: l, limit: exposition.NewFamily(f.OnFastPage("vigia_isolation_limit_bytes_per_second"))}
}

// WriteFast emits GET /metrics/fast.
func (s *service) WriteFast(out *exposition.Page) error {
	if err := s.Keeper.Ready(); err != nil {
		return err
	}
	return s.fast.write(out)
}

func (f *fast) write(out *exposition.Page) error {
	list, err := f.limits.InForce()
	if err != nil {
		return err
	}
	for i := range list {
		l := &list[i].Limit
		out.Emit(f.limit, float64(l.BytesPerSecond), list[i].Port.ID, list[i].Port.Tenant, fromTenant, string(l.Protocol))
	}
	return nil
}
