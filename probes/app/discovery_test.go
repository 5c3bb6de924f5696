package app

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Nodes that appear in a file are probed, one that vanishes is probed no longer
// and loses its series after the grace period; a reload in between forgets
// nothing.
func TestDiscoveredNodes(t *testing.T) {
	t.Parallel()
	left, right := network(t)
	nodes := filepath.Join(t.TempDir(), "nodes.json")
	write := func(names ...string) {
		var groups []string
		for _, n := range names {
			groups = append(groups, fmt.Sprintf(`{"targets": ["10.9.0.2:862"], "labels": {"node": %q}}`, n))
		}
		if err := os.WriteFile(nodes+".new", []byte("["+strings.Join(groups, ",")+"]"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(nodes+".new", nodes); err != nil {
			t.Fatal(err)
		}
	}
	write("a", "b", "c")
	start(t, node("b", right, "10.9.0.2"))
	config := strings.Replace(node("a", left, "10.9.0.1"), "targets:\n  []\n", "", 1) + fmt.Sprintf(`discovery:
  - files: [%s]
    refresh: 1s
    grace: 4s
    show: ["*"]
    targets:
      - {path: direct, tenant: _infra, probe: stamp-64, netns: %s}
`, nodes, left)
	a := start(t, config)
	received := func(dst string) (float64, bool) { return a.scrape().value("vigia_probe_received_total", "dst", dst) }
	a.waitFor("both to be probed", func() bool {
		b, _ := received("b")
		c, _ := received("c")
		return b > 10 && c > 10
	})
	if _, oneself := received("a"); oneself {
		t.Error("the node probes itself")
	}
	a.waitFor("being ready", func() bool { code, _ := a.get("/-/ready"); return code == http.StatusOK })
	before, _ := received("b")
	if code, body := a.reload(config); code != http.StatusOK {
		t.Fatal(body)
	}
	if after, ok := received("b"); !ok || after < before {
		t.Errorf("a reload took the counter from %v to %v", before, after)
	}
	write("a", "b")
	a.waitFor("c to be left alone", func() bool {
		_, up := a.scrape().value("vigia_probe_target_up", "dst", "c")
		return !up
	})
	frozen, still := a.scrape().value("vigia_probe_sent_total", "dst", "c")
	a.waitFor("its series to go away", func() bool {
		now, ok := a.scrape().value("vigia_probe_sent_total", "dst", "c")
		if ok && still && now > frozen+200 { // what was in flight
			t.Fatalf("it is still probed: %v after %v", now, frozen)
		}
		return !ok
	})
	if _, ok := received("b"); !ok {
		t.Error("the other lost its series, too")
	}
}

// command runs a command about the daemon, and returns what it prints.
func (d *running) command(arguments ...string) string {
	d.t.Helper()
	var out, stderr bytes.Buffer
	if code := Program().Run(d.t.Context(), append(arguments, "--url", d.url), &out, &stderr); code != 0 {
		d.t.Fatalf("%q: exit code %d: %s", arguments, code, stderr.String())
	}
	return out.String()
}

// Nodes of a mesh have series together; one that does not answer has its own, and is voted
// on.
func TestMeshOfDiscoveredNodes(t *testing.T) {
	t.Parallel()
	left, right := network(t)
	nodes := filepath.Join(t.TempDir(), "nodes.json")
	var groups []string
	for i, name := range []string{"a", "b", "c", "d", "e"} {
		groups = append(groups, fmt.Sprintf(`{"targets": ["10.9.0.%d"], "labels": {"node": %q, "rack": "r%d", "zone": "z1"}}`, min(i, 1)+1, name, i/3))
	}
	// Nobody has this address.
	groups = append(groups, `{"targets": ["10.9.0.77:862"], "labels": {"node": "gone", "rack": "r0", "zone": "z1"}}`)
	if err := os.WriteFile(nodes, []byte("["+strings.Join(groups, ",")+"]"), 0o600); err != nil {
		t.Fatal(err)
	}
	start(t, node("b", right, "10.9.0.2"))
	a := start(t, strings.Replace(node("a", left, "10.9.0.1"), "targets:\n  []\n", "", 1)+fmt.Sprintf(`discovery:
  - files: [%s]
    refresh: 1s
    targets:
      - {path: direct, tenant: _infra, probe: stamp-64, netns: %s}
`, nodes, left))
	a.waitFor("the dead node's series", func() bool {
		s := a.scrape()
		bad, _ := s.value("vigia_probe_mesh_pairs", "state", "bad")
		sent, _ := s.value("vigia_probe_mesh_sent_total", "src_zone", "z1", "dst_zone", "z1")
		_, own := s.value("vigia_probe_sent_total", "dst", "gone")
		return bad == 1 && own && sent > 100
	})
	a.waitFor("a pair that is well to have no series of its own", func() bool {
		_, own := a.scrape().value("vigia_probe_sent_total", "dst", "c")
		return !own
	})
	a.waitFor("a vote", func() bool {
		s, n := a.fast()
		share, voted := s.value("vigia_probe_unreachable_ratio", "src", "a", "dst", "gone", "scope", "node", "dst_rack", "r0", "dst_zone", "z1")
		return voted && n == 2 && share > 0.33 && share < 0.34
	})
	a.command("pairs", "--dst", "c", "--ttl", "1m")
	a.waitFor("the series that were asked for", func() bool {
		_, own := a.scrape().value("vigia_probe_sent_total", "dst", "c")
		return own
	})
	if text := a.command("pairs"); !strings.Contains(text, "unreachable, bad, with series") || !strings.Contains(text, "asked for, with series") {
		t.Error(text)
	}
}
