package netns

import (
	"errors"
	"io/fs"
	"net"
	"strings"
	"testing"

	"vigia/internal/testutil"
)

func TestPath(t *testing.T) {
	for in, want := range map[string]string{
		"":              "/proc/thread-self/ns/net",
		"blue":          "/run/netns/blue",
		"/run/netns/x":  "/run/netns/x",
		"/a/../b/netns": "/b/netns",
	} {
		got, err := Path(in)
		if err != nil || got != want {
			t.Errorf("%q: got %q, %v; want %q", in, got, err, want)
		}
	}
	for _, in := range []string{"../x", "a/b", ".", ".."} {
		if _, err := Path(in); err == nil {
			t.Errorf("%q was accepted", in)
		}
	}
}

func TestTheEmptyNameIsWhereTheCallerIs(t *testing.T) {
	there, outside, inside := testutil.NewNetNS(t), inode(t, ""), uint64(0)
	if err := Do(there, func() error { inside = inode(t, ""); return nil }); err != nil {
		t.Fatal(err)
	}
	if inside != inode(t, there) || inside == outside {
		t.Errorf("the caller was in %d, and is told %d; outside is %d", inode(t, there), inside, outside)
	}
}

func TestDoMissing(t *testing.T) {
	err := Do("vigia-no-such-namespace", func() error { t.Error("ran"); return nil })
	if !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "vigia-no-such-namespace") {
		t.Errorf("got %v", err)
	}
}

func TestDoEntersAndReturns(t *testing.T) {
	ns := testutil.NewNetNS(t)
	before := readlink(t)
	var inside []string
	err := Do(ns, func() error {
		inside = interfaceNames(t)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(inside) != 1 || inside[0] != "lo" {
		t.Errorf("a fresh namespace has %v, want only lo", inside)
	}
	if after := readlink(t); after != before {
		t.Errorf("the caller was in %s and is in %s", before, after)
	}
}

func TestDoPassesErrorAndSocketStays(t *testing.T) {
	ns := testutil.NewNetNS(t)
	boom := errors.New("boom")
	if err := Do(ns, func() error { return boom }); !errors.Is(err, boom) {
		t.Errorf("got %v, want the function's error", err)
	}
	// Two sockets on one address can only coexist in different namespaces.
	address := testutil.FreePort(t, "udp", "127.0.0.1").String()
	listen := func() (net.PacketConn, error) { return net.ListenPacket("udp", address) }
	here, err := listen()
	if err != nil {
		t.Fatal(err)
	}
	defer here.Close()
	var there net.PacketConn
	if err := Do(ns, func() (err error) { there, err = listen(); return err }); err != nil {
		t.Fatalf("the socket was not opened in the other namespace: %v", err)
	}
	there.Close()
}

func TestInodeTellsNamespacesApart(t *testing.T) {
	a, b := testutil.NewNetNS(t), testutil.NewNetNS(t)
	if inode(t, a) == inode(t, b) || inode(t, "") == inode(t, a) {
		t.Error("inode numbers do not identify namespaces")
	}
}

func interfaceNames(t *testing.T) []string {
	t.Helper()
	ifs, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, i := range ifs {
		names = append(names, i.Name)
	}
	return names
}
