package openflow

import (
	"context"
	"encoding/binary"
	"fmt"
)

// PortStats are the counters of one port, seen from the switch. A counter that
// the switch does not support is Unknown.
type PortStats struct {
	Port                                    uint32
	RxPackets, TxPackets, RxBytes, TxBytes  uint64
	RxDropped, TxDropped, RxErrors, TxError uint64
	DurationSec                             uint32            // since the port exists; from 1.3
	Sizes                                   *SizeCounters     // RFC 2819; 1.4 with Intel's extension, or nil
	Custom                                  map[string]uint64 // the port's own counters by name; 1.4
}

// SizeCounters are frames by size, of the groups of RFC 2819 and RFC 2863, in
// the order of Intel's extension. Unknown values are Unknown.
type SizeCounters struct {
	Rx [7]uint64 // up to 64, 65-127, 128-255, 256-511, 512-1023, 1024-1522, more
	Tx [7]uint64

	TxMulticast, RxBroadcast, TxBroadcast uint64
	RxUndersized, RxOversized             uint64
	RxFragmented, RxJabber                uint64
}

// SizeBounds are the upper bounds of SizeCounters, in bytes; the last has none.
func SizeBounds() []int { return []int{64, 127, 255, 511, 1023, 1522} }

// Ports returns the counters of every port.
func (c *Conn) Ports(ctx context.Context) ([]PortStats, error) {
	req := append(binary.BigEndian.AppendUint32(nil, anyPort), 0, 0, 0, 0)
	if c.version == V10 {
		req = append(binary.BigEndian.AppendUint16(nil, anyPort10), 0, 0, 0, 0, 0, 0)
	}
	var out []PortStats
	err := c.statistics(ctx, statsPort, req, func(b []byte) error {
		some, err := parsePorts(c.version, b)
		out = append(out, some...)
		return err
	})
	return out, wrap("port statistics", err)
}

func parsePorts(v Version, b []byte) ([]PortStats, error) {
	var out []PortStats
	for r := (reader{b: b}); len(r.b) > 0; {
		var p PortStats
		if v == V14 {
			e, err := r.entry(80)
			if err != nil {
				return out, err
			}
			if err := p.parse14(&e); err != nil {
				return out, err
			}
			out = append(out, p)
			continue
		}
		if v == V10 {
			p.Port = port16(r.u16())
			r.skip(6)
		} else {
			p.Port = r.u32()
			r.skip(4)
		}
		p.counters(&r)
		r.skip(4 * 8) // frame, overrun and CRC errors, collisions
		if v == V13 {
			p.DurationSec = r.u32()
			r.skip(4)
		}
		if r.short {
			return out, errShort
		}
		out = append(out, p)
	}
	return out, nil
}

func (p *PortStats) counters(r *reader) {
	r.u64s(&p.RxPackets, &p.TxPackets, &p.RxBytes, &p.TxBytes, &p.RxDropped, &p.TxDropped, &p.RxErrors, &p.TxError)
}

// Properties of port statistics (section 7.3.5.6) and of Open vSwitch's
// extension (include/openflow/intel-ext.h).
const (
	propertyExperimenter = 0xffff
	intelVendor          = 0x0000aa01
	intelRFC2819         = 1
	intelCustom          = 2
	maxCustom            = 1024 // counters of one port
)

func (p *PortStats) parse14(e *reader) error {
	e.skip(2)
	p.Port = e.u32()
	p.DurationSec = e.u32()
	e.skip(4)
	p.counters(e)
	for len(e.b) >= 4 {
		kind, length := binary.BigEndian.Uint16(e.b), int(binary.BigEndian.Uint16(e.b[2:]))
		if length < 4 || length > len(e.b) {
			return fmt.Errorf("a property of %d bytes where 4 to %d fit", length, len(e.b))
		}
		body := reader{b: e.b[4:length]}
		e.b = e.b[min(len(e.b), (length+7)/8*8):]
		if kind != propertyExperimenter {
			continue
		}
		vendor, subtype := body.u32(), body.u32()
		if vendor != intelVendor {
			continue
		}
		var err error
		switch subtype {
		case intelRFC2819:
			p.Sizes, err = parseSizes(&body)
		case intelCustom:
			p.Custom, err = parseCustom(&body)
		}
		if err != nil {
			return err
		}
	}
	return e.err()
}

// parseSizes reads the counters in the order of struct intel_port_stats_rfc2819.
func parseSizes(r *reader) (*SizeCounters, error) {
	s := new(SizeCounters)
	r.skip(4)
	for i := range s.Rx {
		s.Rx[i] = r.u64()
	}
	for i := range s.Tx {
		s.Tx[i] = r.u64()
	}
	r.u64s(&s.TxMulticast, &s.RxBroadcast, &s.TxBroadcast, &s.RxUndersized, &s.RxOversized, &s.RxFragmented, &s.RxJabber)
	return s, r.err()
}

// parseCustom reads struct intel_port_custom_stats: pad, their number u16, then
// length u8, name and value u64 for each.
func parseCustom(r *reader) (map[string]uint64, error) {
	r.skip(2)
	n := int(r.u16())
	if n > maxCustom {
		return nil, fmt.Errorf("a port with %d counters of its own, more than %d", n, maxCustom)
	}
	out := make(map[string]uint64, n)
	for range n {
		length := int(r.u8())
		name := clean(r.take(length))
		out[name] = r.u64()
	}
	return out, r.err()
}
