package connect

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"syscall"
	"testing"

	"vigia/internal/testutil"
	"vigia/probes/protocol"
	"vigia/probes/timestamping"
)

// newExchange returns an exchange with a socket on loopback.
func newExchange(t *testing.T, to netip.AddrPort) (protocol.Exchange, *protocol.Session) {
	t.Helper()
	socket, err := timestamping.Open(timestamping.Options{Transport: timestamping.TCP, Local: netip.MustParseAddrPort("127.0.0.1:0")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { socket.Close() })
	s := &protocol.Session{Address: to, Socket: socket}
	return Protocol{}.NewSession(s).(protocol.Exchange), s
}

func listen(t *testing.T) (net.Listener, netip.AddrPort) {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l, l.Addr().(*net.TCPAddr).AddrPort()
}

// end waits for the exchange to end.
func end(t *testing.T, x protocol.Exchange) (r protocol.Result) {
	t.Helper()
	testutil.WaitFor(t, "the end of the exchange", func() (ended bool) {
		r, ended = x.Ready()
		return ended
	})
	return r
}

// TestConnections opens one after the other on one socket; each has a round-trip time, and
// none stays.
func TestConnections(t *testing.T) {
	l, at := listen(t)
	x, _ := newExchange(t, at)
	if _, ended := x.Ready(); ended {
		t.Error("an exchange ended that was not begun")
	}
	if err := x.End(); err != nil {
		t.Errorf("nothing to end: %v", err)
	}
	ports := make(map[int]bool)
	for range 3 {
		if err := x.Begin(&protocol.Probe{}); err != nil {
			t.Fatal(err)
		}
		r := end(t, x)
		if r.Err != nil || r.RTT <= 0 {
			t.Errorf("%+v", r)
		}
		if err := x.End(); err != nil {
			t.Error(err)
		}
		c, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		ports[c.RemoteAddr().(*net.TCPAddr).Port] = true
		if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("the connection ends with %v, want a reset", err)
		}
		c.Close()
	}
	if len(ports) != 3 {
		t.Errorf("source ports %v", ports)
	}
}

// TestRefused says why, and the next connection is a new chance.
func TestRefused(t *testing.T) {
	l, at := listen(t)
	l.Close()
	x, s := newExchange(t, at)
	if err := x.Begin(&protocol.Probe{}); err == nil {
		if r := end(t, x); !errors.Is(r.Err, syscall.ECONNREFUSED) {
			t.Errorf("%+v", r)
		}
	} else if !errors.Is(err, syscall.ECONNREFUSED) {
		t.Error(err)
	}
	if err := x.End(); err != nil {
		t.Error(err)
	}
	_, s.Address = listen(t)
	if err := x.Begin(&protocol.Probe{}); err != nil {
		t.Fatal(err)
	}
	if r := end(t, x); r.Err != nil {
		t.Error(r.Err)
	}
}

// TestLostSocket ends an exchange whose socket is gone.
func TestLostSocket(t *testing.T) {
	_, at := listen(t)
	x, s := newExchange(t, at)
	if err := x.Begin(&protocol.Probe{}); err != nil {
		t.Fatal(err)
	}
	s.Socket = nil
	if err := x.End(); err != nil {
		t.Error(err)
	}
}
