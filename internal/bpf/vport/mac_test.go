package vport

import (
	"encoding/binary"
	"fmt"
	"testing"
	"time"

	"vigia/internal/testutil"
)

const (
	anyBound  = 0
	fewPairs  = 10
	burstOf10 = 128 // what mac.h lets through at once for small bounds
	// epochShift makes epochs of nanoseconds, 8.6 s each, as mac.h does.
	epochShift = 33
)

// frameBetween is a UDP frame, or one of another type, between two stations.
func frameBetween(from, to uint64, ethertype uint16, tags ...uint16) []byte {
	station := func(n uint64) []byte {
		b := make([]byte, 8)
		binary.BigEndian.PutUint64(b, n&0xffff_ffff|0x0200_0000_0000) // a local address
		return b[2:]
	}
	out := append(station(to), station(from)...)
	for _, tag := range tags {
		out = binary.BigEndian.AppendUint16(out, 0x8100)
		out = binary.BigEndian.AppendUint16(out, tag)
	}
	out = binary.BigEndian.AppendUint16(out, ethertype)
	return append(out, udpFrame("10.0.0.2", 5201, 20)[14:]...)
}

// question is an ARP request to everybody.
func question(target uint32) []byte {
	out := append([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, frameBetween(1, 0, 0x0806)[6:14]...)
	arp := make([]byte, 28)
	copy(arp, []byte{0, 1, 8, 0, 6, 4, 0, 1})
	binary.BigEndian.PutUint32(arp[14:], 0x0a000001)
	binary.BigEndian.PutUint32(arp[24:], target)
	return append(out, arp...)
}

// passed sends frames through the program of Open vSwitch's ports and returns how many it lets pass.
func (b *bench) passed(n int, frame func(i int) []byte) int {
	b.t.Helper()
	pass := 0
	for i := range n {
		if b.run(b.objects.VportXdpFrom, frame(i)) == xdpPass {
			pass++
		}
	}
	return pass
}

// boundPairs has the vport's contract bound pairs of MAC addresses, with a full bucket.
func (b *bench) boundPairs(pairs uint64) {
	b.t.Helper()
	b.bind(Bounds{MACPairs: pairs})
	full := vportMacPairs{Begun: vportBucket{Tokens: burstOf10 * 1e9, RefilledNs: Monotonic()}}
	if err := b.objects.VportMacPairs.Put(b.slot, full); err != nil {
		b.t.Fatal(err)
	}
}

// TestNewPairsOfMACAddressesAreBounded, whichever part of what a switch tells frames apart by is new.
func TestNewPairsOfMACAddressesAreBounded(t *testing.T) {
	const sent = 2000
	for name, frame := range map[string]func(i int) []byte{
		"sources":          func(i int) []byte { return frameBetween(uint64(i), 7, 0x0800) },
		"destinations":     func(i int) []byte { return frameBetween(7, uint64(i), 0x0800) },
		"ethertypes":       func(i int) []byte { return frameBetween(1, 2, 0x8900+uint16(i)) },
		"tags":             func(i int) []byte { return frameBetween(1, 2, 0x0800, uint16(i)) },
		"second tags":      func(i int) []byte { return frameBetween(1, 2, 0x0800, 5, uint16(i)) },
		"questions of ARP": func(i int) []byte { return question(0x0a010000 + uint32(i)) },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.boundPairs(fewPairs)
			begin := time.Now()
			got := b.passed(sent, frame)
			most := burstOf10 + int(fewPairs*time.Since(begin).Seconds()) + 1
			if got < burstOf10 || got > most {
				t.Errorf("%d of %d passed, want %d to %d", got, sent, burstOf10, most)
			}
			c, err := b.Read(loopback)
			if err != nil {
				t.Fatal(err)
			}
			if c.PolicedPackets != uint64(sent-got) {
				t.Errorf("%d packets count as policed, want %d", c.PolicedPackets, sent-got)
			}
		})
	}
}

// TestWhatIsKnownPassesWhateverIsNew: an established conversation does not suffer from the same
// port's new ones, and any number of packets of it costs nothing.
func TestWhatIsKnownPassesWhateverIsNew(t *testing.T) {
	b := newBench(t)
	b.boundPairs(fewPairs)
	const peers = 100
	known := func(i int) []byte { return frameBetween(1, uint64(1_000_000+i%peers), 0x0800) }
	if got := b.passed(peers, known); got != peers {
		t.Fatalf("%d of %d peers answered", got, peers)
	}
	b.passed(500, func(i int) []byte { return frameBetween(uint64(i), 7, 0x0800) })
	if got := b.passed(20*peers, known); got != 20*peers {
		t.Errorf("%d of %d packets to known peers passed", got, 20*peers)
	}
	// What differs in addresses above the link, or in ports, is no new pair.
	if got := b.passed(2000, func(i int) []byte {
		return append(known(0)[:14], udpFrame(fmt.Sprintf("10.0.%d.%d", i/250, 1+i%250), uint16(i), 20)[14:]...)
	}); got != 2000 {
		t.Errorf("%d of 2000 packets to other addresses and ports of a known peer passed", got)
	}
}

// TestWithoutABoundAnyNumberOfPairsPasses, and at tc, where a switch in the kernel forwards.
func TestWithoutABoundAnyNumberOfPairsPasses(t *testing.T) {
	random := func(i int) []byte { return frameBetween(uint64(i), uint64(2*i), 0x0800) }
	b := newBench(t)
	b.boundPairs(anyBound)
	if got := b.passed(2000, random); got != 2000 {
		t.Errorf("%d of 2000 passed without a bound", got)
	}
	b.boundPairs(fewPairs)
	for i := range 2000 {
		if b.run(b.objects.VportTcxFrom, random(i)) != tcActUnspec {
			t.Fatalf("packet %d was dropped at tc", i)
		}
	}
}

// TestPairsAreForgottenWhenTheirFlowIs: what has not been seen for two epochs is new, and what
// is seen in between stays known.
func TestPairsAreForgottenWhenTheirFlowIs(t *testing.T) {
	b := newBench(t)
	b.boundPairs(fewPairs)
	frame := func(int) []byte { return frameBetween(1, 2, 0x0800) }
	b.passed(1, frame)
	for _, tc := range []struct {
		age  uint32
		left uint64 // tokens that it takes
	}{{0, 0}, {1, 0}, {2, 1}, {40, 1}} {
		var pairs, now vportMacPairs
		testutil.WaitFor(t, "an epoch that all of it falls into", func() bool {
			begun := Monotonic() >> epochShift
			pairs = b.age(tc.age)
			b.passed(1, frame)
			if err := b.objects.VportMacPairs.Lookup(b.slot, &now); err != nil {
				t.Fatal(err)
			}
			return Monotonic()>>epochShift == begun
		})
		if taken := pairs.Begun.Tokens > now.Begun.Tokens; taken != (tc.left == 1) {
			t.Errorf("a pair that was seen %d epochs ago: a token was taken: %t", tc.age, taken)
		}
	}
}

// age makes everything that is known so many epochs older, and empties the bucket of whatever refills
// it: it is set to be refilled in the future.
func (b *bench) age(epochs uint32) vportMacPairs {
	b.t.Helper()
	var pairs vportMacPairs
	if err := b.objects.VportMacPairs.Lookup(b.slot, &pairs); err != nil {
		b.t.Fatal(err)
	}
	for i := range pairs.Seen {
		for j, entry := range pairs.Seen[i] {
			if entry != 0 {
				pairs.Seen[i][j] = entry&^0x3f | (uint32(Monotonic()>>epochShift)-epochs)&0x3f
			}
		}
	}
	pairs.Begun = vportBucket{Tokens: 50 * 1e9, RefilledNs: Monotonic() + 3600*1e9}
	if err := b.objects.VportMacPairs.Put(b.slot, pairs); err != nil {
		b.t.Fatal(err)
	}
	return pairs
}

// TestANewVportKnowsNobody: what a slot's vport before knew is not its own.
func TestANewVportKnowsNobody(t *testing.T) {
	b := newBench(t)
	b.boundPairs(fewPairs)
	b.passed(1, func(int) []byte { return frameBetween(1, 2, 0x0800) })
	if err := b.clearSlot(b.slot, loopback); err != nil {
		t.Fatal(err)
	}
	var pairs vportMacPairs
	if err := b.objects.VportMacPairs.Lookup(b.slot, &pairs); err != nil {
		t.Fatal(err)
	}
	if pairs.Seen != (vportMacPairs{}).Seen {
		t.Error("it knows pairs of the vport before")
	}
}
