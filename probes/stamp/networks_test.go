package stamp

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

func network(name, address string) Network {
	return Network{Name: name, Address: netip.MustParseAddr(address)}
}

// asked returns the Networks TLV of a request.
func asked(t *testing.T, b []byte, mode Mode) TLV {
	t.Helper()
	tlvs := mode.TLVs(b)
	v, whole := tlvs.Next()
	if !whole || v.Type() != TypeNetworks || len(v) != NetworksSize || v.Flags() != Unrecognized {
		t.Fatalf("%x", v)
	}
	return v
}

// told makes a reply out of what a reflector would write into a request.
func told(t *testing.T, mode Mode, fill func(TLV)) []byte {
	t.Helper()
	b := NewNetworksRequest(mode, Request{Sequence: 7, SSID: 9})
	v := asked(t, b, mode)
	fill(v)
	v.SetFlags(0)
	return b
}

func TestNetworksComeBack(t *testing.T) {
	want := []Network{network("net1", "10.88.1.10"), network("storage.fast:12", "fd00:88::1:10"), network("_", "192.0.2.1")}
	for _, mode := range []Mode{Unauthenticated, Authenticated} {
		b := told(t, mode, func(v TLV) {
			if !PutNetworks(v, want) {
				t.Error("there is no room")
			}
		})
		if got, ok := NetworksOf(mode, b); !ok || !slices.Equal(got, want) {
			t.Errorf("mode %d: %v, %v", mode, got, ok)
		}
		if got, ok := NetworksOf(mode, told(t, mode, func(v TLV) { PutNetworks(v, nil) })); !ok || len(got) != 0 {
			t.Errorf("mode %d: %v, %v of a node in no other network", mode, got, ok)
		}
		if got, ok := NetworksOf(mode, NewNetworksRequest(mode, Request{})); ok {
			t.Errorf("mode %d: %v of a reflector that does not know the TLV", mode, got)
		}
	}
}

func TestMoreNetworksThanThereIsRoomFor(t *testing.T) {
	var all []Network
	for i := range MaxNetworks + 3 {
		all = append(all, network(fmt.Sprintf("net%d", i), fmt.Sprintf("10.1.%d.1", i)))
	}
	got, ok := NetworksOf(Unauthenticated, told(t, Unauthenticated, func(v TLV) { PutNetworks(v, all) }))
	if !ok || !slices.Equal(got, all[:MaxNetworks]) {
		t.Errorf("%v, %v", got, ok)
	}
}

// TestHostileNetworks are left out one by one, whoever tells them.
func TestHostileNetworks(t *testing.T) {
	good := network("net1", "10.88.1.10")
	for what, bad := range map[string]Network{
		"no name":              network("", "10.1.1.1"),
		"a name too long":      network(strings.Repeat("n", 16), "10.1.1.1"),
		"a name with a quote":  network(`n"`, "10.1.1.1"),
		"a name with a line":   network("n\nx", "10.1.1.1"),
		"a name with a hyphen": network("-n", "10.1.1.1"),
		"everybody":            network("n", "255.255.255.255"),
		"a group":              network("n", "224.0.0.1"),
		"a group of IPv6":      network("n", "ff02::1"),
		"oneself":              network("n", "127.0.0.1"),
		"oneself of IPv6":      network("n", "::1"),
		"nobody":               network("n", "0.0.0.0"),
		"link-local":           network("n", "169.254.169.254"),
		"link-local of IPv6":   network("n", "fe80::1"),
		"a mapped address":     network("n", "::ffff:10.1.1.1"),
		"an address and zone":  network("n", "fd00::1%eth0"),
		"no address":           {Name: "n"},
	} {
		if bad.Valid() {
			t.Errorf("%s is valid", what)
		}
		b := told(t, Unauthenticated, func(v TLV) { PutNetworks(v, []Network{bad, good}) })
		if got, ok := NetworksOf(Unauthenticated, b); !ok || !slices.Equal(got, []Network{good}) {
			t.Errorf("%s: %v, %v", what, got, ok)
		}
		// A reflector that does not check what it writes.
		b = told(t, Unauthenticated, func(v TLV) {
			copy(v.Value()[:networkNameSize], bad.Name)
			address := netip.IPv6Unspecified().As16()
			if bad.Address.IsValid() {
				address = bad.Address.WithZone("").As16()
			}
			copy(v.Value()[networkNameSize:], address[:])
		})
		got, ok := NetworksOf(Unauthenticated, b)
		// An address has no zone and no mapping there any more.
		if clean := strings.HasPrefix(what, "a mapped") || strings.HasSuffix(what, "zone"); !ok || len(got) > 0 != clean {
			t.Errorf("%s, as it is: %v, %v", what, got, ok)
		}
	}
}

func TestNetworksThatClashAreToldOnce(t *testing.T) {
	first := network("net1", "10.88.1.10")
	b := told(t, Unauthenticated, func(v TLV) {
		PutNetworks(v, []Network{first, network("net1", "10.88.1.11"), network("net2", "10.88.1.10"), network("net3", "10.88.1.12")})
	})
	if got, _ := NetworksOf(Unauthenticated, b); !slices.Equal(got, []Network{first, network("net3", "10.88.1.12")}) {
		t.Errorf("%v", got)
	}
}

func TestNetworksOfAnotherLength(t *testing.T) {
	for _, size := range []int{0, 4, networksValueSize - 1, networksValueSize + 1} {
		v := TLV(make([]byte, TLVHeaderSize+size))
		putHeader(v, TypeNetworks, size)
		if got, ok := ParseNetworks(v); ok {
			t.Errorf("%d bytes: %v", size, got)
		}
		if PutNetworks(v, []Network{network("n", "10.1.1.1")}) {
			t.Errorf("%d bytes were written", size)
		}
	}
	b := told(t, Unauthenticated, func(v TLV) { PutNetworks(v, []Network{network("n", "10.1.1.1")}) })
	for cut := range len(b) {
		if got, ok := NetworksOf(Unauthenticated, b[:cut]); ok {
			t.Errorf("%d of %d bytes: %v", cut, len(b), got)
		}
	}
	// A name goes on behind a zero.
	copy(b[BaseSize+TLVHeaderSize:], "n\x00x")
	if got, ok := NetworksOf(Unauthenticated, b); !ok || len(got) != 0 {
		t.Errorf("%v, %v", got, ok)
	}
}

// FuzzNetworksOf reads whatever comes: at most so many networks, all of them valid and none twice.
func FuzzNetworksOf(f *testing.F) {
	b := NewNetworksRequest(Unauthenticated, Request{})
	PutNetworks(TLV(b[BaseSize:]), []Network{network("net1", "10.88.1.10"), network("net2", "fd00::1")})
	TLV(b[BaseSize:]).SetFlags(0)
	f.Add(b, false)
	f.Add(NewNetworksRequest(Authenticated, Request{}), true)
	f.Fuzz(func(t *testing.T, b []byte, authenticated bool) {
		mode := Unauthenticated
		if authenticated {
			mode = Authenticated
		}
		networks, _ := NetworksOf(mode, b)
		if len(networks) > MaxNetworks {
			t.Fatalf("%d networks", len(networks))
		}
		for i, n := range networks {
			if !n.Valid() || clashes(networks[:i], n) {
				t.Fatalf("%v", networks)
			}
		}
	})
}
