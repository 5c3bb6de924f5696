package vport

import (
	"encoding/binary"
	"fmt"
	"math"
	"testing"

	"github.com/cilium/ebpf"
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
