package openflow

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
)

// FlowFilter chooses flows: those whose cookie has Cookie's bits where Mask is
// set. The zero filter chooses all.
type FlowFilter struct {
	Cookie, Mask uint64
}

func (f FlowFilter) matches(cookie uint64) bool { return (cookie^f.Cookie)&f.Mask == 0 }

// FlowStats are the counters of one flow.
type FlowStats struct {
	Table                   uint8
	Priority                uint16
	Cookie                  uint64
	Packets, Bytes          uint64
	DurationSec, DurationNs uint32
	Match                   []byte // as on the wire: with table and priority it names the flow
}

// AggregateStats add flows up.
type AggregateStats struct {
	Packets, Bytes uint64
	Flows          uint32
}

// flowRequest is the body that FLOW and AGGREGATE share (section 7.3.5.2).
func (c *Conn) flowRequest(f FlowFilter) []byte {
	if c.version == V10 {
		// A match of 40 bytes with every wildcard set, table, pad, out_port.
		req := make([]byte, 40, 44)
		binary.BigEndian.PutUint32(req, 0x003fffff)
		return append(req, allTables, 0, anyPort10>>8, anyPort10&0xff)
	}
	req := []byte{allTables, 0, 0, 0}
	req = binary.BigEndian.AppendUint32(req, anyPort)
	req = binary.BigEndian.AppendUint32(req, allGroups)
	req = append(req, 0, 0, 0, 0)
	req = binary.BigEndian.AppendUint64(req, f.Cookie)
	req = binary.BigEndian.AppendUint64(req, f.Mask)
	if c.version == V11 {
		// OFPMT_STANDARD: a match of 88 bytes with every wildcard set and
		// the masks of addresses and metadata all ones.
		match := make([]byte, 88)
		binary.BigEndian.PutUint16(match[2:], 88)
		binary.BigEndian.PutUint32(match[8:], 0x3ff)
		for _, mask := range [][2]int{{18, 24}, {30, 36}, {48, 52}, {56, 60}, {80, 88}} {
			for i := mask[0]; i < mask[1]; i++ {
				match[i] = 0xff
			}
		}
		return append(req, match...)
	}
	return append(req, 0, 1, 0, 4, 0, 0, 0, 0) // OFPMT_OXM without a field
}

// Aggregate adds the chosen flows up at the switch. OpenFlow 1.0 cannot choose
// by cookie there; ErrUnsupported says so.
func (c *Conn) Aggregate(ctx context.Context, f FlowFilter) (AggregateStats, error) {
	var out AggregateStats
	if c.version == V10 && f.Mask != 0 {
		return out, fmt.Errorf("aggregate statistics by cookie: %w", ErrUnsupported)
	}
	err := c.statistics(ctx, statsAggregate, c.flowRequest(f), func(b []byte) error {
		r := reader{b: b}
		out.Packets, out.Bytes, out.Flows = r.u64(), r.u64(), r.u32()
		return r.err()
	})
	return out, wrap("aggregate statistics", err)
}

// Flows hands over the chosen flows one by one, whose Match is valid only for
// the call.
func (c *Conn) Flows(ctx context.Context, f FlowFilter, each func(FlowStats)) error {
	err := c.statistics(ctx, statsFlow, c.flowRequest(f), func(b []byte) error {
		return parseFlows(c.version, b, func(s FlowStats) {
			if f.matches(s.Cookie) { // 1.0 sends them all
				each(s)
			}
		})
	})
	return wrap("flow statistics", err)
}

func parseFlows(v Version, b []byte, each func(FlowStats)) error {
	least := 48
	if v == V10 {
		least = 88
	}
	for r := (reader{b: b}); len(r.b) > 0; {
		e, err := r.entry(least)
		if err != nil {
			return err
		}
		f := FlowStats{Table: e.u8()}
		e.skip(1)
		if v == V10 {
			f.Match = e.take(40)
		}
		f.DurationSec, f.DurationNs = e.u32(), e.u32()
		f.Priority = e.u16()
		e.skip(4) // timeouts
		e.skip(6) // flags, importance, padding
		f.Cookie = e.u64()
		e.u64s(&f.Packets, &f.Bytes)
		if v != V10 {
			f.Match, err = match(e.b)
			if err != nil {
				return err
			}
		}
		each(f)
	}
	return nil
}

// match cuts struct ofp_match off an entry, without its padding.
func match(b []byte) ([]byte, error) {
	if len(b) < 4 {
		return nil, errShort
	}
	length := int(binary.BigEndian.Uint16(b[2:]))
	if length < 4 || length > len(b) {
		return nil, fmt.Errorf("a match of %d bytes where 4 to %d fit", length, len(b))
	}
	return slices.Clip(b[:length]), nil
}
