package vport

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"vigia/internal/testutil"
	"vigia/internal/testutil/frame"
)

const skbPriority = 32 // offset in struct __sk_buff

// prioritised runs a program on a frame that has a priority and returns the verdict and
// the priority that the frame has then.
func (b *bench) prioritised(p *ebpf.Program, data []byte, priority uint32) (verdict, after uint32) {
	b.t.Helper()
	in, out := make([]byte, skbSize), make([]byte, skbSize)
	binary.NativeEndian.PutUint32(in[skbPriority:], priority)
	verdict, err := p.Run(&ebpf.RunOptions{Data: data, Context: in, ContextOut: out})
	if err != nil {
		b.t.Fatal(err)
	}
	return verdict, binary.NativeEndian.Uint32(out[skbPriority:])
}

// kindsOfSenders are frames that go different ways through the program.
func kindsOfSenders() map[string][]byte {
	syn := ethernet(ethIPv4, ipv4("10.0.0.1", "10.0.0.2", frame.TCP, 0, 0, frame.TCPHeader(1, 2, frame.SYN, 0, nil)))
	return map[string][]byte{
		"a segment": tcpFrame("10.0.0.2"), "a segment of IPv6": ethernet(ethIPv6, ipv6("fd00::1", "fd00::2", frame.TCP, tcp())),
		"the start of a connection": syn, "a datagram": udpFrame("10.0.0.2", 9, 100), "ARP": ethernet(ethARP, make([]byte, 28)),
		"a frame of a VLAN": ethernet(ethVLAN, vlan(ethIPv4, ipv4("10.0.0.1", "10.0.0.2", frame.TCP, 0, 0, tcp()))),
	}
}

// TestATenantDoesNotChooseItsClass sends with priorities that HTB would take for classes.
func TestATenantDoesNotChooseItsClass(t *testing.T) {
	b := newBench(t)
	for name, data := range kindsOfSenders() {
		for _, tc := range []struct{ priority, want uint32 }{
			{0, 0}, {7, 7}, {0x10001, 0x10001}, {0x11500000, 0}, {0x11504242, 0}, {0x11508001, 0}, {0x1150ffff, 0}, {0x11510000, 0x11510000},
		} {
			verdict, got := b.prioritised(b.objects.VportTcxFrom, data, tc.priority)
			if verdict != tcActUnspec || got != tc.want {
				t.Errorf("%s with priority %#x: verdict %d, priority %#x, want %#x", name, tc.priority, verdict, got, tc.want)
			}
		}
		for _, priority := range []uint32{0, 7, 0x11504242} { // behind XDP there is no scheduler of ours
			if _, got := b.prioritised(b.objects.VportTcxPassed, data, priority); got != priority {
				t.Errorf("%s: the program behind XDP made %#x of priority %#x", name, got, priority)
			}
			if _, got := b.prioritised(b.objects.VportTcxTo, data, priority); got != priority {
				t.Errorf("%s: delivered with priority %#x, had %#x", name, got, priority)
			}
		}
	}
}

// TestAShapedLimitLeadsToItsClass by the limit of the vport and by those of destinations.
func TestAShapedLimitLeadsToItsClass(t *testing.T) {
	const vports, one, all = 0x11508001, 0x11508002, 0x11508003
	b := newBench(t)
	expect := func(what string, data []byte, want uint32) {
		t.Helper()
		for _, before := range []uint32{0, 0x11504242} {
			if verdict, got := b.prioritised(b.objects.VportTcxFrom, data, before); verdict != tcActUnspec || got != want {
				t.Errorf("%s: verdict %d, priority %#x, want %#x", what, verdict, got, want)
			}
		}
	}
	udp, tcp := udpFrame("10.0.0.2", 9, 100), tcpFrame("10.0.0.2")
	b.setLimit(LimitRequest{Rate: 1000, Burst: 1000, Class: vports})
	expect("UDP below a limit on UDP", udp, vports)
	expect("TCP beside a limit on UDP", tcp, 0)
	b.setLimit(LimitRequest{Rate: 1000, Burst: 1000, Class: vports, Everything: true})
	expect("TCP below a limit on everything", tcp, vports)
	b.setPair(dest("10.0.0.2"), Pair{Rate: 1e9, Burst: 1e9, Class: one, TTL: time.Minute})
	expect("UDP to a destination with a limit of its own, which leads out of no other", udp, vports)
	expect("TCP to it", tcp, vports)
	expect("UDP to another", udpFrame("10.0.0.3", 9, 100), vports)
	if err := b.RemoveLimit(loopback); err != nil {
		t.Fatal(err)
	}
	expect("UDP to it without a limit of the vport", udp, one)
	expect("TCP to it without a limit of the vport", tcp, one)
	expect("UDP to another, without any", udpFrame("10.0.0.3", 9, 100), 0)
	b.setPair(Everything, Pair{Rate: 1000, Burst: 1000, Class: all, TTL: time.Minute})
	expect("UDP to another, with a limit on all destinations", udpFrame("10.0.0.3", 9, 100), all)
	expect("UDP to the first one still", udp, one)
	if err := b.RemovePair(loopback, dest("10.0.0.2")); err != nil {
		t.Fatal(err)
	}
	expect("UDP after its limit ended", udp, all)
	if err := b.RemovePair(loopback, Everything); err != nil {
		t.Fatal(err)
	}
	expect("UDP after all ended", udp, 0)
}

// TestALimitOfADestinationHoldsWithinAShapedOneOfTheVport drops what is too much for it: the class is the vport's.
func TestALimitOfADestinationHoldsWithinAShapedOneOfTheVport(t *testing.T) {
	const vports, one = 0x11508001, 0x11508002
	b := newBench(t)
	udp := udpFrame("10.0.0.2", 9, 100)
	b.setLimit(LimitRequest{Rate: 1e9, Burst: 1e9, Class: vports})
	b.setPair(dest("10.0.0.2"), Pair{Rate: 1, Burst: 3 * uint64(len(udp)), Class: one, TTL: time.Minute})
	passed := 0
	for range 10 {
		verdict, class := b.prioritised(b.objects.VportTcxFrom, udp, 0)
		if verdict == tcActUnspec {
			passed++
			if class != vports {
				t.Errorf("priority %#x, want %#x", class, vports)
			}
		}
	}
	if passed != 3 {
		t.Errorf("%d of 10 passed, the limit of the destination lets 3 pass", passed)
	}
	if verdict, class := b.prioritised(b.objects.VportTcxFrom, udpFrame("10.0.0.3", 9, 100), 0); verdict != tcActUnspec || class != vports {
		t.Errorf("to another destination: verdict %d, priority %#x", verdict, class)
	}
}

// TestALimitThatIsSetWhileOthersAreSweptIsInForce renews one again and again while all are swept.
func TestALimitThatIsSetWhileOthersAreSweptIsInForce(t *testing.T) {
	b := newBench(t)
	done := make(chan error, 1)
	stop := make(chan struct{})
	go func() {
		for {
			select {
			case <-stop:
				done <- nil
				return
			default:
				if err := b.SweepPairs(); err != nil {
					done <- err
					return
				}
			}
		}
	}()
	udp := udpFrame("10.0.0.2", 9, 100)
	ignored := 0
	for range 2000 {
		b.setPair(dest("10.0.0.2"), Pair{Rate: 1, Burst: 1, TTL: time.Minute})
		if verdict, _ := b.prioritised(b.objects.VportTcxFrom, udp, 0); verdict == tcActUnspec {
			ignored++
		}
		if err := b.RemovePair(loopback, dest("10.0.0.2")); err != nil {
			t.Fatal(err)
		}
	}
	close(stop)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if ignored > 0 {
		t.Errorf("%d of 2000 limits were not in force right after they had been set", ignored)
	}
}

// TestLimitsToDestinationsAreSwept keeps those that are in force, and their vports on the
// look-up.
func TestLimitsToDestinationsAreSwept(t *testing.T) {
	const other = loopback + 2
	b := newBench(t)
	slot := b.put(other)
	pairs := func(slot uint32) uint32 {
		t.Helper()
		var c vportContract
		if err := b.objects.VportContract.Lookup(slot, &c); err != nil {
			t.Fatal(err)
		}
		return c.Pairs
	}
	set := func(ifindex int, to string, ttl time.Duration) {
		t.Helper()
		if err := b.SetPair(ifindex, dest(to), Pair{Rate: 1000, Burst: 1000, TTL: ttl}); err != nil {
			t.Fatal(err)
		}
	}
	set(loopback, "10.0.0.2", time.Nanosecond)
	set(loopback, "10.0.0.3", time.Minute)
	set(other, "10.0.0.2", time.Nanosecond)
	for _, step := range []struct {
		listed       int
		mine, others uint32
	}{{1, 1, 0}, {1, 1, 0}} {
		if err := b.SweepPairs(); err != nil {
			t.Fatal(err)
		}
		list, err := b.Pairs()
		if err != nil || len(list) != step.listed || list[0].Index != loopback || list[0].Destination != dest("10.0.0.3") {
			t.Errorf("limits %+v, %v", list, err)
		}
		if pairs(b.slot) != step.mine || pairs(slot) != step.others {
			t.Errorf("on the look-up: %d and %d, want %d and %d", pairs(b.slot), pairs(slot), step.mine, step.others)
		}
	}
	if err := b.RemovePair(loopback, dest("10.0.0.3")); err != nil {
		t.Fatal(err)
	}
	if err := b.SweepPairs(); err != nil || pairs(b.slot) != 0 {
		t.Errorf("on the look-up without a limit: %d, %v", pairs(b.slot), err)
	}
	// Another process's limits are swept by who sweeps next, whoever that is.
	second := open(t, Options{PinDir: b.pinDir, MaxPorts: 4})
	set(other, "10.0.0.4", time.Nanosecond)
	if err := second.SweepPairs(); err != nil || pairs(slot) != 0 {
		t.Errorf("on the look-up after another process swept: %d, %v", pairs(slot), err)
	}
}

// TestRepliesBelongToTheDestinationThatSendsThem in both families.
func TestRepliesBelongToTheDestinationThatSendsThem(t *testing.T) {
	out := map[string][]byte{
		"IPv4": udpFrame("10.0.0.2", 9, 20),
		"IPv6": ethernet(ethIPv6, ipv6("fd00::1", "fd00::2", frame.UDP, udp(4000, 9, 20))),
	}
	back := map[string][]byte{
		"IPv4": replyFrame("10.0.0.2", 20),
		"IPv6": ethernet(ethIPv6, ipv6("fd00::2", "fd00::1", frame.UDP, udp(9, 4000, 20))),
	}
	stranger := map[string][]byte{
		"IPv4": replyFrame("10.0.0.77", 20),
		"IPv6": ethernet(ethIPv6, ipv6("fd00::77", "fd00::1", frame.UDP, udp(9, 4000, 20))),
	}
	for family := range out {
		t.Run(family, func(t *testing.T) {
			const sent, replies = 40, 10
			b := newBench(t)
			var s vportState
			testutil.WaitFor(t, "a window that all of it falls into", func() bool {
				atWindowStart(t)
				for range sent {
					b.run(b.objects.VportTcxFrom, out[family])
				}
				for range replies {
					b.run(b.objects.VportTcxTo, back[family])
					b.run(b.objects.VportTcxTo, stranger[family])
				}
				s = b.state()
				return s.Current.UdpPackets == sent && s.Current.Id == Monotonic()/windowNs
			})
			for _, d := range s.Destinations {
				if d.Window == uint32(s.Current.Id) && (d.Packets != sent || d.Replies != replies || d.Ports != 1) {
					t.Errorf("a destination with %d packets to %d ports and %d replies; want %d, 1 and %d", d.Packets, d.Ports, d.Replies, sent, replies)
				}
			}
		})
	}
}
