package contention

import (
	"log/slog"
	"math"
	"net"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"vigia/internal/bpf/classify"
	"vigia/internal/netns"
	"vigia/internal/tc"
	"vigia/internal/testutil"
	"vigia/isolation-agent/enforcer/contract"
	"vigia/isolation-agent/enforcer/scheduling"
)

// mbit is a megabit per second in bytes per second.
const mbit = 125_000

// rig is a node with an uplink of 8 Mbit/s, scheduled by contracts of red and blue.
type rig struct {
	ns         string
	uplink     int
	conn       *tc.Conn
	reconciler *scheduling.Reconciler
	watch      *Watch
}

func newRig(t *testing.T) *rig {
	t.Helper()
	testutil.RequireRoot(t)
	node, peer := testutil.NewNetNS(t), testutil.NewNetNS(t)
	testutil.DisableIPv6(t, node)
	testutil.DisableIPv6(t, peer)
	testutil.NewVethPair(t, node, "up0", peer, "eth0")
	testutil.IP(t, "-n", node, "addr", "add", "10.9.0.1/24", "dev", "up0")
	testutil.IP(t, "-n", node, "neigh", "add", "10.9.0.2", "lladdr", "02:00:00:00:00:01", "dev", "up0")
	set, err := contract.NewSet([]contract.Contract{bought("blue", 4), bought("red", 1)})
	if err != nil {
		t.Fatal(err)
	}
	programs, err := classify.Open(classify.Dir(testutil.NewBPFFS(t)), 16)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { programs.Close() })
	r := &rig{ns: node}
	if r.reconciler, err = scheduling.NewReconciler(node, programs, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.reconciler.Close() })
	r.reconciler.Set([]scheduling.Link{{Device: "up0", RateBytesPerSecond: 8 * mbit, Headroom: 0.05}}, set)
	if r.watch, err = NewWatch(node, r.reconciler.Desired, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.watch.Close() })
	if r.conn, err = tc.Dial(node); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.conn.Close() })
	if r.uplink, err = r.conn.LinkIndex("up0"); err != nil {
		t.Fatal(err)
	}
	return r
}

func bought(tenant string, megabits uint64) contract.Contract {
	b := contract.Bandwidth{GuaranteeBytesPerSecond: megabits * mbit, CeilingBytesPerSecond: 8 * mbit}
	return contract.Contract{Owner: contract.Owner{Tenant: tenant}, Send: b, Receive: b}
}

// floods sends into a class until the test ends, more than the link carries.
func (r *rig) floods(t *testing.T, class uint32) {
	t.Helper()
	var conn *net.UDPConn
	err := netns.Do(r.ns, func() (err error) {
		conn, err = net.DialUDP("udp4", nil, &net.UDPAddr{IP: net.IPv4(10, 9, 0, 2), Port: 9})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	raw, err := conn.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	// HTB takes a socket's priority for a class: tc-htb(8).
	if e := raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), syscall.SOL_SOCKET, unix.SO_PRIORITY, int(class)) }); e != nil || err != nil {
		t.Fatal(e, err)
	}
	// Fewer frames than the class's queue holds: writing waits for the link, and the link for nothing.
	if err := conn.SetWriteBuffer(27 << 10); err != nil {
		t.Fatal(err)
	}
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		frame := make([]byte, 1400)
		for {
			select {
			case <-stop:
				return
			default:
				_, _ = conn.Write(frame) // nobody has to take it
			}
		}
	}()
	t.Cleanup(func() { close(stop); <-done; conn.Close() })
}

// waits reports whether frames wait in a class.
func (r *rig) waits(t *testing.T, class uint32) bool {
	t.Helper()
	k, err := r.conn.Class(r.uplink, tc.Handle(class))
	if err != nil {
		t.Fatal(err)
	}
	return k.Stats.Backlog > 0
}

// sent returns what has left the class that holds a contract, as another reader sees it.
func (r *rig) sent(t *testing.T, class uint32) uint64 {
	t.Helper()
	k, err := r.conn.Class(r.uplink, tc.Handle(class))
	if err != nil {
		t.Fatal(err)
	}
	return k.Stats.Bytes
}

func TestWhatTheKernelCountsIsWhatIsTaken(t *testing.T) {
	r := newRig(t)
	if err := r.watch.Look(time.Now()); err == nil {
		t.Error("no IFB device is there yet, and no error")
	}
	if _, err := r.reconciler.Reconcile(); err != nil {
		t.Fatal(err)
	}
	desired := r.reconciler.Desired()
	leaf := func(tenant string) uint32 { return desired.ReceiveClass(contract.Owner{Tenant: tenant}) }
	red, err := r.conn.Class(r.uplink, tc.Handle(leaf("red")))
	if err != nil {
		t.Fatal(err)
	}
	r.floods(t, leaf("blue"))
	r.floods(t, leaf("red"))
	// An independent account: what red sent beyond its guarantee between looks that both found the link full.
	device := func() *device { return r.watch.devices["up0"] }
	// When all classes were read last, and what had left just before and after: on a busy machine the reading is anywhere between.
	var now, begin time.Time
	var wasBefore, wasAfter uint64
	least, most := 0.0, 0.0
	waited := true // at every look since
	stretches := 0
	for looks := 0; stretches < 10; looks++ {
		if looks == 400 {
			t.Fatalf("%d stretches of a full link in %d looks", stretches, looks)
		}
		time.Sleep(Interval)
		before := r.sent(t, uint32(red.Parent))
		waits := r.waits(t, leaf("blue"))
		now = time.Now()
		if err := r.watch.Look(now); err != nil {
			t.Fatal(err)
		}
		waited = waited && waits && r.waits(t, leaf("blue"))
		switch d := device(); {
		case d == nil || d.read.IsZero(): // not full: what was sent counts for nobody
			begin, waited = time.Time{}, true
			continue
		case !d.read.Equal(now):
			continue
		}
		after := r.sent(t, uint32(red.Parent))
		if !begin.IsZero() {
			bought := mbit * now.Sub(begin).Seconds()
			most += float64(after-wasBefore) - bought
			if waited { // a busy machine may keep blue from sending
				least += float64(before-wasAfter) - bought
			}
			stretches++
		}
		begin, wasBefore, wasAfter, waited = now, before, after, true
	}
	for _, taken := range r.watch.Taken(now) {
		if taken.Pair != (Pair{"blue", "red", false}) {
			continue
		}
		// Bursts, and frames at the ends of stretches.
		const ends = 4 * 1442
		if taken.Bytes < least-0.2*math.Abs(least)-ends || taken.Bytes > 1.2*most+ends {
			t.Errorf("%.0f bytes, the kernel says %.0f to %.0f", taken.Bytes, least, most)
		}
		if taken.BytesPerSecond <= 0 {
			t.Error("nothing now")
		}
		return
	}
	t.Errorf("red took nothing from blue: %+v", r.watch.Taken(now))
}

func TestALinkThatGoesIsAnErrorAndForgotten(t *testing.T) {
	r := newRig(t)
	if _, err := r.reconciler.Reconcile(); err != nil {
		t.Fatal(err)
	}
	if err := r.watch.Look(time.Now()); err != nil {
		t.Fatal(err)
	}
	testutil.IP(t, "-n", r.ns, "link", "del", "up0")
	if err := r.watch.Look(time.Now()); err == nil {
		t.Error("no error")
	}
	if len(r.watch.devices) != 0 {
		t.Errorf("%d devices are kept", len(r.watch.devices))
	}
}
