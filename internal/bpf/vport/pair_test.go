package vport

import (
	"encoding/binary"
	"errors"
	"math"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"vigia/internal/testutil"
	"vigia/internal/testutil/frame"
)

func dest(ip string) Destination { return Destination(net.ParseIP(ip).To4()) }

// passes runs n frames through the tenant's side and counts those that pass.
func (b *bench) passes(frame []byte, n int) int {
	b.t.Helper()
	passed := 0
	for range n {
		if b.run(b.objects.VportTcxFrom, frame) == tcActUnspec {
			passed++
		}
	}
	return passed
}

func (b *bench) setPair(d Destination, p Pair) {
	b.t.Helper()
	if err := b.SetPair(loopback, d, p); err != nil {
		b.t.Fatal(err)
	}
}

// other returns another vport than the loopback interface.
func (b *bench) other() int {
	const index = 3
	b.put(index)
	return index
}

// fill gives the vport as many limits to destinations as it can have.
func (b *bench) fill(p Pair) error {
	var errs []error
	for i := range DestinationLimits {
		errs = append(errs, b.SetPair(loopback, Destination(destinationOf(i)), p))
	}
	return errors.Join(errs...)
}

func TestALimitToOneDestinationLeavesOthersAlone(t *testing.T) {
	b := newBench(t)
	udp := udpFrame("10.0.0.2", 53, 958) // 1000 bytes
	b.setPair(dest("10.0.0.2"), Pair{Rate: 1, Burst: 5 * uint64(len(udp)), TTL: time.Minute})
	if got := b.passes(udp, 20); got != 5 {
		t.Errorf("%d of 20 frames passed, want the burst of 5", got)
	}
	if got := b.passes(tcpFrame("10.0.0.2"), 3); got != 0 {
		t.Errorf("%d TCP frames passed: the limit is on all that is sent", got)
	}
	if got := b.passes(udpFrame("10.0.0.3", 53, 958), 20); got != 20 {
		t.Errorf("%d of 20 frames to another destination passed", got)
	}
	// Renewed with the same bucket: a renewal is no new burst.
	b.setPair(dest("10.0.0.2"), Pair{Rate: 2, Burst: 5 * uint64(len(udp)), TTL: time.Minute})
	if got := b.passes(udp, 20); got != 0 {
		t.Errorf("%d frames passed after the renewal", got)
	}
	list, err := b.Pairs()
	if err != nil || len(list) != 1 {
		t.Fatalf("limits %+v %v", list, err)
	}
	p := list[0]
	if p.Index != loopback || p.Destination != dest("10.0.0.2") || p.Rate != 2 || p.DroppedPackets != 38 ||
		p.OfferedBytes-p.DroppedBytes != 5*uint64(len(udp)) || p.TTL > time.Minute || p.TTL <= 0 {
		t.Errorf("limit %+v", p)
	}
	c, err := b.Read(loopback)
	if err == nil && c.PolicedPackets != 38 {
		t.Errorf("%d packets counted as policed", c.PolicedPackets)
	}
	if err := errors.Join(err, b.RemovePair(loopback, dest("10.0.0.2")), b.RemovePair(loopback, dest("10.0.0.2"))); err != nil {
		t.Fatal(err)
	}
	if got := b.passes(udp, 20); got != 20 {
		t.Errorf("%d of 20 frames passed after the removal", got)
	}
}

func TestALimitToEverythingYieldsToOneToADestination(t *testing.T) {
	b := newBench(t)
	udp := udpFrame("10.0.0.2", 53, 958)
	b.setPair(Everything, Pair{Rate: 1, Burst: 2 * uint64(len(udp)), TTL: time.Minute})
	b.setPair(dest("10.0.0.2"), Pair{Rate: 1, Burst: 3 * uint64(len(udp)), TTL: time.Minute})
	if got := b.passes(udp, 9); got != 3 {
		t.Errorf("%d passed to the destination, want 3", got)
	}
	if got := b.passes(udpFrame("10.0.0.9", 53, 958), 9); got != 2 {
		t.Errorf("%d passed to another, want 2", got)
	}
}

// TestAWholePortsLimitHoldsTCPThatHeedsNoLoss is what an alert's limit, which lets TCP pass, relies on: the fast loop
// holds the port as a whole, whatever it sends and whereto, once that harms another tenant.
func TestAWholePortsLimitHoldsTCPThatHeedsNoLoss(t *testing.T) {
	for name, flags := range map[string]byte{"segments": frame.ACK, "SYN": frame.SYN, "answers to none": frame.SYN | frame.ACK, "no flag at all": 0} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			segment := func(to string, port uint16) []byte {
				return ethernet(ethIPv4, ipv4("10.0.0.1", to, frame.TCP, 0, 0, frame.TCPHeader(port, 80, flags, 0, make([]byte, 400))))
			}
			size := uint64(len(segment("10.0.0.2", 1)))
			b.setLimit(LimitRequest{Rate: 1, Burst: 1}) // what an alert sets; all of TCP passes it
			if got := b.passes(segment("10.0.0.2", 1), 20); got != 20 {
				t.Errorf("%d of 20 passed the limit of an alert", got)
			}
			b.setPair(Everything, Pair{Rate: 1, Burst: 5 * size, TTL: time.Minute})
			passed := 0
			for i := range uint16(200) {
				passed += b.passes(segment([]string{"10.0.0.2", "10.0.0.3", "192.168.7.9"}[i%3], 1000+i), 1)
			}
			if passed != 5 {
				t.Errorf("%d of 200 passed, want the burst of 5", passed)
			}
			pairs, err := b.Pairs()
			if err != nil || len(pairs) != 1 || pairs[0].OfferedBytes != 200*size || pairs[0].DroppedPackets != 195 {
				t.Errorf("%+v, %v", pairs, err)
			}
		})
	}
}

func TestALimitToADestinationEndsByItself(t *testing.T) {
	const ttl = time.Second
	b := newBench(t)
	udp := udpFrame("10.0.0.2", 53, 958)
	testutil.WaitFor(t, "five frames to be tried within the limit's time", func() bool {
		begin := time.Now()
		b.setPair(dest("10.0.0.2"), Pair{Rate: 1, Burst: 1, TTL: ttl})
		got := b.passes(udp, 5)
		if time.Since(begin) >= ttl {
			return false // the test was stalled: it ended meanwhile
		}
		if got != 0 {
			t.Errorf("%d passed", got)
		}
		return true
	})
	testutil.WaitFor(t, "the limit to end", func() bool { return b.passes(udp, 1) == 1 })
	if list, err := b.Pairs(); err != nil || len(list) != 0 {
		t.Errorf("limits %+v %v", list, err)
	}
	if err := b.SweepPairs(); err != nil {
		t.Fatal(err)
	}
	var c vportContract
	if err := b.objects.VportContract.Lookup(b.slot, &c); err != nil || c.Pairs != 0 {
		t.Errorf("the vport is still on the look-up: %+v %v", c, err)
	}
}

// leastBurst is how many packets, or new flows, a low bound lets through at once.
const leastBurst = 64

// trickled is the most that a bound of so many a second may let through since a time: the least burst, and what came
// since, however long the test was stalled.
func trickled(perSecond float64, begin time.Time) int {
	return leastBurst + 1 + int(perSecond*time.Since(begin).Seconds())
}

func TestPacketsPerSecondAreLimited(t *testing.T) {
	b := newBench(t)
	begin := time.Now()
	b.setPair(dest("10.0.0.2"), Pair{Rate: MaxRate, Burst: MaxRate, Packets: 1, TTL: time.Minute})
	if got, most := b.passes(udpFrame("10.0.0.2", 53, 10), 200), trickled(1, begin); got < leastBurst || got > most {
		t.Errorf("to a destination: %d passed, want %d to %d", got, leastBurst, most)
	}
	const packets, burst = 4000, 200 // 50 ms
	begin = time.Now()
	b.setPair(dest("10.0.0.4"), Pair{Rate: MaxRate, Burst: MaxRate, Packets: packets, TTL: time.Minute})
	got := b.passes(udpFrame("10.0.0.4", 53, 10), 2*burst)
	if most := burst + 1 + int(packets*time.Since(begin).Seconds()); got < burst || got > most {
		t.Errorf("to a destination at %d a second: %d passed, want %d to %d", packets, got, burst, most)
	}
	begin = time.Now()
	if err := b.SetLimit(loopback, LimitRequest{ID: [16]byte{1}, Rate: MaxRate, Burst: MaxRate, Packets: 1, TTL: time.Minute}); err != nil {
		t.Fatal(err)
	}
	if got, most := b.passes(udpFrame("10.0.0.3", 53, 10), 200), trickled(1, begin); got < leastBurst || got > most {
		t.Errorf("from the vport: %d passed, want %d to %d", got, leastBurst, most)
	}
}

// bind gives the vport a contract.
func (b *bench) bind(c Bounds) {
	b.t.Helper()
	if err := b.SyncBounds(map[int]Bounds{loopback: c}); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) setLimit(r LimitRequest) {
	b.t.Helper()
	r.ID, r.TTL = [16]byte{1}, time.Minute
	if err := b.SetLimit(loopback, r); err != nil {
		b.t.Fatal(err)
	}
}

func TestALimitOnEverythingHoldsMoreThanUDP(t *testing.T) {
	b := newBench(t)
	tcp := tcpFrame("10.0.0.2")
	b.setLimit(LimitRequest{Rate: 1, Burst: 3 * uint64(len(tcp))})
	if got := b.passes(tcp, 50); got != 50 {
		t.Errorf("%d of 50 TCP frames passed a limit on UDP", got)
	}
	b.setLimit(LimitRequest{Everything: true, Rate: 1, Burst: 3 * uint64(len(tcp))})
	if got := b.passes(tcp, 50); got != 3 {
		t.Errorf("%d of 50 TCP frames passed, want the burst of 3", got)
	}
	if got, err := b.Limit(loopback); err == nil && (!got.Everything || got.PolicedPackets != 47) {
		t.Errorf("reads back as %+v", got)
	}
	if err := b.RemoveLimit(loopback); err != nil {
		t.Fatal(err)
	}
	if got := b.passes(tcp, 50); got != 50 {
		t.Errorf("%d of 50 TCP frames passed after the removal", got)
	}
	var c vportContract
	if err := b.objects.VportContract.Lookup(b.slot, &c); err != nil || c.Everything != 0 {
		t.Errorf("TCP is still looked at: %+v %v", c, err)
	}
}

func TestALimitOfNothingDropsUDPAlone(t *testing.T) {
	b := newBench(t)
	b.setLimit(LimitRequest{})
	if got := b.passes(udpFrame("10.0.0.2", 53, 10), 20); got != 0 {
		t.Errorf("%d UDP frames passed", got)
	}
	if got := b.passes(tcpFrame("10.0.0.2"), 20); got != 20 {
		t.Errorf("%d of 20 TCP frames passed", got)
	}
	for _, r := range []LimitRequest{{Rate: 1}, {Burst: 1}, {Rate: 1, Burst: 1, NewFlows: MaxRate + 1}} {
		r.TTL = time.Minute
		if err := b.SetLimit(loopback, r); err == nil {
			t.Errorf("%+v was accepted", r)
		}
	}
}

// TestNoLimitLastsLongerThanAMinuteUnlessItIsRenewed asks the kernel's maps, whoever wrote to them.
func TestNoLimitLastsLongerThanAMinuteUnlessItIsRenewed(t *testing.T) {
	b := newBench(t)
	for _, ttl := range []time.Duration{MaxTTL + 1, time.Hour, 1 << 62} {
		if err := b.SetLimit(loopback, LimitRequest{Rate: 1, Burst: 1, TTL: ttl}); err == nil {
			t.Errorf("a limit of %s was accepted", ttl)
		}
		if err := b.SetPair(loopback, Everything, Pair{Rate: 1, Burst: 1, TTL: ttl}); err == nil {
			t.Errorf("a limit to a destination of %s was accepted", ttl)
		}
	}
	// What is pinned may be of a process that took more.
	short, slot := Monotonic()+uint64(10*time.Second), b.put(rival)
	long := vportLimit{Id: [16]byte{7}, Rate: 2, Burst: 3, SinceNs: 4, PolicedBytesBefore: 5, ExpiresNs: Monotonic() + uint64(time.Hour)}
	for slot, l := range map[uint32]vportLimit{b.slot: long, slot: {Rate: 1, Burst: 1, ExpiresNs: short}} {
		if err := b.objects.VportLimit.Put(slot, l); err != nil {
			t.Fatal(err)
		}
	}
	next := open(t, Options{PinDir: b.pinDir, MaxPorts: 4})
	var got vportLimit
	if err := next.objects.VportLimit.Lookup(b.slot, &got); err != nil {
		t.Fatal(err)
	}
	if got.ExpiresNs > Monotonic()+uint64(MaxTTL) || got.ExpiresNs <= Monotonic() {
		t.Errorf("the limit ends in %s", time.Duration(got.ExpiresNs-Monotonic()))
	}
	if got.ExpiresNs = long.ExpiresNs; got != long {
		t.Errorf("it was %+v and is %+v", long, got)
	}
	if err := next.objects.VportLimit.Lookup(slot, &got); err != nil || got.ExpiresNs != short {
		t.Errorf("a short limit was changed: %+v, %v", got, err)
	}
}

func TestAShapedLimitStillBoundsPacketsAndFlows(t *testing.T) {
	b := newBench(t)
	begin := time.Now()
	b.setLimit(LimitRequest{Rate: 1, Burst: 1, Packets: 1, Class: 0x11508001})
	if got, most := b.passes(udpFrame("10.0.0.2", 53, 958), 200), trickled(1, begin); got < leastBurst || got > most {
		t.Errorf("%d packets passed to the shaper, want %d to %d", got, leastBurst, most)
	}
	b.setLimit(LimitRequest{Rate: 1, Burst: 1, NewFlows: 1, Class: 0x11508001})
	begun := 0
	for port := range uint16(300) {
		begun += b.passes(udpFrame("10.0.0.2", 2000+port, 10), 1)
	}
	if begun < 64 || begun > 110 { // the least burst; a flow whose bit another one has set passes for known
		t.Errorf("%d of 300 flows began at one a second", begun)
	}
	begin = time.Now()
	b.setPair(dest("10.0.0.3"), Pair{Rate: 1, Burst: 1, Packets: 1, Class: 0x11508001, TTL: time.Minute})
	if got, most := b.passes(tcpFrame("10.0.0.3"), 200), trickled(1, begin); got < leastBurst || got > most {
		t.Errorf("%d packets passed to the shaper of the destination, want %d to %d", got, leastBurst, most)
	}
}

func TestContractBoundsPacketsAndNewFlows(t *testing.T) {
	b := newBench(t)
	b.bind(Bounds{NewFlows: 1})
	begun := 0
	for port := range uint16(300) {
		begun += b.passes(udpFrame("10.0.0.2", 2000+port, 10), 1)
	}
	if begun < 1 || begun > 30 { // a flow whose bit another one has set passes for known
		t.Errorf("%d flows began at one a second", begun)
	}
	if got := b.passes(tcpFrame("10.0.0.2"), 50); got != 50 {
		t.Errorf("%d of 50 packets of established connections passed", got)
	}
	begin := time.Now()
	b.bind(Bounds{Packets: 10})
	if got, most := b.passes(tcpFrame("10.0.0.2"), 500), trickled(10, begin); got > most {
		t.Errorf("%d of 500 packets passed at ten a second, at most %d may", got, most)
	}
	if got, err := b.Contract(loopback); err != nil || got != (Bounds{Packets: 10}) {
		t.Errorf("contract %+v %v", got, err)
	}
	b.bind(Bounds{})
	if got := b.passes(tcpFrame("10.0.0.2"), 500); got != 500 {
		t.Errorf("%d of 500 packets passed without a bound", got)
	}
}

// delivered runs n frames of that priority through the guest's side and counts those
// that it gets.
func (b *bench) delivered(frame []byte, priority uint32, n int) int {
	b.t.Helper()
	const at = 32 // of priority in struct __sk_buff
	context := make([]byte, at+4)
	binary.NativeEndian.PutUint32(context[at:], priority)
	passed := 0
	for range n {
		verdict, err := b.objects.VportTcxTo.Run(&ebpf.RunOptions{Data: frame, Context: context})
		if err != nil {
			b.t.Fatal(err)
		}
		if verdict == tcActUnspec {
			passed++
		}
	}
	return passed
}

func TestContractBoundsWhatIsReceived(t *testing.T) {
	b := newBench(t)
	if got := b.delivered(tcpFrame("10.0.0.1"), 0, 500); got != 500 {
		t.Errorf("%d of 500 packets were delivered without a bound", got)
	}
	begin := time.Now()
	b.bind(Bounds{Receive: 10})
	before := b.read()
	got := b.delivered(tcpFrame("10.0.0.1"), 0, 500)
	if most := trickled(10, begin); got < 10 || got > most { // a second of them at least
		t.Errorf("%d of 500 packets were delivered at ten a second, want 10 to %d", got, most)
	}
	after := b.read()
	if refused := after.RefusedPackets - before.RefusedPackets; refused != uint64(500-got) {
		t.Errorf("%d packets counted as refused, want %d", refused, 500-got)
	}
	if counted := after.Packets[ToTenant][protocolTCP] - before.Packets[ToTenant][protocolTCP]; counted != uint64(got) {
		t.Errorf("%d packets counted as delivered, want %d", counted, got)
	}
	if sent := b.passes(tcpFrame("10.0.0.2"), 200); sent != 200 {
		t.Errorf("%d of 200 packets were sent: the bound is on what is received", sent)
	}
}

func TestWhatStaysOnTheNodeIsHeldToTheShapersRate(t *testing.T) {
	const class = 0x11508001
	b := newBench(t)
	udp := udpFrame("10.0.0.2", 53, 958)
	if got := b.delivered(udp, class, 200); got != 200 {
		t.Errorf("%d of 200 frames were delivered before the class was used", got)
	}
	b.setPair(dest("10.0.0.2"), Pair{Rate: 1000, Burst: 1000, Class: class, TTL: time.Minute})
	burst := minShapeBurst / len(udp)
	if got := b.delivered(udp, class, 200); got < burst || got > burst+5 {
		t.Errorf("%d of 200 frames of the class were delivered, want about %d", got, burst)
	}
	if got := b.delivered(udp, class+1, 200); got != 200 {
		t.Errorf("%d of 200 frames of another class were delivered", got)
	}
	if got := b.delivered(udp, 0, 200); got != 200 {
		t.Errorf("%d of 200 frames of no class were delivered", got)
	}
	// A renewal is no new burst.
	b.setLimit(LimitRequest{Rate: 1000, Burst: 1000, Class: class})
	if got := b.delivered(udp, class, 200); got > 5 {
		t.Errorf("%d of 200 frames were delivered after the renewal", got)
	}
}

func TestAShapedDestinationIsNotPoliced(t *testing.T) {
	b := newBench(t)
	udp := udpFrame("10.0.0.2", 53, 958)
	b.setPair(dest("10.0.0.2"), Pair{Rate: 1, Burst: 1, Class: 0x11508001, TTL: time.Minute})
	if got := b.passes(udp, 50); got != 50 {
		t.Errorf("%d of 50 passed to the shaper", got)
	}
	if err := b.SetLimit(loopback, LimitRequest{ID: [16]byte{1}, Rate: 1, Burst: 1, Class: 0x11508002, TTL: time.Minute}); err != nil {
		t.Fatal(err)
	}
	if got := b.passes(udpFrame("10.0.0.3", 53, 958), 50); got != 50 {
		t.Errorf("%d of 50 passed to the shaper of the vport", got)
	}
	// Before the socket buffer there is no class: XDP polices, whatever is asked.
	if err := b.RemovePair(loopback, dest("10.0.0.2")); err != nil {
		t.Fatal(err)
	}
}

func TestPairsOutOfRangeAreRefused(t *testing.T) {
	b := newBench(t)
	for _, p := range []Pair{
		{Burst: 1, TTL: 1},
		{Rate: 1, TTL: 1},
		{Rate: 1, Burst: 1},
		{Rate: MaxRate + 1, Burst: 1, TTL: 1},
		{Rate: 1, Burst: 1, Packets: MaxRate + 1, TTL: 1},
	} {
		if err := b.SetPair(loopback, Everything, p); err == nil {
			t.Errorf("%+v was accepted", p)
		}
	}
	if err := b.SetPair(99, Everything, Pair{Rate: 1, Burst: 1, TTL: time.Minute}); !errors.Is(err, ErrNotAttached) {
		t.Errorf("error %v", err)
	}
}

// frameTo is a frame to one of many destinations, whose limit destinationOf names.
func frameTo(i int) []byte { return udpFrame(net.IP(destinationOf(i)).String(), 53, 958) }

func destinationOf(i int) []byte { return []byte{10, 1, 0, byte(i + 1)} }

// held returns how many of ten frames to each of n destinations pass.
func (b *bench) held(n int) (passed []int) {
	for i := range n {
		passed = append(passed, b.passes(frameTo(i), 10))
	}
	return passed
}

// TestAVportHasLimitsToManyDestinationsAtOnce and refuses one too many, without harm to itself or to others: a
// limit on everything always has room, and so has what ended.
func TestAVportHasLimitsToManyDestinationsAtOnce(t *testing.T) {
	b := newBench(t)
	if err := b.SetPair(b.other(), Destination(destinationOf(0)), Pair{Rate: 1, Burst: 1, TTL: time.Minute}); err != nil {
		t.Fatal(err)
	}
	if DestinationLimits != 16 {
		t.Fatalf("a vport has limits to %d destinations, 16 are promised", DestinationLimits)
	}
	size := uint64(len(frameTo(0)))
	want := make([]int, DestinationLimits+1)
	for i := range want {
		want[i] = 1 + i%9
		limit := Pair{Rate: 1, Burst: uint64(want[i]) * size, TTL: time.Minute}
		if err := b.SetPair(loopback, Destination(destinationOf(i)), limit); errors.Is(err, ErrTooManyPairs) != (i == DestinationLimits) {
			t.Fatalf("limit %d: %v", i, err)
		}
	}
	want[DestinationLimits] = 10 // without a limit
	if got := b.held(len(want)); !slices.Equal(got, want) {
		t.Errorf("passed %d, want %d", got, want)
	}
	b.setPair(Everything, Pair{Rate: 1, Burst: 7 * size, TTL: time.Minute})
	if got := b.passes(frameTo(DestinationLimits), 10); got != 7 {
		t.Errorf("%d of 10 passed a limit on everything, want 7", got)
	}
	if list, err := b.Pairs(); err != nil || len(list) != DestinationLimits+2 { // the other vport's is one
		t.Errorf("%d limits, %v", len(list), err)
	}
	// What has ended makes room, and its place holds the new destination alone.
	for _, i := range []int{3, DestinationLimits - 1} {
		if err := b.RemovePair(loopback, Destination(destinationOf(i))); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.RemovePair(loopback, Everything); err != nil {
		t.Fatal(err)
	}
	b.setPair(Destination(destinationOf(DestinationLimits)), Pair{Rate: 1, Burst: 2 * size, TTL: time.Minute})
	for i, want := range map[int]int{3: 10, DestinationLimits - 1: 10, DestinationLimits: 2, 4: 0} {
		if got := b.passes(frameTo(i), 10); got != want {
			t.Errorf("destination %d: %d of 10 passed, want %d", i, got, want)
		}
	}
	if err := b.clearSlot(b.slot, loopback); err != nil {
		t.Fatal(err)
	}
	if list, err := b.Pairs(); err != nil || len(list) != 1 {
		t.Errorf("a new vport inherits %+v %v", list, err)
	}
}

// TestADestinationThatGetsAPlaceAnewBeginsAnew though the place was another's, or its own before.
func TestADestinationThatGetsAPlaceAnewBeginsAnew(t *testing.T) {
	b := newBench(t)
	size := uint64(len(frameTo(0)))
	for round := range 3 {
		i := round % 2
		limit := Pair{Rate: 1, Burst: 4 * size, Packets: MaxRate, TTL: time.Minute}
		b.setPair(Destination(destinationOf(i)), limit)
		if list, err := b.Pairs(); err != nil || len(list) != 1 || list[0].OfferedBytes+list[0].DroppedBytes+list[0].DroppedPackets != 0 {
			t.Errorf("round %d: a new limit has %+v, %v", round, list, err)
		}
		if got := b.passes(frameTo(i), 10); got != 4 {
			t.Errorf("round %d: %d of 10 passed, want 4", round, got)
		}
		list, err := b.Pairs()
		if err != nil || len(list) != 1 || list[0].OfferedBytes != 10*size || list[0].DroppedBytes != 6*size || list[0].DroppedPackets != 6 {
			t.Errorf("round %d: %+v, %v", round, list, err)
		}
		if err := b.RemovePair(loopback, Destination(destinationOf(i))); err != nil {
			t.Fatal(err)
		}
	}
}

// TestARenewalLosesNothingThatIsCountedMeanwhile: a limit is renewed up to each tick of the fast loop, under fire.
func TestARenewalLosesNothingThatIsCountedMeanwhile(t *testing.T) {
	const frames = 200_000
	b := newBench(t)
	frame := frameTo(0)
	limit := Pair{Rate: 1, Burst: 1000 * uint64(len(frame)), TTL: time.Minute}
	b.setPair(Destination(destinationOf(0)), limit)
	done := make(chan error)
	go func() {
		_, err := b.objects.VportTcxFrom.Run(&ebpf.RunOptions{Data: frame, Repeat: frames})
		done <- err
	}()
	for renewed := 0; ; renewed++ {
		select {
		case err := <-done:
			if err != nil {
				t.Fatal(err)
			}
			list, err := b.Pairs()
			if err != nil || len(list) != 1 {
				t.Fatalf("%+v, %v", list, err)
			}
			all := uint64(frames) * uint64(len(frame))
			if passed := list[0].OfferedBytes - list[0].DroppedBytes; list[0].OfferedBytes != all || passed < limit.Burst || passed > limit.Burst+uint64(len(frame)) {
				t.Errorf("%d bytes offered, %d of them passed, after %d renewals; want %d, and the burst of %d", list[0].OfferedBytes, passed, renewed, all, limit.Burst)
			}
			return
		default:
			if err := b.SetPair(loopback, Destination(destinationOf(0)), limit); err != nil {
				t.Error(err)
			}
		}
	}
}

// BenchmarkVport prints what the program costs a packet of the tenant: counting
// alone (TCP), also for a port whose place another one has, signals (UDP), and with
// limits on top; for the figures see testutil.BenchmarkProgram. There are some rounds,
// since what else runs on the host comes and goes by seconds and only ever adds. It fails
// where one that the design bounds is beyond its budget in the quickest of them.
func BenchmarkVport(b *testing.B) {
	udp := udpFrame("10.0.0.2", 53, 958)
	roomy := Pair{Rate: MaxRate, Burst: MaxRate, Packets: MaxRate, TTL: time.Minute}
	cases := []struct {
		name  string
		frame []byte
		setUp func(*bench) error
		most  float64 // nanoseconds; 0 = no budget
	}{
		{"count", tcpFrame("10.0.0.2"), func(*bench) error { return nil }, 10},
		{"count_displaced", tcpFrame("10.0.0.2"), func(m *bench) error { m.displace(); return nil }, 0},
		{"signals", udp, func(*bench) error { return nil }, 150},
		{"signals_and_limit", udp, func(m *bench) error {
			return m.SetLimit(loopback, LimitRequest{ID: [16]byte{1}, Rate: MaxRate, Burst: MaxRate, TTL: time.Minute})
		}, 150},
		{"signals_and_destination", udp, func(m *bench) error { return m.SetPair(loopback, dest("10.0.0.2"), roomy) }, 150},
		{"signals_and_everything", udp, func(m *bench) error { return m.SetPair(loopback, Everything, roomy) }, 150},
		{"signals_beside_16_destinations", udp, func(m *bench) error { return m.fill(roomy) }, 150},
		{"signals_and_contract", udp, func(m *bench) error {
			m.bind(Bounds{Packets: MaxRate, NewFlows: MaxRate, Receive: MaxRate})
			return nil
		}, 150},
	}
	took := map[string]float64{}
	for range 3 {
		for _, bc := range cases {
			now := math.Inf(1)
			b.Run(bc.name, func(b *testing.B) { // several times; only the last has turns enough
				m := newBench(b)
				if err := bc.setUp(m); err != nil {
					b.Fatal(err)
				}
				now = testutil.BenchmarkProgram(b, m.objects.VportTcxFrom, bc.frame)
			})
			if before, ok := took[bc.name]; !ok || now < before {
				took[bc.name] = now
			}
		}
	}
	for _, bc := range cases { // here, because a part that fails shows no figures
		if least := took[bc.name]; bc.most > 0 && !math.IsInf(least, 1) {
			testutil.Budget(b, "a packet, "+bc.name, least, bc.most, "ns")
		}
	}
}

// TestWhatALimitIsOfferedIsRead whether it passes or not, and begins anew with the limit.
func TestWhatALimitIsOfferedIsRead(t *testing.T) {
	b := newBench(t)
	to, other := udpFrame("10.0.0.2", 53, 958), udpFrame("10.0.0.3", 53, 958)
	offered := func(d Destination) uint64 {
		t.Helper()
		n, err := b.PairOffered(loopback, d)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	if got := offered(dest("10.0.0.2")); got != 0 {
		t.Errorf("without a limit: %d", got)
	}
	limit := Pair{Rate: 1, Burst: 5 * uint64(len(to)), TTL: time.Minute}
	b.setPair(dest("10.0.0.2"), limit)
	b.setPair(Everything, limit)
	b.passes(to, 20)
	b.passes(other, 3)
	b.setPair(dest("10.0.0.2"), limit) // renewed
	if got, want := [2]uint64{offered(dest("10.0.0.2")), offered(Everything)}, [2]uint64{20 * uint64(len(to)), 3 * uint64(len(to))}; got != want {
		t.Errorf("offered %v, want %v", got, want)
	}
	if err := b.RemovePair(loopback, dest("10.0.0.2")); err != nil {
		t.Fatal(err)
	}
	b.setPair(dest("10.0.0.2"), limit)
	if got := offered(dest("10.0.0.2")); got != 0 {
		t.Errorf("of a new limit: %d", got)
	}
	if _, err := b.PairOffered(99, Everything); !errors.Is(err, ErrNotAttached) {
		t.Errorf("of an interface that is not attached: %v", err)
	}
}
