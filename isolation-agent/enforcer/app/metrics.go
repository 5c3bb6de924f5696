package app

import (
	"maps"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"vigia/internal/catalog"
	"vigia/internal/zerofirst"
	"vigia/isolation-agent/enforcer/limits"
)

const (
	fromTenant = "from_tenant"
	toTenant   = "to_tenant"
	udp        = "udp"
)

// collector exports what is in the kernel at scrape time. Most ports are never limited: what
// limits and contracts drop has series once it has occurred at a port.
type collector struct {
	limits  *limits.Limits
	leftOut func() int // contracts

	mu    sync.Mutex
	ports map[string]*portSeries // by their id, those of the scrape before
	round uint64

	descs                                                                              []*prometheus.Desc
	limit, guarantee, expires, offered, policedBytes, policedPackets, refused, n, left emitter
}

// portSeries says which series of a port there are.
type portSeries struct {
	policedBytes, policedPackets, refused zerofirst.Counter
	limited                               bool // now or before
	round                                 uint64
}

type emitter func(ch chan<- prometheus.Metric, value float64, labels ...string)

func newCollector(f *catalog.Factory, l *limits.Limits, leftOut func() int) *collector {
	c := &collector{limits: l, leftOut: leftOut, ports: make(map[string]*portSeries)}
	get := func(name string) emitter {
		series := f.Series(name)
		c.descs = append(c.descs, series.Desc())
		return func(ch chan<- prometheus.Metric, value float64, labels ...string) {
			ch <- series.Sample(value, labels...)
		}
	}
	c.limit = get("vigia_isolation_limit_bytes_per_second")
	c.guarantee = get("vigia_isolation_guarantee_bytes_per_second")
	c.expires = get("vigia_isolation_limit_expires_seconds")
	c.offered = get("vigia_isolation_offered_bytes_total")
	c.policedBytes = get("vigia_isolation_policed_bytes_total")
	c.policedPackets = get("vigia_isolation_policed_packets_total")
	c.refused = get("vigia_isolation_refused_packets_total")
	c.n = get("vigia_enforcer_ports")
	c.left = get("vigia_enforcer_contracts_left_out")
	return c
}

// Describe announces the metrics.
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range c.descs {
		ch <- d
	}
}

// Collect reads the kernel.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	list, err := c.limits.State()
	if err != nil {
		ch <- prometheus.NewInvalidMetric(c.descs[0], err)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.round++
	attached := 0
	for i := range list {
		p := &list[i]
		id, tenant := p.Port.ID, p.Port.Tenant
		if b := p.Contract; b != nil {
			c.guarantee(ch, float64(b.Send.GuaranteeBytesPerSecond), id, tenant, fromTenant)
			c.guarantee(ch, float64(b.Receive.GuaranteeBytesPerSecond), id, tenant, toTenant)
		}
		if !p.Attached {
			continue
		}
		attached++
		c.exportCounters(ch, p)
		if p.Limit != nil {
			c.exportLimit(ch, p.Limit, id, tenant)
		}
	}
	maps.DeleteFunc(c.ports, func(_ string, s *portSeries) bool { return s.round != c.round })
	c.n(ch, float64(attached), "attached")
	c.n(ch, float64(len(list)-attached), "failed")
	c.left(ch, float64(c.leftOut()))
}

// exportCounters exports what limits did at a port, once one did something. What a port had
// counted before it was looked at is shown as it is: after a restart it is history, not growth.
func (c *collector) exportCounters(ch chan<- prometheus.Metric, p *limits.PortState) {
	id, tenant, n := p.Port.ID, p.Port.Tenant, &p.Counters
	s := c.ports[id]
	history := s == nil
	if history {
		s = new(portSeries)
		c.ports[id] = s
	}
	s.round = c.round
	for _, one := range []struct {
		emit  emitter
		state *zerofirst.Counter
		count uint64
	}{
		{c.policedBytes, &s.policedBytes, n.PolicedBytes},
		{c.policedPackets, &s.policedPackets, n.PolicedPackets},
		{c.refused, &s.refused, n.RefusedPackets},
	} {
		if v, ok := one.state.Show(one.count, history); ok {
			one.emit(ch, float64(v), id, tenant)
		}
	}
	if s.limited = s.limited || p.Limit != nil || n.PolicedPackets > 0; s.limited {
		bytes, _ := n.OfferedUDP()
		c.offered(ch, float64(bytes), id, tenant, udp)
	}
}

func (c *collector) exportLimit(ch chan<- prometheus.Metric, l *limits.State, port, tenant string) {
	c.limit(ch, float64(l.BytesPerSecond), port, tenant, fromTenant, string(l.Protocol))
	c.expires(ch, l.ExpiresIn.Seconds(), port, tenant)
}
