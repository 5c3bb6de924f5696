package bulk

import (
	"context"
	"log/slog"
	"net/netip"
	"sync"
	"testing"
	"time"

	"vigia/internal/testutil"
	"vigia/probes/sender"
)

// machines are pairs of a near and a far namespace on one bridge, the far ones of which listen.
func machines(t *testing.T, n int) (pairs []Pair, listeners []Listener) {
	t.Helper()
	wire := testutil.NewNetNS(t)
	testutil.IP(t, "-n", wire, "link", "add", "sw0", "type", "bridge")
	testutil.IP(t, "-n", wire, "link", "set", "sw0", "up")
	port := 0
	attach := func(address string) string {
		ns := testutil.NewNetNS(t)
		port++
		device := "p" + string(rune('a'+port))
		testutil.NewVethPair(t, ns, "v0", wire, device)
		testutil.IP(t, "-n", wire, "link", "set", device, "master", "sw0")
		testutil.IP(t, "-n", ns, "addr", "add", address+"/24", "dev", "v0")
		return ns
	}
	for i := range n {
		last := string(rune('1' + i))
		address := netip.MustParseAddrPort("10.9.0.2" + last + ":9876")
		pairs = append(pairs, Pair{Netns: attach("10.9.0.1" + last), Address: address})
		listeners = append(listeners, Listener{Netns: attach("10.9.0.2" + last), Address: address, Link: "l"})
	}
	return pairs, listeners
}

func listen(t *testing.T, links *LinkLocks, listeners []Listener) {
	t.Helper()
	s := NewServer(slog.New(slog.DiscardHandler), links)
	s.Set(Config{Listeners: listeners, Allow: []netip.Prefix{netip.MustParsePrefix("10.9.0.0/24")}})
	t.Cleanup(s.Close)
	testutil.WaitFor(t, "the listeners", func() bool { return s.Err() == nil })
}

// free waits until no link is in use: listeners let go of theirs a moment after the sender has its answer.
func free(t *testing.T, links *LinkLocks) {
	t.Helper()
	testutil.WaitFor(t, "the link to be free again", func() bool { links.mu.Lock(); defer links.mu.Unlock(); return len(links.taken) == 0 })
}

func between(p Protocol, pairs []Pair) Target {
	first := pairs[0]
	return Target{
		Labels: sender.Labels{Src: "a", Dst: "b", Probe: "c"}, Netns: first.Netns, Address: first.Address, Link: "l",
		Protocol: p, Size: 1000, Rate: 3_000_000, Duration: time.Second, MaxBytes: 1_000_001, Others: pairs[1:],
	}
}

// Bytes, rate and packets of a test are those of all its pairs of machines together, and
// each of these has its share.
func TestSeveralMachines(t *testing.T) {
	pairs, listeners := machines(t, 3)
	links := &LinkLocks{}
	listen(t, links, listeners)
	tcp := between(TCP, pairs)
	tcp.Duration = 30 * time.Second // the bytes end it
	if tcp.Machines() != 6 || tcp.cost() != 1_000_001 {
		t.Errorf("%d machines send %d bytes", tcp.Machines(), tcp.cost())
	}
	if o := run(t, tcp); o.Result != Completed || o.Sent != 1_000_001 || o.Bytes != 1_000_001 || o.MinRTT <= 0 || o.MinRTT > o.RTT*100 {
		t.Errorf("%+v", o)
	}
	udp := between(UDP, pairs)
	if o := runWhenFree(t, udp); o.Result != Completed || o.Packets+o.Refused != 3000 || o.Received+o.Dropped != o.Packets || o.Bytes != o.Received*1000 {
		t.Errorf("%+v", o)
	}
	free(t, links)
}

// What each pair sends is its share, the odd ones are with the first.
func TestShares(t *testing.T) {
	target := Target{Protocol: UDP, Rate: 1_000_000, Size: 1000, Duration: time.Second, Others: make([]Pair, 2)}
	sum, ids := 0, make(map[uint64]bool)
	for _, f := range target.transfers() {
		sum += f.request.Packets
		ids[f.request.Test] = true
		if f.request.Connections != 3 || f.request.check() != nil || f.Machines() != 2 {
			t.Errorf("%+v", f.request)
		}
	}
	if sum < 999 || sum > target.packets() || len(ids) != 1 {
		t.Errorf("%d of %d packets, tests %v", sum, target.packets(), ids)
	}
	for i, want := range []uint64{4, 3, 3} {
		if got := share(10, i, 3); got != want {
			t.Errorf("share %d of 10 is %d, want %d", i, got, want)
		}
	}
}

// A test is complete when all its pairs are: one that nobody listens for fails it whole, and
// the links are free again.
func TestOnePairOfManyFails(t *testing.T) {
	pairs, listeners := machines(t, 2)
	links := &LinkLocks{}
	listen(t, links, listeners[:1])
	if o := run(t, between(TCP, pairs)); o.Result != Failed || o.Err == nil || o.Bytes != 0 {
		t.Errorf("%+v", o)
	}
	free(t, links)
	if o := runWhenFree(t, between(UDP, pairs[:1])); o.Result != Completed {
		t.Errorf("after a failure: %+v", o)
	}
}

// Two tests of several machines at a time: one has the link, the other is told that it is busy.
func TestTwoTestsOfSeveralMachinesNeverShareALink(t *testing.T) {
	pairs, listeners := machines(t, 2)
	links := &LinkLocks{}
	listen(t, links, listeners)
	release, ok := links.acquire("l", 99, 4)
	if !ok {
		t.Fatal("a free link is refused")
	}
	if o := run(t, between(TCP, pairs)); o.Result != Busy {
		t.Errorf("%+v", o)
	}
	release()
}

// A node tests itself: the link is its own at both ends.
func TestRunnerTestsItsOwnNode(t *testing.T) {
	pairs, listeners := machines(t, 2)
	links := &LinkLocks{}
	listen(t, links, listeners)
	var mu sync.Mutex
	got := make(map[Protocol][]Outcome)
	r := NewRunner(Options{
		Links: links, Logger: slog.New(slog.DiscardHandler), Burning: func() string { return "" },
		Done: func(t *Target, o *Outcome) {
			mu.Lock()
			defer mu.Unlock()
			got[t.Protocol] = append(got[t.Protocol], *o)
		},
	})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { r.Run(ctx); close(ended) }()
	defer func() { cancel(); <-ended }()
	tcp, udp := between(TCP, pairs), between(UDP, pairs)
	for _, t := range []*Target{&tcp, &udp} {
		t.Labels.Dst, t.Duration = "a", 100*time.Millisecond
	}
	plan := Plan{Node: "a", Groups: [][]Target{{tcp}, {udp, udp}}, Budget: 1 << 30, Slots: Slots{Nodes: []string{"a", "b"}, Length: 5 * time.Second}}
	r.Set(plan)
	testutil.WaitFor(t, "both groups", func() bool { mu.Lock(); defer mu.Unlock(); return len(got[TCP]) > 0 && len(got[UDP]) > 1 })
	mu.Lock()
	defer mu.Unlock()
	for protocol, outcomes := range got {
		for _, o := range outcomes {
			if o.Result != Completed || o.Bytes == 0 {
				t.Errorf("%s: %+v", protocol, o)
			}
		}
	}
}
