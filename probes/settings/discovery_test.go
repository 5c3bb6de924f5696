package settings

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"vigia/probes/discovery"
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
	got, refused := site.Targets("lb1", st)
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
	got, _ = site.Targets("lb1", st)
	if want := strings.ReplaceAll(both, "far.example.net:862,", "far.example.net:862 paused,"); summary(got) != strings.Replace(want, "8620,", "8620 paused,", 1) {
		t.Errorf("after it vanished: %s", summary(got))
	}
	st.Peers = append(slices.Clone(st.Peers), peer("a b", "r1", "10.0.0.9"))
	if got, refused = site.Targets("lb1", st); refused == nil || len(got) != 4 {
		t.Errorf("a node whose name is no label: %s, %v", summary(got), refused)
	}
	st.Peers[2] = peer("c", "r1", "224.0.0.1")
	if _, refused = site.Targets("lb1", st); refused == nil || !strings.Contains(refused.Error(), "multicast") {
		t.Errorf("a node at a multicast address: %v", refused)
	}
}

func TestDiscoveryMistakes(t *testing.T) {
	for _, tc := range []struct{ old, new, want string }{
		{"files: [/etc/vigia/nodes/*.json]", "refresh: 1m", "f.yaml:19: discovery[0]: has neither files nor url; add one"},
		{"files: [/etc/vigia/nodes/*.json]", "url: ftp://x/y", `discovery[0].url: "(not shown)": is not an HTTP address; write for example http://`},
		{"per_node: 1", "per_node: -1", `discovery[0].per_node: "-1": is out of bounds; write 0, for all, to 10000`},
		{"per_node: 1", "refresh: 1ms", `discovery[0].refresh: "1ms": is out of bounds`},
		{"grace: 1m", "grace: -1m", `discovery[0].grace: "-1m0s": is out of bounds`},
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
