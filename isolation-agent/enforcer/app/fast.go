package app

import (
	"time"

	"vigia/internal/catalog"
	"vigia/internal/exposition"
	"vigia/isolation-agent/enforcer/contention"
	"vigia/isolation-agent/enforcer/limits"
)

// mostPairs is how many pairs of tenants the fast page shows.
const mostPairs = 4

// fast makes the enforcer's fast page: the limits in force, and who takes what others wait for.
type fast struct {
	limits *limits.Limits
	book   *contention.Book // nil without links
	limit  *exposition.Family
	taken  *exposition.Family
}

func newFast(f *catalog.Factory, l *limits.Limits, book *contention.Book) *fast {
	return &fast{
		limits: l, book: book, limit: exposition.NewFamily(f.OnFastPage("vigia_isolation_limit_bytes_per_second")),
		taken: exposition.NewFamily(f.OnFastPage("vigia_isolation_taken_bytes_per_second")),
	}
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
	f.writeTaken(out, time.Now())
	return nil
}

// writeTaken emits the pairs with most; the book has them in that order.
func (f *fast) writeTaken(out *exposition.Page, now time.Time) {
	if f.book == nil {
		return
	}
	for i, t := range f.book.Taken(now) {
		if t.BytesPerSecond <= 0 || i == mostPairs {
			return
		}
		out.Emit(f.taken, t.BytesPerSecond, t.Tenant, t.By, directionOf(t.Received))
	}
}

func directionOf(received bool) string {
	if received {
		return toTenant
	}
	return fromTenant
}
