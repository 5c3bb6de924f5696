package vport

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"vigia/internal/testutil"
)

// parallel runs a program on a frame from several processors at once and returns how many
// frames passed, and within which time.
func (b *bench) parallel(p *ebpf.Program, data []byte, each int) (passed int64, took time.Duration) {
	b.t.Helper()
	var wg sync.WaitGroup
	var total atomic.Int64
	start := Monotonic()
	for range 2 * runtime.NumCPU() {
		wg.Go(func() {
			for range each {
				verdict, err := p.Run(&ebpf.RunOptions{Data: data})
				if err != nil {
					b.t.Error(err)
					return
				}
				if verdict == tcActUnspec || verdict == xdpPass && p == b.objects.VportXdpFrom {
					total.Add(1)
				}
			}
		})
	}
	wg.Wait()
	return total.Load(), time.Duration(Monotonic() - start)
}

// TestABucketHoldsAgainstManyProcessors lets no more pass than a limit allows, whichever
// processor's clock comes first to the bucket.
func TestABucketHoldsAgainstManyProcessors(t *testing.T) {
	const rate, burst, each = 500_000, 20_000, 3000
	data := udpFrame("10.0.0.2", 9, 958)
	for _, tc := range []struct {
		name  string
		limit func(b *bench)
	}{
		{"of a vport", func(b *bench) { b.setLimit(LimitRequest{Rate: rate, Burst: burst}) }},
		{"of a destination", func(b *bench) { b.setPair(dest("10.0.0.2"), Pair{Rate: rate, Burst: burst, TTL: time.Minute}) }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newBench(t)
			tc.limit(b)
			passed, took := b.parallel(b.objects.VportTcxFrom, data, each)
			bytes := float64(passed) * float64(len(data))
			if most := burst + rate*took.Seconds() + float64(len(data)); bytes > most || passed < burst/int64(len(data)) {
				t.Errorf("%.0f bytes passed in %s, at most %.0f should", bytes, took, most)
			}
			c := b.read()
			sent := uint64(2 * runtime.NumCPU() * each)
			if c.Packets[FromTenant][protocolUDP] != sent || c.PolicedPackets != sent-uint64(passed) {
				t.Errorf("%d counted, %d policed; sent %d, of which %d passed", c.Packets[FromTenant][protocolUDP], c.PolicedPackets, sent, passed)
			}
		})
	}
}

// TestPacketsAndFlowsHoldAgainstManyProcessors bounds by number.
func TestPacketsAndFlowsHoldAgainstManyProcessors(t *testing.T) {
	const perSecond, each = 2000, 2000
	b := newBench(t)
	b.bind(Bounds{Packets: perSecond})
	passed, took := b.parallel(b.objects.VportTcxFrom, tcpFrame("10.0.0.2"), each)
	if most := float64(perSecond/20+1) + perSecond*took.Seconds(); float64(passed) > most {
		t.Errorf("%d packets passed in %s, at most %.0f should", passed, took, most)
	}
	b.bind(Bounds{Receive: perSecond})
	passed, took = b.parallel(b.objects.VportTcxTo, tcpFrame("10.0.0.1"), each)
	// What was not received in the second before may be received at once.
	if most := float64(perSecond/20+1) + perSecond*took.Seconds(); float64(passed) > most {
		t.Errorf("%d packets were received in %s, at most %.0f should", passed, took, most)
	}
}

// TestCountersLoseNothingToOtherProcessors counts from all of them at once.
func TestCountersLoseNothingToOtherProcessors(t *testing.T) {
	const each = 5000
	b := newBench(t)
	sent := uint64(2 * runtime.NumCPU() * each)
	for name, p := range b.counting() {
		before := b.read()
		for _, data := range [][]byte{tcpFrame("10.0.0.2"), udpFrame("10.0.0.2", 9, 200)} {
			if passed, _ := b.parallel(p.program, data, each); uint64(passed) != sent {
				t.Errorf("%s: %d of %d frames passed", name, passed, sent)
			}
		}
		after := b.read()
		_, packets, _ := grown(&before, &after, p.direction)
		if packets[protocolTCP] != sent || packets[protocolUDP] != sent {
			t.Errorf("%s: counted %v packets, sent %d of TCP and of UDP", name, packets, sent)
		}
	}
}

// TestWindowsCloseOnceHoweverManyProcessorsAskForIt sums the windows of a second.
func TestWindowsCloseOnceHoweverManyProcessorsAskForIt(t *testing.T) {
	const each = 500
	want := uint64(2 * runtime.NumCPU() * each)
	testutil.WaitFor(t, "a second in which the machine leaves the test some processor", func() bool {
		b := newBench(t)
		atWindowStart(t)
		if _, took := b.parallel(b.objects.VportTcxFrom, udpFrame("10.0.0.2", 9, 20), each); took > windowsBehind*Window {
			return false // windows have been used again
		}
		s := b.state()
		sum, seen := uint64(s.Current.UdpPackets), map[uint64]bool{s.Current.Id: true}
		for _, w := range s.Closed {
			if w.Id != 0 && seen[w.Id] {
				t.Fatalf("window %d is there twice: %+v", w.Id, s.Closed)
			}
			seen[w.Id] = true
			sum += uint64(w.UdpPackets)
		}
		if sum != want {
			t.Errorf("%d packets in %d windows, sent %d", sum, len(seen), want)
		}
		return true
	})
}
