package fastloop

import (
	"testing"

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
	d, err := newDirectory("n1", s, keys)
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
			{Node: "n3", Address: "[::1]:3", Tunnel: "2001:db8::3"},
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
	if g := d.guest("red", mac); g == nil || g.Port != "p1" || g.Node != "n1" {
		t.Errorf("red's: %+v", g)
	}
	if g := d.guest("blue", mac); g == nil || g.Port != "q1" || g.Node != "n2" {
		t.Errorf("blue's: %+v", g)
	}
	for tenant, mac := range map[string]control.MAC{"green": mac, "red": {9}, "": mac} {
		if g := d.guest(tenant, mac); g != nil {
			t.Errorf("%s at %s: %+v", tenant, mac, g)
		}
	}
	if d.ports["red"] != 3 || d.ports["blue"] != 1 || d.tenants[notice.ID("red")] != "red" || d.tenants[notice.ID("green")] != "" {
		t.Errorf("tenants %v with %v ports", d.tenants, d.ports)
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
		if got := d.at(tc.node, tc.tenant, tc.addr); got != tc.at {
			t.Errorf("%s of %s on %s: %v", tc.addr, tc.tenant, tc.node, got)
		}
		if got := d.hosts(tc.node, tc.tenant); got != tc.hosts {
			t.Errorf("%s hosts %s: %v", tc.node, tc.tenant, got)
		}
	}
}

func TestTheOriginIsTheTunnelsNodeOrTheGuests(t *testing.T) {
	d := newDirectoryOf(t, wideSite())
	for name, tc := range map[string]struct {
		source control.Source
		want   string
	}{
		"by its tunnel":               {control.Source{Host: control.Address{10, 0, 0, 2}, From: control.MAC{2, 0, 0, 0, 0, 1}}, "n2"},
		"by an IPv6 tunnel":           {control.Source{Host: addressOf("2001:db8::3")}, "n3"},
		"by its own address":          {control.Source{Host: addressOf("192.0.2.4")}, "n4"},
		"an unknown tunnel":           {control.Source{Host: control.Address{10, 0, 0, 9}, From: control.MAC{2, 0, 0, 0, 0, 1}}, ""},
		"by its guest":                {control.Source{From: control.MAC{2, 0, 0, 0, 0, 4}}, "n4"},
		"a guest that nobody knows":   {control.Source{From: control.MAC{9}}, ""},
		"the guest of another tenant": {control.Source{From: control.MAC{2, 0, 0, 0, 0, 1}}, "n1"},
	} {
		got := ""
		if n := d.origin("red", &tc.source); n != nil {
			got = n.name
		}
		if got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}

func TestEveryPairOfNodesHasItsKeys(t *testing.T) {
	d := newDirectoryOf(t, wideSite(), master(masterA), master(masterB))
	if d.sendKey != master(masterA).ID {
		t.Errorf("sends by key %d", d.sendKey)
	}
	seen := map[string]bool{}
	for _, name := range []string{"n1", "n2", "n3", "n4"} {
		for _, k := range []MasterKey{master(masterA), master(masterB)} {
			key := string(d.key(notice.ID(name), k.ID))
			if len(key) != notice.MinKey || seen[key] {
				t.Errorf("%s: key %d is %x", name, k.ID, key)
			}
			seen[key] = true
		}
	}
	if d.key(notice.ID("n9"), master(masterA).ID) != nil || d.key(notice.ID("n2"), 1) != nil {
		t.Error("an unknown node, or an unknown number, has a key")
	}
}

func TestWhatIsNotValidMakesNoDirectory(t *testing.T) {
	for name, change := range map[string]func(*Site){
		"an address": func(s *Site) { s.Nodes[0].Address = "nowhere" },
		"a MAC":      func(s *Site) { s.Ports[0].MAC = "x" },
	} {
		s := wideSite()
		change(s)
		if _, err := newDirectory("n1", s, []MasterKey{master(masterA)}); err == nil {
			t.Errorf("%s was taken", name)
		}
	}
}
