package vport

import (
	"encoding/binary"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"vigia/internal/testutil"
)

// flow makes the first packet of flow i.
func flow(i int, protocol byte) []byte {
	transport := udp(uint16(1024+i%50000), uint16(53+i/50000), 20)
	if protocol == 6 {
		transport = tcp()
		transport[13] = 0x02 // SYN
		binary.BigEndian.PutUint16(transport, uint16(1024+i%50000))
		binary.BigEndian.PutUint16(transport[2:], 80)
	}
	return ethernet(ethIPv4, ipv4("10.0.0.1", fmt.Sprintf("10.0.%d.%d", i/200%200, 1+i%200), protocol, 0, 0, transport))
}

func TestNewFlowsAreEstimated(t *testing.T) {
	for _, tc := range []struct {
		flows     int
		protocol  byte
		tolerance float64 // ratio
	}{{1, 17, 0}, {20, 6, 0.1}, {300, 17, 0.1}, {3000, 6, 0.15}} {
		t.Run(fmt.Sprint(tc.flows), func(t *testing.T) {
			b := newBench(t)
			for i := range tc.flows {
				for range 2 { // the second packet of a flow begins nothing
					b.run(b.objects.VportTcxFrom, flow(i, tc.protocol))
				}
			}
			got := b.newFlowsEver()
			if math.Abs(got-float64(tc.flows)) > tc.tolerance*float64(tc.flows) {
				t.Errorf("%.1f new flows, sent %d", got, tc.flows)
			}
		})
	}
}

// newFlowsEver sums all windows kept, so that a slow machine loses none of 1.6 s.
func (b *bench) newFlowsEver() float64 {
	b.t.Helper()
	var s vportState
	if err := b.objects.VportState.LookupWithFlags(b.slot, &s, ebpf.LookupLock); err != nil {
		b.t.Fatal(err)
	}
	sum := uint64(s.Current.NewFlows)
	for _, w := range s.Closed {
		sum += uint64(w.NewFlows)
	}
	return float64(sum) / newFlowUnit
}

func TestOnlyTheStartOfAFlowIsNew(t *testing.T) {
	b := newBench(t)
	established := ethernet(ethIPv4, ipv4("10.0.0.1", "10.0.0.2", 6, 0, 0, tcp()))
	fragment := ethernet(ethIPv4, ipv4("10.0.0.1", "10.0.0.2", 17, 0x0010, 0, make([]byte, 100)))
	echo := ethernet(ethIPv4, ipv4("10.0.0.1", "10.0.0.2", 1, 0, 0, make([]byte, 64)))
	for _, frame := range [][]byte{established, fragment, echo} {
		b.run(b.objects.VportTcxFrom, frame)
	}
	b.run(b.objects.VportTcxTo, replyFrame("10.0.0.2", 20))
	if got := b.newFlowsEver(); got != 0 {
		t.Errorf("%v flows began with no flow's first packet", got)
	}
	// A flow that is still seen in every window stays one flow.
	for range 5 {
		atWindowStart(t)
		b.run(b.objects.VportTcxFrom, flow(1, 17))
	}
	if got := b.newFlowsEver(); got < 1 || got > 3 { // a starved test may miss windows
		t.Errorf("a steady flow began %v times", got)
	}
	// After two silent windows it is new again.
	nextWindow(t)
	nextWindow(t)
	before := b.newFlowsEver()
	b.run(b.objects.VportTcxFrom, flow(1, 17))
	if got := b.newFlowsEver() - before; got < 0.9 || got > 1.1 {
		t.Errorf("a flow after a pause began %v times, want once", got)
	}
	if s := b.signals(); s.NewFlows != 0 && s.NewFlows < 0.9 {
		t.Errorf("signals %+v", s)
	}
}

// Bounds of new flows hold whatever is sent: in contracts, and in limits.
func TestNoMoreFlowsBeginThanMay(t *testing.T) {
	const flows, rate = 30_000, 100
	for name, bind := range map[string]func(*bench){
		"contract": func(b *bench) { b.bind(Bounds{NewFlows: rate}) },
		"limit": func(b *bench) {
			b.setLimit(LimitRequest{Rate: MaxRate, Burst: MaxRate, NewFlows: rate, Everything: true, TTL: time.Minute})
		},
		"packets, too": func(b *bench) { b.bind(Bounds{NewFlows: rate, Packets: 1000}) },
	} {
		for how, twice := range map[string]int{"once each": 1, "twice each": 2, "four times each": 4} {
			t.Run(name+" "+how, func(t *testing.T) {
				b := newBench(t)
				bind(b)
				began, begun := time.Now(), 0
				for i := range flows {
					if b.passes(flow(i, 17), twice) > 0 {
						begun++
					}
				}
				// A flow passes for known where two bits have been set by others.
				may := 64 + rate*time.Since(began).Seconds()
				if most := may + 1 + flows*0.002; float64(begun) > most {
					t.Errorf("%d of %d flows passed, %.0f may have begun", begun, flows, may)
				}
			})
		}
	}
}

// What was let begin goes on while others are refused; what was refused may begin later.
func TestFlowsThatBeganGoOn(t *testing.T) {
	b := newBench(t)
	b.bind(Bounds{NewFlows: 1})
	begun := -1
	for i := range 500 {
		if b.passes(flow(i, 17), 1) == 1 {
			begun = i
			break
		}
	}
	if begun < 0 {
		t.Fatal("no flow began")
	}
	sent, refused := 0, 0
	for range 8 { // over windows, with flows that are refused between
		atWindowStart(t)
		if sent++; b.passes(flow(begun, 17), 1) != 1 {
			refused++
		}
		for i := range 50 {
			b.passes(flow(1000+i, 6), 1)
		}
	}
	if refused > 1 { // a starved test may miss windows
		t.Errorf("%d of %d packets of a flow that began were refused", refused, sent)
	}
	testutil.WaitFor(t, "another flow to begin", func() bool { return b.passes(flow(2000, 6), 1) == 1 })
}

// Flows are told apart whatever the seed is: two that differ in a port alone, too.
func TestFlowsOfOnePairOfHostsAreEstimatedWithEverySeed(t *testing.T) {
	b := newBench(t)
	for _, times := range []uint64{1, 3, 1<<52<<1 | 1, 0x9e3779b97f4a7c15, 1<<63 | 1} {
		if err := b.objects.VportSeed.Put(uint32(0), vportSeed{Times: times, Add: 7}); err != nil {
			t.Fatal(err)
		}
		before := b.newFlowsEver()
		for port := range uint16(300) {
			b.run(b.objects.VportTcxFrom, udpFrame("10.0.0.2", 2000+port, 10))
		}
		if got := b.newFlowsEver() - before; got < 240 || got > 360 {
			t.Errorf("with %#x: %.0f new flows, sent 300", times, got)
		}
		nextWindow(t)
		nextWindow(t)
	}
}
