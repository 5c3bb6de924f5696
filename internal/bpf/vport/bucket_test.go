package vport

import (
	"math"
	"testing"
	"time"

	"github.com/cilium/ebpf"
)

const second = uint64(time.Second)

// state reads the vport's state.
func (b *bench) state() (s vportState) {
	b.t.Helper()
	if err := b.objects.VportState.LookupWithFlags(b.slot, &s, ebpf.LookupLock); err != nil {
		b.t.Fatal(err)
	}
	return s
}

// edit changes the vport's state.
func (b *bench) edit(change func(s *vportState)) {
	b.t.Helper()
	s := b.state()
	change(&s)
	if err := b.objects.VportState.Update(b.slot, &s, ebpf.UpdateLock); err != nil {
		b.t.Fatal(err)
	}
}

// bytesBucket puts the bucket of the vport's limit where a test wants it, sends one frame,
// and returns whether it passed and what the bucket holds then.
func (b *bench) bytesBucket(r LimitRequest, tokens uint64, refilled func(now uint64) uint64) (passed bool, left, refilledNs uint64) {
	b.t.Helper()
	b.setLimit(r)
	b.run(b.objects.VportTcxFrom, udpFrame("10.0.0.2", 9, 100)) // which fills the bucket of a new limit
	b.edit(func(s *vportState) { s.LimitBytes = vportBucket{Tokens: tokens, RefilledNs: refilled(Monotonic())} })
	passed = b.run(b.objects.VportTcxFrom, udpFrame("10.0.0.2", 9, 958)) == tcActUnspec // 1000 bytes
	s := b.state()
	return passed, s.LimitBytes.Tokens, s.LimitBytes.RefilledNs
}

// longAgo is more than what a bucket is refilled for at once.
func longAgo(now uint64) uint64 { return now - min(now, 5*second) }

func TestBucketsRefillTakeAndKeepWithinTheirBurst(t *testing.T) {
	const frame = 1000 * uint64(time.Second)
	b := newBench(t)
	for _, tc := range []struct {
		name        string
		rate, burst uint64
		tokens      uint64
		refilled    func(now uint64) uint64
		pass        bool
		least, most uint64 // tokens left
	}{
		{"a second's worth", 2000, 10_000, 0, longAgo, true, frame, frame},
		{"no more than the burst", 2000, 1500, 0, longAgo, true, frame / 2, frame / 2},
		{"too little", 500, 10_000, 0, longAgo, false, frame / 2, frame / 2},
		{"the highest rate does not overflow", MaxRate, MaxRate, MaxRate * second / 2, longAgo, true, MaxRate*second - frame, MaxRate*second - frame},
		{"nor does a full bucket", MaxRate, MaxRate, MaxRate * second, longAgo, true, MaxRate*second - frame, MaxRate*second - frame},
		{"a burst that became smaller", 1, 1200, 50 * frame, longAgo, true, frame / 5, frame / 5},
		{"another processor's clock is ahead", MaxRate, MaxRate, 3 * frame, func(now uint64) uint64 { return now + 3600*second }, true, 2 * frame, 2 * frame},
		{"and there is too little", MaxRate, MaxRate, frame - 1, func(now uint64) uint64 { return now + 3600*second }, false, frame - 1, frame - 1},
		{"nothing is to pass", 0, 0, frame, longAgo, false, 0, 0},
	} {
		passed, left, refilled := b.bytesBucket(LimitRequest{Rate: tc.rate, Burst: tc.burst}, tc.tokens, tc.refilled)
		if passed != tc.pass || left < tc.least || left > tc.most {
			t.Errorf("%s: passed %v, %d left; want %v, %d to %d", tc.name, passed, left, tc.pass, tc.least, tc.most)
		}
		if now := Monotonic(); tc.refilled(now) < now && (refilled > now || now-refilled > 60*second) {
			t.Errorf("%s: refilled at %d, now is %d", tc.name, refilled, now)
		}
	}
}

// TestWhatDoesNotPassIsGivenBack has packets or flows refuse what bytes would let pass.
func TestWhatDoesNotPassIsGivenBack(t *testing.T) {
	b := newBench(t)
	frame := udpFrame("10.0.0.2", 9, 100)
	begin := time.Now()
	b.setLimit(LimitRequest{Rate: 1, Burst: 1_000_000, Packets: 1})
	passed := uint64(b.passes(frame, 100))
	if most := trickled(1, begin); passed < leastBurst || passed > uint64(most) {
		t.Fatalf("%d passed, want the least burst of %d, and at most %d", passed, leastBurst, most)
	}
	s := b.state()
	if used := 1_000_000 - float64(s.LimitBytes.Tokens)/1e9; math.Abs(used-float64(passed*uint64(len(frame)))) > 60 { // a byte a second
		t.Errorf("%.0f bytes were taken for %d frames of %d", used, passed, len(frame))
	}
	// The contract has packets left and no flows.
	b = newBench(t)
	b.bind(Bounds{Packets: 1_000_000, NewFlows: 1})
	b.run(b.objects.VportTcxFrom, flow(1, 17))
	b.edit(func(s *vportState) { s.ContractPace.Flows = vportBucket{RefilledNs: Monotonic() + 3600*second} })
	before := b.state().ContractPace.Packets
	b.edit(func(s *vportState) { s.ContractPace.Packets.RefilledNs = Monotonic() + 3600*second })
	if b.run(b.objects.VportTcxFrom, flow(2, 17)) != tcActShot {
		t.Fatal("a flow began without a token")
	}
	if after := b.state().ContractPace.Packets; after.Tokens != before.Tokens {
		t.Errorf("%d tokens for packets, had %d", after.Tokens, before.Tokens)
	}
	// The limit of a destination likewise.
	b = newBench(t)
	b.setPair(dest("10.0.0.2"), Pair{Rate: 1, Burst: 1_000_000, Packets: 1, TTL: time.Minute})
	passed = uint64(b.passes(frame, 100))
	var spent vportPairsSpent
	if err := b.readSpent(b.slot, &spent); err != nil {
		t.Fatal(err)
	}
	if used := 1_000_000 - float64(spent.To[0].Bytes.Tokens)/1e9; math.Abs(used-float64(passed*uint64(len(frame)))) > 60 {
		t.Errorf("%.0f bytes were taken for %d frames of %d to the destination", used, passed, len(frame))
	}
}

func TestAnotherLimitBeginsWithFullBuckets(t *testing.T) {
	b := newBench(t)
	frame := udpFrame("10.0.0.2", 9, 958)
	for id := byte(1); id < 4; id++ {
		for _, want := range []int{5, 0, 0} { // and a renewed one goes on with what it has
			if err := b.SetLimit(loopback, LimitRequest{ID: [16]byte{id}, Rate: 1, Burst: 5000, TTL: time.Minute}); err != nil {
				t.Fatal(err)
			}
			if got := b.passes(frame, 20); got != want {
				t.Errorf("limit %d: %d frames passed, want %d", id, got, want)
			}
		}
	}
}

func TestBucketsThatUserSpaceFills(t *testing.T) {
	if b := filled(3, 7); b.Tokens != 3*second || b.RefilledNs != 7 {
		t.Errorf("filled %+v", b)
	}
	for _, tc := range []struct{ tokens, burst, want uint64 }{{10 * second, 4, 4 * second}, {3 * second, 4, 3 * second}, {0, 4, 0}} {
		if got := carriedOver(vportBucket{Tokens: tc.tokens, RefilledNs: 9}, tc.burst); got.Tokens != tc.want || got.RefilledNs != 9 {
			t.Errorf("%d carried over to a burst of %d: %+v", tc.tokens, tc.burst, got)
		}
	}
}
