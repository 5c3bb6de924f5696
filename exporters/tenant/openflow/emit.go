package openflow

import (
	"errors"
	"fmt"
	"strconv"

	"vigia/exporters/tenant/source"
	"vigia/internal/exposition"
	"vigia/internal/openflow"
	"vigia/internal/ports"
)

type families struct {
	portBytes, portPackets, portErrors            *exposition.Family
	switchBytes, switchPackets, switchDrops       *exposition.Family
	sizes                                         *exposition.Family
	tableFlows, tableLookups, tableMatched        *exposition.Family
	tableLimit                                    *exposition.Family
	meterPackets, meterBytes, meterDrops          *exposition.Family
	queueBytes, queuePackets, queueDrops          *exposition.Family
	cookieBytes, cookiePackets, cookieFlowsNumber *exposition.Family
}

func newFamilies(f source.Families) families {
	get := func(name string) *exposition.Family { return source.Family(f, name) }
	return families{
		portBytes: get("vigia_port_bytes_total"), portPackets: get("vigia_port_packets_total"), portErrors: get("vigia_port_errors_total"),
		switchBytes: get("vigia_ovs_port_bytes_total"), switchPackets: get("vigia_ovs_port_packets_total"), switchDrops: get("vigia_ovs_port_drops_total"),
		sizes:      get("vigia_port_frames_by_size_total"),
		tableFlows: get("vigia_openflow_table_flows"), tableLookups: get("vigia_openflow_table_lookups_total"), tableMatched: get("vigia_openflow_table_matched_total"),
		tableLimit:   get("vigia_openflow_table_limit"),
		meterPackets: get("vigia_openflow_meter_packets_total"), meterBytes: get("vigia_openflow_meter_bytes_total"), meterDrops: get("vigia_openflow_meter_drops_total"),
		queueBytes: get("vigia_openflow_queue_bytes_total"), queuePackets: get("vigia_openflow_queue_packets_total"), queueDrops: get("vigia_openflow_queue_drops_total"),
		cookieBytes: get("vigia_openflow_cookie_bytes_total"), cookiePackets: get("vigia_openflow_cookie_packets_total"), cookieFlowsNumber: get("vigia_openflow_cookie_flows"),
	}
}

// Collect emits the newest answers.
func (s *Source) Collect(v *source.View, out *exposition.Page) error {
	list, err := s.poller.Latest()
	if err != nil {
		return err
	}
	var errs []error
	for i := range list {
		b := &list[i]
		if b.err != nil {
			errs = append(errs, b.err)
			continue
		}
		for j := range b.stats {
			s.port(v, b, &b.stats[j], out)
		}
		s.bridge(b, out)
	}
	return errors.Join(errs...)
}

// emit leaves out what the switch does not support.
func emit(out *exposition.Page, f *exposition.Family, value uint64, labels ...string) {
	if value != openflow.Unknown {
		out.Emit(f, float64(value), labels...)
	}
}

// port emits one port. A tenant's port that the kernel counts is left to the
// kernel's own counters, which are fresher; what only the switch knows is not.
func (s *Source) port(v *source.View, b *bridge, p *openflow.PortStats, out *exposition.Page) {
	known, ok := b.Ports[p.Port]
	if !ok {
		return // not in the database yet
	}
	position, ok := v.ByDevice(known.Device)
	if !ok {
		s.own(b.Name, known, p, out)
		return
	}
	t := &v.Ports[position]
	received, transmitted := source.SwitchSide.Directions()
	if t.Index == 0 { // the kernel has no such device: vhost-user
		emit(out, s.portBytes, p.RxBytes, t.ID, t.Tenant, received)
		emit(out, s.portBytes, p.TxBytes, t.ID, t.Tenant, transmitted)
		emit(out, s.portPackets, p.RxPackets, t.ID, t.Tenant, received)
		emit(out, s.portPackets, p.TxPackets, t.ID, t.Tenant, transmitted)
		if p.RxPackets != openflow.Unknown && p.TxPackets != openflow.Unknown {
			v.Carry(position, p.RxPackets+p.TxPackets, p.RxBytes)
		}
		device(v, t, received, p.RxDropped)
		device(v, t, transmitted, p.TxDropped)
	}
	for name, c := range customDrops {
		if n, ok := p.Custom[name]; ok && n != openflow.Unknown && n > 0 {
			direction := received
			if c.transmitted {
				direction = transmitted
			}
			v.Drops.Add(t.ID, t.Tenant, direction, c.reason, n, source.Within)
		}
	}
	if v.Detail && p.Sizes != nil {
		s.bySize(t, received, p.Sizes.Rx, out)
		s.bySize(t, transmitted, p.Sizes.Tx, out)
	}
}

func device(v *source.View, t *ports.Port, direction string, n uint64) {
	if n != openflow.Unknown {
		v.Drops.Device(t.ID, t.Tenant, direction, n)
	}
}

// customDrops maps the counters that Open vSwitch keeps of userspace ports (1.4,
// custom property) to reasons. All are part of the port's dropped count.
var customDrops = map[string]struct {
	transmitted bool
	reason      source.Reason
}{
	"ovs_tx_failure_drops":      {true, source.VhostBackpressure},
	"ovs_tx_mtu_exceeded_drops": {true, source.MTU},
	"ovs_tx_qos_drops":          {true, source.RateLimit},
	"ovs_rx_qos_drops":          {false, source.RateLimit},
	"ovs_tx_invalid_hwol_drops": {true, source.Other},
}

func (s *Source) bySize(t *ports.Port, direction string, counts [7]uint64, out *exposition.Page) {
	bounds := openflow.SizeBounds()
	for i, n := range counts {
		size := "max"
		if i < len(bounds) {
			size = strconv.Itoa(bounds[i])
		}
		emit(out, s.sizes, n, t.ID, t.Tenant, direction, size)
	}
}

// own emits a port that is no tenant's: an uplink, a tunnel, a patch port.
func (s *Source) own(bridge string, p ports.BridgePort, st *openflow.PortStats, out *exposition.Page) {
	emit(out, s.switchBytes, st.RxBytes, bridge, p.Device, p.Kind, "in")
	emit(out, s.switchBytes, st.TxBytes, bridge, p.Device, p.Kind, "out")
	emit(out, s.switchPackets, st.RxPackets, bridge, p.Device, p.Kind, "in")
	emit(out, s.switchPackets, st.TxPackets, bridge, p.Device, p.Kind, "out")
	emit(out, s.switchDrops, st.RxDropped, bridge, p.Device, p.Kind, "in")
	emit(out, s.switchDrops, st.TxDropped, bridge, p.Device, p.Kind, "out")
}

// systemTable is the last flow table, which Open vSwitch keeps for itself.
const systemTable = 254

func (s *Source) bridge(b *bridge, out *exposition.Page) {
	for _, t := range b.tables {
		if t.Active == 0 && t.Lookup == 0 || t.ID == systemTable {
			continue // 253 tables that nobody uses
		}
		id := strconv.Itoa(int(t.ID))
		out.Emit(s.tableFlows, float64(t.Active), b.Name, id)
		if limit, ok := b.Limits[t.ID]; ok {
			out.Emit(s.tableLimit, float64(limit), b.Name, id)
		}
		emit(out, s.tableLookups, t.Lookup, b.Name, id)
		emit(out, s.tableMatched, t.Matched, b.Name, id)
	}
	for _, m := range b.meters {
		id := strconv.FormatUint(uint64(m.ID), 10)
		emit(out, s.meterPackets, m.Packets, b.Name, id)
		emit(out, s.meterBytes, m.Bytes, b.Name, id)
		emit(out, s.meterDrops, m.BandPackets, b.Name, id)
	}
	for _, q := range b.queues {
		device, id := b.Ports[q.Port].Device, strconv.FormatUint(uint64(q.Queue), 10)
		if device == "" {
			continue
		}
		emit(out, s.queueBytes, q.TxBytes, b.Name, device, id)
		emit(out, s.queuePackets, q.TxPackets, b.Name, device, id)
		emit(out, s.queueDrops, q.TxErrors, b.Name, device, id)
	}
	for _, k := range b.cookies {
		id := fmt.Sprintf("%#x", k.Cookie.Cookie)
		out.Emit(s.cookieBytes, float64(k.bytes), b.Name, id, k.Tenant)
		out.Emit(s.cookiePackets, float64(k.packets), b.Name, id, k.Tenant)
		out.Emit(s.cookieFlowsNumber, float64(k.flows), b.Name, id, k.Tenant)
	}
}
