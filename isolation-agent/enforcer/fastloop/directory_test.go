package fastloop

import (
	"math/rand/v2"
	"net"
	"slices"
	"testing"

	"vigia/internal/bpf/classify"
	"vigia/isolation-agent/enforcer/fastloop/control"
	"vigia/isolation-agent/enforcer/notice"
)

// newDirectoryOf is n1's directory of a site.
func newDirectoryOf(t *testing.T, s *Site, keys ...MasterKey) *directory {
	t.Helper()
	if err := s.Validate(); err != nil {
		t.Fatal(err)
	}
	if keys == nil {
		keys = []MasterKey{master(masterA)}
	}
	d, err := newDirectory("n1", s, issued(t, s, keys...))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func wideSite() *Site {
	return &Site{
		Version: 1,
		Nodes: []SiteNode{
			{Node: "n1", Address: "127.0.0.1:1", Tunnel: "10.0.0.1"},
			{Node: "n2", Address: "127.0.0.1:2", Tunnel: "10.0.0.2"},
			{Node: "n3", Address: "192.0.2.3:3", Tunnel: "2001:db8::3"},
			{Node: "n4", Address: "192.0.2.4:4"},
		},
		Ports: []SitePort{
			{Node: "n1", Port: "p1", Tenant: "red", MAC: "02:00:00:00:00:01", IP: "192.168.0.1"},
			{Node: "n2", Port: "p2", Tenant: "red", MAC: "02:00:00:00:00:02", IP: "192.168.0.2"},
			{Node: "n4", Port: "p4", Tenant: "red", MAC: "02:00:00:00:00:04", IP: "2001:db8::4"},
			{Node: "n2", Port: "q1", Tenant: "blue", MAC: "02:00:00:00:00:01", IP: "192.168.0.1"},
		},
	}
}

func TestGuestsAreTheirTenantsAlthoughAddressesRepeat(t *testing.T) {
	d := newDirectoryOf(t, wideSite())
	mac := control.MAC{2, 0, 0, 0, 0, 1}
	if g := d.of("red").guests[mac]; g == nil || g.Port != "p1" || g.Node != "n1" {
		t.Errorf("red's: %+v", g)
	}
	if g := d.of("blue").guests[mac]; g == nil || g.Port != "q1" || g.Node != "n2" {
		t.Errorf("blue's: %+v", g)
	}
	for tenant, mac := range map[string]control.MAC{"green": mac, "red": {9}, "": mac} {
		if g := d.of(tenant).guests[mac]; g != nil {
			t.Errorf("%s at %s: %+v", tenant, mac, g)
		}
	}
	if len(d.of("red").guests) != 3 || len(d.of("blue").guests) != 1 || d.ofID(notice.ID("red")) != d.of("red") || d.ofID(notice.ID("green")) != nobody {
		t.Errorf("tenants %v", d.tenants)
	}
}

// TestAMACAddressOfSeveralPorts tells none of them, wherever they are; one of a port with several addresses does.
func TestAMACAddressOfSeveralPorts(t *testing.T) {
	port := func(node, id, mac, ip string) SitePort {
		return SitePort{Node: node, Port: id, Tenant: "red", MAC: "02:00:00:00:00:0" + mac, IP: ip}
	}
	site := wideSite()
	site.Ports = []SitePort{
		port("n1", "p1", "1", "192.168.0.1"), port("n1", "p1", "1", "2001:db8::1"), port("n1", "p2", "2", "192.168.0.2"),
		port("n2", "p3", "2", "192.168.1.2"), port("n2", "p4", "2", "192.168.2.2"), port("n2", "p4", "2", "2001:db8::4"), port("n2", "p1", "4", "192.168.0.9"),
		port("n4", "p5", "5", ""),
	}
	red := newDirectoryOf(t, site).of("red")
	if g := red.guests[control.MAC{2, 0, 0, 0, 0, 1}]; g == nil || g.Port != "p1" {
		t.Errorf("of two addresses: %+v", g)
	}
	if g := red.guests[control.MAC{2, 0, 0, 0, 0, 2}]; g != nil {
		t.Errorf("of three ports: %+v", g)
	}
	if len(red.nodes["n1"]) != 2 || len(red.nodes["n2"]) != 3 {
		t.Errorf("on nodes: %v", red.nodes)
	}
	if !red.hosts("n4") || len(red.nodes["n4"]) != 1 || red.at("n4", control.Address{}) || red.guests[control.MAC{2, 0, 0, 0, 0, 5}] == nil {
		t.Errorf("a port without an address: %v", red.nodes["n4"])
	}
	for node, ip := range map[string]string{"n1": "2001:db8::1", "n2": "192.168.2.2"} {
		if !red.at(node, addressOf(ip)) {
			t.Errorf("nobody is at %s on %s", ip, node)
		}
	}
}

func TestWhereATenantsGuestsAre(t *testing.T) {
	d := newDirectoryOf(t, wideSite())
	folded := addressOf("2001:db8::4")
	for _, tc := range []struct {
		node, tenant string
		addr         control.Address
		at, hosts    bool
	}{
		{"n1", "red", control.Address{192, 168, 0, 1}, true, true},
		{"n2", "red", control.Address{192, 168, 0, 2}, true, true},
		{"n2", "red", control.Address{192, 168, 0, 1}, false, true}, // blue's there, red's elsewhere
		{"n2", "blue", control.Address{192, 168, 0, 1}, true, true},
		{"n1", "blue", control.Address{192, 168, 0, 1}, false, false},
		{"n4", "red", folded, true, true},
		{"n3", "red", folded, false, false},
		{"n2", "green", control.Address{192, 168, 0, 2}, false, false},
		{"n2", "red", control.AllDestinations, false, true},
	} {
		if got := d.of(tc.tenant).at(tc.node, tc.addr); got != tc.at {
			t.Errorf("%s of %s on %s: %v", tc.addr, tc.tenant, tc.node, got)
		}
		if got := d.of(tc.tenant).hosts(tc.node); got != tc.hosts {
			t.Errorf("%s hosts %s: %v", tc.node, tc.tenant, got)
		}
	}
}

// TestASourceIsWhatItCannotChoose: whatever a tenant writes into its frames, they are its own
// node's, and its tenant's.
func TestASourceIsWhatItCannotChoose(t *testing.T) {
	d := newDirectoryOf(t, wideSite())
	p1, p2, p4 := classify.MACAddress{2, 0, 0, 0, 0, 1}, classify.MACAddress{2, 0, 0, 0, 0, 2}, classify.MACAddress{2, 0, 0, 0, 0, 4}
	here := classify.Address{192, 168, 0, 1}
	n2 := [4]byte{10, 0, 0, 2}
	for name, tc := range map[string]struct {
		source  classify.Source
		want    control.Source
		origins []string
	}{
		"a port and its destination": {
			classify.Source{Host: n2, From: p2, Destination: here},
			control.Source{Host: n2, From: control.MAC(p2), Destination: control.Address(here)},
			[]string{"n2"},
		},
		"a destination that is not listed here": {
			classify.Source{Host: n2, From: p2, Destination: classify.Address{192, 168, 0, 2}},
			control.Source{Host: n2, From: control.MAC(p2)},
			[]string{"n2"},
		},
		"a link-local destination": {
			classify.Source{Host: n2, From: p2, Destination: classify.AddressOf(net.ParseIP("fe80::1234"))},
			control.Source{Host: n2, From: control.MAC(p2)},
			[]string{"n2"},
		},
		"a made-up MAC address":             {classify.Source{Host: n2, From: classify.MACAddress{6, 6, 6}, Destination: here}, control.Source{Host: n2}, []string{"n2"}},
		"the MAC address of another node's": {classify.Source{Host: n2, From: p4, Destination: here}, control.Source{Host: n2}, []string{"n2"}},
		"the MAC address of a port here":    {classify.Source{Host: n2, From: p1, Destination: here}, control.Source{Host: n2}, []string{"n2"}},
		"without a tunnel": {
			classify.Source{From: p4, Destination: here}, control.Source{From: control.MAC(p4), Destination: control.Address(here)}, []string{"n4"},
		},
		"without a tunnel, made up":        {classify.Source{From: classify.MACAddress{6, 6, 6}, Destination: here}, control.Source{}, []string{"n2", "n4"}},
		"without a tunnel, of a port here": {classify.Source{From: p1, Destination: here}, control.Source{From: control.MAC(p1), Destination: control.Address(here)}, nil},
		"an unknown tunnel":                {classify.Source{Host: [4]byte{10, 0, 0, 9}, From: p2, Destination: here}, control.Source{Host: control.Address{10, 0, 0, 9}}, nil},
		"by the tunnel of a second switch": {
			classify.Source{Host: [4]byte{192, 0, 2, 3}, From: p2, Destination: here}, control.Source{Host: control.Address{192, 0, 2, 3}}, []string{"n3"},
		},
		"by an IPv6 tunnel, which hosts none": {
			classify.Source{Host: [4]byte(addressOf("2001:db8::3")), From: p2, Destination: here}, control.Source{Host: addressOf("2001:db8::3")}, []string{"n3"},
		},
	} {
		red := d.of("red")
		tc.source.Link, tc.source.Class, tc.want.Link, tc.want.Class = 7, 1, 7, 1
		got := d.attribute(red, &tc.source)
		if got != tc.want {
			t.Errorf("%s: %+v, want %+v", name, got, tc.want)
		}
		var origins []string
		for _, n := range d.origins(red, &got) {
			origins = append(origins, n.name)
		}
		if !slices.Equal(origins, tc.origins) {
			t.Errorf("%s: on %v, want %v", name, origins, tc.origins)
		}
	}
}

// TestAMillionMadeUpSourcesAreOne counts what is told apart of a million random pairs of MAC
// address and destination.
func TestAMillionMadeUpSourcesAreOne(t *testing.T) {
	d := newDirectoryOf(t, wideSite())
	red, random := d.of("red"), rand.New(rand.NewPCG(5, 6))
	told := map[control.Source]int{}
	source := classify.Source{Link: 7, Class: 1, Host: [4]byte{10, 0, 0, 2}}
	for range 1_000_000 {
		a, b := random.Uint64(), random.Uint32()
		source.From = classify.MACAddress{byte(a), byte(a >> 8), byte(a >> 16), byte(a >> 24), byte(a >> 32), byte(a >> 40)}
		source.Destination = classify.Address{byte(b), byte(b >> 8), byte(b >> 16), byte(b >> 24)}
		told[d.attribute(red, &source)]++
	}
	if len(told) != 1 || told[control.Source{Link: 7, Class: 1, Host: control.Address{10, 0, 0, 2}}] != 1_000_000 {
		t.Errorf("%d are told apart", len(told))
	}
	if got := testing.AllocsPerRun(100, func() { d.attribute(red, &source) }); got > 0 {
		t.Errorf("%v allocations for each", got)
	}
}

func TestEveryPairOfNodesHasItsKeys(t *testing.T) {
	d := newDirectoryOf(t, wideSite(), master(masterA), master(masterB))
	if d.sendKey != master(masterA).ID {
		t.Errorf("sends by key %d", d.sendKey)
	}
	seen := map[string]bool{}
	for _, name := range []string{"n2", "n3", "n4"} {
		for _, k := range []MasterKey{master(masterA), master(masterB)} {
			key := string(d.key(notice.ID(name), k.ID))
			if len(key) != notice.MinKey || seen[key] {
				t.Errorf("%s: key %d is %x", name, k.ID, key)
			}
			seen[key] = true
		}
	}
	if d.key(notice.ID("n9"), master(masterA).ID) != nil || d.key(notice.ID("n2"), 1) != nil || d.key(notice.ID("n1"), master(masterA).ID) != nil {
		t.Error("an unknown node, an unknown number, or the node itself has a key")
	}
}

func TestWhatIsNotValidMakesNoDirectory(t *testing.T) {
	for name, change := range map[string]func(*Site){
		"an address": func(s *Site) { s.Nodes[0].Address = "nowhere" },
		"a MAC":      func(s *Site) { s.Ports[0].MAC = "x" },
	} {
		s := wideSite()
		change(s)
		if _, err := newDirectory("n1", s, issued(t, s, master(masterA))); err == nil {
			t.Errorf("%s was taken", name)
		}
	}
}

// TestTheUnderlaysVLANIsThisNodes: another node's uplinks may carry tunnels in another one.
func TestTheUnderlaysVLANIsThisNodes(t *testing.T) {
	s := &Site{Version: 1, Nodes: []SiteNode{
		{Node: "n1", Address: "127.0.0.1:1", Tunnel: "10.0.0.1", VLAN: 7},
		{Node: "n2", Address: "127.0.0.1:2", Tunnel: "10.0.0.2", VLAN: 8},
		{Node: "n3", Address: "127.0.0.1:3", Tunnel: "10.0.0.3"},
	}}
	if err := s.Validate(); err != nil {
		t.Fatal(err)
	}
	for node, want := range map[string]uint16{"n1": 7, "n2": 8, "n3": 0} {
		d, err := newDirectory(node, s, issuedTo(t, node, s, master(masterA)))
		if err != nil {
			t.Fatal(err)
		}
		if d.vlan != want || len(d.own) != 2 || len(d.others) != 4 {
			t.Errorf("%s: VLAN %d, end points %v and %v of others, want VLAN %d", node, d.vlan, d.own, d.others, want)
		}
	}
}
