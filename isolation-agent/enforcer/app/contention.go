package app

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"vigia/internal/catalog"
	"vigia/internal/zerofirst"
	"vigia/isolation-agent/enforcer/contention"
)

// contentionCollector exports what tenants took from each other on full links.
type contentionCollector struct {
	book  *contention.Book
	taken *catalog.Series

	mu    sync.Mutex
	shown map[contention.Pair]*zerofirst.Counter
}

func newContentionCollector(f *catalog.Factory, book *contention.Book) *contentionCollector {
	return &contentionCollector{book: book, taken: f.Series("vigia_isolation_taken_bytes_total"), shown: make(map[contention.Pair]*zerofirst.Counter)}
}

// Describe announces the metric.
func (c *contentionCollector) Describe(ch chan<- *prometheus.Desc) { ch <- c.taken.Desc() }

// Collect exports the pairs that there have been since the start.
func (c *contentionCollector) Collect(ch chan<- prometheus.Metric) {
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.shown
	c.shown = make(map[contention.Pair]*zerofirst.Counter, len(before)) // pairs of tenants that are gone are forgotten
	for _, t := range c.book.Taken(time.Now()) {
		state := before[t.Pair]
		if state == nil {
			state = new(zerofirst.Counter)
		}
		c.shown[t.Pair] = state
		if v, ok := state.Show(uint64(t.Bytes), false); ok {
			ch <- c.taken.Sample(float64(v), t.Tenant, t.By, directionOf(t.Received))
		}
	}
}
