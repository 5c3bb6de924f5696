// Package records keeps the raw records of the last minute of each target, so that
// every figure can be computed again after something happened.
package records

import (
	"encoding/json"
	"io"
	"math"
	"time"

	"vigia/probes/accounting"
	"vigia/probes/delay"
	"vigia/probes/protocol"
	"vigia/probes/sender"
)

const (
	// Horizon is how long records are kept, in nanoseconds.
	Horizon = int64(60e9)
	// MaxRecords bounds the memory of one target.
	MaxRecords = 1 << 16
	// chunkSize is how many records are allocated at once.
	chunkSize = 128
)

// record is what is kept of a probe: 48 bytes.
type record struct {
	sent        int64 // when it was sent, CLOCK_REALTIME; when it was refused otherwise
	forward     int64 // T2-T1
	reverse     int64 // T4-T3
	sequence    uint32
	tx          int32  // T1-sent
	residence   uint32 // T3-T2
	application uint32
	state       protocol.State
	cause       accounting.Cause
	verdict     delay.Verdict
	kernel      delay.Points
	oneClock    bool
	source      delay.Source
}

// Ring holds the records of one target. The zero value is empty and ready. It is
// not safe for concurrent use.
type Ring struct {
	chunks []*[chunkSize]record // a queue
	first  int                  // of the first chunk
	used   int                  // records
	spare  *[chunkSize]record
}

// Add keeps what became of a probe, and drops what is too old. now is in
// nanoseconds of CLOCK_REALTIME.
func (r *Ring) Add(p *protocol.Probe, now int64) {
	for r.used > 0 && (r.used == MaxRecords || now-r.at(0).sent > Horizon) {
		r.drop()
	}
	end := r.first + r.used
	if end == len(r.chunks)*chunkSize {
		chunk := r.spare
		if chunk == nil {
			chunk = new([chunkSize]record)
		}
		r.spare = nil
		r.chunks = append(r.chunks, chunk)
	}
	r.used++
	*r.at(r.used - 1) = newRecord(p)
}

func (r *Ring) at(i int) *record {
	i += r.first
	return &r.chunks[i/chunkSize][i%chunkSize]
}

func (r *Ring) drop() {
	r.first++
	r.used--
	if r.first == chunkSize {
		r.spare = r.chunks[0]
		copy(r.chunks, r.chunks[1:])
		r.chunks[len(r.chunks)-1] = nil
		r.chunks = r.chunks[:len(r.chunks)-1]
		r.first = 0
	}
}

// Len returns how many records there are.
func (r *Ring) Len() int { return r.used }

func newRecord(p *protocol.Probe) record {
	s := &p.Stamps
	rec := record{
		sent: p.Sent, sequence: uint32(p.Sequence), state: p.State, cause: p.Cause, verdict: p.Verdict,
		kernel: s.Kernel, oneClock: s.OneClock, source: s.Source,
	}
	if p.State == protocol.Answered {
		rec.application = uint32(min(max(p.Application, 0), math.MaxUint32))
		// A device's clock has its own idea of the time: there T1 is when the probe
		// was sent, and only the differences are the device's.
		if s.Source == delay.Kernel {
			rec.tx = int32(min(max(s.T1-rec.sent, math.MinInt32), math.MaxInt32))
		}
		rec.forward, rec.reverse = s.T2-s.T1, s.T4-s.T3
		rec.residence = uint32(min(max(s.T3-s.T2, 0), math.MaxUint32))
	}
	return rec
}

// Line is a record as it is written out. Times are nanoseconds since 1970 of the
// clock that took them, delays are nanoseconds.
type Line struct {
	Src         string   `json:"src"`
	Dst         string   `json:"dst"`
	Path        string   `json:"path"`
	Tenant      string   `json:"tenant"`
	Probe       string   `json:"probe"`
	Time        string   `json:"time"` // RFC 3339, when it was sent
	Sequence    uint32   `json:"sequence"`
	Outcome     string   `json:"outcome"` // received, lost
	Cause       string   `json:"cause,omitempty"`
	Verdict     string   `json:"verdict,omitempty"`
	Kernel      []string `json:"kernel_stamps,omitempty"` // and those of devices
	Source      string   `json:"stamps_by,omitempty"`     // kernel, hardware
	T1          int64    `json:"t1,omitempty"`
	T2          int64    `json:"t2,omitempty"`
	T3          int64    `json:"t3,omitempty"`
	T4          int64    `json:"t4,omitempty"`
	RTT         *int64   `json:"rtt_ns,omitempty"`
	Application int64    `json:"application_ns,omitempty"`
}

// Write writes the records as JSON Lines, the oldest first.
func (r *Ring) Write(out io.Writer, labels sender.Labels) error {
	enc := json.NewEncoder(out)
	for i := range r.used {
		if err := enc.Encode(r.at(i).line(labels)); err != nil {
			return err
		}
	}
	return nil
}

// Clone returns a copy that can be written while the ring goes on.
func (r *Ring) Clone() *Ring {
	c := &Ring{first: r.first, used: r.used, chunks: make([]*[chunkSize]record, len(r.chunks))}
	for i, chunk := range r.chunks {
		copied := *chunk
		c.chunks[i] = &copied
	}
	return c
}

func (rec *record) line(l sender.Labels) *Line {
	line := &Line{
		Src: l.Src, Dst: l.Dst, Path: l.Path, Tenant: l.Tenant, Probe: l.Probe,
		Time: time.Unix(0, rec.sent).UTC().Format(time.RFC3339Nano), Sequence: rec.sequence,
	}
	if rec.state == protocol.Lost {
		line.Outcome, line.Cause = "lost", rec.cause.String()
		return line
	}
	line.Outcome, line.Verdict, line.Application = "received", rec.verdict.String(), int64(rec.application)
	line.T1 = rec.sent + int64(rec.tx)
	if rec.kernel != 0 {
		line.Source = rec.source.String()
	}
	if !rec.oneClock {
		line.T2 = line.T1 + rec.forward
		line.T3 = line.T2 + int64(rec.residence)
	}
	line.T4 = line.T1 + rec.forward + int64(rec.residence) + rec.reverse
	for i, point := range []string{"t1", "t2", "t3", "t4"} {
		if rec.kernel>>i&1 != 0 {
			line.Kernel = append(line.Kernel, point)
		}
	}
	if rec.verdict == delay.Good {
		rtt := rec.forward + rec.reverse
		line.RTT = &rtt
	}
	return line
}

// Recent returns the last n records, the oldest first.
func (r *Ring) Recent(n int, labels sender.Labels) []*Line {
	n = min(n, r.used)
	lines := make([]*Line, 0, n)
	for i := r.used - n; i < r.used; i++ {
		lines = append(lines, r.at(i).line(labels))
	}
	return lines
}
