package moment

import (
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"vigia/internal/testutil"
	"vigia/probes/delay"
	"vigia/probes/health"
	"vigia/probes/pathmtu"
	"vigia/probes/protocol"
	"vigia/probes/protocol/connect"
	"vigia/probes/protocol/echo"
	stampprobe "vigia/probes/protocol/stamp"
	"vigia/probes/records"
	"vigia/probes/routed"
	"vigia/probes/sender"
	"vigia/probes/stamp"
)

// quiet is a recorder that keeps nothing.
type quiet struct{}

func (quiet) Launched(int64)                    {}
func (quiet) Settled(*protocol.Probe)           {}
func (quiet) Varied([delay.NumDirections]int64) {}
func (quiet) Burst(uint64)                      {}
func (quiet) SourceChanged()                    {}
func (quiet) Finished()                         {}
func (quiet) Removed()                          {}

const expedited = 46 // EF, RFC 3246

// running returns the sources of a sender that probes these targets.
func running(t *testing.T, targets ...sender.Target) *Sources {
	t.Helper()
	s, err := sender.New(sender.Options{Logger: slog.New(slog.DiscardHandler), NewRecorder: func(sender.Target) sender.Recorder { return quiet{} }})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Apply(targets); err != nil {
		t.Fatal(err)
	}
	testutil.Running(t, s)
	return &Sources{
		Trace: s.Trace, Address: s.Address, Health: func() health.Reading { return health.Reading{CPUPressure: -1} },
		Recent: func(sender.Labels, int) []*records.Line { return nil },
	}
}

// aim returns a target in the left namespace.
func aim(n routed.Network, path, to string) sender.Target {
	return sender.Target{
		Labels: sender.Labels{Src: "left", Dst: "right", Path: path, Tenant: "red", Probe: "c"},
		Netns:  n.Left, Host: to, Port: stamp.Port, Protocol: stampprobe.Protocol{}, Size: 64, DSCP: expedited,
		Interval: 50 * time.Millisecond, Deadline: time.Second,
	}
}

// families are the addresses by version of IP.
var families = []struct{ name, source, router, to string }{
	{"IPv4", routed.LeftIP, routed.RouterIP, routed.RightIP},
	{"IPv6", routed.LeftIP6, routed.RouterIP6, routed.RightIP6},
}

// wantHops compares hops with what is expected of each: its outcome and address.
func wantHops(t *testing.T, h *Hops, want ...string) {
	t.Helper()
	var got []string
	for i := range h.Hops {
		hop := &h.Hops[i]
		got = append(got, strings.TrimSpace(hop.Outcome+" "+hop.Address))
		if hop.Number != i+1 || hop.Unverified || hop.Outcome != Silent && hop.RTT <= 0 {
			t.Errorf("%+v", *hop)
		}
	}
	if h.Error != "" || strings.Join(got, ", ") != strings.Join(want, ", ") {
		t.Errorf("hops %q, want %q; %s", got, want, h.Error)
	}
	if h.Packets > MaxTracePackets {
		t.Errorf("%d packets", h.Packets)
	}
}

// whole takes a record of which every question was answered, for the last tries: answers that a machine without a free
// processor gives too late are silence.
func whole(t *testing.T, s *Sources, target sender.Target, why Why) (m *Moment) {
	t.Helper()
	return unspoilt(t, s, target, why, func(m *Moment) bool {
		return answered(m.Hops) && (m.Beneath == nil || answered(m.Beneath)) && m.PathMTU.Outcome == string(pathmtu.Found)
	})
}

// answered reports whether no hop is silent, and the far end answered every packet.
func answered(h *Hops) bool {
	return !anySilent(h) && h.Far.Answered == h.Far.Asked && h.Far.Asked > 0
}

func anySilent(h *Hops) bool {
	return slices.ContainsFunc(h.Hops, func(h Hop) bool { return h.Outcome == Silent })
}

// unspoilt takes a record that is as it should be, or the last of some.
func unspoilt(t *testing.T, s *Sources, target sender.Target, why Why, good func(*Moment) bool) (m *Moment) {
	t.Helper()
	for range 5 {
		if m = s.take(t.Context(), target, why); good(m) {
			break
		}
	}
	return m
}

// TestMomentsNameTheFault makes a good record, and one of each fault, over both versions of IP.
func TestMomentsNameTheFault(t *testing.T) {
	t.Parallel()
	for _, f := range families {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			n := routed.New(t, "1500")
			routed.Reflect(t, n.Right, "", routed.Endpoint(f.to))
			target := aim(n, "direct", f.to)
			s := running(t, target)

			m := whole(t, s, target, Good)
			wantHops(t, m.Hops, Exceeded+" "+f.router, Answered+" "+f.to)
			checkFar(t, m, expedited)
			checkMTU(t, m, 1500)
			if m.Why != Good || m.Beneath != nil || m.Seconds <= 0 || m.Host.Processors < 1 || m.Host.Error != "" || m.HostAfter.Error != "" {
				t.Errorf("%+v", m)
			}

			testutil.IP(t, "-n", n.Router, "link", "set", "right0", "mtu", "1400")
			m = whole(t, s, target, Loss)
			wantHops(t, m.Hops, Exceeded+" "+f.router, Answered+" "+f.to)
			checkMTU(t, m, 1400)
			if m.PathMTU.Reported != 1400 {
				t.Errorf("%+v", m.PathMTU)
			}

			routed.NFT(t, n.Router, "forward", "meta l4proto udp ip dscp set cs1", "meta l4proto udp ip6 dscp set cs1")
			m = whole(t, s, target, Slow)
			checkFar(t, m, 8)

			routed.NFT(t, n.Router, "postrouting", "meta l4proto udp drop")
			m = unspoilt(t, s, target, Loss, func(m *Moment) bool { return len(m.Hops.Hops) == 2 })
			wantHops(t, m.Hops, Exceeded+" "+f.router, Silent)
			if m.Hops.Reached || m.Hops.Far.Asked == 0 || m.Hops.Far.Answered != 0 || m.Hops.Far.DSCP != nil {
				t.Errorf("%+v, far end %+v", m.Hops, m.Hops.Far)
			}
			if m.PathMTU.Outcome != string(pathmtu.Unreachable) || m.PathMTU.Bytes != 0 {
				t.Errorf("%+v", m.PathMTU)
			}
		})
	}
}

// checkFar demands that every packet was answered and arrived in a class, which the way back
// kept as it was sent or changed alike.
func checkFar(t *testing.T, m *Moment, dscp uint8) {
	t.Helper()
	f := m.Hops.Far
	if !m.Hops.Reached || m.Hops.DSCP != expedited || f.Answered != f.Asked || f.Asked != farPackets || f.RTT <= 0 {
		t.Fatalf("%+v, far end %+v", m.Hops, f)
	}
	if f.DSCP == nil || *f.DSCP != dscp || f.ReturnDSCP == nil || *f.ReturnDSCP != dscp || f.Hops == nil || *f.Hops != 1 {
		t.Errorf("far end %+v, want DSCP %d and one router", f, dscp)
	}
}

func checkMTU(t *testing.T, m *Moment, bytes int) {
	t.Helper()
	p := m.PathMTU
	if p.Outcome != string(pathmtu.Found) || p.Bytes != bytes || p.Packets > MaxSearchPackets || p.Error != "" {
		t.Errorf("%+v, want %d bytes", p, bytes)
	}
}

// TestBeneath traces a tunnel, and the routers beneath it by the twin.
func TestBeneath(t *testing.T) {
	t.Parallel()
	n := routed.New(t, "1500")
	const leftInner, rightInner = "10.8.9.1", "10.8.9.2"
	for _, end := range []struct{ ns, self, other, inner string }{
		{n.Left, routed.LeftIP, routed.RightIP, leftInner}, {n.Right, routed.RightIP, routed.LeftIP, rightInner},
	} {
		testutil.IP(t, "-n", end.ns, "link", "add", "vxlan0", "mtu", "1450", "type", "vxlan", "id", "7", "dstport", "4789", "local", end.self, "remote", end.other)
		testutil.IP(t, "-n", end.ns, "link", "set", "vxlan0", "up")
		testutil.IP(t, "-n", end.ns, "addr", "add", end.inner+"/24", "dev", "vxlan0")
	}
	routed.Reflect(t, n.Right, "", routed.Endpoint(rightInner), routed.Endpoint(routed.RightIP))
	under, over := aim(n, "direct", routed.RightIP), aim(n, "vxlan", rightInner)
	under.Twin = sender.Twin{Group: under.Labels, Rank: 0, Size: 2}
	over.Twin = sender.Twin{Group: under.Labels, Rank: 1, Size: 2}
	s := running(t, under, over)
	m := whole(t, s, over, Loss)
	wantHops(t, m.Hops, Answered+" "+rightInner)
	if m.BeneathPath != "direct" || m.Beneath == nil {
		t.Fatalf("%+v", m)
	}
	wantHops(t, m.Beneath, Exceeded+" "+routed.RouterIP, Answered+" "+routed.RightIP)
	if m = s.take(t.Context(), under, Loss); m.Beneath != nil {
		t.Errorf("there is nothing beneath the underlay: %+v", m.Beneath)
	}
}

// TestOtherProtocols traces with authenticated packets and echo requests; connections cannot.
func TestOtherProtocols(t *testing.T) {
	t.Parallel()
	n := routed.New(t, "1500")
	keys, err := stamp.ParseKeys([]byte("00112233445566778899aabbccddeeff\n"))
	if err != nil {
		t.Fatal(err)
	}
	routed.Reflect(t, n.Right, keys, routed.Endpoint(routed.RightIP))
	signed := aim(n, "direct", routed.RightIP)
	signed.Protocol, signed.Size = stampprobe.Protocol{Keys: keys}, 112
	targets := []sender.Target{signed}
	for _, to := range []string{routed.RightIP, routed.RightIP6} {
		e := aim(n, to, to)
		e.Protocol, e.Port, e.Size = echo.Protocol{}, 0, 56
		targets = append(targets, e)
	}
	tcp := aim(n, "tcp", routed.RightIP)
	tcp.Protocol, tcp.Size, tcp.DSCP, tcp.Interval = connect.Protocol{}, 0, 0, time.Second
	s := running(t, append(targets, tcp)...)
	for i, router := range []string{routed.RouterIP, routed.RouterIP, routed.RouterIP6} {
		m := whole(t, s, targets[i], Loss)
		wantHops(t, m.Hops, Exceeded+" "+router, Answered+" "+targets[i].Host)
		far := m.Hops.Far
		if far.Answered != farPackets || (far.DSCP != nil) != (i == 0) || far.ReturnDSCP == nil || *far.ReturnDSCP != expedited {
			t.Errorf("%s: far end %+v", targets[i].Protocol.Traits().Name, far)
		}
	}
	m := s.take(t.Context(), tcp, Loss)
	if m.Hops.Error != sender.ErrNoTrace.Error() || len(m.Hops.Hops) != 0 || m.PathMTU.Outcome != string(pathmtu.Failed) {
		t.Errorf("%+v %+v", m.Hops, m.PathMTU)
	}
}

// TestNobodyListens is told by the far end itself.
func TestNobodyListens(t *testing.T) {
	t.Parallel()
	n := routed.New(t, "1500")
	target := aim(n, "direct", routed.RightIP)
	m := unspoilt(t, running(t, target), target, Loss, func(m *Moment) bool { return !anySilent(m.Hops) })
	wantHops(t, m.Hops, Exceeded+" "+routed.RouterIP, Unreachable+" "+routed.RightIP)
	if says := m.Hops.Hops[1].Says; says != "port unreachable" || m.Hops.Reached {
		t.Errorf("%q, %+v", says, m.Hops)
	}
}

// TestHostState reads the counters of the target's namespace.
func TestHostState(t *testing.T) {
	t.Parallel()
	ns := testutil.NewNetNS(t)
	testutil.IP(t, "-n", ns, "link", "add", "dummy0", "type", "veth", "peer", "name", "dummy1")
	for _, d := range []string{"dummy0", "dummy1"} {
		testutil.IP(t, "-n", ns, "link", "set", d, "up")
	}
	testutil.IP(t, "-n", ns, "addr", "add", "10.8.7.1/24", "dev", "dummy0")
	testutil.IP(t, "-n", ns, "neigh", "add", "10.8.7.2", "lladdr", "02:00:00:00:00:02", "dev", "dummy0")
	testutil.Run(t, "tc", "-n", ns, "qdisc", "add", "dev", "dummy0", "root", "handle", "7:", "tbf", "rate", "1kbit", "burst", "1600", "limit", "1600")
	h := readHost(health.Reading{CPUPressure: 0.25, Steal: -1}, ns)
	if h.Error != "" || h.Processors < 1 || h.CPUPressure != 0.25 || h.Steal != -1 || len(queuesOf(&h, ns)) != 0 {
		t.Fatalf("%+v", h)
	}
	testutil.Run(t, "ip", "netns", "exec", ns, "sh", "-c", "ping -q -c 5 -i 0.01 -W 1 -s 1400 10.8.7.2 || true") // nobody answers
	h = readHost(health.Reading{}, ns)
	if q := queuesOf(&h, ns); len(q) != 1 || q[0].Device != "dummy0" || q[0].Kind != "tbf" || q[0].Dropped == 0 {
		t.Errorf("%+v", h)
	}
	if h = readHost(health.Reading{}, "vigia-test-none"); !strings.Contains(h.Error, "does not exist") {
		t.Errorf("%+v", h)
	}
}

func queuesOf(h *Host, ns string) (found []Queue) {
	for _, q := range h.Queues {
		if q.Netns == ns {
			found = append(found, q)
		}
	}
	return found
}
