package background

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"vigia/internal/testutil"
	"vigia/probes/protocol"
	"vigia/probes/timestamping"
)

var somewhere = netip.MustParseAddrPort("127.0.0.1:7")

// begun begins a probe and returns its exchange, and how often the sender was woken.
func begun(t *testing.T, deadline time.Duration, work Work) (protocol.Exchange, *atomic.Int32) {
	t.Helper()
	woken := new(atomic.Int32)
	s := &protocol.Session{Address: somewhere, Deadline: deadline, DSCP: 46, Wake: func() { woken.Add(1) }}
	x := New(s, work)
	if _, ended := x.Ready(); ended {
		t.Error("an exchange ended that was not begun")
	}
	if err := x.Begin(&protocol.Probe{}); err != nil {
		t.Fatal(err)
	}
	return x, woken
}

func TestWorkIsDoneElsewhere(t *testing.T) {
	release := make(chan struct{})
	var at Endpoint
	x, woken := begun(t, time.Minute, func(_ context.Context, to *Endpoint) Outcome {
		<-release
		at = *to
		return Outcome{Values: []float64{7}}
	})
	if _, ended := x.Ready(); ended {
		t.Error("it ended before its work was done")
	}
	before := monotonic()
	close(release)
	testutil.WaitFor(t, "the sender to be woken", func() bool { return woken.Load() == 1 })
	r, ended := x.Ready()
	if !ended || r.Err != nil || r.RTT != 0 || r.At < before || r.At > monotonic() {
		t.Fatalf("%+v, %v", r, ended)
	}
	if o, ok := r.Detail.(*Outcome); !ok || o.Values[0] != 7 {
		t.Errorf("%+v", r.Detail)
	}
	if at.Address != somewhere || at.Channel.TOS != 46<<2 {
		t.Errorf("%+v", at)
	}
	if err := x.End(); err != nil {
		t.Error(err)
	}
	if _, ended := x.Ready(); ended {
		t.Error("it ended twice")
	}
}

// TestGivenUp ends the work, whose news then disturb nobody: the next probe is another.
func TestGivenUp(t *testing.T) {
	number := new(atomic.Int32)
	x, woken := begun(t, time.Minute, func(ctx context.Context, _ *Endpoint) Outcome {
		if number.Add(1) == 1 {
			<-ctx.Done()
			return Outcome{Err: ctx.Err(), Failure: "answer"}
		}
		return Outcome{}
	})
	testutil.WaitFor(t, "the first to be under way", func() bool { return number.Load() == 1 })
	if err := x.End(); err != nil {
		t.Error(err)
	}
	testutil.WaitFor(t, "the first to end", func() bool { return woken.Load() == 1 })
	if r, ended := x.Ready(); ended {
		t.Errorf("%+v", r)
	}
	if err := x.Begin(&protocol.Probe{}); err != nil {
		t.Fatal(err)
	}
	testutil.WaitFor(t, "the second to end", func() bool { return woken.Load() == 2 })
	if r, ended := x.Ready(); !ended || r.Err != nil {
		t.Errorf("%+v, %v", r, ended)
	}
}

// TestDeadline ends the work; that it failed then says nothing of why.
func TestDeadline(t *testing.T) {
	x, woken := begun(t, time.Millisecond, func(ctx context.Context, _ *Endpoint) Outcome {
		<-ctx.Done()
		return Outcome{Err: errors.New("it was closed"), Failure: "answer"}
	})
	testutil.WaitFor(t, "the work to end", func() bool { return woken.Load() == 1 })
	if r, ended := x.Ready(); !ended || r.Err == nil || r.Detail != nil {
		t.Errorf("%+v, %v", r, ended)
	}
}

// TestDial connects from where it is told, and sets how packets are sent.
func TestDial(t *testing.T) {
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	at := l.Addr().(*net.TCPAddr).AddrPort()
	e := Endpoint{Address: at, Source: netip.MustParseAddrPort("127.0.0.7:9"), Channel: timestamping.Channel{TOS: 184}}
	for _, network := range []string{"tcp", "udp"} {
		c, err := e.Dial(t.Context(), network)
		if err != nil {
			t.Fatal(network, err)
		}
		if from := c.LocalAddr().String(); !strings.HasPrefix(from, "127.0.0.7:") || from == "127.0.0.7:9" {
			t.Errorf("%s from %s", network, from)
		}
		raw, err := c.(syscall.Conn).SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		var tos int
		if err := raw.Control(func(fd uintptr) { tos, err = unix.GetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_TOS) }); err != nil || tos != 184 {
			t.Errorf("%s with type of service %d, %v", network, tos, err)
		}
		c.Close()
	}
	e.Netns = "vigia-test-not-there"
	if _, err := e.Dial(t.Context(), "tcp"); err == nil || !strings.Contains(err.Error(), "does not exist") {
		t.Errorf("from no namespace: %v", err)
	}
	l.Close()
	e.Netns = ""
	if _, err := e.Dial(t.Context(), "tcp"); !errors.Is(err, unix.ECONNREFUSED) {
		t.Errorf("nobody listens: %v", err)
	}
}
