package fastloop

import (
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func write(t *testing.T, content string, mode os.FileMode) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(path, []byte(content), mode); err != nil {
		t.Fatal(err)
	}
	return path
}

const site = `version: 1
nodes:
  - {node: n1, address: "127.0.0.1:1"}
  - {node: n2, address: "127.0.0.1:2", tunnel: 10.0.0.2}
ports:
  - {node: n1, port: p1, tenant: red, mac: "02:00:00:00:00:01", ip: 192.168.0.1}
  - {node: n2, port: p2, tenant: red, mac: "02:00:00:00:00:02", ip: 192.168.0.2}
  - {node: n2, port: p3, tenant: blue, mac: "02:00:00:00:00:01", ip: 192.168.0.1}
`

func TestSiteFilesAreHeldToTheirRules(t *testing.T) {
	if s, err := LoadSite(write(t, site, 0o600)); err != nil || len(s.Nodes) != 2 || len(s.Ports) != 3 {
		t.Fatalf("%+v %v", s, err)
	}
	for change, want := range map[[2]string]string{
		{"version: 1", "version: 2"}:                 "version",
		{`"127.0.0.1:1"`, "nowhere"}:                 "nodes[0].address",
		{"node: n2, address", "node: n1, address"}:   "nodes[1].node",
		{"tunnel: 10.0.0.2", "tunnel: x"}:            "nodes[1].tunnel",
		{"tunnel: 10.0.0.2", "vlan: 4095"}:           "nodes[1].vlan: \"4095\": is not a VLAN; write a number from 1 to 4094",
		{"tunnel: 10.0.0.2", "vlan: -1"}:             "nodes[1].vlan",
		{`"02:00:00:00:00:02"`, "x"}:                 "ports[1].mac",
		{"ip: 192.168.0.2", "ip: x"}:                 "ports[1].ip",
		{"node: n2, port: p3", "node: n9, port: p3"}: "ports[2].node",
		{"ports:\n", "ports:\n  - {node: n1, port: p1, tenant: red, mac: \"02:00:00:00:00:01\", ip: 192.168.0.1}\n"}: "ports[1].port: \"p1\": lacks a tenant or an id, or is listed twice with one address",
		{"port: p1, tenant: red", "port: p1, tenent: red"}:                                                           "tenent",
	} {
		_, err := LoadSite(write(t, strings.Replace(site, change[0], change[1], 1), 0o600))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", change[1], err, want)
		}
	}
}

// TestAPortMayHaveMoreAddresses and a tenant several ports of one MAC address: in networks of its own that is its affair.
func TestAPortMayHaveMoreAddresses(t *testing.T) {
	for _, change := range [][2]string{
		{"tenant: blue", "tenant: red"},
		{"ports:\n", "ports:\n  - {node: n1, port: p1, tenant: red, mac: \"02:00:00:00:00:01\", ip: \"2001:db8::1\"}\n"},
		{", ip: 192.168.0.2", ""},
	} {
		if _, err := LoadSite(write(t, strings.Replace(site, change[0], change[1], 1), 0o600)); err != nil {
			t.Errorf("%q: %v", change[1], err)
		}
	}
}

// TestNodesWithoutAKeyAreLeftOut with what is on them.
func TestNodesWithoutAKeyAreLeftOut(t *testing.T) {
	line := func(node string) string { return "7 " + node + " " + strings.Repeat("ab", 32) + "\n" }
	three, err := LoadSite(write(t, strings.Replace(site, "ports:", "  - {node: n3, address: \"127.0.0.1:3\"}\nports:\n  - {node: n3, port: p9, tenant: red, mac: \"02:00:00:00:00:09\", ip: 192.168.0.9}", 1), 0o600))
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name, keys, strangers string
		nodes, ports          int
	}{
		{"both are known", line("n2") + line("n3"), "", 3, 4},
		{"one is", line("n2"), "n3", 2, 3},
		{"the other one is", line("n3"), "n2", 2, 2},
		{"none is", "", "n2 n3", 1, 1},
		{"another site's", line("n7"), "n2 n3", 1, 1},
	} {
		keys, err := LoadKeys(write(t, tc.keys, 0o600))
		if err != nil {
			t.Fatal(err)
		}
		strangers := three.Strangers(keys, "n1")
		within := three.Without(strangers)
		if strings.Join(strangers, " ") != tc.strangers || len(within.Nodes) != tc.nodes || len(within.Ports) != tc.ports {
			t.Errorf("%s: without %q, %+v", tc.name, strangers, within)
		}
		if err := within.Validate(); err != nil || !within.Lists("n1") || within.Lists("n9") {
			t.Errorf("%s: %v", tc.name, err)
		}
	}
	if len(three.Nodes) != 3 || len(three.Ports) != 4 || three.strangers != nil {
		t.Errorf("the site itself is %+v", three)
	}
}

// TestTunnelsOfNodesWithoutAKeyAreTheSites: what comes through them is decoded and classed, whoever may ask for limits.
func TestTunnelsOfNodesWithoutAKeyAreTheSites(t *testing.T) {
	site := wideSite()
	whole, fewer := newDirectoryOf(t, site), newDirectoryOf(t, site.Without([]string{"n2", "n3"}))
	sorted := func(d *directory) []netip.Addr {
		out := slices.Clone(d.others)
		slices.SortFunc(out, netip.Addr.Compare)
		return out
	}
	if !slices.Equal(sorted(whole), sorted(fewer)) || len(fewer.others) == 0 {
		t.Errorf("tunnels end at %v, with keys at %v", fewer.others, whole.others)
	}
	if fewer.tunnels[addressOf("10.0.0.2")] != nil || fewer.nodes["n2"] != nil {
		t.Error("a node without a key is known")
	}
}
