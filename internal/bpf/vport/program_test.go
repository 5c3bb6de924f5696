package vport

import (
	"bytes"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"vigia/internal/testutil"
)

const (
	tcActUnspec = 0xffffffff // TC_ACT_UNSPEC, -1: go on with the next program
	tcActShot   = 2
	xdpDrop     = 1
	xdpPass     = 2
	loopback    = 1 // the interface that the kernel's test run pretends
)

func open(t testing.TB, o Options) *Manager {
	t.Helper()
	m, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	if err := m.EnsureSettings(DefaultSettings()); err != nil {
		t.Fatal(err)
	}
	return m
}

// bench is a manager whose programs run on hand-made packets, with the loopback
// interface as the vport and nothing attached.
type bench struct {
	*Manager
	t    testing.TB
	slot uint32 // of the vport
}

func newBench(t testing.TB) *bench {
	t.Helper()
	b := &bench{Manager: open(t, Options{PinDir: testutil.NewBPFFS(t), MaxPorts: 4}), t: t}
	b.slot = b.put(loopback)
	return b
}

// put gives an interface a slot, as Attach does, and attaches nothing.
func (b *bench) put(ifindex int) uint32 {
	b.t.Helper()
	slot, err := b.freeSlot(ifindex)
	if err == nil {
		err = b.clearSlot(slot, ifindex)
	}
	if err == nil {
		err = b.objects.VportPlace.Put(uint32(ifindex), vportPlace{Slot: slot, Hook: uint32(TCX), SinceNs: Monotonic()})
	}
	if err == nil {
		err = b.setSlot(ifindex, slot)
	}
	if err != nil {
		b.t.Fatal(err)
	}
	return slot
}

// rival is an interface whose own place is the loopback interface's, too.
const rival = loopback + 4

// displace gives the vport's place to another one.
func (b *bench) displace() {
	b.t.Helper()
	if err := b.detach(loopback); err != nil {
		b.t.Fatal(err)
	}
	own := b.put(rival)
	if b.slot = b.put(loopback); b.slot == own {
		b.t.Fatalf("both vports have slot %d", own)
	}
}

func (b *bench) run(p *ebpf.Program, frame []byte) uint32 {
	b.t.Helper()
	verdict, err := p.Run(&ebpf.RunOptions{Data: frame})
	if err != nil {
		b.t.Fatal(err)
	}
	return verdict
}

func (b *bench) read() Counters {
	b.t.Helper()
	c, err := b.Read(loopback)
	if err != nil {
		b.t.Fatal(err)
	}
	return c
}

func (b *bench) signals() Signals {
	b.t.Helper()
	s, err := b.Signals(loopback)
	if err != nil {
		b.t.Fatal(err)
	}
	return s
}

func TestClassification(t *testing.T) {
	const tcpNum, udpNum, icmpNum, icmp6, gre = 6, 17, 1, 58, 47
	pad := make([]byte, 64)
	big := udp(1, 2, 100)
	b := newBench(t)
	for _, tc := range []struct {
		name, want string
		frame      []byte
	}{
		{"tcp", "tcp", ethernet(ethIPv4, ipv4("10.0.0.1", "10.0.0.2", tcpNum, 0, 0, tcp()))},
		{"tcp with IP options", "tcp", ethernet(ethIPv4, ipv4("10.0.0.1", "10.0.0.2", tcpNum, 0, 12, tcp()))},
		{"udp", "udp", udpFrame("10.0.0.2", 53, 20)},
		{"udp first fragment", "udp", ethernet(ethIPv4, ipv4("10.0.0.1", "10.0.0.2", udpNum, 0x2000, 0, big))},
		{"udp later fragment", "fragment", ethernet(ethIPv4, ipv4("10.0.0.1", "10.0.0.2", udpNum, 0x2001, 0, pad))},
		{"udp last fragment", "fragment", ethernet(ethIPv4, ipv4("10.0.0.1", "10.0.0.2", udpNum, 0x0010, 0, pad))},
		{"tcp later fragment", "fragment", ethernet(ethIPv4, ipv4("10.0.0.1", "10.0.0.2", tcpNum, 0x0010, 0, pad))},
		{"don't fragment is no fragment", "udp", ethernet(ethIPv4, ipv4("10.0.0.1", "10.0.0.2", udpNum, 0x4000, 0, big))},
		{"icmp", "icmp", ethernet(ethIPv4, ipv4("10.0.0.1", "10.0.0.2", icmpNum, 0, 0, pad))},
		{"gre", "other", ethernet(ethIPv4, ipv4("10.0.0.1", "10.0.0.2", gre, 0, 0, pad))},
		{"arp", "arp_nd", ethernet(ethARP, make([]byte, 28))},
		{"vlan udp", "udp", ethernet(ethVLAN, vlan(ethIPv4, ipv4("10.0.0.1", "10.0.0.2", udpNum, 0, 0, big)))},
		{"qinq tcp", "tcp", ethernet(ethQinQ, vlan(ethVLAN, vlan(ethIPv4, ipv4("10.0.0.1", "10.0.0.2", tcpNum, 0, 0, tcp()))))},
		{"three tags", "other", ethernet(ethQinQ, vlan(ethVLAN, vlan(ethVLAN, vlan(ethIPv4, pad))))},
		{"ipv6 udp", "udp", ethernet(ethIPv6, ipv6("fd00::1", "fd00::2", udpNum, big))},
		{"ipv6 tcp", "tcp", ethernet(ethIPv6, ipv6("fd00::1", "fd00::2", tcpNum, tcp()))},
		{"ipv6 hop-by-hop udp", "udp", ethernet(ethIPv6, ipv6("fd00::1", "fd00::2", 0, extension(udpNum, 0, big)))},
		{"ipv6 first fragment", "udp", ethernet(ethIPv6, ipv6("fd00::1", "fd00::2", 44, extension(udpNum, 1, big)))},
		{"ipv6 later fragment", "fragment", ethernet(ethIPv6, ipv6("fd00::1", "fd00::2", 44, extension(udpNum, 8, pad)))},
		{"ipv6 echo", "icmp", ethernet(ethIPv6, ipv6("fd00::1", "fd00::2", icmp6, append([]byte{128, 0}, pad...)))},
		{"ipv6 neighbour solicitation", "arp_nd", ethernet(ethIPv6, ipv6("fd00::1", "fd00::2", icmp6, append([]byte{135, 0}, pad...)))},
		{"unknown ethertype", "other", ethernet(0x88cc, pad)},
		{"ipv4 header longer than the packet", "udp", ethernet(ethIPv4, append([]byte{0x4f}, ipv4("10.0.0.1", "10.0.0.2", udpNum, 0, 0, nil)[1:]...))},
		{"truncated ipv6 extension", "other", ethernet(ethIPv6, ipv6("fd00::1", "fd00::2", 0, []byte{17, 0}))},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for _, p := range []struct {
				program   *ebpf.Program
				pass      uint32
				direction Direction
			}{
				{b.objects.VportTcxFrom, tcActUnspec, FromTenant},
				{b.objects.VportTcxTo, tcActUnspec, ToTenant},
				{b.objects.VportTcxPassed, tcActUnspec, FromTenant},
			} {
				before := b.read()
				if got := b.run(p.program, tc.frame); got != p.pass {
					t.Errorf("%s: verdict %d, want %d", p.program, got, p.pass)
				}
				after := b.read()
				for i, name := range Protocols() {
					wantPackets, wantBytes := uint64(0), uint64(0)
					if name == tc.want {
						wantPackets, wantBytes = 1, uint64(len(tc.frame))
					}
					gotPackets := after.Packets[p.direction][i] - before.Packets[p.direction][i]
					gotBytes := after.Bytes[p.direction][i] - before.Bytes[p.direction][i]
					if gotPackets != wantPackets || gotBytes != wantBytes {
						t.Errorf("%s: %s counted %d packets, %d bytes; want %d, %d", p.program, name, gotPackets, gotBytes, wantPackets, wantBytes)
					}
				}
			}
		})
	}
}

// TestPortsWithOnePlaceAreCountedApart has two interfaces whose numbers give the same
// slot: the second gets another, and neither's packets go to the other.
func TestPortsWithOnePlaceAreCountedApart(t *testing.T) {
	b := newBench(t)
	if b.slot != loopback {
		t.Errorf("the first has slot %d, not its own place", b.slot)
	}
	b.displace()
	tcp, udp := tcpFrame("10.0.0.2"), udpFrame("10.0.0.2", 53, 20)
	for _, p := range []*ebpf.Program{b.objects.VportTcxFrom, b.objects.VportTcxTo, b.objects.VportTcxPassed} {
		b.run(p, tcp)
		b.run(p, udp)
	}
	got := b.read()
	want := Counters{SinceNs: got.SinceNs}
	want.Packets = [2][6]uint64{{2, 2}, {1, 1}}
	want.Bytes = [2][6]uint64{{2 * uint64(len(tcp)), 2 * uint64(len(udp))}, {uint64(len(tcp)), uint64(len(udp))}}
	want.Sizes = [2][8]uint64{{4}, {2}}
	if got != want {
		t.Errorf("counted %+v, want %+v", got, want)
	}
	other, err := b.Read(rival)
	if err != nil || other != (Counters{SinceNs: other.SinceNs}) {
		t.Errorf("the other vport counts %+v, %v", other, err)
	}
	b.put(rival + 4)
	b.put(rival + 8)
	if _, err = b.freeSlot(99); !errors.Is(err, ErrFull) {
		t.Errorf("with every slot taken: %v", err)
	}
}

func TestForeignInterfaceIsLeftAlone(t *testing.T) {
	b := newBench(t)
	if err := b.detach(loopback); err != nil {
		t.Fatal(err)
	}
	frame := udpFrame("10.0.0.2", 53, 20)
	for p, pass := range map[*ebpf.Program]uint32{
		b.objects.VportTcxFrom: tcActUnspec, b.objects.VportTcxTo: tcActUnspec, b.objects.VportXdpFrom: xdpPass,
	} {
		if got := b.run(p, frame); got != pass {
			t.Errorf("%s: verdict %d, want %d", p, got, pass)
		}
	}
	var all []vportCounters
	if err := b.objects.VportCount.Lookup(b.slot, &all); err != nil {
		t.Fatal(err)
	}
	for _, c := range all {
		if c != (vportCounters{}) {
			t.Errorf("an interface without a slot was counted: %+v", c)
		}
	}
}

// send runs n packets, each to the port that port gives, at once.
func (b *bench) send(n int, dst string, port func(i int) uint16) {
	b.t.Helper()
	for i := range n {
		b.run(b.objects.VportTcxFrom, udpFrame(dst, port(i), 20))
	}
}

// atWindowStart waits until a window has just begun, so that what follows fits in it.
func atWindowStart(t testing.TB) {
	t.Helper()
	now := Monotonic() / windowNs
	testutil.WaitFor(t, "the next window", func() bool { return Monotonic()/windowNs > now })
}

// nextWindow waits until the window of now is complete, and one more.
func nextWindow(t testing.TB) {
	t.Helper()
	now := Monotonic() / windowNs
	testutil.WaitFor(t, "the window after the next", func() bool { return Monotonic()/windowNs > now+1 })
}

func TestFloodToRandomPortsIsDetected(t *testing.T) {
	before := Monotonic()
	var s Signals
	testutil.WaitFor(t, "signals of the last second", func() bool { // which is over for a stalled test
		b := newBench(t)
		atWindowStart(t)
		// Far more than the threshold, so that even a slow machine gets it into some window.
		b.send(3000, "10.0.0.2", func(i int) uint16 { return uint16(1024 + i*7) })
		nextWindow(t)
		s = b.signals()
		return s.UDPPackets >= 1000
	})
	if s.FloodSinceNs < before || s.FloodLastNs < s.FloodSinceNs || s.FloodLastNs > Monotonic() {
		t.Errorf("flood from %d to %d, sent after %d", s.FloodSinceNs, s.FloodLastNs, before)
	}
	if s.UDPPackets == 0 || s.UDPPackets > 3000 || s.DestinationPorts < 95 || s.ReplyRatio != 0 {
		t.Errorf("signals %+v", s)
	}
	if s.FloodScore < 70 {
		t.Errorf("score %.0f, want at least 70", s.FloodScore)
	}
}

func TestQuietTrafficIsNotAFlood(t *testing.T) {
	for _, tc := range []struct {
		name string
		send func(b *bench)
	}{
		{"one port, as QUIC or VXLAN", func(b *bench) { b.send(3000, "10.0.0.2", func(int) uint16 { return 443 }) }},
		{"few packets to many ports", func(b *bench) { b.send(150, "10.0.0.2", func(i int) uint16 { return uint16(i) }) }},
		{"a server answering many clients", func(b *bench) {
			for i := range 3000 {
				dst := "10.1." + string(rune('0'+i%10)) + "." + string(rune('0'+i/10%10))
				b.run(b.objects.VportTcxFrom, udpFrame(dst, uint16(i), 20))
			}
		}},
		{"a scan that is answered", func(b *bench) {
			for i := range 3000 {
				b.run(b.objects.VportTcxTo, replyFrame("10.0.0.2", 20))
				b.run(b.objects.VportTcxFrom, udpFrame("10.0.0.2", uint16(i*7), 20))
			}
		}},
		{"a video call: RTP both ways, one port", func(b *bench) {
			for range 1500 {
				b.run(b.objects.VportTcxFrom, udpFrame("10.0.0.2", 5004, 1200))
				b.run(b.objects.VportTcxTo, replyFrame("10.0.0.2", 1200))
			}
		}},
		{"NFS over UDP: large datagrams in fragments, answered", func(b *bench) {
			for i := range 600 {
				b.run(b.objects.VportTcxFrom, ethernet(ethIPv4, ipv4("10.0.0.1", "10.0.0.2", 17, 0x2000, 0, udp(800, 2049, 1000))))
				for range 4 {
					b.run(b.objects.VportTcxFrom, ethernet(ethIPv4, ipv4("10.0.0.1", "10.0.0.2", 17, 0x2001, 0, make([]byte, 1000))))
				}
				if i%2 == 0 {
					b.run(b.objects.VportTcxTo, replyFrame("10.0.0.2", 200))
				}
			}
		}},
		{"a resolver: a query to each of many servers, answered", func(b *bench) {
			for i := range 2000 {
				server := "10.2." + string(rune('0'+i%10)) + "." + string(rune('0'+i/10%10))
				b.run(b.objects.VportTcxFrom, udpFrame(server, 53, 60))
				b.run(b.objects.VportTcxTo, replyFrame(server, 200))
			}
		}},
		{"a speed test of UDP to one port", func(b *bench) { b.send(5000, "10.0.0.2", func(int) uint16 { return 5201 }) }},
		{"flow export: one way, one port", func(b *bench) { b.send(2500, "10.0.0.2", func(int) uint16 { return 2055 }) }},
		{"tcp", func(b *bench) {
			for range 1000 {
				b.run(b.objects.VportTcxFrom, ethernet(ethIPv4, ipv4("10.0.0.1", "10.0.0.2", 6, 0, 0, tcp())))
			}
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newBench(t)
			b.run(b.objects.VportTcxFrom, udpFrame("10.0.0.2", 1, 20)) // opens a window, so that replies have one
			tc.send(b)
			nextWindow(t)
			if s := b.signals(); s.FloodSinceNs != 0 || s.FloodScore >= 70 {
				t.Errorf("taken for a flood: %+v", s)
			}
		})
	}
}

func TestBusyDestinationIsFollowedAmongMany(t *testing.T) {
	b := newBench(t)
	for i := range 9000 {
		dst := "10.0.0.2"
		if i%3 == 0 { // a third of the packets go to 200 other hosts
			dst = "10.9.0." + string(rune('1'+i%9)) + string(rune('0'+i%7))
		}
		b.run(b.objects.VportTcxFrom, udpFrame(dst, uint16(i*13), 20))
	}
	nextWindow(t)
	if s := b.signals(); s.FloodSinceNs == 0 {
		t.Errorf("the flood among other traffic was missed: %+v", s)
	}
}

func TestSignalsFade(t *testing.T) {
	b := newBench(t)
	b.send(500, "10.0.0.2", func(i int) uint16 { return uint16(i) })
	testutil.WaitFor(t, "the last second to be silent", func() bool { return b.signals().UDPPackets == 0 })
	if s := b.signals(); s.FloodScore != 0 || s.DestinationPorts != 0 {
		t.Errorf("after silence: %+v", s)
	}
}

func TestFragmentsCountAsUDP(t *testing.T) {
	b := newBench(t)
	fragment := ethernet(ethIPv4, ipv4("10.0.0.1", "10.0.0.2", 17, 0x0010, 0, make([]byte, 100)))
	for range 50 {
		b.run(b.objects.VportTcxFrom, fragment)
	}
	c := b.read()
	if bytes, packets := c.OfferedUDP(); packets != 50 || bytes != 50*uint64(len(fragment)) {
		t.Errorf("offered %d packets, %d bytes", packets, bytes)
	}
	var s Signals
	testutil.WaitFor(t, "signals of the last second", func() bool { // which is over for a stalled test
		b.run(b.objects.VportTcxFrom, fragment)
		nextWindow(t)
		s = b.signals()
		return s.UDPPackets > 0
	})
	if s.Fragments == 0 || s.Fragments != s.UDPPackets {
		t.Errorf("signals %+v, want only fragments", s)
	}
}

func TestPolicerBoundsUDPAndExpires(t *testing.T) {
	b := newBench(t)
	frame := udpFrame("10.0.0.2", 9, 1000-42)
	const burst = 10_000
	since := uint64(0)
	for _, tc := range []struct {
		program    *ebpf.Program
		pass, drop uint32
	}{
		{b.objects.VportTcxFrom, tcActUnspec, tcActShot},
		{b.objects.VportXdpFrom, xdpPass, xdpDrop},
	} {
		since++ // a new limit starts with a full bucket
		if err := b.objects.VportLimit.Put(b.slot, vportLimit{Rate: 1, Burst: burst, SinceNs: since, ExpiresNs: Monotonic() + uint64(time.Hour)}); err != nil {
			t.Fatal(err)
		}
		before := b.read()
		passed := 0
		for range 25 {
			switch got := b.run(tc.program, frame); got {
			case tc.pass:
				passed++
			case tc.drop:
			default:
				t.Fatalf("verdict %d", got)
			}
		}
		after := b.read()
		if passed != burst/len(frame) {
			t.Errorf("%s: %d of 25 packets passed, want the burst of %d", tc.program, passed, burst/len(frame))
		}
		if n := after.PolicedPackets - before.PolicedPackets; n != uint64(25-passed) {
			t.Errorf("%s: %d packets policed, want %d", tc.program, n, 25-passed)
		}
		if n := after.PolicedBytes - before.PolicedBytes; n != uint64((25-passed)*len(frame)) {
			t.Errorf("%s: %d bytes policed", tc.program, n)
		}
		fragment := ethernet(ethIPv4, ipv4("10.0.0.1", "10.0.0.2", 17, 0x0010, 0, make([]byte, 100)))
		if got := b.run(tc.program, fragment); got != tc.drop {
			t.Errorf("%s: a UDP fragment over the limit got %d", tc.program, got)
		}
		innocent := ethernet(ethIPv4, ipv4("10.0.0.1", "10.0.0.2", 6, 0, 0, tcp()))
		if got := b.run(tc.program, innocent); got != tc.pass {
			t.Errorf("%s: TCP over the UDP limit got %d", tc.program, got)
		}
	}
	if err := b.objects.VportLimit.Put(b.slot, vportLimit{Rate: 1, Burst: burst, ExpiresNs: Monotonic() - 1}); err != nil {
		t.Fatal(err)
	}
	for range 25 {
		if got := b.run(b.objects.VportTcxFrom, frame); got != tcActUnspec {
			t.Fatalf("the limit outlived its expiry: verdict %d", got)
		}
	}
}

func TestPolicerRefillsExactly(t *testing.T) {
	b := newBench(t)
	frame := udpFrame("10.0.0.2", 9, 1000-42)
	const (
		rate  = 50_000 // bytes a second, 50 packets
		burst = 1000
	)
	start := Monotonic()
	if err := b.objects.VportLimit.Put(b.slot, vportLimit{Rate: rate, Burst: burst, ExpiresNs: start + uint64(time.Hour)}); err != nil {
		t.Fatal(err)
	}
	var passed, earned uint64
	last := start
	for last-start < uint64(time.Second) {
		// Many packets between refills of less than one packet each.
		if b.run(b.objects.VportTcxFrom, frame) == tcActUnspec {
			passed += uint64(len(frame))
		}
		now := Monotonic()
		// While the test is kept from running, the bucket fills up and no further.
		earned += min(rate*(now-last), burst*1e9)
		last = now
	}
	most := burst + rate*(last-start)/1e9 + uint64(len(frame))
	least := earned / 1e9 / 2
	if passed > most || passed < least {
		t.Errorf("%d bytes passed in %d ns at %d bytes a second, not %d to %d", passed, last-start, rate, least, most)
	}
}

// TestGeneratedIsCurrent fails when the committed object does not stem from the
// source: make generate brings both together.
func TestGeneratedNamesTheSource(t *testing.T) {
	var source []byte
	for _, file := range []string{"vport.bpf.c", "maps.h"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		source = append(source, text...)
	}
	object, err := os.ReadFile("vport_bpfel.o")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"vport_tcx_from", "vport_tcx_to", "vport_xdp_from", "vport_place"} {
		if !bytes.Contains(source, []byte(name)) || !bytes.Contains(object, []byte(name)) {
			t.Errorf("%s is not in both source and object", name)
		}
	}
	if bytes.Contains(object, []byte("/internal/bpf/")) {
		t.Error("the object names a folder of the machine that built it")
	}
}
