package app

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"vigia/internal/bpf/vport"
	"vigia/internal/catalog"
	"vigia/internal/ports"
	"vigia/internal/rtnl"
)

// metric is the descriptor of a computed metric.
type metric struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
}

func (m metric) emit(ch chan<- prometheus.Metric, value float64, labels ...string) {
	ch <- prometheus.MustNewConstMetric(m.desc, m.kind, value, labels...)
}

// collector computes the metrics of all ports at scrape time. A source that
// fails is missing series and collector_success 0, never zeros.
type collector struct {
	inventory *ports.Inventory
	stats     *rtnl.Conn
	manager   *vport.Manager

	portBytes, portPackets, portDrops, portUp, portCreated, portInfo metric
	tenantInfo, protocolBytes, protocolPackets                       metric
	udpPackets, udpPorts, udpReplies, floodScore, floodDetected      metric
	success, duration, age, portCount                                metric

	mu      sync.Mutex
	tenants []Tenant
	totals  tenantTotals
	clock   wallClock
}

func newCollector(f *catalog.Factory, inv *ports.Inventory, stats *rtnl.Conn, m *vport.Manager, tenants []Tenant) *collector {
	get := func(name string) metric {
		desc, kind := f.Desc(name)
		return metric{desc, kind}
	}
	return &collector{
		inventory: inv, stats: stats, manager: m, tenants: tenants,
		totals: newTenantTotals(), clock: newWallClock(),

		portBytes:       get("vigia_port_bytes_total"),
		portPackets:     get("vigia_port_packets_total"),
		portDrops:       get("vigia_port_drops_total"),
		portUp:          get("vigia_port_up"),
		portCreated:     get("vigia_port_created_timestamp_seconds"),
		portInfo:        get("vigia_port_info"),
		tenantInfo:      get("vigia_tenant_info"),
		protocolBytes:   get("vigia_tenant_protocol_bytes_total"),
		protocolPackets: get("vigia_tenant_protocol_packets_total"),
		udpPackets:      get("vigia_port_udp_packets"),
		udpPorts:        get("vigia_port_udp_destination_ports"),
		udpReplies:      get("vigia_port_udp_reply_ratio"),
		floodScore:      get("vigia_port_flood_score"),
		floodDetected:   get("vigia_port_flood_detected_timestamp_seconds"),
		success:         get("vigia_exporter_collector_success"),
		duration:        get("vigia_exporter_collector_duration_seconds"),
		age:             get("vigia_exporter_source_age_seconds"),
		portCount:       get("vigia_exporter_ports"),
	}
}

// Describe announces the metrics.
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, m := range []metric{
		c.portBytes, c.portPackets, c.portDrops, c.portUp, c.portCreated, c.portInfo, c.tenantInfo, c.protocolBytes,
		c.protocolPackets, c.udpPackets, c.udpPorts, c.udpReplies, c.floodScore, c.floodDetected, c.success, c.duration,
		c.age, c.portCount,
	} {
		ch <- m.desc
	}
}

func (c *collector) setTenants(tenants []Tenant) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tenants = tenants
}

// Collect reads all sources. Scrapes run one after the other: the totals of
// tenants depend on it.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	c.mu.Lock()
	defer c.mu.Unlock()
	list, states := c.inventory.Ports()
	for _, s := range states {
		c.success.emit(ch, truth(s.Err == nil), s.Name)
		if s.Age > 0 {
			c.age.emit(ch, s.Age.Seconds(), s.Name)
		}
	}
	for _, t := range c.tenants {
		c.tenantInfo.emit(ch, 1, t.ID, t.Name)
	}
	c.identity(ch, list)
	c.timed(ch, "bpf", func() error { return c.programs(ch, list) })
	c.timed(ch, "netdev", func() error { return c.netdev(ch, list) })
	c.emitTotals(ch)
}

// timed runs a source and reports on it.
func (c *collector) timed(ch chan<- prometheus.Metric, name string, run func() error) {
	start := time.Now()
	err := run()
	c.success.emit(ch, truth(err == nil), name)
	c.duration.emit(ch, time.Since(start).Seconds(), name)
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

func (c *collector) identity(ch chan<- prometheus.Metric, list []ports.Port) {
	resolved := 0
	for i := range list {
		p := &list[i]
		if p.Tenant != ports.Unresolved {
			resolved++
		}
		c.portUp.emit(ch, truth(p.Up), p.ID, p.Tenant)
		c.portInfo.emit(ch, 1, p.ID, p.Tenant, p.Device, p.Bridge, p.DataPlane, p.Network, p.Workload, p.MAC, p.Hook().String(), p.Source)
	}
	c.portCount.emit(ch, float64(resolved), "resolved")
	c.portCount.emit(ch, float64(len(list)-resolved), "unresolved")
}

// netdev exports the kernel's own counters of the ports' devices. The device is
// the switch's end of the port: what it receives is what the tenant sends.
func (c *collector) netdev(ch chan<- prometheus.Metric, list []ports.Port) error {
	all, err := c.stats.Stats()
	if err != nil {
		return err
	}
	for i := range list {
		p := &list[i]
		s, ok := all[p.Index]
		if !ok {
			continue // gone since the list was made
		}
		c.portBytes.emit(ch, float64(s.RxBytes), p.ID, p.Tenant, fromTenant)
		c.portBytes.emit(ch, float64(s.TxBytes), p.ID, p.Tenant, toTenant)
		c.portPackets.emit(ch, float64(s.RxPackets), p.ID, p.Tenant, fromTenant)
		c.portPackets.emit(ch, float64(s.TxPackets), p.ID, p.Tenant, toTenant)
		c.portDrops.emit(ch, float64(s.RxDropped), p.ID, p.Tenant, fromTenant, reasonUnattributed)
		c.portDrops.emit(ch, float64(s.TxDropped), p.ID, p.Tenant, toTenant, reasonUnattributed)
	}
	return nil
}

// Label values.
const (
	fromTenant         = "from_tenant"
	toTenant           = "to_tenant"
	reasonRateLimit    = "rate_limit"
	reasonUnattributed = "unattributed"
)
