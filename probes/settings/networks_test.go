package settings

import (
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"vigia/probes/discovery"
	"vigia/probes/networks"
	"vigia/probes/sender"
	"vigia/probes/sockets"
	"vigia/probes/stamp"
)

const furtherNetworks = `node: a
reflector:
  listeners: [{netns: tenant, address: "10.9.0.1:862"}, {address: "10.244.1.7:8620"}]
  allow: [10.0.0.0/8]
paths:
  - {name: pods, dataplane: auto, encap: auto, mode: normal, security: none, layer: overlay, placement: remote}
  - {name: host, dataplane: none, encap: none, mode: normal, security: none, layer: underlay, placement: remote}
  - {name: net, dataplane: auto, encap: none, mode: normal, security: none, layer: overlay, placement: remote, further: true}
  - {name: net-taken, dataplane: none, encap: none, mode: normal, security: none, layer: overlay, placement: remote}
classes:
  - {name: stamp-64, protocol: stamp, size: 64, interval: 1s}
  - {name: icmp, protocol: icmp, size: 56, interval: 1s}
discovery:
  - files: [/nodes.json]
    targets:
      - {path: pods, tenant: _infra, probe: stamp-64, port: 8620, twin: host}
      - {path: host, tenant: _infra, probe: stamp-64, at: host}
      - {path: host, tenant: _infra, probe: icmp, at: host}
      - {path: net, tenant: _infra, probe: icmp, twin: host}
      - {path: net, tenant: _infra, probe: stamp-64, port: 8620, twin: host}
`

func own(name, kind, address string) networks.Network {
	return networks.Network{Name: name, Kind: kind, Address: netip.MustParseAddr(address)}
}

func parseText(t *testing.T, text string) *Settings {
	t.Helper()
	s, err := Parse("f.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// places tells where nodes are.
type places map[[2]string]string

func (p places) Address(node, network string) (netip.Addr, bool) {
	text, ok := p[[2]string{node, network}]
	if !ok {
		return netip.Addr{}, false
	}
	return netip.MustParseAddr(text), true
}

func byPath(targets []sender.Target, dst, path, probe string) *sender.Target {
	i := slices.IndexFunc(targets, func(t sender.Target) bool {
		return t.Labels.Dst == dst && t.Labels.Path == path && t.Labels.Probe == probe
	})
	if i < 0 {
		return nil
	}
	return &targets[i]
}

// TestFurtherNetworks are paths of their own: to the nodes that are in them, from our own address and interface
// there, each at the same moment as the twin.
func TestFurtherNetworks(t *testing.T) {
	s := parseText(t, furtherNetworks)
	st := discovery.State{
		Peers:    []discovery.Peer{{Name: "a", Host: "10.244.1.7"}, {Name: "b", Host: "10.244.2.5", Others: "host=10.77.0.2\n"}, {Name: "c", Host: "10.244.3.5", Others: "host=10.77.0.3\n"}},
		Vanished: []discovery.Peer{{Name: "d", Host: "10.244.4.5"}},
	}
	at := places{{"b", "net1"}: "10.88.2.10", {"b", "net2"}: "fd00:88::2", {"c", "net1"}: "10.88.3.10", {"d", "net1"}: "10.88.4.10"}
	here := []networks.Network{own("net1", "macvlan", "10.88.1.10"), own("net2", "sriov", "fd00:88::1"), own("taken", "vlan", "10.99.1.1")}
	site := s.SitesIn(here)[0]
	site.Places = at
	share := site.Share("a", st)
	for want, got := range map[string]*sender.Target{
		"10.88.2.10 from 10.88.1.10:0 by net1":     byPath(share.Targets, "b", "net-net1", "stamp-64"),
		"fd00:88::2 from [fd00:88::1]:0 by net2":   byPath(share.Targets, "b", "net-net2", "stamp-64"),
		"10.88.3.10 from 10.88.1.10:0 by net1":     byPath(share.Targets, "c", "net-net1", "stamp-64"),
		"10.88.4.10 from 10.88.1.10:0 by net1":     byPath(share.Targets, "d", "net-net1", "stamp-64"),
		"10.88.2.10 from 10.88.1.10:0 by net1, ec": byPath(share.Targets, "b", "net-net1", "icmp"),
	} {
		echo := strings.HasSuffix(want, ", ec")
		if got == nil {
			t.Errorf("%s is missing of %s", want, summary(share.Targets))
			continue
		}
		if is := got.Host + " from " + got.Source.String() + " by " + got.Channel.Device; is != strings.TrimSuffix(want, ", ec") {
			t.Errorf("%s, want %s", is, want)
		}
		twin := sender.Labels{Src: "a", Dst: got.Labels.Dst, Path: "host", Tenant: "_infra", Probe: got.Labels.Probe}
		if got.Twin.Group != twin || (got.Port == 8620) == echo || got.Paused != (got.Labels.Dst == "d") {
			t.Errorf("%s: %+v", want, got)
		}
	}
	// Base, pods, and two networks; the network that is called as a path is not probed.
	if base := byPath(share.Targets, "b", "host", "stamp-64"); base == nil || base.Twin.Size != 4 || base.Twin.Rank != 0 {
		t.Errorf("%+v", base)
	}
	if byPath(share.Targets, "c", "net-net2", "stamp-64") != nil || byPath(share.Targets, "b", "net-taken", "stamp-64") != nil {
		t.Errorf("too much is probed: %s", summary(share.Targets))
	}
	slices.SortFunc(share.Asked, func(a, b networks.Peer) int { return strings.Compare(a.Node, b.Node) })
	want := []networks.Peer{{Node: "b", Host: "10.244.2.5", Port: 8620}, {Node: "c", Host: "10.244.3.5", Port: 8620}, {Node: "d", Host: "10.244.4.5", Port: 8620, Paused: true}}
	if !slices.Equal(share.Asked, want) {
		t.Errorf("asked are %+v", share.Asked)
	}
	// Nodes are asked, too, before we have found ours, and nothing is probed there.
	share = s.SitesIn(nil)[0].Share("a", st)
	if len(share.Asked) != 3 || strings.Contains(summary(share.Targets), "/net") {
		t.Errorf("%+v, %s", share.Asked, summary(share.Targets))
	}
	site.Places = nil
	if got := summary(site.Share("a", st).Targets); strings.Contains(got, "/net") {
		t.Errorf("while nobody knows anything: %s", got)
	}
}

// TestFurtherPathsAreDescribed by what their interfaces are.
func TestFurtherPathsAreDescribed(t *testing.T) {
	s := parseText(t, furtherNetworks)
	here := []networks.Network{own("net1", "macvlan", "10.88.1.10"), own("taken", "vlan", "10.99.1.1"), own("vf0", "sriov", "10.89.1.10")}
	got := make(map[string]string)
	for _, p := range PathsIn(s.Paths, here) {
		got[p.Name] = p.Dataplane
		if p.Further || p.Name != "pods" && p.Encap != "none" {
			t.Errorf("%+v", p)
		}
	}
	want := map[string]string{"pods": "auto", "host": "none", "net-net1": "macvlan", "net-vf0": "sriov", "net-taken": "none"}
	if len(got) != len(want) {
		t.Errorf("%v", got)
	}
	for name, dataplane := range want {
		if got[name] != dataplane {
			t.Errorf("%s is %q, want %q", name, got[name], dataplane)
		}
	}
	if s = parseText(t, strings.Replace(furtherNetworks, "net, dataplane: auto", "net, dataplane: fabric", 1)); PathsIn(s.Paths, here)[2].Dataplane != "fabric" {
		t.Error("what is written is not what is said")
	}
}

// TestFurtherNetworksAreAnswered on the port and with the keys of the address that the node is known by.
func TestFurtherNetworksAreAnswered(t *testing.T) {
	key := filepath.Join(t.TempDir(), "stamp.key")
	if err := os.WriteFile(key, []byte(strings.Repeat("7", 64)+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	text := strings.Replace(furtherNetworks, `"10.244.1.7:8620"}`, `"10.244.1.7:8620", key_file: `+key+`}, {address: "10.88.9.1:8620"}`, 1)
	s := parseText(t, text)
	if s.Known() != netip.MustParseAddr("10.244.1.7") {
		t.Errorf("known by %v", s.Known())
	}
	c := s.ReflectorIn([]networks.Network{own("net1", "macvlan", "10.88.1.10"), own("net2", "macvlan", "10.88.9.1")})
	at := func(address string) sockets.Key { return sockets.Key{Local: netip.MustParseAddrPort(address)} }
	if len(c.Listeners) != 4 || c.Listeners[3] != at("10.88.1.10:8620") {
		t.Errorf("%v", c.Listeners)
	}
	if c.Keys[at("10.88.1.10:8620")] == "" || c.Keys[at("10.244.1.7:8620")] == "" || c.Keys[at("10.88.9.1:8620")] != "" {
		t.Errorf("keys of %v", c.Keys)
	}
	if len(c.Networks) != 2 || c.Networks[0] != (stamp.Network{Name: "net1", Address: netip.MustParseAddr("10.88.1.10")}) {
		t.Errorf("%v", c.Networks)
	}
	if len(s.Reflector.Listeners) != 3 || len(s.Reflector.Keys) != 1 || s.Reflector.Networks != nil {
		t.Errorf("what is configured has changed: %+v", s.Reflector)
	}
	if c = s.ReflectorIn(nil); len(c.Listeners) != 3 || c.Networks != nil {
		t.Errorf("%+v", c)
	}
	if off := parseText(t, good); off.Known().IsValid() {
		t.Errorf("without such a path networks are looked for beside %v", off.Known())
	}
}

// TestWhoIsAskedHow: with the key and the port of the template with STAMP, else at our own port.
func TestWhoIsAskedHow(t *testing.T) {
	key := filepath.Join(t.TempDir(), "stamp.key")
	if err := os.WriteFile(key, []byte(strings.Repeat("7", 64)+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	st := discovery.State{Peers: []discovery.Peer{{Name: "b", Host: "10.244.2.5"}}}
	for _, tc := range []struct {
		old, new string
		port     uint16
		keyed    bool
	}{
		{"stamp-64, port: 8620, twin: host}\n", "stamp-64, port: 8620, twin: host}\n", 8620, false},
		{"{path: net, tenant: _infra, probe: stamp-64, port: 8620, twin: host}", "{path: net, tenant: _infra, probe: stamp-64, twin: host}", 862, false},
		{"      - {path: net, tenant: _infra, probe: stamp-64, port: 8620, twin: host}\n", "", 8620, false},
		{"size: 64, interval: 1s}", "size: 152, interval: 1s}", 862, true},
	} {
		text := strings.Replace(furtherNetworks, tc.old, tc.new, 1)
		if tc.keyed {
			text = strings.Replace(text, "{path: net, tenant: _infra, probe: stamp-64, port: 8620,", "{path: net, tenant: _infra, probe: stamp-64, key_file: "+key+",", 1)
		}
		asked := parseText(t, text).Sites[0].Share("a", st).Asked
		if len(asked) != 1 || asked[0].Port != tc.port || asked[0].Keys != "" != tc.keyed {
			t.Errorf("%q: %+v", tc.new, asked)
		}
	}
}

func TestFurtherMistakes(t *testing.T) {
	const template = "{path: net, tenant: _infra, probe: stamp-64, port: 8620, twin: host}"
	for _, tc := range []struct{ old, new, want string }{
		{"net, dataplane: auto, encap: none", "net, dataplane: auto, encap: auto", `f.yaml:8: paths[2].encap: "auto": cannot be found out of further networks; write what they are carried in, or unknown`},
		{"further: true", "further: true, found_by: [/x.json]", "paths[2].found_by: cannot tell what a further network is made of; remove it"},
		{"{name: net,", "{name: " + strings.Repeat("n", 113) + ",", "leaves no room for the networks' names; write at most 112 characters"},
		{`{address: "10.244.1.7:8620"}`, `{address: "0.0.0.0:8620"}`, `paths[2].further: "true": says nothing without an address that the node is known by; add reflector.listeners`},
		{`{address: "10.244.1.7:8620"}`, `{address: "127.0.0.1:8620"}`, "says nothing without an address"},
		{template, "{path: net, tenant: _infra, probe: stamp-64, at: x}", `discovery[0].targets[4].at: "x": is found out of further networks; remove it`},
		{template, "{path: net, tenant: _infra, probe: stamp-64, netns: x}", `targets[4].netns: "x": is found out`},
		{template, "{path: net, tenant: _infra, probe: stamp-64, device: eth1}", `targets[4].device: "eth1": is found out`},
		{template, "{path: net, tenant: _infra, probe: stamp-64, source: 10.1.1.1}", `targets[4].source: "10.1.1.1": is found out`},
		{"at: host}\n      - {path: net", "at: host, twin: net}\n      - {path: net", `targets[2].twin: "net": stands for further networks, which are several; name the path`},
		{"discovery:", "targets: [{dst: b, path: net, tenant: t, probe: stamp-64, address: \"10.1.1.1:862\"}]\ndiscovery:", `targets[0].path: "net": stands for further networks, and where others are in them only discovered nodes tell; move the target to discovery`},
		{"files: [/nodes.json]", "files: [/nodes.json]\n    own: true", `targets[3].path: "net": stands for further networks, and our own node is not probed in them`},
		{"discovery:", "bulk: {hourly_bytes: 1000000000, classes: [{name: tcp, protocol: tcp, duration: 2s}], targets: [{dst: b, path: net, tenant: t, probe: tcp, address: \"10.1.1.1:9876\"}]}\ndiscovery:", `bulk.targets[0].path: "net": stands for further networks, in which there are no bulk tests; name another path`},
		{"stamp, size: 64,", "stamp, size: 64, objectives: [{path: net, delay: 5ms}],", `classes[0].objectives[0].path: "net": stands for further networks, which are several; leave the path out`},
	} {
		if !strings.Contains(furtherNetworks, tc.old) {
			t.Fatalf("the good file has no %q", tc.old)
		}
		_, err := Parse("f.yaml", []byte(strings.Replace(furtherNetworks, tc.old, tc.new, 1)))
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: got %v\nwant an error that says %q", tc.new, err, tc.want)
		}
	}
}
