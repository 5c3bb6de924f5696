package testutil

import (
	"math/rand/v2"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"testing"
)

// firstPort and ports are those that no kernel gives out by itself (from 32 768 on, by default), so that
// only another test that chose the same by chance stands in the way.
const (
	firstPort = 10_000
	ports     = 22_000
)

// FreePort returns an address of the host that nobody has now, for tcp or udp.
func FreePort(t testing.TB, network, host string) netip.AddrPort {
	t.Helper()
	var err error
	for range 100 {
		address := net.JoinHostPort(host, strconv.Itoa(firstPort+rand.IntN(ports)))
		if err = tryBind(network, address); err == nil {
			return netip.MustParseAddrPort(address)
		}
	}
	t.Fatalf("no port of %s is free: %v", host, err)
	return netip.AddrPort{}
}

func tryBind(network, address string) error {
	if strings.HasPrefix(network, "udp") {
		c, err := net.ListenPacket(network, address)
		if err != nil {
			return err
		}
		return c.Close()
	}
	l, err := net.Listen(network, address)
	if err != nil {
		return err
	}
	return l.Close()
}

// FreeAddress returns a TCP address of the loopback that nobody has now.
func FreeAddress(t testing.TB) string {
	t.Helper()
	return FreePort(t, "tcp", "127.0.0.1").String()
}
