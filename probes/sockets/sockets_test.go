package sockets

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"vigia/internal/testutil"
	"vigia/probes/timestamping"
)

// owner writes down what it is told and checks that sockets are usable.
type owner struct {
	t      *testing.T
	open   map[Key]*timestamping.Socket
	events []string
}

func newKeeper(t *testing.T) (*Keeper, *owner) {
	t.Helper()
	o := &owner{t: t, open: make(map[Key]*timestamping.Socket)}
	k := NewKeeper(timestamping.Options{}, o, slog.New(slog.DiscardHandler))
	t.Cleanup(k.Close)
	return k, o
}

func (o *owner) Attach(key Key, s *timestamping.Socket) {
	if _, err := s.Drops(); err != nil {
		o.t.Errorf("attached socket %s is not usable: %v", key, err)
	}
	o.open[key] = s
	o.events = append(o.events, "attach "+key.String())
}

func (o *owner) Detach(key Key, reason error) {
	if _, err := o.open[key].Drops(); err != nil {
		o.t.Errorf("socket %s was closed before it was detached: %v", key, err)
	}
	delete(o.open, key)
	o.events = append(o.events, fmt.Sprintf("detach %s: %v", key, reason))
}

// apply prepares and commits, and returns what was opened and removed.
func (o *owner) apply(k *Keeper, keys ...Key) (opened, removed []string) {
	o.t.Helper()
	change, err := k.Prepare(keys)
	if err != nil {
		o.t.Fatal(err)
	}
	change.Opened(func(key Key, s *timestamping.Socket, err error) {
		state := "open"
		if s == nil {
			state = fmt.Sprintf("not open: %v", err)
		} else {
			o.open[key] = s
		}
		opened = append(opened, key.String()+" "+state)
	})
	change.Removed(func(key Key) {
		delete(o.open, key)
		removed = append(removed, key.String())
	})
	change.Commit()
	return opened, removed
}

func local(s string) netip.AddrPort { return netip.MustParseAddrPort(s) }

func TestChangeOpensAndRemoves(t *testing.T) {
	k, o := newKeeper(t)
	a, b := Key{Local: local("127.0.0.1:0")}, Key{Local: local("127.0.0.2:0")}
	opened, removed := o.apply(k, a, a, a)
	if !slices.Equal(opened, []string{"127.0.0.1:0 open"}) || removed != nil {
		t.Errorf("first: opened %v, removed %v", opened, removed)
	}
	first := o.open[a]
	opened, removed = o.apply(k, a, b)
	if !slices.Equal(opened, []string{"127.0.0.2:0 open"}) || removed != nil || o.open[a] != first {
		t.Errorf("second: opened %v, removed %v", opened, removed)
	}
	opened, removed = o.apply(k, b)
	if opened != nil || !slices.Equal(removed, []string{"127.0.0.1:0"}) {
		t.Errorf("third: opened %v, removed %v", opened, removed)
	}
	if _, err := first.Drops(); err == nil {
		t.Error("the removed socket is still open")
	}
	if err := k.Err(); err != nil {
		t.Error(err)
	}
}

func TestPermanentErrorsChangeNothing(t *testing.T) {
	k, o := newKeeper(t)
	a := Key{Local: local("127.0.0.1:0")}
	o.apply(k, a)
	busy, err := timestamping.Open(timestamping.Options{Local: local("127.0.0.1:0")})
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	_, err = k.Prepare([]Key{{Local: local("127.0.0.3:0")}, {Local: busy.Local()}})
	if !errors.Is(err, unix.EADDRINUSE) || !strings.Contains(err.Error(), busy.Local().String()) {
		t.Fatalf("got %v", err)
	}
	if opened, removed := o.apply(k, a); opened != nil || removed != nil {
		t.Errorf("after the error: opened %v, removed %v", opened, removed)
	}
}

func TestDiscardClosesWhatWasOpened(t *testing.T) {
	k, o := newKeeper(t)
	a := Key{Local: local("127.0.0.1:0")}
	change, err := k.Prepare([]Key{a})
	if err != nil {
		t.Fatal(err)
	}
	var s *timestamping.Socket
	change.Opened(func(_ Key, opened *timestamping.Socket, _ error) { s = opened })
	change.Discard()
	if _, err := s.Drops(); err == nil {
		t.Error("the socket is still open")
	}
	if opened, _ := o.apply(k, a); len(opened) != 1 {
		t.Errorf("opened %v", opened)
	}
}

func TestNamespaceThatComesAndGoes(t *testing.T) {
	testutil.RequireRoot(t)
	k, o := newKeeper(t)
	name := fmt.Sprintf("vigia-test-sockets-%d", os.Getpid())
	key := Key{Netns: name, Local: local("127.0.0.1:40001")}
	opened, _ := o.apply(k, key)
	if len(opened) != 1 || !strings.Contains(opened[0], "not open") || !strings.Contains(opened[0], "does not exist") {
		t.Fatalf("opened %v", opened)
	}
	if err := k.Err(); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), key.String()) {
		t.Errorf("Err: %v", err)
	}

	add := func() {
		testutil.IP(t, "netns", "add", name)
		testutil.IP(t, "-n", name, "link", "set", "lo", "up")
	}
	add()
	t.Cleanup(func() { testutil.IP(t, "netns", "del", name) })
	k.Check()
	if !slices.Equal(o.events, []string{"attach " + key.String()}) || k.Err() != nil {
		t.Fatalf("after the namespace came: %v, %v", o.events, k.Err())
	}
	k.Check()
	if len(o.events) != 1 {
		t.Fatalf("a socket that is open was touched: %v", o.events)
	}

	o.events = nil
	testutil.IP(t, "netns", "del", name)
	k.Check()
	if len(o.events) != 1 || !strings.HasPrefix(o.events[0], "detach "+key.String()) || !strings.Contains(o.events[0], "is gone") {
		t.Fatalf("after the namespace went: %v", o.events)
	}
	add()
	k.Check()

	// Replaced between two looks.
	o.events = nil
	testutil.IP(t, "netns", "del", name)
	add()
	k.Check()
	if len(o.events) != 2 || !strings.Contains(o.events[0], "replaced by another") || o.events[1] != "attach "+key.String() {
		t.Fatalf("after the namespace was replaced: %v", o.events)
	}
}

// TestTheNamespaceOfANetworkOfNeutron is looked for again by what it is called now: with another agent it is another one.
func TestTheNamespaceOfANetworkOfNeutron(t *testing.T) {
	testutil.RequireRoot(t)
	k, o := newKeeper(t)
	network := fmt.Sprintf("%08x-5a0e-4a5f-8c0d-0f1e2d3c4b5a", os.Getpid())
	key := Key{Netns: "neutron:" + network, Local: local("127.0.0.1:40001")}
	o.apply(k, key)
	if err := k.Err(); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "ovnmeta-"+network) {
		t.Errorf("Err: %v", err)
	}
	for _, agent := range []string{"ovnmeta-", "qdhcp-"} { // the second goes before the first
		name := agent + network
		testutil.IP(t, "netns", "add", name)
		t.Cleanup(func() { _ = exec.Command("ip", "netns", "del", name).Run() })
		testutil.IP(t, "-n", name, "link", "set", "lo", "up")
		k.Check()
		if k.Err() != nil || o.events[len(o.events)-1] != "attach "+key.String() {
			t.Fatalf("after %s came: %v, %v", name, o.events, k.Err())
		}
	}
	testutil.IP(t, "netns", "del", "qdhcp-"+network)
	k.Check()
	if attached := strings.Count(strings.Join(o.events, " "), "attach "); k.Err() != nil || attached != 3 {
		t.Errorf("after qdhcp- went: %v, %v", o.events, k.Err())
	}
	testutil.IP(t, "netns", "del", "ovnmeta-"+network)
	k.Check()
	if err := k.Err(); !strings.Contains(fmt.Sprint(err), "none of Neutron's agents") {
		t.Errorf("after both went: %v", err)
	}
}

func TestAddressThatComes(t *testing.T) {
	ns := testutil.NewNetNS(t)
	k, o := newKeeper(t)
	key := Key{Netns: ns, Local: local("10.1.2.3:862")}
	o.apply(k, key)
	if err := k.Err(); !errors.Is(err, unix.EADDRNOTAVAIL) || !strings.Contains(err.Error(), ns) {
		t.Errorf("Err: %v", err)
	}
	testutil.IP(t, "-n", ns, "addr", "add", "10.1.2.3/24", "dev", "lo")
	k.Check()
	if o.open[key] == nil || k.Err() != nil {
		t.Errorf("not open after the address came: %v", k.Err())
	}
}

func TestRunLooksAfterTheSockets(t *testing.T) {
	ns := testutil.NewNetNS(t)
	k, o := newKeeper(t)
	o.apply(k, Key{Netns: ns, Local: local("10.1.2.3:862")})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { k.Run(ctx); close(done) }()
	testutil.IP(t, "-n", ns, "addr", "add", "10.1.2.3/24", "dev", "lo")
	testutil.WaitFor(t, "the socket to be open", func() bool { return k.Err() == nil })
	cancel()
	<-done
}

func TestTransient(t *testing.T) {
	for err, want := range map[error]bool{
		fs.ErrNotExist: true, unix.EADDRNOTAVAIL: true, unix.ENODEV: true, unix.EINVAL: true,
		unix.EADDRINUSE: false, unix.EPERM: false, unix.EACCES: false, unix.EMFILE: false,
	} {
		if got := Transient(fmt.Errorf("open: %w", err)); got != want {
			t.Errorf("%v: %v, want %v", err, got, want)
		}
	}
}
