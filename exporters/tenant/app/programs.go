package app

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"vigia/internal/bpf/vport"
	"vigia/internal/ports"
)

// programs exports what the BPF programs at the ports count. A port without a
// program has no such series; the error of the last one is returned.
func (c *collector) programs(ch chan<- prometheus.Metric, list []ports.Port) error {
	var failed error
	present := make(map[incarnation]bool, len(list))
	for i := range list {
		p := &list[i]
		counters, err := c.manager.Read(p.Index)
		if errors.Is(err, vport.ErrNotAttached) {
			failed = err
			continue
		}
		if err != nil {
			return err
		}
		signals, err := c.manager.Signals(p.Index)
		if err != nil {
			return err
		}
		key := incarnation{p.Index, counters.SinceNs}
		present[key] = true
		c.totals.add(p.Tenant, key, &counters)
		c.portCreated.emit(ch, c.clock.at(counters.SinceNs), p.ID, p.Tenant)
		c.portDrops.emit(ch, float64(counters.PolicedPackets), p.ID, p.Tenant, fromTenant, reasonRateLimit)
		c.signals(ch, p, &signals)
	}
	c.totals.forget(present)
	return failed
}

func (c *collector) signals(ch chan<- prometheus.Metric, p *ports.Port, s *vport.Signals) {
	c.udpPackets.emit(ch, float64(s.UDPPackets), p.ID, p.Tenant)
	c.udpPorts.emit(ch, s.DestinationPorts, p.ID, p.Tenant)
	c.udpReplies.emit(ch, s.ReplyRatio, p.ID, p.Tenant)
	c.floodScore.emit(ch, s.FloodScore, p.ID, p.Tenant)
	if s.FloodSinceNs != 0 {
		c.floodDetected.emit(ch, c.clock.at(s.FloodSinceNs), p.ID, p.Tenant)
	}
}

func (c *collector) emitTotals(ch chan<- prometheus.Metric) {
	directions, protocols := vport.Directions(), vport.Protocols()
	for tenant, t := range c.totals.byTenant {
		for d, direction := range directions {
			for i, protocol := range protocols {
				c.protocolBytes.emit(ch, float64(t.Bytes[d][i]), tenant, direction, protocol)
				c.protocolPackets.emit(ch, float64(t.Packets[d][i]), tenant, direction, protocol)
			}
		}
	}
}

// incarnation is one life of a port's counters.
type incarnation struct {
	index   int
	sinceNs uint64
}

// tenantTotals sums the ports' counters by tenant so that the sums only grow: a
// port that goes away takes nothing with it.
type tenantTotals struct {
	byTenant map[string]*vport.Counters
	last     map[incarnation]vport.Counters
}

func newTenantTotals() tenantTotals {
	return tenantTotals{byTenant: make(map[string]*vport.Counters), last: make(map[incarnation]vport.Counters)}
}

// add counts what the port carried since it was last seen.
func (t *tenantTotals) add(tenant string, key incarnation, now *vport.Counters) {
	sum := t.byTenant[tenant]
	if sum == nil {
		sum = &vport.Counters{}
		t.byTenant[tenant] = sum
	}
	before := t.last[key]
	for d := range now.Bytes {
		for i := range now.Bytes[d] {
			sum.Bytes[d][i] += now.Bytes[d][i] - before.Bytes[d][i]
			sum.Packets[d][i] += now.Packets[d][i] - before.Packets[d][i]
		}
	}
	t.last[key] = *now
}

// forget drops what is known of ports that are gone.
func (t *tenantTotals) forget(present map[incarnation]bool) {
	for key := range t.last {
		if !present[key] {
			delete(t.last, key)
		}
	}
}

// wallClock turns instants of CLOCK_MONOTONIC into Unix time, always the same
// for the same instant, whatever the clocks do in between.
type wallClock struct {
	known map[uint64]float64
}

const maxKnownInstants = 1 << 16

func newWallClock() wallClock { return wallClock{known: make(map[uint64]float64)} }

func (w *wallClock) at(monotonic uint64) float64 {
	if t, ok := w.known[monotonic]; ok {
		return t
	}
	if len(w.known) >= maxKnownInstants {
		clear(w.known)
	}
	t := float64(vport.WallTime(monotonic).Round(time.Microsecond).UnixMicro()) / 1e6
	w.known[monotonic] = t
	return t
}
