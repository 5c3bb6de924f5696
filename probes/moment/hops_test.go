package moment

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"syscall"
	"testing"

	"vigia/probes/protocol"
	"vigia/probes/sender"
)

// path is a flow whose hops a test makes: what each answers, by number; those that are missing are
// silent. far answers packets that go all the way, if it is not nil.
type path struct {
	hops    map[int]sender.TraceReply
	far     *sender.TraceReply
	limits  []uint8
	pending []sender.TraceReply
	deaf    int // packets that nothing answers, at first
	twice   bool
	broken  error
	sent    int
	ended   bool
}

func (p *path) Send(limit uint8) (uint32, error) {
	sequence := uint32(p.sent)
	p.sent++
	p.limits = append(p.limits, limit)
	if p.broken != nil {
		return sequence, p.broken
	}
	r, answers := p.hops[int(limit)]
	if limit == farHopLimit {
		if answers = p.far != nil; answers {
			r = *p.far
		}
	}
	if !answers || p.sent <= p.deaf {
		return sequence, nil
	}
	r.Sequence, r.RTT = sequence, 1000
	p.pending = append(p.pending, r)
	if p.twice {
		p.pending = append(p.pending, r)
	}
	return sequence, nil
}

func (p *path) Read(to []sender.TraceReply) ([]sender.TraceReply, error) {
	to = append(to, p.pending...)
	p.pending = nil
	return to, nil
}

func (p *path) Flow() (from, to netip.AddrPort) {
	return netip.MustParseAddrPort("10.0.0.1:5000"), netip.MustParseAddrPort("10.0.9.9:862")
}
func (p *path) DSCP() uint8 { return 10 }
func (p *path) End()        { p.ended = true }

func router(ip string) sender.TraceReply {
	return sender.TraceReply{From: netip.MustParseAddr(ip), Type: 11, Errno: syscall.EHOSTUNREACH, Verified: true}
}

func farEnd(hopLimit, dscp uint8) sender.TraceReply {
	return sender.TraceReply{
		From: netip.MustParseAddr("10.0.9.9"), Answered: true, Verified: true, DSCP: 3,
		Far: protocol.Traced{HopLimit: hopLimit, DSCP: dscp, Seen: true},
	}
}

func outline(h *Hops) string {
	var words []string
	for _, hop := range h.Hops {
		words = append(words, strings.TrimSpace(fmt.Sprintf("%d %s %s %s", hop.Number, hop.Outcome, hop.Address, hop.Says)))
	}
	return strings.Join(words, "; ")
}

// TestTrace follows paths whose hops answer, are silent, forge and break.
func TestTrace(t *testing.T) {
	unreachable := sender.TraceReply{From: netip.MustParseAddr("10.0.1.1"), Type: 3, Code: 1, Errno: syscall.EHOSTUNREACH, Verified: true}
	prohibited := sender.TraceReply{From: netip.MustParseAddr("fd00::1"), ICMPv6: true, Type: 1, Code: 1, Verified: true}
	tooLarge := sender.TraceReply{From: netip.MustParseAddr("10.0.1.1"), Type: 3, Code: 4, Errno: syscall.EMSGSIZE, MTU: 1400, Verified: true}
	refused := sender.TraceReply{Errno: syscall.EPERM, Verified: true}
	strange := sender.TraceReply{From: netip.MustParseAddr("10.0.1.1"), Type: 12, Code: 7, Verified: true}
	little := router("10.0.0.254")
	little.Verified = false
	far := farEnd(62, 46)
	for _, tc := range []struct {
		name    string
		path    path
		want    string
		reached bool
	}{
		{"all answer", path{hops: map[int]sender.TraceReply{1: router("10.0.0.254"), 2: router("10.0.1.254"), 3: far}, far: &far}, "1 exceeded 10.0.0.254; 2 exceeded 10.0.1.254; 3 answered 10.0.9.9", true},
		{"one on the way is silent", path{hops: map[int]sender.TraceReply{1: router("10.0.0.254"), 4: far}, far: &far}, "1 exceeded 10.0.0.254; 2 silent; 3 silent; 4 answered 10.0.9.9", true},
		{"the last is silent", path{hops: map[int]sender.TraceReply{1: router("10.0.0.254"), 2: router("10.0.1.254")}}, "1 exceeded 10.0.0.254; 2 exceeded 10.0.1.254; 3 silent", false},
		{"nobody", path{}, "1 silent", false},
		{"answers at the second try", path{deaf: 2, hops: map[int]sender.TraceReply{1: router("10.0.0.254"), 2: far}, far: &far}, "1 exceeded 10.0.0.254; 2 answered 10.0.9.9", true},
		{"a hop quotes little", path{hops: map[int]sender.TraceReply{1: little, 2: far}, far: &far}, "1 exceeded 10.0.0.254; 2 answered 10.0.9.9", true},
		{"everything twice", path{twice: true, hops: map[int]sender.TraceReply{1: router("10.0.0.254"), 2: far}, far: &far}, "1 exceeded 10.0.0.254; 2 answered 10.0.9.9", true},
		{"no host", path{hops: map[int]sender.TraceReply{1: router("10.0.0.254"), 2: unreachable}}, "1 exceeded 10.0.0.254; 2 unreachable 10.0.1.1 host unreachable", false},
		{"prohibited", path{hops: map[int]sender.TraceReply{1: prohibited}}, "1 unreachable fd00::1 administratively prohibited", false},
		{"too large", path{hops: map[int]sender.TraceReply{1: tooLarge}}, "1 unreachable 10.0.1.1 packet too large", false},
		{"refused here", path{hops: map[int]sender.TraceReply{1: refused}}, "1 unreachable  refused by this host: operation not permitted", false},
		{"not known", path{hops: map[int]sender.TraceReply{1: strange}}, "1 unreachable 10.0.1.1 ICMP type 12 code 7", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			h := traceHops(t.Context(), &tc.path)
			if got := outline(h); got != tc.want || h.Reached != tc.reached || h.Error != "" {
				t.Errorf("%s; %+v", got, h)
			}
			if h.From != "10.0.0.1:5000" || h.To != "10.0.9.9:862" || h.DSCP != 10 || h.Packets != tc.path.sent || h.Packets > MaxTracePackets {
				t.Errorf("%+v", h)
			}
			if f := h.Far; f.Asked != farPackets || tc.reached != (f.Answered == farPackets) || tc.reached && (*f.DSCP != 46 || *f.ReturnDSCP != 3 || *f.Hops != 2) {
				t.Errorf("%+v", f)
			}
		})
	}
}

// TestTraceOfALongPath ends at the greatest number of hops and of packets.
func TestTraceOfALongPath(t *testing.T) {
	t.Parallel()
	p := &path{hops: make(map[int]sender.TraceReply)}
	for n := 1; n < farHopLimit; n += silence - 1 {
		p.hops[n] = router("10.0.0.254")
	}
	h := traceHops(t.Context(), p)
	if len(h.Hops) != maxHops && len(h.Hops) != maxHops-2 || h.Packets > MaxTracePackets || h.Reached {
		t.Errorf("%d hops, %d packets", len(h.Hops), h.Packets)
	}
}

// TestTraceThatEnds early says why, and keeps what it knows.
func TestTraceThatEnds(t *testing.T) {
	t.Parallel()
	p := &path{broken: errors.New("its socket was closed")}
	if h := traceHops(t.Context(), p); h.Error != "its socket was closed" || h.Reached {
		t.Errorf("%+v", h)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if h := traceHops(ctx, &path{}); !strings.Contains(h.Error, "took too long") || outline(h) != "1 silent" {
		t.Errorf("%+v", h)
	}
}

// TestRepliesToNothing are left alone: numbers that were never sent, and messages of no hop.
func TestRepliesToNothing(t *testing.T) {
	tr := &trace{open: map[int]bool{1: true}, limits: []uint8{1, 0}, hops: []Hop{{Number: 1, Outcome: Silent}}}
	tr.far.Asked = 1
	tr.take(&sender.TraceReply{Sequence: 7, Answered: true})
	tr.take(&sender.TraceReply{Sequence: 1, Type: 3, Verified: true})
	if tr.reached || tr.far.Answered != 0 || tr.hops[0].Outcome != Silent {
		t.Errorf("%+v", tr)
	}
	// A certain message takes the place of one that quotes little, and not the other way round.
	doubtful, sure := router("10.0.0.66"), router("10.0.0.254")
	doubtful.Verified = false
	tr.take(&doubtful)
	tr.take(&sure)
	tr.take(&doubtful)
	if hop := tr.hops[0]; hop.Address != "10.0.0.254" || hop.Unverified {
		t.Errorf("%+v", hop)
	}
}
