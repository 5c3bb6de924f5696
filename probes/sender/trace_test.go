package sender

import (
	"errors"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"vigia/internal/testutil"
	"vigia/probes/delay"
	"vigia/probes/protocol"
	"vigia/probes/protocol/connect"
	"vigia/probes/routed"
	"vigia/probes/timestamping"
)

// through returns a target that probes through a router.
func through(n routed.Network, name, to string, count uint64) Target {
	tg := target(name, routed.Endpoint(to))
	tg.Netns, tg.Count, tg.DSCP = n.Left, count, 46
	return tg
}

// trace begins a trace of a target that is probed.
func (f *fixture) trace(l Labels) *Trace {
	f.t.Helper()
	var tr *Trace
	f.waitFor("a trace", func() (began bool) {
		var err error
		tr, err = f.Trace(l)
		return err == nil
	})
	return tr
}

// replies waits until so many have come to a trace.
func (f *fixture) replies(tr *Trace, n int) (all []TraceReply) {
	f.t.Helper()
	testutil.WaitFor(f.t, "what comes back", func() bool {
		var err error
		if all, err = tr.Read(all); err != nil {
			f.t.Fatal(err)
		}
		return len(all) >= n
	})
	return all
}

// TestTraceLeavesProbesAlone traces again and again, also where every packet of the trace comes
// back as an error, while a target is probed: no probe is lost, late, stray or without its
// kernel stamps, and no error is put down to the target.
func TestTraceLeavesProbesAlone(t *testing.T) {
	t.Parallel()
	for name, to := range map[string]string{"IPv4": routed.RightIP, "IPv6": routed.RightIP6} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := routed.New(t, "1500")
			routed.Reflect(t, n.Right, "", routed.Endpoint(to))
			// Until the neighbours are known, which takes IPv6 seconds, probes come late.
			inNamespace(t, n.Left, "ping", "-c", "1", "-w", "30", to)
			f := newSender(t, Options{})
			const probes = 300
			tg := through(n, "b", to, probes)
			tg.Interval = 10 * time.Millisecond
			f.apply(tg)
			tr := f.trace(tg.Labels)
			const packets = 60
			for i := range packets {
				if sequence, err := tr.Send(uint8(i%2 + 1)); err != nil || sequence != uint32(i) {
					t.Fatal(sequence, err)
				}
				time.Sleep(tg.Interval / 2) // between two probes, and not in step with them
			}
			seen := make(map[uint32]bool)
			for _, r := range f.replies(tr, packets) {
				seen[r.Sequence] = true
				if !r.Verified || r.RTT <= 0 || r.Answered != (r.Sequence%2 == 1) {
					t.Errorf("%+v", r)
				}
				want := routed.RouterIP
				if name == "IPv6" {
					want = routed.RouterIP6
				}
				if r.Answered {
					want = to
					if !r.Far.Seen || r.Far.DSCP != 46 || r.Far.HopLimit != 1 || r.DSCP != 46 {
						t.Errorf("%+v", r)
					}
				}
				if r.From != netip.MustParseAddr(want) {
					t.Errorf("from %s, want %s", r.From, want)
				}
			}
			if len(seen) != packets {
				t.Errorf("%d of %d packets came back", len(seen), packets)
			}
			tr.End()
			st, settled := f.finish(tg.Labels)
			if st.Counts.Received != probes || st.Counts.Corrupt+st.Counts.Late+st.Counts.Duplicate != 0 || st.LastError != nil {
				t.Errorf("%+v, last error %v", st.Counts, st.LastError)
			}
			for i := range settled {
				// Those of the reflector may be missing when it was kept from running.
				if p := &settled[i]; p.State != protocol.Answered || p.Stamps.Kernel&(delay.T1|delay.T4) != delay.T1|delay.T4 {
					t.Fatalf("probe %d: %+v", p.Sequence, p)
				}
			}
			if _, totals, err := f.Snapshot(nil); err != nil || totals.Stray != 0 {
				t.Errorf("%d stray datagrams, %v", totals.Stray, err)
			}
		})
	}
}

// TestTraceHasTheFlowOfTheProbes leaves from the port of the probes, by which the router counts.
func TestTraceHasTheFlowOfTheProbes(t *testing.T) {
	t.Parallel()
	n := routed.New(t, "1500")
	routed.Reflect(t, n.Right, "", routed.Endpoint(routed.RightIP))
	routed.NFT(t, n.Router, "forward", "udp sport 40123 ip dscp ef counter", "ip saddr "+routed.LeftIP+" udp sport != 40123 counter")
	f := newSender(t, Options{})
	tg := through(n, "b", routed.RightIP, 0)
	tg.Source = netip.MustParseAddrPort(routed.LeftIP + ":40123")
	f.apply(tg)
	tr := f.trace(tg.Labels)
	from, to := tr.Flow()
	if from != tg.Source || to != routed.Endpoint(routed.RightIP) || tr.DSCP() != 46 {
		t.Errorf("from %s to %s, DSCP %d", from, to, tr.DSCP())
	}
	for range 5 {
		if _, err := tr.Send(64); err != nil {
			t.Fatal(err)
		}
	}
	for _, r := range f.replies(tr, 5) {
		if !r.Answered || r.Far.HopLimit != 63 {
			t.Errorf("%+v", r)
		}
	}
	tr.End()
	if counts := nftCounts(t, n.Router); len(counts) != 2 || counts[0] < 5 || counts[1] != 0 {
		t.Errorf("the router counted %v", counts)
	}
}

// TestTraceTakesTheWorstFlow follows the source port whose probes are being lost.
func TestTraceTakesTheWorstFlow(t *testing.T) {
	t.Parallel()
	n := routed.New(t, "1500")
	routed.Reflect(t, n.Right, "", routed.Endpoint(routed.RightIP))
	f := newSender(t, Options{})
	tg := through(n, "b", routed.RightIP, 0)
	tg.Flows, tg.Interval, tg.Deadline = 3, 20*time.Millisecond, 100*time.Millisecond
	f.apply(tg)
	tr := f.trace(tg.Labels)
	first, _ := tr.Flow()
	tr.End()
	// A port of another flow: the ports of a target's sockets are found in its sessions.
	var other netip.AddrPort
	f.engine.do(func() {
		for _, s := range f.engine.series[tg.Labels].current {
			if s.Socket.Local() != first {
				other = s.Socket.Local()
			}
		}
	})
	routed.NFT(t, n.Router, "forward", "udp sport "+portOf(other)+" drop")
	f.waitFor("a trace of the flow that is dropped", func() bool {
		tr, err := f.Trace(tg.Labels)
		if err != nil {
			t.Fatal(err)
		}
		defer tr.End()
		from, _ := tr.Flow()
		return from == other && from != first
	})
}

func portOf(a netip.AddrPort) string { return a.String()[strings.LastIndex(a.String(), ":")+1:] }

// TestTracesThatCannotBe say why.
func TestTracesThatCannotBe(t *testing.T) {
	t.Parallel()
	left, right := link(t)
	reflect(t, right, right862)
	f := newSender(t, Options{})
	tcp := overVeth(left, 0)
	tcp.Labels.Dst, tcp.Protocol, tcp.Size, tcp.Interval = "tcp", connect.Protocol{}, 0, time.Second
	gone := overVeth("vigia-test-none", 0)
	gone.Labels.Dst = "gone"
	unnamed := overVeth(left, 0)
	unnamed.Labels.Dst, unnamed.Host = "unnamed", "nobody.invalid"
	paused := overVeth(left, 0)
	paused.Labels.Dst, paused.Paused = "paused", true
	good := overVeth(left, 0)
	f.apply(tcp, gone, unnamed, paused, good)
	for dst, want := range map[string]string{
		"tcp": ErrNoTrace.Error(), "gone": "its socket is not open", "unnamed": "its name has no address", "paused": "it is not probed", "never": "it is not probed",
	} {
		l := good.Labels
		l.Dst = dst
		if tr, err := f.Trace(l); tr != nil || err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", dst, err, want)
		}
	}
	var traces []*Trace
	for range maxTraces {
		traces = append(traces, f.trace(good.Labels))
	}
	if _, err := f.Trace(good.Labels); err == nil || !strings.Contains(err.Error(), "has 16 traces already") {
		t.Errorf("%v", err)
	}
	tr := traces[0]
	for range maxTracePackets {
		if _, err := tr.Send(0); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := tr.Send(0); err == nil || !strings.Contains(err.Error(), "at most 256 packets") {
		t.Errorf("%v", err)
	}
	traces[5].End()
	tr = f.trace(good.Labels) // in the place of that
	for _, tr := range traces {
		tr.End()
	}
	f.apply()
	if _, err := tr.Send(1); err == nil || !strings.Contains(err.Error(), "its socket was closed") {
		t.Errorf("%v", err)
	}
	if _, err := tr.Read(nil); err == nil {
		t.Error("read from a socket that was closed")
	}
	tr.End()
	f.stop()
	if _, err := f.Trace(good.Labels); err == nil || errors.Is(err, ErrNoTrace) {
		t.Errorf("%v", err)
	}
}

// TestShortQuotes are of routers that quote no more than the UDP header: they count for the last
// packet, in doubt, and only where they say that its hop limit was used up.
func TestShortQuotes(t *testing.T) {
	t.Parallel()
	left, right := link(t)
	reflect(t, right, right862)
	f := newSender(t, Options{})
	tg := overVeth(left, 0)
	f.apply(tg)
	tr := f.trace(tg.Labels)
	for range 3 {
		if _, err := tr.Send(64); err != nil {
			t.Fatal(err)
		}
	}
	f.replies(tr, 3)
	somebody := netip.MustParseAddr("10.9.9.9")
	f.engine.do(func() {
		for _, tc := range []struct {
			report timestamping.Report
			taken  bool
		}{
			{timestamping.Report{To: right862, From: somebody, Type: 11, Errno: syscall.EHOSTUNREACH}, true},
			{timestamping.Report{To: right862, From: somebody, Type: 3, Code: 1, Errno: syscall.EHOSTUNREACH}, false},
			{timestamping.Report{To: right862, Type: 11, Errno: syscall.EHOSTUNREACH}, false},
			{timestamping.Report{To: netip.MustParseAddrPort("10.9.0.9:862"), From: somebody, Type: 11}, false},
			{timestamping.Report{To: right862, From: somebody, Type: 11, Payload: make([]byte, 64)}, false},
		} {
			if taken := tr.socket.tracedReport(&tc.report); taken != tc.taken {
				t.Errorf("%+v: taken %v", tc.report, taken)
			}
		}
	})
	if got := f.replies(tr, 1); len(got) != 1 || got[0].Verified || got[0].Sequence != 2 || got[0].From != somebody {
		t.Errorf("%+v", got)
	}
	tr.End()
	f.engine.do(func() {
		if tr.socket.tracedReport(&timestamping.Report{To: right862, From: somebody, Type: 11}) {
			t.Error("a trace that has ended took a message")
		}
	})
}

// TestForgedReplies are no replies: what they return was not sent.
func TestForgedReplies(t *testing.T) {
	t.Parallel()
	left, right := link(t)
	reflect(t, right, right862)
	f := newSender(t, Options{})
	tg := overVeth(left, 0)
	f.apply(tg)
	tr := f.trace(tg.Labels)
	defer tr.End()
	if _, err := tr.Send(64); err != nil {
		t.Fatal(err)
	}
	f.replies(tr, 1)
	f.engine.do(func() {
		for _, b := range [][]byte{nil, make([]byte, 7), make([]byte, 44), make([]byte, 200)} {
			if _, ok := tr.maker.Answered(b); ok {
				t.Errorf("%d bytes of zeros are an answer", len(b))
			}
			if _, quote := tr.maker.Quoted(b); quote == protocol.QuotesOurs {
				t.Errorf("%d bytes of zeros quote a packet", len(b))
			}
		}
	})
}
