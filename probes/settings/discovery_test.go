package settings

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"vigia/probes/discovery"
	"vigia/probes/mesh"
	"vigia/probes/sender"
)

const goodDiscovery = good + `discovery:
  - files: [/etc/vigia/nodes/*.json]
    per_node: 1
    grace: 1m
    targets:
      - {path: direct, tenant: _infra, probe: stamp-64, source: 10.99.1.1}
      - {path: ovs-vxlan, tenant: red, probe: stamp-64, port: 8620, netns: x, twin: direct}
`

func peer(name, rack, host string) discovery.Peer {
	return discovery.Peer{Name: name, Rack: rack, Host: host}
}

func summary(targets []sender.Target) string {
	out := make([]string, 0, len(targets))
	for i := range targets {
		t := &targets[i]
		text := fmt.Sprintf("%s/%s@%s:%d", t.Labels.Dst, t.Labels.Path, t.Host, t.Port)
		if t.Paused {
			text += " paused"
		}
		out = append(out, text)
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}

// What was discovered becomes targets: the rack and one of the others, twins with
// their own node; who vanished is kept without being probed.
func TestSite(t *testing.T) {
	s, err := Parse("f.yaml", []byte(goodDiscovery))
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Sites) != 1 || s.Sites[0].Source.Grace != time.Minute || s.Sites[0].Source.Refresh != defaultRefresh || s.Sources()[0].Files[0] != "/etc/vigia/nodes/*.json" {
		t.Fatalf("%+v", s.Sites)
	}
	site := &s.Sites[0]
	st := discovery.State{Peers: []discovery.Peer{peer("lb1", "r1", "10.0.0.1"), peer("lb2", "r1", "10.0.0.2"), peer("far", "r2", "far.example.net")}}
	share := site.Share("lb1", st)
	got, refused := share.Targets, share.Refused
	const both = "far/direct@far.example.net:862, far/ovs-vxlan@far.example.net:8620, lb2/direct@10.0.0.2:862, lb2/ovs-vxlan@10.0.0.2:8620"
	if refused != nil || summary(got) != both {
		t.Errorf("%s, %v", summary(got), refused)
	}
	for i := range got {
		if g := got[i].Twin.Group; g.Dst != got[i].Labels.Dst || g.Path != "direct" || got[i].Labels.Src != "lb1" {
			t.Errorf("%+v", got[i])
		}
	}
	st = discovery.State{Peers: st.Peers[:2], Vanished: st.Peers[2:]}
	got = site.Share("lb1", st).Targets
	if want := strings.ReplaceAll(both, "far.example.net:862,", "far.example.net:862 paused,"); summary(got) != strings.Replace(want, "8620,", "8620 paused,", 1) {
		t.Errorf("after it vanished: %s", summary(got))
	}
	st.Peers = append(slices.Clone(st.Peers), peer("a b", "r1", "10.0.0.9"))
	if share = site.Share("lb1", st); share.Refused == nil || len(share.Targets) != 4 {
		t.Errorf("a node whose name is no label: %s, %v", summary(share.Targets), share.Refused)
	}
	st.Peers[2] = peer("c", "r1", "224.0.0.1")
	if share = site.Share("lb1", st); share.Refused == nil || !strings.Contains(share.Refused.Error(), "multicast") {
		t.Errorf("a node at a multicast address: %v", share.Refused)
	}
	st.Peers[2] = discovery.Peer{Name: "c", Zone: "a zone", Host: "10.0.0.9"}
	if share = site.Share("lb1", st); share.Refused == nil || !strings.Contains(share.Refused.Error(), `the zone "a zone" cannot be a label`) {
		t.Errorf("a node in a zone that is no label: %v", share.Refused)
	}
}

// The labels rack and zone say who is probed, and the settings how many.
func TestSiteOfZones(t *testing.T) {
	text := strings.Replace(goodDiscovery, "per_node: 1\n", "per_node: 1\n    per_zone: 2\n    within: zone\n    show: [n1]\n", 1)
	s, err := Parse("f.yaml", []byte(text+"mesh: {pair_series: 0}\n"))
	if err != nil {
		t.Fatal(err)
	}
	if s.PairSeries != 0 || !s.Sites[0].Shows("n1") || s.Sites[0].Shows("n2") {
		t.Errorf("%+v", s.Sites)
	}
	if s.Sites[0].Show = []string{"*"}; !s.Sites[0].Shows("n2") {
		t.Error("* is not all")
	}
	var st discovery.State
	for i := range 30 {
		st.Peers = append(st.Peers, discovery.Peer{Name: fmt.Sprintf("n%d", i), Rack: fmt.Sprintf("r%d", i/5), Zone: fmt.Sprintf("z%d", i/10), Host: "10.0.0.1"})
	}
	share := s.Sites[0].Share("n0", st)
	zones := make(map[string]int)
	for _, p := range share.Peers {
		zones[p.Zone]++
	}
	if share.Self != (mesh.Node{Name: "n0", Rack: "r0", Zone: "z0"}) || zones["z0"] != 9 || zones["z1"] != 2 || zones["z2"] != 2 || len(share.Targets) != 2*13 {
		t.Errorf("%+v, %v, %d targets", share.Self, zones, len(share.Targets))
	}
	if s, err = Parse("f.yaml", []byte(goodDiscovery)); err != nil || s.PairSeries != defaultPairSeries {
		t.Errorf("%d series by default, %v", s.PairSeries, err)
	}
}

// TestOtherAddresses of nodes are probed where a template says so, by their own ports if they
// have any; nodes without them, or with nonsense, are not probed so.
func TestOtherAddresses(t *testing.T) {
	text := strings.Replace(goodDiscovery, "port: 8620, netns: x, twin: direct", "port: 8620, at: pods, twin: direct", 1)
	s, err := Parse("f.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	peer := func(name, others string) discovery.State {
		return discovery.State{Peers: []discovery.Peer{{Name: name, Host: "10.0.0.2", Others: others}}}
	}
	for others, want := range map[string]string{
		"pods=10.244.2.5\n":                             "10.244.2.5:8620",
		"nodeport=10.0.0.2:30001\npods=10.244.2.5:99\n": "10.244.2.5:99",
		"pods=[fd00::5]:99\n":                           "fd00::5:99",
		"pods=fd00::5\n":                                "fd00::5:8620",
		"pods=pod.example.net:99\n":                     "pod.example.net:99",
		"":                                              "",
		"nodeport=10.0.0.2:30001\n":                     "",
		"pods=10.244.2.5:0\n":                           "",
		"pods=10.244.2.5:x\n":                           "",
		"pods=224.0.0.1\n":                              "",
		"pods=a b\n":                                    "",
	} {
		got := ""
		targets := s.Sites[0].Share("n0", peer("n1", others)).Targets
		for _, target := range targets {
			if target.Labels.Path == "ovs-vxlan" {
				got = fmt.Sprintf("%s:%d", target.Host, target.Port)
			} else if target.Host != "10.0.0.2" {
				t.Errorf("%q: the node itself is probed at %s", others, target.Host)
			}
		}
		if got != want || len(targets) == 0 {
			t.Errorf("%q: %q, want %q, of %d targets", others, got, want, len(targets))
		}
	}
}

// TestOwnNode is probed alone where discovery says so.
func TestOwnNode(t *testing.T) {
	s, err := Parse("f.yaml", []byte(strings.Replace(goodDiscovery, "per_node: 1", "own: true", 1)))
	if err != nil {
		t.Fatal(err)
	}
	st := discovery.State{Peers: []discovery.Peer{{Name: "n0", Host: "10.0.0.1"}, {Name: "n1", Host: "10.0.0.2"}}}
	share := s.Sites[0].Share("n0", st)
	if len(share.Peers) != 1 || len(share.Targets) != 2 || share.Targets[0].Labels.Dst != "n0" || share.Targets[0].Host != "10.0.0.1" {
		t.Errorf("%+v", share)
	}
	if share = s.Sites[0].Share("n2", st); len(share.Targets) != 0 {
		t.Errorf("a node that is not in the list probes %+v", share.Targets)
	}
}

func TestDiscoveryMistakes(t *testing.T) {
	for _, tc := range []struct{ old, new, want string }{
		{"files: [/etc/vigia/nodes/*.json]", "refresh: 1m", "f.yaml:19: discovery[0]: has neither files nor url; add one"},
		{"files: [/etc/vigia/nodes/*.json]", "url: ftp://x/y", `discovery[0].url: "(not shown)": is not an HTTP address; write for example http://`},
		{"per_node: 1", "per_node: -1", `discovery[0].per_node: "-1": is out of bounds; write 0, for all, to 10000`},
		{"per_node: 1", "refresh: 1ms", `discovery[0].refresh: "1ms": is out of bounds`},
		{"per_node: 1", "per_zone: 10001", `discovery[0].per_zone: "10001": is out of bounds; write 0 to 10000`},
		{"per_node: 1", "within: row", `discovery[0].within: "row": is no part of a site; write rack or zone`},
		{"per_node: 1", "show: [a b]", `discovery[0].show[0]: "a b": cannot be a node; write letters`},
		{"discovery:", "mesh: {pair_series: -1}\ndiscovery:", `mesh.pair_series: "-1": is out of bounds; write 0 to 1000000`},
		{"grace: 1m", "grace: -1m", `discovery[0].grace: "-1m0s": is out of bounds`},
		{"port: 8620", "at: a b", `discovery[0].targets[1].at: "a b": cannot be the rest of a label`},
		{"port: 8620", "port: 70000", `discovery[0].targets[1].port: "70000": is out of bounds; write 1 to 65535`},
		{"twin: direct}\n", "twin: bare}\n", `f.yaml:24: discovery[0].targets[1].twin: "bare": is not the path of a target`},
		{"tenant: red, probe: stamp-64, port", "tenant: red, probe: x, port", `discovery[0].targets[1].probe: "x": is not declared under classes`},
		{"path: ovs-vxlan, tenant: red, probe: stamp-64, port: 8620, netns: x, twin: direct", "path: direct, tenant: _infra, probe: stamp-64", "has the same path, tenant and probe as another"},
	} {
		if !strings.Contains(goodDiscovery, tc.old) {
			t.Fatalf("the good file has no %q", tc.old)
		}
		_, err := Parse("f.yaml", []byte(strings.Replace(goodDiscovery, tc.old, tc.new, 1)))
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: got %v\nwant an error that says %q", tc.new, err, tc.want)
		}
	}
}
