package sender

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"vigia/probes/accounting"
)

// TestReloadUnderLoad changes the set of targets again and again while others are
// probed: these must not lose a probe, a number or a count.
func TestReloadUnderLoad(t *testing.T) {
	t.Parallel()
	at := reflectOnLoopback(t)
	f := newSender(t, Options{})
	var stay []Target
	for i := range 5 {
		tg := target(fmt.Sprint("stay", i), at)
		tg.Interval = 2 * time.Millisecond
		stay = append(stay, tg)
	}
	f.apply(stay...)
	f.waitFor("answers", func() bool { return f.status(stay[0].Labels).Counts.Received > 20 })
	sockets := len(f.engine.sockets)
	last := make(map[Labels]accounting.Counts)
	for round := range 40 {
		guest := target(fmt.Sprint("guest", round), at)
		guest.Size = 128
		f.apply(append(stay[:len(stay):len(stay)], guest)...)
		for _, tg := range stay {
			st := f.status(tg.Labels)
			before := last[tg.Labels]
			if st.Counts.Sent < before.Sent || st.Counts.Received < before.Received || st.Counts.LostTotal() != 0 {
				t.Fatalf("round %d: %+v became %+v", round, before, st.Counts)
			}
			last[tg.Labels] = st.Counts
		}
		f.waitFor("probes of the guest", func() bool { return f.status(guest.Labels).Counts.Handed > 0 })
	}
	f.apply(stay...)
	for _, tg := range stay {
		f.waitFor("more answers", func() bool { return f.status(tg.Labels).Counts.Received > last[tg.Labels].Received+20 })
	}
	if err := f.engine.loop.Do(func() {
		if len(f.engine.sockets) != sockets {
			t.Errorf("%d sockets became %d", sockets, len(f.engine.sockets))
		}
		for _, ser := range f.engine.series {
			s := ser.current[0]
			// One session from the beginning: every number it used was a probe.
			if s.Window.Next() != ser.counts.Handed+ser.counts.Refused || len(ser.retired) != 0 {
				t.Errorf("%s: %d numbers used for %d probes, %d retired sessions", ser.labels.Dst, s.Window.Next(), ser.counts.Handed, len(ser.retired))
			}
		}
	}); err != nil {
		t.Fatal(err)
	}
	if _, totals, _ := f.Snapshot(nil); totals.Stamps[TX][User] != 0 {
		t.Errorf("send stamps went missing: %v", totals.Stamps)
	}
	for round := range 40 {
		n := f.note(Labels{Src: "a", Dst: fmt.Sprint("guest", round), Path: "direct", Tenant: "_infra", Probe: "c"})
		n.mu.Lock()
		if !n.removed || n.afterward != 0 {
			t.Errorf("guest %d: removed %v, %d measurements after that", round, n.removed, n.afterward)
		}
		n.mu.Unlock()
	}
}

// TestChangedTargetKeepsItsCounters gives a target another interval and another
// address; what is in flight to the old one must still be counted.
func TestChangedTargetKeepsItsCounters(t *testing.T) {
	t.Parallel()
	first, second := reflectOnLoopback(t), reflectOnLoopback(t)
	_, slow := newRelay(t, first, always, func(uint32) fate { return fate{copies: 1, delay: 100 * time.Millisecond} })
	f := newSender(t, Options{})
	tg := target("b", slow)
	f.apply(tg)
	var before Status
	f.waitFor("answers, and probes in flight", func() bool {
		before = f.status(tg.Labels)
		return before.Counts.Received > 20 && before.InFlight > 0
	})
	moved := tg
	moved.Port, moved.Interval, moved.Size = second.Port(), 10*time.Millisecond, 200
	f.apply(moved)
	after := f.status(tg.Labels)
	if after.Counts.Handed < before.Counts.Handed || after.Address != second {
		t.Errorf("%+v became %+v", before, after)
	}
	f.waitFor("answers from there", func() bool { return f.status(tg.Labels).Counts.Received > before.Counts.Received+60 })
	f.waitFor("the old session to end", func() bool {
		retired := 0
		if err := f.engine.loop.Do(func() { retired = len(f.engine.series[tg.Labels].retired) }); err != nil {
			t.Fatal(err)
		}
		return retired == 0
	})
	if c := f.status(tg.Labels).Counts; c.LostTotal() != 0 || c.Corrupt != 0 || c.Late != 0 {
		t.Errorf("%+v", c)
	}
	if n := f.note(tg.Labels); n.removed {
		t.Error("the recorder was removed")
	}
}

func TestFailedApplyChangesNothing(t *testing.T) {
	t.Parallel()
	at := reflectOnLoopback(t)
	f := newSender(t, Options{})
	tg := target("b", at)
	f.apply(tg)
	busy, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	wrong := target("c", at)
	wrong.Source = busy.LocalAddr().(*net.UDPAddr).AddrPort()
	if err := f.Apply([]Target{wrong}); !errors.Is(err, unix.EADDRINUSE) {
		t.Errorf("got %v", err)
	}
	if f.note(wrong.Labels) != nil {
		t.Error("the target that was refused has series")
	}
	if err := f.Apply([]Target{tg, tg}); err == nil {
		t.Error("a target was accepted twice")
	}
	before := f.status(tg.Labels).Counts.Received
	f.waitFor("answers", func() bool { return f.status(tg.Labels).Counts.Received > before+10 })
	p, err := f.Prepare([]Target{wrongSourceless(wrong)})
	if err != nil {
		t.Fatal(err)
	}
	p.Discard()
	f.status(tg.Labels) // still there
	f.apply(tg)         // and not blocked
}

func wrongSourceless(t Target) Target {
	t.Source = netip.AddrPort{}
	return t
}

// names answers look-ups as the test wants.
type names struct {
	mu      sync.Mutex
	address string
}

func (n *names) set(address string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.address = address
}

func (n *names) lookup(context.Context, string, string) ([]netip.Addr, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.address == "" {
		return nil, &net.DNSError{Err: "no such host", Name: "b.example", IsNotFound: true}
	}
	return []netip.Addr{netip.MustParseAddr(n.address)}, nil
}

// TestNameThatResolvesLater begins with a name that does not exist, then gives it
// an address, then another.
func TestNameThatResolvesLater(t *testing.T) {
	t.Parallel()
	at := reflectOnLoopback(t)
	reflect(t, "", netip.AddrPortFrom(netip.MustParseAddr("127.0.0.77"), at.Port()))
	n := &names{}
	f := newSender(t, Options{Lookup: n.lookup, LookupInterval: 20 * time.Millisecond})
	tg := target("b", at)
	tg.Host = "b.example"
	f.apply(tg)
	f.waitFor("failed probes", func() bool { return lostTo(f.status(tg.Labels), accounting.SendError) > 5 })
	st := f.status(tg.Labels)
	var dns *net.DNSError
	if !errors.As(st.LastError, &dns) || st.Address.IsValid() || st.Counts.LostTotal() != lostTo(st, accounting.SendError) {
		t.Errorf("%v, address %v, %+v", st.LastError, st.Address, st.Counts)
	}
	for _, address := range []string{"127.0.0.1", "127.0.0.77"} {
		n.set(address)
		f.waitFor("the address", func() bool { return f.status(tg.Labels).Address.Addr().String() == address })
		before := f.status(tg.Labels).Counts.Received
		f.waitFor("answers", func() bool { return f.status(tg.Labels).Counts.Received > before+20 })
	}
	if st := f.status(tg.Labels); lostTo(st, accounting.Unknown) != 0 {
		t.Errorf("the change of address made losses: %+v", st.Counts)
	}
	n.set("")
	f.waitFor("the address to go", func() bool { return !f.status(tg.Labels).Address.IsValid() })
	before := lostTo(f.status(tg.Labels), accounting.SendError)
	f.waitFor("failed probes", func() bool { return lostTo(f.status(tg.Labels), accounting.SendError) > before+5 })
}

// TestNoProbeFailsBeforeTheFirstLookup makes the look-up slow: until it ends
// nothing is known, and nothing is sent or lost.
func TestNoProbeFailsBeforeTheFirstLookup(t *testing.T) {
	t.Parallel()
	at := reflectOnLoopback(t)
	release := make(chan struct{})
	f := newSender(t, Options{Lookup: func(ctx context.Context, _, _ string) ([]netip.Addr, error) {
		select {
		case <-release:
			return []netip.Addr{at.Addr()}, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}})
	tg, other := target("b", at), target("c", at)
	tg.Host = "b.example"
	f.apply(tg, other)
	f.waitFor("twenty rounds", func() bool { return f.status(other.Labels).Counts.Received > 20 })
	if st := f.status(tg.Labels); st.Counts != (accounting.Counts{}) {
		t.Errorf("%+v", st.Counts)
	}
	close(release)
	f.waitFor("answers", func() bool { return f.status(tg.Labels).Counts.Received > 10 })
	if st := f.status(tg.Labels); st.Counts.LostTotal() != 0 {
		t.Errorf("%+v", st.Counts)
	}
}

func TestReadyAfterTheFirstRound(t *testing.T) {
	t.Parallel()
	at := reflectOnLoopback(t)
	f := newSender(t, Options{})
	if err := f.Ready(); err != nil {
		t.Errorf("without targets: %v", err)
	}
	g := newSender(t, Options{})
	slow := target("b", at)
	slow.Interval = never
	fast := target("c", at)
	g.apply(slow, fast)
	g.waitFor("an answer", func() bool { return g.status(fast.Labels).Counts.Received > 0 })
	if err := g.Ready(); err == nil {
		t.Error("ready before every target was probed")
	}
	g.apply(fast)
	if err := g.Ready(); err != nil {
		t.Error(err)
	}
	g.apply(slow, fast) // a new target does not take readiness away
	if err := g.Ready(); err != nil {
		t.Error(err)
	}
}
