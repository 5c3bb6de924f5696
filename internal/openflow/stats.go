package openflow

import (
	"context"
	"encoding/binary"
	"fmt"
)

// Unknown is the value of a counter that the switch does not support.
const Unknown = ^uint64(0)

// anyPort is OFPP_ANY, since 1.1; OFPP_NONE in 1.0 is 16 bits wide.
const (
	anyPort   = 0xffffffff
	anyPort10 = 0xffff
	allGroups = 0xffffffff // OFPG_ANY
	allTables = 0xff       // OFPTT_ALL
	allQueues = 0xffffffff // OFPQ_ALL
	allMeters = 0xffffffff // OFPM_ALL
)

// reader takes integers off a message. Reading past the end gives zeros and sets
// short.
type reader struct {
	b     []byte
	short bool
}

func (r *reader) take(n int) []byte {
	if n > len(r.b) {
		r.short, r.b = true, nil
		return make([]byte, n)
	}
	out := r.b[:n]
	r.b = r.b[n:]
	return out
}

func (r *reader) skip(n int)  { r.take(n) }
func (r *reader) u8() uint8   { return r.take(1)[0] }
func (r *reader) u16() uint16 { return binary.BigEndian.Uint16(r.take(2)) }
func (r *reader) u32() uint32 { return binary.BigEndian.Uint32(r.take(4)) }
func (r *reader) u64() uint64 { return binary.BigEndian.Uint64(r.take(8)) }
func (r *reader) u64s(fields ...*uint64) {
	for _, f := range fields {
		*f = r.u64()
	}
}

func (r *reader) err() error {
	if r.short {
		return errShort
	}
	return nil
}

// entry takes an entry that starts with its own length, of at least least bytes.
func (r *reader) entry(least int) (reader, error) {
	if len(r.b) < 2 {
		return reader{}, errShort
	}
	length := int(binary.BigEndian.Uint16(r.b))
	if length < least || length > len(r.b) {
		return reader{}, fmt.Errorf("an entry of %d bytes where %d to %d fit", length, least, len(r.b))
	}
	e := reader{b: r.b[2:length]}
	r.b = r.b[length:]
	return e, nil
}

// port16 turns a port of 1.0 into one of later versions: reserved ports move.
func port16(p uint16) uint32 {
	if p >= 0xff00 {
		return uint32(p) | 0xffff0000
	}
	return uint32(p)
}

// TableStats are the counters of one flow table.
type TableStats struct {
	ID              uint8
	Active          uint32 // flows
	Lookup, Matched uint64 // packets
}

// Tables returns the counters of every table.
func (c *Conn) Tables(ctx context.Context) ([]TableStats, error) {
	var out []TableStats
	err := c.statistics(ctx, statsTable, nil, func(b []byte) error {
		some, err := parseTables(c.version, b)
		out = append(out, some...)
		return err
	})
	return out, wrap("table statistics", err)
}

func parseTables(v Version, b []byte) ([]TableStats, error) {
	var out []TableStats
	for r := (reader{b: b}); len(r.b) > 0; {
		t := TableStats{ID: r.u8()}
		switch v {
		case V10: // name, wildcards and max_entries before
			r.skip(3 + 32 + 8)
		case V11: // name, five words of capabilities, config and max_entries
			r.skip(7 + 32 + 28)
		case V12: // name, six double words and two words of capabilities, instructions, config and max_entries
			r.skip(7 + 32 + 56 + 12)
		default:
			r.skip(3)
		}
		t.Active, t.Lookup, t.Matched = r.u32(), r.u64(), r.u64()
		if r.short {
			return out, errShort
		}
		out = append(out, t)
	}
	return out, nil
}

// QueueStats are the counters of one queue of a port.
type QueueStats struct {
	Port, Queue                  uint32
	TxBytes, TxPackets, TxErrors uint64 // TxErrors are packets dropped by overrun
}

// Queues returns the counters of every queue.
func (c *Conn) Queues(ctx context.Context) ([]QueueStats, error) {
	req := binary.BigEndian.AppendUint32(nil, anyPort)
	if c.version == V10 {
		req = []byte{0xff, 0xfc, 0, 0} // OFPP_ALL
	}
	var out []QueueStats
	err := c.statistics(ctx, statsQueue, binary.BigEndian.AppendUint32(req, allQueues), func(b []byte) error {
		some, err := parseQueues(c.version, b)
		out = append(out, some...)
		return err
	})
	return out, wrap("queue statistics", err)
}

func parseQueues(v Version, b []byte) ([]QueueStats, error) {
	var out []QueueStats
	for r := (reader{b: b}); len(r.b) > 0; {
		var q QueueStats
		switch v {
		case V10:
			q.Port, _, q.Queue = port16(r.u16()), r.u16(), r.u32()
			r.u64s(&q.TxBytes, &q.TxPackets, &q.TxErrors)
		case V11, V12, V13:
			q.Port, q.Queue = r.u32(), r.u32()
			r.u64s(&q.TxBytes, &q.TxPackets, &q.TxErrors)
			if v == V13 {
				r.skip(8) // duration
			}
		default:
			e, err := r.entry(48)
			if err != nil {
				return out, err
			}
			e.skip(6)
			q.Port, q.Queue = e.u32(), e.u32()
			e.u64s(&q.TxBytes, &q.TxPackets, &q.TxErrors)
		}
		if r.short {
			return out, errShort
		}
		out = append(out, q)
	}
	return out, nil
}

// MeterStats are the counters of one meter. Drops add up its drop bands.
type MeterStats struct {
	ID                      uint32
	Flows                   uint32
	Packets, Bytes          uint64 // into the meter
	BandPackets, BandBytes  uint64 // out of profile, all bands
	DurationSec, DurationNs uint32
}

// Meters returns the counters of every meter. There are none before 1.3.
func (c *Conn) Meters(ctx context.Context) ([]MeterStats, error) {
	if c.version < V13 {
		return nil, fmt.Errorf("meter statistics: %w", ErrUnsupported)
	}
	req := append(binary.BigEndian.AppendUint32(nil, allMeters), 0, 0, 0, 0)
	var out []MeterStats
	err := c.statistics(ctx, statsMeter, req, func(b []byte) error {
		some, err := parseMeters(b)
		out = append(out, some...)
		return err
	})
	return out, wrap("meter statistics", err)
}

func parseMeters(b []byte) ([]MeterStats, error) {
	var out []MeterStats
	for r := (reader{b: b}); len(r.b) > 0; {
		m := MeterStats{ID: r.u32()}
		length := int(r.u16())
		const fixed = 40
		if length < fixed || length-6 > len(r.b) {
			return out, fmt.Errorf("a meter of %d bytes where %d to %d fit", length, fixed, len(r.b)+6)
		}
		e := reader{b: r.take(length - 6)}
		e.skip(6)
		m.Flows = e.u32()
		e.u64s(&m.Packets, &m.Bytes)
		m.DurationSec, m.DurationNs = e.u32(), e.u32()
		for len(e.b) >= 16 {
			m.BandPackets += e.u64()
			m.BandBytes += e.u64()
		}
		out = append(out, m)
	}
	return out, nil
}

func wrap(what string, err error) error {
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}
