package app

import (
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
		s := a.scrape()
		_, up := s.value("vigia_probe_target_up", "dst", "c")
		_, sent := s.value("vigia_probe_sent_total", "dst", "c")
		return sent && !up
	})
	frozen, _ := a.scrape().value("vigia_probe_sent_total", "dst", "c")
	a.waitFor("its series to go away", func() bool {
		now, ok := a.scrape().value("vigia_probe_sent_total", "dst", "c")
		if ok && now > frozen+200 { // what was in flight
			t.Fatalf("it is still probed: %v after %v", now, frozen)
		}
		return !ok
	})
	if _, ok := received("b"); !ok {
		t.Error("the other lost its series, too")
	}
}
