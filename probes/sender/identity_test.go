package sender

import (
	"sync"
	"testing"
	"time"

	"vigia/probes/accounting"
)

// TestAccountsCloseWhateverHappens drops probes and answers by the firewall's count,
// fills the receive buffers of both ends on purpose, and demands that every loss has
// the cause that the kernel's own counters say, to the last one. That the accounts
// are closed at every moment is looked at all the time.
func TestAccountsCloseWhateverHappens(t *testing.T) {
	t.Parallel()
	left, right := link(t)
	g := &gate{open: make(chan struct{})}
	reflectWith(t, right, right862, reflecting{counters: g, buffer: 16 << 10})
	release := sync.OnceFunc(func() { close(g.open) })
	t.Cleanup(release) // before the reflector is stopped
	nftRules(t, right, "input", "numgen inc mod 13 == 0 counter drop")
	inNamespace(t, left, "nft", "add table inet t; add chain inet t c { type filter hook input priority 0; }")
	inNamespace(t, left, "nft", "add rule inet t c udp sport 862 numgen inc mod 17 == 0 counter drop")

	f := newSender(t, Options{ReceiveBuffer: 16 << 10})
	tg := overVeth(left, 1200)
	tg.Interval, tg.Deadline, tg.Size = 2*time.Millisecond, 8*time.Second, 84
	f.apply(tg)
	progress := func() uint64 { return f.status(tg.Labels).Counts.Handed }
	f.waitFor("the first answers", func() bool { return f.status(tg.Labels).Counts.Received >= 50 })

	g.shut.Store(true)
	held := progress()
	f.waitFor("a full buffer at the reflector", func() bool { return progress() > held+150 })
	g.shut.Store(false)
	release()
	before := f.status(tg.Labels).Counts.Received
	f.waitFor("answers again", func() bool { return f.status(tg.Labels).Counts.Received > before+50 })

	var k *socket
	before = g.received.Load()
	const burst = 400 // at most
	overflown := false
	if err := f.engine.loop.Do(func() {
		e := f.engine
		s := e.series[tg.Labels].current[0]
		k = s.socket
		// Slowly enough for the reflector, which may be starved, to answer some.
		for i := 0; i < burst && !overflown; i++ {
			e.launch(s, e.clock.Now())
			e.flush(k)
			if i%10 == 9 {
				becomes(func() bool { // the reflector has got as far
					n, err := k.Drops()
					overflown = err == nil && n >= 20
					return overflown || g.received.Load() >= before+uint64(i)*11/13 // the firewall drops one in 13
				})
			}
		}
		e.unsent = e.unsent[:0]
		overflown = overflown || becomes(func() bool { n, err := k.Drops(); return err == nil && n > 0 })
	}); err != nil || !overflown {
		t.Fatalf("our own buffer does not overflow: %v", err)
	}
	st, _ := f.finish(tg.Labels)

	var local uint32
	var closings uint64
	var err error
	if doErr := f.engine.loop.Do(func() {
		local, err = k.Drops()
		closings = uint64(f.engine.series[tg.Labels].current[0].closings)
	}); doErr != nil || err != nil {
		t.Fatal(doErr, err)
	}
	n := st.Counts
	if n.Sent != 1200 || n.Handed != 1200 || n.Sent != n.Received+n.LostTotal() || n.Duplicate+n.Corrupt+n.Reordered+n.Late != 0 {
		t.Errorf("%+v", n)
	}
	// A closing packet may be among what was dropped.
	for cause, dropped := range map[accounting.Cause]uint64{
		accounting.Forward: nftCounts(t, right)[0], accounting.Reverse: nftCounts(t, left)[0],
		accounting.ReflectorOverflow: g.overflows.Load(), accounting.LocalOverflow: uint64(local),
		accounting.Unknown: 0, accounting.SendError: 0,
	} {
		if lost := n.Lost[cause]; lost > dropped || dropped-lost > closings {
			t.Errorf("%d lost by %v, the kernel dropped %d (%d closings)", lost, cause, dropped, closings)
		}
	}
	if n.Lost[accounting.LocalOverflow] == 0 || n.Lost[accounting.ReflectorOverflow] == 0 || n.Lost[accounting.Forward] == 0 || n.Lost[accounting.Reverse] == 0 {
		t.Errorf("every cause was there, and not every one is counted: %+v", n)
	}
}
