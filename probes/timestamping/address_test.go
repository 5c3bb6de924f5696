package timestamping

import (
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"
)

func TestPeerKeepsTheAddress(t *testing.T) {
	for _, s := range []string{"1.2.3.4:5", "255.0.255.0:65535", "[2001:db8::ff]:862", "[::1]:1"} {
		want := netip.MustParseAddrPort(s)
		p := NewPeer(want)
		if got := p.AddrPort(); got != want {
			t.Errorf("%s became %s", want, got)
		}
		size := uint32(unix.SizeofSockaddrInet4)
		if want.Addr().Is6() {
			size = unix.SizeofSockaddrInet6
		}
		if p.size != size {
			t.Errorf("%s: %d bytes, want %d", want, p.size, size)
		}
	}
	if a := (&Peer{}).AddrPort(); a.IsValid() {
		t.Errorf("an address of no family is %s", a)
	}
}

func TestSockaddrKeepsTheAddress(t *testing.T) {
	for _, s := range []string{"1.2.3.4:5", "[2001:db8::ff]:862"} {
		want := netip.MustParseAddrPort(s)
		if got := addrPort(sockaddr(want)); got != want {
			t.Errorf("%s became %s", want, got)
		}
	}
	if a := addrPort(&unix.SockaddrUnix{}); a.IsValid() {
		t.Errorf("a path is %s", a)
	}
}
