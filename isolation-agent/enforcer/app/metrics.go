package app

import (
	"github.com/prometheus/client_golang/prometheus"

	"vigia/internal/catalog"
	"vigia/isolation-agent/enforcer/limits"
)

const (
	fromTenant = "from_tenant"
	toTenant   = "to_tenant"
	udp        = "udp"
)

// collector exports what is in the kernel at scrape time.
type collector struct {
	limits *limits.Limits

	descs                                                                        []*prometheus.Desc
	limit, guarantee, expires, offered, policedBytes, policedPackets, refused, n emitter
}

type emitter func(ch chan<- prometheus.Metric, value float64, labels ...string)

func newCollector(f *catalog.Factory, l *limits.Limits) *collector {
	c := &collector{limits: l}
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
		bytes, _ := p.Counters.OfferedUDP()
		c.offered(ch, float64(bytes), id, tenant, udp)
		c.policedBytes(ch, float64(p.Counters.PolicedBytes), id, tenant)
		c.policedPackets(ch, float64(p.Counters.PolicedPackets), id, tenant)
		c.refused(ch, float64(p.Counters.RefusedPackets), id, tenant)
		if p.Limit != nil {
			c.exportLimit(ch, p.Limit, id, tenant)
		}
	}
	c.n(ch, float64(attached), "attached")
	c.n(ch, float64(len(list)-attached), "failed")
}

func (c *collector) exportLimit(ch chan<- prometheus.Metric, l *limits.State, port, tenant string) {
	c.limit(ch, float64(l.BytesPerSecond), port, tenant, fromTenant, string(l.Protocol))
	c.expires(ch, l.ExpiresIn.Seconds(), port, tenant)
}
