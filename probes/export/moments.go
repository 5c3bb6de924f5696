package export

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"vigia/internal/catalog"
	"vigia/probes/moment"
)

// Moments export what became of the occasions to record what happened on a path.
type Moments struct{ results *prometheus.CounterVec }

// NewMoments registers the metric; counters begin at zero.
func NewMoments(f *catalog.Factory) *Moments {
	m := &Moments{results: f.Counter("vigia_probe_moments_total")}
	for _, r := range moment.Results() {
		m.results.WithLabelValues(string(r))
	}
	return m
}

// Count counts a result.
func (m *Moments) Count(r moment.Result) { m.results.WithLabelValues(string(r)).Inc() }

// Bad appends the targets that are bad now, those of the operator's own as well: their last seconds
// had losses or slow round trips, as the fast page counts them.
func (r *Recorders) Bad(to []moment.Harm, now time.Time) []moment.Harm {
	second := r.second(now)
	r.mu.Lock()
	defer r.mu.Unlock()
	for l, rec := range r.targets {
		rec.mu.Lock()
		sum := rec.recent.sum(second)
		rec.mu.Unlock()
		if !sum.bad() {
			continue
		}
		why := moment.Slow
		if sum.lost >= minLost {
			why = moment.Loss
		}
		to = append(to, moment.Harm{Labels: l, Why: why})
	}
	return to
}
