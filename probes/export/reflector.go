package export

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"vigia/internal/catalog"
	"vigia/probes/reflector"
	"vigia/probes/sockets"
)

// ownNamespace is the listener label of sockets in our own network namespace.
// Addresses never become labels, so listeners of one namespace share their series.
const ownNamespace = "_host"

// Reflector makes the counters of reflector listeners.
type Reflector struct {
	received, reflected, rejected, overflow *prometheus.CounterVec

	mu    sync.Mutex
	users map[string]map[sockets.Key]bool
}

// NewReflector registers the counters.
func NewReflector(f *catalog.Factory) *Reflector {
	return &Reflector{
		received:  f.Counter("vigia_reflector_received_total"),
		reflected: f.Counter("vigia_reflector_reflected_total"),
		rejected:  f.Counter("vigia_reflector_rejected_total"),
		overflow:  f.Counter("vigia_reflector_overflow_total"),
		users:     make(map[string]map[sockets.Key]bool),
	}
}

// rejections are the reasons that are exported.
func rejections() []reflector.Reason {
	return []reflector.Reason{reflector.Malformed, reflector.NotAllowed, reflector.RateLimited, reflector.Unauthenticated, reflector.SendError}
}

func listenerLabel(key sockets.Key) string {
	if key.Netns == "" {
		return ownNamespace
	}
	return key.Netns
}

// Counters returns the counters of a listener.
func (l *Reflector) Counters(key sockets.Key) reflector.Counters {
	label := listenerLabel(key)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.users[label] == nil {
		l.users[label] = make(map[sockets.Key]bool)
	}
	l.users[label][key] = true
	c := &listenerCounters{
		received:  l.received.WithLabelValues(label),
		reflected: l.reflected.WithLabelValues(label),
		overflow:  l.overflow.WithLabelValues(label),
		rejected:  make(map[reflector.Reason]prometheus.Counter),
	}
	for _, r := range rejections() {
		c.rejected[r] = l.rejected.WithLabelValues(label, r.String())
	}
	return c
}

// Remove takes the series of a listener away, unless another uses them, too.
func (l *Reflector) Remove(key sockets.Key) {
	label := listenerLabel(key)
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.users[label], key)
	if len(l.users[label]) > 0 {
		return
	}
	delete(l.users, label)
	for _, v := range []*prometheus.CounterVec{l.received, l.reflected, l.overflow} {
		v.DeleteLabelValues(label)
	}
	for _, r := range rejections() {
		l.rejected.DeleteLabelValues(label, r.String())
	}
}

type listenerCounters struct {
	received, reflected, overflow prometheus.Counter
	rejected                      map[reflector.Reason]prometheus.Counter
}

func (c *listenerCounters) Received()                   { c.received.Inc() }
func (c *listenerCounters) Reflected()                  { c.reflected.Inc() }
func (c *listenerCounters) Rejected(r reflector.Reason) { c.rejected[r].Inc() }
func (c *listenerCounters) Overflowed(n uint32)         { c.overflow.Add(float64(n)) }
