package fastloop

import (
	"context"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/common/promslog"

	"vigia/internal/bpf/vport"
	"vigia/internal/ports"
	"vigia/internal/testutil"
	"vigia/isolation-agent/enforcer/contract"
	"vigia/isolation-agent/enforcer/fastloop/control"
	"vigia/isolation-agent/enforcer/notice"
	"vigia/isolation-agent/enforcer/scheduling"
)

// lockedKernel is a kernel that the test may look at while the loop runs.
type lockedKernel struct {
	mu sync.Mutex
	kernel
}

func (k *lockedKernel) SetPair(index int, d vport.Destination, p vport.Pair) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.kernel.SetPair(index, d, p)
}

func (k *lockedKernel) RemovePair(index int, d vport.Destination) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.kernel.RemovePair(index, d)
}

func (k *lockedKernel) rate(d vport.Destination) uint64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.pairs[d].Rate
}

// counts counts events.
type counts struct {
	mu     sync.Mutex
	events map[string]int
}

func (c *counts) add(what string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.events[what]++
}

func (c *counts) of(what string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.events[what]
}

// running is a loop with its threads and its socket.
type running struct {
	*Loop
	kernel *lockedKernel
	counts *counts
	stop   func()
}

func run(t *testing.T, node string, listen netip.AddrPort, site *Site, inv inventory) *running {
	t.Helper()
	r := &running{kernel: &lockedKernel{kernel: kernel{pairs: map[vport.Destination]vport.Pair{}}}, counts: &counts{events: map[string]int{}}}
	reconciler, err := scheduling.NewReconciler("", nil, promslog.NewNopLogger())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { reconciler.Close() })
	both := bandwidth(24, 100)
	bought, err := contract.NewSet([]contract.Contract{{Owner: contract.Owner{Tenant: "red"}, Send: both, Receive: both}})
	if err != nil {
		t.Fatal(err)
	}
	reconciler.Set([]scheduling.Link{{Device: "none", RateBytesPerSecond: 100 * mbit, Headroom: 0.05}}, bought)
	r.Loop, err = New(Config{Node: node, Listen: listen, Variant: control.Vigia, Site: site, Keys: issuedTo(t, node, site, master(masterA))}, reconciler, nil, r.kernel, inv, promslog.NewNopLogger(), Events{
		Notice:   func(kind notice.Kind, outcome notice.Outcome) { r.counts.add(kind.String() + " " + outcome.String()) },
		Lateness: func(time.Duration) { r.counts.add("tick") },
		Detected: func(time.Duration) { r.counts.add("detected") },
		Applied:  func(time.Duration) { r.counts.add("applied") },
		Round:    func(time.Duration) { r.counts.add("round") },
		Peer:     func(string, bool) { r.counts.add("peer") },
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	r.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != context.Canceled {
			t.Errorf("the loop of %s ended with %v", node, err)
		}
		r.Close()
	})
	t.Cleanup(r.stop)
	return r
}

// knows reports whether a node's process is known to be live.
func (r *running) knows(node string) bool {
	for _, p := range r.Peers() {
		if p.Node == node {
			return p.Known
		}
	}
	return false
}

// tell has the receiver's loop notify the source, as a tick does.
func (r *running) tell(now time.Time, rate float64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := congestion(rate)
	c.Since = now
	share := shareOf(2, 80, 1)
	r.notifySource(now, c, share, 1)
}

// TestTwoEnforcersMeetAndOneLimitsWhatTheOtherIsFloodedWith has two loops with real
// sockets and threads: they prove to each other that they are live, a notice becomes a
// limit, it is acknowledged, and it ends by itself. One of them is started anew meanwhile.
func TestTwoEnforcersMeetAndOneLimitsWhatTheOtherIsFloodedWith(t *testing.T) {
	one, two := testutil.FreePort(t, "udp", "127.0.0.1"), testutil.FreePort(t, "udp", "127.0.0.1")
	site := &Site{
		Version: 1, Nodes: []SiteNode{{Node: "n1", Address: one.String()}, {Node: "n2", Address: two.String()}},
		Ports: []SitePort{
			{Node: "n1", Port: "p1", Tenant: "red", MAC: "02:00:00:00:00:01", IP: "192.168.0.1"},
			{Node: "n2", Port: "p2", Tenant: "red", MAC: "02:00:00:00:00:02", IP: "192.168.0.2"},
		},
	}
	receiver := run(t, "n1", one, site, inventory{"p1": ports.Port{ID: "p1", Tenant: "red", Index: 1}})
	there := inventory{"p2": ports.Port{ID: "p2", Tenant: "red", Index: 2}}
	sender := run(t, "n2", two, site, there)
	meet := func() {
		t.Helper()
		testutil.WaitFor(t, "the enforcers to know each other", func() bool { return receiver.knows("n2") && sender.knows("n1") })
	}
	meet()
	limited := func(want uint64) (limits []control.Limit) {
		t.Helper()
		testutil.WaitFor(t, "the source to be limited", func() bool {
			receiver.tell(time.Now(), float64(want))
			if sender.kernel.rate(vport.Destination{192, 168, 0, 1}) != uint64(float64(want)*mbit) {
				return false
			}
			limits = sender.Limits()
			return len(limits) > 0 // it ends by itself
		})
		testutil.WaitFor(t, "the acknowledgement", func() bool { return receiver.counts.of("round") > 0 })
		return limits
	}
	if got := limited(30); len(got) != 1 || got[0].Port != "p2" || got[0].Floor != 24*mbit {
		t.Errorf("limits %+v", got)
	}
	if sender.counts.of("applied") == 0 || receiver.counts.of("detected") == 0 || receiver.counts.of("tick") == 0 {
		t.Errorf("the receiver counts %v, the sender %v", receiver.counts.events, sender.counts.events)
	}
	testutil.WaitFor(t, "the limit to end by itself", func() bool {
		return len(sender.Limits()) == 0 && sender.kernel.rate(vport.Destination{192, 168, 0, 1}) == 0
	})

	sender.stop() // and another process takes its place
	testutil.WaitUnbound(t, "", "udp", two.Port())
	sender = run(t, "n2", two, site, there)
	testutil.WaitFor(t, "the new process to be known", func() bool {
		receiver.tell(time.Now(), 30) // it is a stranger, and challenges
		return sender.knows("n1") && sender.counts.of("congest received") > 0
	})
	limited(40)
}

func TestAnAddressThatIsTakenIsAnError(t *testing.T) {
	taken := listen(t)
	at := taken.LocalAddr().(*net.UDPAddr).AddrPort()
	reconciler, err := scheduling.NewReconciler("", nil, promslog.NewNopLogger())
	if err != nil {
		t.Fatal(err)
	}
	defer reconciler.Close()
	_, err = New(Config{Node: "n1", Listen: at, Variant: control.Vigia, Site: wideSite(), Keys: issued(t, wideSite(), master(masterA))}, reconciler, nil, nil, inventory{}, promslog.NewNopLogger(), Events{})
	if err == nil || !strings.Contains(err.Error(), "listen for notices on "+at.String()) {
		t.Errorf("error %v", err)
	}
}
