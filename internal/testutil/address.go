package testutil

import (
	"errors"
	"io/fs"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// firstPort and ports are those that no kernel gives out by itself (from 32 768 on, by default), so that
// only another test that chose the same by chance stands in the way.
const (
	firstPort = 10_000
	ports     = 22_000
)

// FreePort returns an address of the host of which nobody has the port now, for tcp or udp. While this process lives no
// test is given the same port again, in whatever process. It reads the kernel's tables and does not bind the port: see
// WaitUnbound for what becomes of a socket that was bound to try.
func FreePort(t testing.TB, network, host string) netip.AddrPort {
	t.Helper()
	taken := boundPorts(t, "", network)
	for range 100 {
		port := firstPort + rand.IntN(ports)
		if !taken[uint16(port)] && claimed(t, port) {
			return netip.MustParseAddrPort(net.JoinHostPort(host, strconv.Itoa(port)))
		}
	}
	t.Fatalf("no %s port of %s is free: %d are taken", network, host, len(taken))
	return netip.AddrPort{}
}

// claimed tells whether this process is the one that has the port from now on, by a name that the kernel frees when the
// process ends: who has been given a port may bind it later. The tests in Python have the same names.
func claimed(t testing.TB, port int) bool {
	t.Helper()
	name, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Bind(name, &unix.SockaddrUnix{Name: "@vigia-test-port-" + strconv.Itoa(port)}); err != nil {
		_ = unix.Close(name)
		return false
	}
	return true
}

// FreeAddress returns a TCP address of the loopback of which nobody has the port now.
func FreeAddress(t testing.TB) string {
	t.Helper()
	return FreePort(t, "tcp", "127.0.0.1").String()
}

// WaitUnbound waits until no socket of a network namespace ("" for this one) has the port, for tcp or udp. Closing a
// socket is not enough while other tests start programs: a child has a copy of it from its fork until it has executed,
// and the port stays taken as long.
func WaitUnbound(t testing.TB, netns, network string, port uint16) {
	t.Helper()
	WaitFor(t, "port "+strconv.Itoa(int(port))+" of "+network+" to be free", func() bool { return !boundPorts(t, netns, network)[port] })
}

// boundPorts returns the local ports that sockets of a network namespace have, of both address families.
func boundPorts(t testing.TB, netns, network string) map[uint16]bool {
	t.Helper()
	taken := make(map[uint16]bool)
	network = strings.TrimRight(network, "46") // whoever has a port of one family may have it of both
	// Not of the process: its first thread may be in another namespace.
	for _, table := range []string{"/proc/thread-self/net/" + network, "/proc/thread-self/net/" + network + "6"} {
		var text string
		if netns != "" {
			text = Run(t, "ip", "netns", "exec", netns, "cat", table)
		} else if b, err := os.ReadFile(table); err == nil {
			text = string(b)
		} else if !errors.Is(err, fs.ErrNotExist) { // a kernel without IPv6 has no such table
			t.Fatal(err)
		}
		addPorts(t, taken, text)
	}
	return taken
}

// addPorts reads a table of /proc/net: a heading, then a line for each socket, with its address and port in hexadecimal
// digits as the second field.
func addPorts(t testing.TB, taken map[uint16]bool, table string) {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(table), "\n")
	for _, line := range lines[1:] {
		fields := strings.Fields(line)
		if len(fields) < 2 {
			t.Fatalf("a socket without an address: %q", line)
		}
		port, err := strconv.ParseUint(fields[1][strings.LastIndexByte(fields[1], ':')+1:], 16, 16)
		if err != nil {
			t.Fatalf("socket %q: %v", line, err)
		}
		taken[uint16(port)] = true
	}
}
