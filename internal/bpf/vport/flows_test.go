package vport

import (
	"encoding/binary"
	"fmt"
	"math"
	"testing"
	"time"

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
			b, seen, want := newBench(t), make(windows), tc.flows
			for i := range tc.flows {
				b.run(b.objects.VportTcxFrom, flow(i, tc.protocol))
				first := b.state().Current.Id
				b.run(b.objects.VportTcxFrom, flow(i, tc.protocol)) // begins nothing
				if b.state().Current.Id > first+1 {                 // but after a stall of two windows
					want++
				}
				if i%50 == 0 {
					seen.look(b)
				}
			}
			seen.look(b)
			got := seen.sum()
			if math.Abs(got-float64(want)) > tc.tolerance*float64(want) {
				t.Errorf("%.1f new flows, sent %d", got, want)
			}
		})
	}
}

// windows adds up new flows by window, of more windows than the kernel keeps: who looks often enough misses none.
type windows map[uint64]uint32

func (w windows) look(b *bench) {
	b.t.Helper()
	s := b.state()
	for _, seen := range append(s.Closed[:], s.Current) {
		if seen.Id != 0 {
			w[seen.Id] = max(w[seen.Id], seen.NewFlows)
		}
	}
}

func (w windows) sum() float64 {
	var all uint64
	for _, n := range w {
		all += uint64(n)
	}
	return float64(all) / newFlowUnit
}

// newFlowsEver sums all windows that are kept.
func (b *bench) newFlowsEver() float64 {
	b.t.Helper()
	w := make(windows)
	w.look(b)
	return w.sum()
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
	seen, last, want := make(windows), uint64(0), 0.0
	for range 5 {
		atWindowStart(t)
		b.run(b.objects.VportTcxFrom, flow(1, 17))
		now := b.state().Current.Id
		if now > last+1 { // the first time, and where a stalled test missed a window
			want++
		}
		last = now
		seen.look(b)
	}
	if got := seen.sum(); got != want {
		t.Errorf("a steady flow began %v times, want %v", got, want)
	}
	// After two silent windows it is new again.
	nextWindow(t)
	nextWindow(t)
	b.run(b.objects.VportTcxFrom, flow(1, 17))
	if got := float64(b.state().Current.NewFlows) / newFlowUnit; got < 0.9 || got > 1.1 {
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

// Flows that may begin, however many, do not let others begin: bits that they have set hold hardly any of another.
func TestManyFlowsThatMayBeginLetNoOthersBegin(t *testing.T) {
	const flows, rate = 200_000, 5_000
	b := newBench(t)
	b.bind(Bounds{NewFlows: rate})
	began, begun := time.Now(), 0
	for i := range flows {
		begun += b.passes(flow(i, 17), 1)
	}
	took := time.Since(began).Seconds()
	may := 64 + rate*took
	t.Logf("%.0f flows per second were tried, %d began, %.0f might", flows/took, begun, may)
	if most := may + 1 + flows*0.005; float64(begun) > most {
		t.Errorf("%d of %d flows passed, %.0f may have begun", begun, flows, may)
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
	last := b.state().Current.Id
	refused := 0
	for judged := 0; judged < 8; { // over windows, with flows that are refused between
		atWindowStart(t)
		passed := b.passes(flow(begun, 17), 1) == 1
		now := b.state().Current.Id
		switch {
		case now > last+1: // a stalled test: after two windows the flow begins anew
			testutil.WaitFor(t, "the flow to begin again", func() bool { return passed || b.passes(flow(begun, 17), 1) == 1 })
		case !passed:
			refused++
			judged++
		default:
			judged++
		}
		last = b.state().Current.Id
		for i := range 50 {
			b.passes(flow(1000+i, 6), 1)
		}
	}
	if refused > 0 {
		t.Errorf("%d of 8 packets of a flow that began were refused", refused)
	}
	testutil.WaitFor(t, "another flow to begin", func() bool { return b.passes(flow(2000, 6), 1) == 1 })
}

// Flows are told apart whatever the seed is: two that differ in a port alone, too.
func TestFlowsOfOnePairOfHostsAreEstimatedWithEverySeed(t *testing.T) {
	for _, times := range []uint64{1, 3, 1<<52<<1 | 1, 0x9e3779b97f4a7c15, 1<<63 | 1} {
		b, seen := newBench(t), make(windows)
		if err := b.objects.VportSeed.Put(uint32(0), vportSeed{Times: times, Add: 7}); err != nil {
			t.Fatal(err)
		}
		for port := range uint16(300) {
			b.run(b.objects.VportTcxFrom, udpFrame("10.0.0.2", 2000+port, 10))
			if port%50 == 0 {
				seen.look(b)
			}
		}
		seen.look(b)
		if got := seen.sum(); got < 240 || got > 360 {
			t.Errorf("with %#x: %.0f new flows, sent 300", times, got)
		}
	}
}
