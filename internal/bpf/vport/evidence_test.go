package vport

import (
	"testing"

	"vigia/internal/testutil"
)

// windows sends something in every window of some, one after another, and has
// the vport's contract guarantee so many bytes per second.
func (b *bench) windows(n int, guarantee uint64, send func()) Signals {
	b.t.Helper()
	b.bind(Bounds{Guarantee: guarantee})
	for range n {
		atWindowStart(b.t)
		send()
	}
	return b.signals()
}

// TestBeyondTheContractOnePortIsAFlood, which it is not within it, nor in a burst.
func TestBeyondTheContractOnePortIsAFlood(t *testing.T) {
	const packets, size = 400, 1000
	onePort := func(b *bench) func() {
		return func() { b.send(packets, "10.0.0.2", func(int) uint16 { return 5201 }) }
	}
	for _, tc := range []struct {
		name      string
		guarantee uint64
		windows   int
		flood     bool
	}{
		{"beyond", 1000, 5, true},
		{"a burst", 1000, 1, false},
		{"within", 1 << 32, 5, false},
		{"without a contract", 0, 5, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var s Signals
			// A starved test sends less than a window's packets in a window: then it tries again.
			testutil.WaitFor(t, "a verdict", func() bool {
				b := newBench(t)
				s = b.windows(tc.windows, tc.guarantee, onePort(b))
				return (s.FloodSinceNs != 0) == tc.flood && (s.Beyond >= beyondLasts) == tc.flood
			})
			if beyond := s.Beyond >= beyondLasts; beyond != tc.flood {
				t.Errorf("%d windows beyond the contract: %+v", s.Beyond, s)
			}
		})
	}
}

// TestAnswersOfAnAccompliceDoNotClearAFloodBeyondTheContract at one to four packets.
func TestAnswersOfAnAccompliceDoNotClearAFloodBeyondTheContract(t *testing.T) {
	for name, guarantee := range map[string]uint64{"beyond": 1000, "within": 1 << 32} {
		t.Run(name, func(t *testing.T) {
			want := guarantee == 1000
			testutil.WaitFor(t, "a verdict", func() bool {
				b := newBench(t)
				s := b.windows(5, guarantee, func() {
					for i := range 600 {
						b.run(b.objects.VportTcxFrom, udpFrame("10.0.0.2", uint16(i*7), 20))
						if i%4 == 0 {
							b.run(b.objects.VportTcxTo, replyFrame("10.0.0.2", 20))
						}
					}
				})
				// The first packets of a window have no answers yet: only what lasts counts.
				return (s.FloodSinceNs != 0) == want || !want
			})
		})
	}
}

// TestScores holds the score to what it says: any two signs stay below 70 within the
// contract, and beyond it one of spread and silence is enough.
func TestScores(t *testing.T) {
	for _, tc := range []struct {
		name  string
		s     Signals
		least float64
		most  float64
	}{
		{"a flood to random ports", Signals{UDPPackets: 20000, DestinationPorts: 1000}, 100, 100},
		{"a flood of one port within the contract", Signals{UDPPackets: 20000, DestinationPorts: 1}, 60, 69},
		{"the same in a burst beyond it", Signals{UDPPackets: 20000, DestinationPorts: 1, Beyond: 2}, 60, 69},
		{"the same beyond it", Signals{UDPPackets: 20000, DestinationPorts: 1, Beyond: 10}, 100, 100},
		{"few packets beyond it", Signals{UDPPackets: 200, DestinationPorts: 1, Beyond: 10}, 0, 50},
		{"a name server: 600 queries, 5 answers each", Signals{UDPPackets: 3000, DestinationPorts: 600, ReplyRatio: 0.2}, 60, 69},
		{"a name server with large answers", Signals{UDPPackets: 3000, DestinationPorts: 600, ReplyRatio: 0.05}, 60, 69},
		{"a media relay beyond its contract, answered alike", Signals{UDPPackets: 20000, DestinationPorts: 400, ReplyRatio: 0.9, Beyond: 10}, 60, 69},
		{"QUIC beyond its contract", Signals{UDPPackets: 20000, DestinationPorts: 1, ReplyRatio: 0.25, Beyond: 10}, 30, 40},
		{"random ports beyond it, with forged answers", Signals{UDPPackets: 20000, DestinationPorts: 1000, ReplyRatio: 0.25, Beyond: 10}, 100, 100},
		{"random ports within it, with answers", Signals{UDPPackets: 20000, DestinationPorts: 1000, ReplyRatio: 0.25}, 60, 69},
		{"part of a flood's ports within it", Signals{UDPPackets: 20000, DestinationPorts: 60}, 67, 69},
		{"part of a flood's ports beyond it", Signals{UDPPackets: 20000, DestinationPorts: 60, Beyond: 10}, 100, 100},
		{"a flood of one port beyond it, one answer to a hundred", Signals{UDPPackets: 20000, DestinationPorts: 1, ReplyRatio: 0.01, Beyond: 10}, 90, 100},
		{"syslog", Signals{UDPPackets: 100, DestinationPorts: 1}, 0, 10},
		{"nothing", Signals{}, 0, 0},
	} {
		set := vportSettings{MinPackets: 200, MinPorts: 95, MaxReplyPercent: 5}
		if got := score(&tc.s, &set); got < tc.least || got > tc.most {
			t.Errorf("%s: %.1f, want %.0f to %.0f", tc.name, got, tc.least, tc.most)
		}
	}
}

// TestANameServerIsNotAccused: 600 queries a second of one client from random ports, five
// packets of answer to each, for longer than signals look back.
func TestANameServerIsNotAccused(t *testing.T) {
	b := newBench(t)
	b.bind(Bounds{Guarantee: 12_500_000})
	for range 14 {
		atWindowStart(t)
		for q := range 60 {
			b.run(b.objects.VportTcxTo, replyFrame("10.0.0.2", 40))
			for range 5 {
				b.run(b.objects.VportTcxFrom, udpFrame("10.0.0.2", uint16(1024+q*997), 200))
			}
		}
		if s := b.signals(); s.FloodSinceNs != 0 || s.FloodScore >= 70 {
			t.Fatalf("taken for a flood: %+v", s)
		}
	}
}
