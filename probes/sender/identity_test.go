package sender

import (
	"strconv"
	"strings"
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
	// So few a second, and so much time for each, that a starved machine loses none to buffers or deadlines besides.
	tg.Interval, tg.Deadline, tg.Size = 5*time.Millisecond, 20*time.Second, 84
	f.apply(tg)
	f.waitFor("the first answers", func() bool { return f.status(tg.Labels).Counts.Received >= 50 })

	// What is lost in a row is less than a received window tells of: of a longer run nothing is known when an
	// answer is lost at its edge.
	const burst = 400 // at most
	g.shut.Store(true)
	f.burst(tg.Labels, burst, func(int, *socket) bool { return udpDrops(t, right) >= 20 })
	if udpDrops(t, right) == 0 {
		t.Fatal("the reflector's buffer does not overflow")
	}
	g.shut.Store(false)
	release()
	before := f.status(tg.Labels).Counts.Received
	f.waitFor("answers again", func() bool { return f.status(tg.Labels).Counts.Received > before+50 })

	before = g.received.Load()
	overflown := false
	k := f.burst(tg.Labels, burst, func(launched int, k *socket) bool {
		becomes(func() bool { // the reflector, which may be starved, has got as far
			n, err := k.Drops()
			overflown = err == nil && n >= 20
			return overflown || g.received.Load() >= before+uint64(launched)*11/13 // the firewall drops one in 13
		})
		if launched == burst && !overflown {
			overflown = becomes(func() bool { n, err := k.Drops(); return err == nil && n > 0 })
		}
		return overflown
	})
	if !overflown {
		t.Fatal("our own buffer does not overflow")
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

// burst launches up to n probes of a target, and reads nothing meanwhile. It asks after every tenth whether that will
// do, and returns their socket.
func (f *fixture) burst(labels Labels, n int, enough func(launched int, k *socket) bool) (k *socket) {
	f.t.Helper()
	if err := f.engine.loop.Do(func() {
		e := f.engine
		s := e.series[labels].current[0]
		k = s.socket
		for i := 1; i <= n; i++ {
			e.launch(s, e.clock.Now())
			e.flush(k)
			if i%10 == 0 && enough(i, k) {
				break
			}
		}
		e.unsent = e.unsent[:0]
	}); err != nil {
		f.t.Fatal(err)
	}
	return k
}

// udpDrops returns how many datagrams the UDP sockets of a namespace dropped: the last column (proc(5)).
func udpDrops(t *testing.T, ns string) (n uint64) {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(inNamespace(t, ns, "cat", "/proc/net/udp")), "\n")
	for _, line := range lines[1:] {
		columns := strings.Fields(line)
		dropped, err := strconv.ParseUint(columns[len(columns)-1], 10, 64)
		if err != nil {
			t.Fatalf("a line of /proc/net/udp: %q: %v", line, err)
		}
		n += dropped
	}
	return n
}
