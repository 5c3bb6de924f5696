package sender

import (
	"net/netip"
	"testing"
	"time"

	"vigia/probes/protocol"
)

// Twins leave at the same moment, and the order of the group rotates with every
// round: as seen by the kernel's send stamps.
func TestTwinsAlternate(t *testing.T) {
	near, far := pair(t)
	reflect(t, far, netip.MustParseAddrPort("10.9.0.2:862"))
	f := newSender(t, Options{})
	paths := []string{"direct", "vxlan", "gre"}
	var targets []Target
	for i, path := range paths {
		tg := target("far", netip.MustParseAddrPort("10.9.0.2:862"))
		tg.Netns, tg.Labels.Path, tg.Interval = near, path, 20*time.Millisecond
		tg.Channel.Mark = uint32(i + 1) // a socket each
		tg.Twin = Twin{Rank: uint8(i), Size: 3, Group: tg.Labels}
		tg.Twin.Group.Path = paths[0]
		targets = append(targets, tg)
	}
	// Others that are due at the same times do not come between them.
	other := target("far", netip.MustParseAddrPort("10.9.0.2:862"))
	other.Netns, other.Labels.Path, other.Interval = near, "other", 20*time.Millisecond
	f.apply(append(targets, other)...)
	// So many that those that a busy machine skips are of all leaders alike.
	f.waitFor("rounds", func() bool { return f.status(targets[2].Labels).Counts.Received > 120 })
	f.stop()

	sent := make(map[int64][3]int64) // send stamps by moment
	for i, tg := range targets {
		n := f.note(tg.Labels)
		for _, p := range n.settled {
			if p.State == protocol.Answered && p.Stamps.T1 != 0 {
				r := sent[p.Intended]
				r[i] = p.Stamps.T1
				sent[p.Intended] = r
			}
		}
	}
	first, whole := [3]int{}, 0
	for at, r := range sent {
		if r[0] == 0 || r[1] == 0 || r[2] == 0 {
			continue
		}
		whole++
		leader := (3 - int(at/int64(20*time.Millisecond))%3) % 3
		first[leader]++
		for i := range 2 {
			if a, b := r[(leader+i)%3], r[(leader+i+1)%3]; a >= b {
				t.Errorf("round %d: the order is not kept: %v", at, r)
			}
		}
	}
	if whole < 30 || min(first[0], first[1], first[2]) < whole/4 {
		t.Errorf("%d whole rounds, led by %v", whole, first)
	}
}
