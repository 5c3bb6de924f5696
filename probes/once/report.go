package once

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/netip"
	"slices"
	"strings"

	"vigia/probes/accounting"
	"vigia/probes/delay"
	"vigia/probes/protocol"
	"vigia/probes/sender"
)

// schema names the form of the JSON document.
const schema = "vigia.probe.once/1"

// result is the JSON document.
type result struct {
	Schema      string                       `json:"schema"`
	Address     string                       `json:"address"`
	Size        int                          `json:"size_bytes"`
	Interval    float64                      `json:"interval_seconds"`
	Deadline    float64                      `json:"deadline_seconds"`
	Reason      string                       `json:"reason,omitempty"` // why nothing was answered
	Sent        uint64                       `json:"sent"`
	Received    uint64                       `json:"received"`
	Lost        uint64                       `json:"lost"`
	LostByCause map[string]uint64            `json:"lost_by_cause"`
	Late        uint64                       `json:"late"`
	Duplicate   uint64                       `json:"duplicate"`
	Reordered   uint64                       `json:"reordered"`
	Corrupt     uint64                       `json:"corrupt"`
	Skipped     uint64                       `json:"skipped"`
	RTT         distribution                 `json:"rtt_seconds"`
	Application distribution                 `json:"rtt_application_seconds"`
	Jitter      float64                      `json:"jitter_seconds"`
	Timestamps  map[string]map[string]uint64 `json:"timestamps"`
	Probes      []record                     `json:"probes"`

	title string // of the protocol
}

// distribution summarises samples in seconds; without samples all is null.
type distribution struct {
	Samples int      `json:"samples"`
	Min     *float64 `json:"min"`
	P50     *float64 `json:"p50"`
	P99     *float64 `json:"p99"`
	Max     *float64 `json:"max"`
}

// record is one probe.
type record struct {
	Sequence    uint64   `json:"sequence"`
	Outcome     string   `json:"outcome"` // received or lost
	Cause       string   `json:"cause,omitempty"`
	RTT         *float64 `json:"rtt_seconds"` // null without good kernel stamps
	Residence   *float64 `json:"residence_seconds"`
	Application *float64 `json:"rtt_application_seconds"`
	Quarantine  string   `json:"quarantine,omitempty"` // why there is no rtt_seconds
}

func newResult(probes []protocol.Probe, st sender.Status, totals sender.Totals) *result {
	n := &st.Counts
	r := &result{
		Schema: schema, title: st.Target.Protocol.Traits().Title, Address: addressText(st.Address), Size: st.Target.Size,
		Interval: st.Target.Interval.Seconds(), Deadline: st.Target.Deadline.Seconds(),
		Sent: n.Sent, Received: n.Received, Lost: n.LostTotal(), LostByCause: make(map[string]uint64),
		Late: n.Late, Duplicate: n.Duplicate, Reordered: n.Reordered, Corrupt: n.Corrupt, Skipped: n.Skipped,
		Jitter: st.Jitter, Timestamps: make(map[string]map[string]uint64), Probes: make([]record, 0, len(probes)),
	}
	for cause, lost := range n.Lost {
		r.LostByCause[accounting.Cause(cause).String()] = lost
	}
	for p, sources := range totals.Stamps {
		bySource := make(map[string]uint64)
		for s, count := range sources {
			bySource[sender.Source(s).String()] = count
		}
		r.Timestamps[sender.Point(p).String()] = bySource
	}
	var rtt, application []int64
	for i := range probes {
		p := &probes[i]
		r.Probes = append(r.Probes, newRecord(p))
		if p.State != protocol.Answered {
			continue
		}
		application = append(application, p.Application)
		if p.Verdict == delay.Good {
			rtt = append(rtt, p.Stamps.RTT())
		}
	}
	slices.SortFunc(r.Probes, func(a, b record) int { return int(a.Sequence) - int(b.Sequence) })
	r.RTT, r.Application = distributionOf(rtt), distributionOf(application)
	return r
}

// failure is the document of a measurement that could not begin.
func failure(host string, reason error) *result {
	return &result{
		Schema: schema, Address: host, Reason: reason.Error(), LostByCause: make(map[string]uint64),
		Timestamps: make(map[string]map[string]uint64), Probes: []record{},
	}
}

func newRecord(p *protocol.Probe) record {
	if p.State == protocol.Lost {
		return record{Sequence: p.Sequence, Outcome: "lost", Cause: p.Cause.String()}
	}
	rec := record{Sequence: p.Sequence, Outcome: "received", Application: seconds(p.Application)}
	if p.Verdict != delay.Good {
		rec.Quarantine = p.Verdict.String()
		return rec
	}
	rec.RTT = seconds(p.Stamps.RTT())
	if !p.Stamps.OneClock {
		rec.Residence = seconds(p.Stamps.Residence())
	}
	return rec
}

func seconds(ns int64) *float64 {
	v := float64(ns) / 1e9
	return &v
}

// distributionOf summarises samples in nanoseconds. Quantiles are order
// statistics (nearest rank), not interpolated.
func distributionOf(samples []int64) distribution {
	if len(samples) == 0 {
		return distribution{}
	}
	slices.Sort(samples)
	rank := func(q float64) *float64 {
		return seconds(samples[max(int(math.Ceil(q*float64(len(samples)))), 1)-1])
	}
	return distribution{
		Samples: len(samples), Min: seconds(samples[0]), P50: rank(0.5), P99: rank(0.99), Max: seconds(samples[len(samples)-1]),
	}
}

func (r *result) writeJSON(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(r)
}

// printProbe prints a line about one probe.
func printProbe(w io.Writer, p *protocol.Probe, address string, size int) {
	if p.State == protocol.Lost {
		fmt.Fprintf(w, "%s: seq=%d lost (%s)\n", address, p.Sequence, p.Cause)
		return
	}
	text := fmt.Sprintf("%s: seq=%d", address, p.Sequence)
	if size > 0 {
		text += fmt.Sprintf(" size=%d", size)
	}
	switch {
	case p.Verdict != delay.Good:
		text += fmt.Sprintf(" application=%s rtt=- (%s)", micros(p.Application), p.Verdict)
	case p.Stamps.OneClock:
		text += fmt.Sprintf(" rtt=%s application=%s", micros(p.Stamps.RTT()), micros(p.Application))
	default:
		text += fmt.Sprintf(" rtt=%s application=%s residence=%s", micros(p.Stamps.RTT()), micros(p.Application), micros(p.Stamps.Residence()))
	}
	fmt.Fprintln(w, text)
}

// addressText is an address as people write it: protocols without ports have port 0.
func addressText(a netip.AddrPort) string {
	if a.Port() == 0 {
		return a.Addr().String()
	}
	return a.String()
}

// micros writes a time with a unit that suits it.
func micros(ns int64) string {
	switch us := float64(ns) / 1e3; {
	case us >= 1e6:
		return fmt.Sprintf("%.3fs", us/1e6)
	case us >= 1e4:
		return fmt.Sprintf("%.2fms", us/1e3)
	default:
		return fmt.Sprintf("%.1fµs", us)
	}
}

// print prints the summary.
func (r *result) print(w io.Writer) {
	size := ""
	if r.Size > 0 {
		size = fmt.Sprintf(", %d bytes", r.Size)
	}
	fmt.Fprintf(w, "\n--- %s: %s%s every %gs ---\n", r.Address, r.title, size, r.Interval)
	percent := 0.0
	if r.Sent > 0 {
		percent = 100 * float64(r.Lost) / float64(r.Sent)
	}
	fmt.Fprintf(w, "%d sent, %d received, %d lost (%.2f%%)%s\n", r.Sent, r.Received, r.Lost, percent, r.causes())
	fmt.Fprintf(w, "%d late, %d duplicate, %d reordered, %d corrupt, %d skipped\n", r.Late, r.Duplicate, r.Reordered, r.Corrupt, r.Skipped)
	fmt.Fprintf(w, "rtt, kernel timestamps: %s\n", r.RTT)
	fmt.Fprintf(w, "rtt, application:       %s\n", r.Application)
	if r.RTT.Samples > 1 {
		fmt.Fprintf(w, "jitter (RFC 3550):      %s\n", micros(int64(r.Jitter*1e9)))
	}
	fmt.Fprintf(w, "time stamps:            %s\n", r.sources())
}

func (r *result) causes() string {
	var parts []string
	for c := range accounting.Cause(accounting.NumCauses) {
		if n := r.LostByCause[c.String()]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, c))
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return ": " + strings.Join(parts, ", ")
}

// sources says where the stamps of each point come from.
func (r *result) sources() string {
	var parts []string
	for p := range sender.Point(sender.NumPoints) {
		for s := range sender.Source(sender.NumSources) {
			if n := r.Timestamps[p.String()][s.String()]; n > 0 {
				parts = append(parts, fmt.Sprintf("%s %s %d", p, s, n))
			}
		}
	}
	if len(parts) == 0 {
		return "none"
	}
	return strings.Join(parts, ", ")
}

// String writes the distribution for people.
func (d distribution) String() string {
	if d.Samples == 0 {
		return "no samples"
	}
	us := func(v *float64) string { return micros(int64(math.Round(*v * 1e9))) }
	return fmt.Sprintf("min %s  p50 %s  p99 %s  max %s  (%d samples)", us(d.Min), us(d.P50), us(d.P99), us(d.Max), d.Samples)
}
