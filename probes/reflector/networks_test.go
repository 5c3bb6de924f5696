package reflector

import (
	"context"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"vigia/internal/netns"
	"vigia/internal/testutil"
	"vigia/probes/sockets"
	"vigia/probes/stamp"
)

func TestNetworksAreToldWhoAsks(t *testing.T) {
	r := newResponder("10.0.0.0/24")
	here := []stamp.Network{{Name: "net1", Address: netip.MustParseAddr("10.88.1.10")}}
	ask := func(a *arrival, size int) ([]stamp.Network, bool) {
		b := stamp.NewNetworksRequest(stamp.Unauthenticated, stamp.Request{Sequence: 3})
		if size != 0 {
			b = b[:size]
		}
		res := r.respond(b, a)
		if res.reason != answered || res.followUp {
			t.Fatalf("%+v", res)
		}
		return stamp.NetworksOf(stamp.Unauthenticated, b)
	}
	a := at(1)
	a.networks = here
	if got, ok := ask(a, 0); !ok || !slices.Equal(got, here) {
		t.Errorf("%v, %v", got, ok)
	}
	if got, ok := ask(at(1), 0); !ok || len(got) != 0 {
		t.Errorf("of a node in no other network: %v, %v", got, ok)
	}
	if got, ok := ask(a, stamp.BaseSize+stamp.TLVHeaderSize+8); ok {
		t.Errorf("of a TLV that was cut: %v", got)
	}
}

// TestNetworksStayInOurNamespace: a listener in a tenant's namespace does not tell of them.
func TestNetworksStayInOurNamespace(t *testing.T) {
	ns := testutil.NewNetNS(t)
	testutil.IP(t, "-n", ns, "link", "set", "lo", "up")
	ours := sockets.Key{Local: testutil.FreePort(t, "udp4", "127.0.0.1")}
	theirs := sockets.Key{Netns: ns, Local: netip.MustParseAddrPort("127.0.0.1:8620")}
	here := []stamp.Network{{Name: "net1", Address: netip.MustParseAddr("10.88.1.10")}}
	r, err := New(Options{
		Logger: slog.New(slog.DiscardHandler), RemoveCounters: func(sockets.Key) {},
		NewCounters: func(sockets.Key) Counters { return ignored{} },
	})
	if err != nil {
		t.Fatal(err)
	}
	config := Config{Listeners: []sockets.Key{ours, theirs}, MaxRate: 1000, Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, Networks: here}
	if err := r.Apply(config); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		r.Close()
	}()
	ask := func(key sockets.Key) (networks []stamp.Network, ok bool) {
		t.Helper()
		err := netns.Do(key.Netns, func() error {
			conn, err := net.Dial("udp", key.Local.String())
			if err != nil {
				return err
			}
			defer conn.Close()
			if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
				return err
			}
			if _, err := conn.Write(stamp.NewNetworksRequest(stamp.Unauthenticated, stamp.Request{})); err != nil {
				return err
			}
			b := make([]byte, 1000)
			n, err := conn.Read(b)
			networks, ok = stamp.NetworksOf(stamp.Unauthenticated, b[:n])
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return networks, ok
	}
	if got, ok := ask(ours); !ok || !slices.Equal(got, here) {
		t.Errorf("%v, %v", got, ok)
	}
	if got, ok := ask(theirs); !ok || len(got) != 0 {
		t.Errorf("in a tenant's namespace: %v, %v", got, ok)
	}
	config.Networks = nil
	if err := r.Apply(config); err != nil {
		t.Fatal(err)
	}
	if got, ok := ask(ours); !ok || len(got) != 0 {
		t.Errorf("after they are gone: %v, %v", got, ok)
	}
}

// ignored counts nothing.
type ignored struct{}

func (ignored) Received()         {}
func (ignored) Reflected()        {}
func (ignored) Rejected(Reason)   {}
func (ignored) Overflowed(uint32) {}
