package moment

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"vigia/probes/sender"
)

const (
	// maxHops is how far a trace goes, silence how many hops in a row may be silent.
	maxHops = 32
	silence = 5
	// spacing is the time between two packets of a trace: 20 a second.
	spacing = 50 * time.Millisecond
	// patience is how long an answer is waited for at the end of a round.
	patience = time.Second
	// look is how often it is looked for.
	look = 25 * time.Millisecond
	// farPackets go all the way, with this hop limit.
	farPackets  = 5
	farHopLimit = 64
	// MaxTracePackets is how many packets a trace has at most: two rounds and these.
	MaxTracePackets = 2*maxHops + farPackets
)

// flow sends packets of a target's own flow: sender.Trace.
type flow interface {
	Send(hopLimit uint8) (sequence uint32, err error)
	Read(to []sender.TraceReply) ([]sender.TraceReply, error)
	Flow() (from, to netip.AddrPort)
	DSCP() uint8
	End()
}

// trace is a trace under way.
type trace struct {
	flow    flow
	limits  []uint8      // by sequence number; 0 for packets that go all the way
	open    map[int]bool // hops that were asked and have not answered
	hops    []Hop        // from hop 1
	end     int          // the hop that is the far end, or refuses to pass anything on; 0 while unknown
	replies []sender.TraceReply
	far     FarEnd
	heard   map[uint32]bool // packets that the far end answered, by sequence number
	reached bool
}

// traceHops traces a flow. An error that ends it early is part of the result.
func traceHops(ctx context.Context, f flow) *Hops {
	t := &trace{flow: f, open: make(map[int]bool), heard: make(map[uint32]bool)}
	err := t.run(ctx)
	from, to := f.Flow()
	h := &Hops{From: from.String(), To: to.String(), DSCP: f.DSCP(), Hops: append([]Hop{}, t.known()...), Reached: t.reached, Far: &t.far, Packets: len(t.limits)}
	if err != nil {
		h.Error = err.Error()
	}
	return h
}

func (t *trace) run(ctx context.Context) error {
	for t.end == 0 && len(t.hops) < maxHops && len(t.hops)-t.answered() < silence {
		if err := t.ask(ctx, len(t.hops)+1); err != nil {
			return err
		}
		if t.end == 0 && (len(t.hops) == maxHops || len(t.hops)-t.answered() == silence) {
			if err := t.await(ctx); err != nil { // a late answer shows that it goes on
				return err
			}
		}
	}
	if err := t.await(ctx); err != nil {
		return err
	}
	for n := 1; n <= t.length(); n++ { // silent ones once more: routers limit such messages
		if t.hops[n-1].Outcome != Silent {
			continue
		}
		if err := t.ask(ctx, n); err != nil {
			return err
		}
	}
	for range farPackets {
		t.far.Asked++
		if err := t.send(ctx, 0); err != nil {
			return err
		}
	}
	return t.await(ctx)
}

// answered returns the last hop that answered.
func (t *trace) answered() int {
	for n := len(t.hops); n > 0; n-- {
		if t.hops[n-1].Outcome != Silent {
			return n
		}
	}
	return 0
}

// length returns how many hops belong to the way, as far as is known.
func (t *trace) length() int {
	if t.end != 0 {
		return t.end
	}
	return len(t.hops)
}

// known returns the hops that are worth showing: up to the end, or to the first that is silent
// for good.
func (t *trace) known() []Hop {
	if t.end != 0 {
		return t.hops[:t.end]
	}
	return t.hops[:min(t.answered()+1, len(t.hops))]
}

// ask sends a packet that ends at hop n.
func (t *trace) ask(ctx context.Context, n int) error {
	if n > len(t.hops) {
		t.hops = append(t.hops, Hop{Number: n, Outcome: Silent})
	}
	t.open[n] = true
	return t.send(ctx, uint8(n))
}

// send sends a packet, and waits until the next may be sent.
func (t *trace) send(ctx context.Context, limit uint8) error {
	hopLimit := limit
	if limit == 0 {
		hopLimit = farHopLimit
	}
	t.limits = append(t.limits, limit)
	if _, err := t.flow.Send(hopLimit); err != nil {
		return err
	}
	for range spacing / look {
		if err := t.read(ctx); err != nil {
			return err
		}
	}
	return nil
}

// await waits until nothing is missing, or for a while.
func (t *trace) await(ctx context.Context) error {
	for range patience / look {
		if t.complete() {
			return nil
		}
		if err := t.read(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (t *trace) complete() bool {
	for n := range t.open {
		if n <= t.length() {
			return false
		}
	}
	return t.far.Answered == t.far.Asked
}

// read waits for a moment and takes what has come.
func (t *trace) read(ctx context.Context) (err error) {
	select {
	case <-ctx.Done():
		return fmt.Errorf("the trace took too long: %w", ctx.Err())
	case <-time.After(look):
	}
	t.replies, err = t.flow.Read(t.replies[:0])
	for i := range t.replies {
		t.take(&t.replies[i])
	}
	return err
}

func (t *trace) take(r *sender.TraceReply) {
	if uint64(r.Sequence) >= uint64(len(t.limits)) {
		return
	}
	t.reached = t.reached || r.Answered
	n := int(t.limits[r.Sequence])
	if n == 0 {
		t.takeFar(r)
		return
	}
	hop := &t.hops[n-1]
	if hop.Outcome != Silent && !(hop.Unverified && r.Verified) {
		return // the first one counts, and one that is certain before others
	}
	delete(t.open, n)
	*hop = newHop(n, r)
	if ends(hop.Outcome) && (t.end == 0 || n < t.end) {
		t.end = n
	}
}

// ends reports whether nothing comes after a hop that does this.
func ends(outcome string) bool { return slices.Contains([]string{Answered, Unreachable}, outcome) }

func newHop(n int, r *sender.TraceReply) Hop {
	h := Hop{Number: n, Outcome: Answered, RTT: seconds(r.RTT), Unverified: !r.Verified}
	if r.From.IsValid() {
		h.Address = r.From.String()
	}
	if r.Answered {
		return h
	}
	h.Outcome, h.MTU = Unreachable, int(r.MTU)
	if text := says(r); text == "" {
		h.Outcome = Exceeded
	} else {
		h.Says = text
	}
	return h
}

// takeFar takes the answer to a packet that went all the way.
func (t *trace) takeFar(r *sender.TraceReply) {
	if !r.Answered || t.heard[r.Sequence] {
		return
	}
	t.heard[r.Sequence] = true
	f := &t.far
	f.Answered++
	if s := seconds(r.RTT); f.RTT == 0 || s < f.RTT {
		f.RTT = s
	}
	back := r.DSCP
	f.ReturnDSCP = &back
	if r.Far.Seen {
		dscp := r.Far.DSCP
		f.DSCP = &dscp
	}
	if limit := int(r.Far.HopLimit); limit > 0 && limit <= farHopLimit {
		passed := farHopLimit - limit
		f.Hops = &passed
	}
}

func seconds(ns int64) float64 { return float64(ns) / 1e9 }

// The ICMP messages by version, type and code (RFC 792, RFC 1812, RFC 4443).
var messages = map[[3]uint8]string{
	{4, 3, 0}: "network unreachable", {4, 3, 1}: "host unreachable", {4, 3, 2}: "protocol unreachable", {4, 3, 3}: "port unreachable",
	{4, 3, 4}: "packet too large", {4, 3, 9}: "network prohibited", {4, 3, 10}: "host prohibited", {4, 3, 13}: "administratively prohibited",
	{6, 1, 0}: "no route", {6, 1, 1}: "administratively prohibited", {6, 1, 3}: "address unreachable", {6, 1, 4}: "port unreachable",
	{6, 2, 0}: "packet too large", {6, 1, 5}: "source address refused", {6, 1, 6}: "route rejects it",
}

// says returns what an ICMP message says; empty when a hop limit was used up.
func says(r *sender.TraceReply) string {
	version, exceeded := uint8(4), uint8(11)
	if r.ICMPv6 {
		version, exceeded = 6, 3
	}
	if r.Type == exceeded && r.From.IsValid() {
		return ""
	}
	if text := messages[[3]uint8{version, r.Type, r.Code}]; text != "" && r.From.IsValid() {
		return text
	}
	if !r.From.IsValid() {
		return "refused by this host: " + r.Errno.Error()
	}
	return fmt.Sprintf("ICMP type %d code %d", r.Type, r.Code)
}
