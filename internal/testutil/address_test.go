package testutil

import (
	"net"
	"net/netip"
	"os/exec"
	"strings"
	"testing"
)

// held binds a port of the loopback until it is freed.
func held(t *testing.T, network string) (port uint16, free func()) {
	t.Helper()
	if strings.HasPrefix(network, "udp") {
		c, err := net.ListenPacket(network, "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		return c.LocalAddr().(*net.UDPAddr).AddrPort().Port(), func() { c.Close() }
	}
	l, err := net.Listen(network, "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l.Addr().(*net.TCPAddr).AddrPort().Port(), func() { l.Close() }
}

func TestPortsThatSocketsHaveAreTaken(t *testing.T) {
	for _, network := range []string{"tcp", "udp", "tcp4", "udp4"} {
		port, free := held(t, network)
		if !boundPorts(t, "", network)[port] {
			t.Errorf("%s port %d is taken and called free", network, port)
		}
		free()
		WaitUnbound(t, "", network, port)
	}
}

func TestPortsOfAnotherNamespaceAreItsOwn(t *testing.T) {
	there := NewNetNS(t)
	port, free := held(t, "udp")
	defer free()
	WaitUnbound(t, there, "udp", port)
}

func TestAFreePortCanBeBound(t *testing.T) {
	for _, host := range []string{"127.0.0.1", "::1"} {
		at := FreePort(t, "udp", host)
		c, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(at))
		if err != nil {
			t.Errorf("%v: %v", at, err)
			continue
		}
		c.Close()
	}
}

func TestAPortIsGivenToOneTestAlone(t *testing.T) {
	at := FreePort(t, "tcp", "127.0.0.1")
	if claimed(t, int(at.Port())) {
		t.Errorf("port %d is given twice", at.Port())
	}
}

// TestAPortIsFreeThoughChildrenAreStarted binds the same port again and again while programs are started, each of which
// has a copy of the socket until it runs.
func TestAPortIsFreeThoughChildrenAreStarted(t *testing.T) {
	at := net.UDPAddrFromAddrPort(netip.MustParseAddrPort(FreePort(t, "udp", "127.0.0.1").String()))
	stop, ended := make(chan struct{}), make(chan error)
	go func() {
		for {
			select {
			case <-stop:
				ended <- nil
				return
			default:
			}
			if err := exec.Command("true").Run(); err != nil {
				ended <- err
				return
			}
		}
	}()
	for range 300 {
		c, err := net.ListenUDP("udp", at)
		if err != nil {
			t.Error(err)
			break
		}
		c.Close()
		WaitUnbound(t, "", "udp", uint16(at.Port))
	}
	close(stop)
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
}
