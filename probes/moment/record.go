package moment

import (
	"cmp"
	"context"
	"net/netip"
	"slices"
	"sync"
	"time"

	"vigia/probes/health"
	"vigia/probes/pathmtu"
	"vigia/probes/records"
	"vigia/probes/sender"
)

// Bounds of one record.
const (
	// longest is how long it takes at most.
	longest = 20 * time.Second
	// MaxSearchPackets is how many packets its search of the path MTU has at most.
	MaxSearchPackets = 200
	// searchWait is how long an answer to one of these is waited for at most.
	searchWait = 300 * time.Millisecond
	// outcomeSeconds are how long before the record its outcomes begin, maxOutcomes how many
	// probes they are of at most.
	outcomeSeconds = 10
	maxOutcomes    = 1000
)

// Sources are what records are made of.
type Sources struct {
	// Trace begins a trace of a target: sender.Sender.
	Trace func(sender.Labels) (*sender.Trace, error)
	// Address returns where a target's probes go: sender.Sender.
	Address func(*sender.Target) (netip.AddrPort, error)
	// Recent returns the last n records of a target, the oldest first: export.Recorders.
	Recent func(l sender.Labels, n int) []*records.Line
	// Health tells the state of this host: health.Monitor.
	Health func() health.Reading
}

// take makes a record of a target.
func (s *Sources) take(ctx context.Context, t sender.Target, why Why) *Moment {
	ctx, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	began := time.Now()
	m := &Moment{
		Src: t.Labels.Src, Dst: t.Labels.Dst, Path: t.Labels.Path, Tenant: t.Labels.Tenant, Probe: t.Labels.Probe,
		Time: began.UTC(), Why: why, Host: readHost(s.Health(), t.Netns), Outcomes: outcomes(s.Recent(t.Labels, maxOutcomes), began),
	}
	var wg sync.WaitGroup
	wg.Go(func() { m.Hops = s.hops(ctx, t.Labels) })
	wg.Go(func() { m.PathMTU = s.pathMTU(ctx, t) })
	if twin := t.Twin.Group; t.Twin.Size > 0 && twin != t.Labels {
		m.BeneathPath = twin.Path
		wg.Go(func() { m.Beneath = s.hops(ctx, twin) })
	}
	wg.Wait()
	m.HostAfter = readHost(s.Health(), t.Netns)
	m.Seconds = time.Since(began).Seconds()
	return m
}

func (s *Sources) hops(ctx context.Context, l sender.Labels) *Hops {
	flow, err := s.Trace(l)
	if err != nil {
		return &Hops{Hops: []Hop{}, Error: err.Error()}
	}
	defer flow.End()
	return traceHops(ctx, flow)
}

func (s *Sources) pathMTU(ctx context.Context, t sender.Target) *PathMTU {
	to, err := s.Address(&t)
	if err != nil {
		return &PathMTU{Outcome: string(pathmtu.Failed), Error: err.Error()}
	}
	t.Deadline = min(t.Deadline, searchWait)
	r := pathmtu.Search(ctx, t, to, pathmtu.Limits{Min: pathmtu.DefaultMin, Max: pathmtu.DefaultMax, Packets: MaxSearchPackets})
	p := &PathMTU{Bytes: r.MTU, AtMost: r.AtMax, Outcome: string(r.Outcome), Reported: r.Reported, Packets: r.Probes}
	if r.Err != nil {
		p.Error = r.Err.Error()
	}
	return p
}

// outcomes adds up what became of the probes of the last seconds.
func outcomes(lines []*records.Line, now time.Time) Outcomes {
	o := Outcomes{Seconds: outcomeSeconds}
	var rtts []int64
	for _, line := range lines {
		at, err := time.Parse(time.RFC3339Nano, line.Time)
		if err != nil || now.Sub(at) > outcomeSeconds*time.Second {
			continue
		}
		o.Settled++
		switch {
		case line.Outcome == "lost":
			if o.Lost == nil {
				o.Lost = make(map[string]int)
			}
			o.Lost[line.Cause]++
		case line.RTT != nil:
			rtts = append(rtts, *line.RTT)
		}
	}
	if len(rtts) > 0 {
		slices.SortFunc(rtts, cmp.Compare)
		o.MedianRTT, o.MaxRTT = seconds(rtts[len(rtts)/2]), seconds(rtts[len(rtts)-1])
	}
	return o
}
