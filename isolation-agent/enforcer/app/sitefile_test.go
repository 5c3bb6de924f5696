package app

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"vigia/internal/testutil"
)

// siteOf returns a site of this node and others, each of which has one port of red.
func siteOf(nodes ...string) string {
	listed, ports := "", ""
	for i, n := range append([]string{"n1"}, nodes...) {
		listed += fmt.Sprintf("  - {node: %s, address: \"127.0.0.1:%d\"}\n", n, 19876+i)
		ports += fmt.Sprintf("  - {node: %s, port: p-red-%d, tenant: red, mac: \"02:00:00:00:00:%02x\", ip: 10.7.0.%d}\n", n, i, i+1, i+2)
	}
	return "version: 1\nnodes:\n" + listed + "ports:\n" + ports
}

func keysOfPeers(nodes ...string) string {
	out := ""
	for _, n := range nodes {
		out += "1 " + n + " " + strings.Repeat("ab", 32) + "\n"
	}
	return out
}

// TestTheSiteFileIsFollowed without a word to the enforcer: nodes come and go, one that has no key here is left out and
// named, and what is in force stays while the file is wrong.
func TestTheSiteFileIsFollowed(t *testing.T) {
	r := newScheduledRig(t)
	unresponsive := func(node string) string {
		v, there := r.d.Metrics()[fmt.Sprintf("vigia_enforcer_peer_unresponsive{peer=%q}", node)]
		if !there {
			return "absent"
		}
		return fmt.Sprint(v)
	}
	pairs := func() string {
		_, raw := r.d.Do("GET", "/v1/pairs", token, "")
		return raw
	}
	becomes := func(what string, states map[string]string) {
		t.Helper()
		testutil.WaitFor(t, what, func() bool {
			shown := pairs()
			for node, state := range states {
				if unresponsive(node) != state || strings.Contains(shown, fmt.Sprintf("%q", node)) != (state == "0") {
					return false
				}
			}
			return true
		})
	}
	site := func(content string) { replace(t, filepath.Join(r.dir, "site.yaml"), content) }
	keys := func(content string) { replace(t, filepath.Join(r.dir, "keys"), content) }
	becomes("the first site", map[string]string{"n2": "0", "n3": "absent"})
	site(siteOf("n2", "n3"))
	becomes("a node without a key", map[string]string{"n2": "0", "n3": "1"})
	testutil.WaitFor(t, "its name in the log", func() bool {
		return strings.Contains(r.d.Stderr.String(), "keys_file has no key for n3, which are left out; write it anew by vigia-enforcer issue-keys")
	})
	keys(keysOfPeers("n2", "n3"))
	becomes("its key", map[string]string{"n2": "0", "n3": "0"})
	for content, said := range map[string]string{
		strings.Replace(siteOf("n3"), "mac: ", "mak: ", 1): "mak",
		strings.ReplaceAll(siteOf("n3"), "n1", "n9"):       "does not list node n1",
		"\x00": "control characters are not allowed",
	} {
		site(content)
		testutil.WaitFor(t, "the mistake in the log", func() bool { return strings.Contains(r.d.Stderr.String(), said) })
		becomes("nothing else", map[string]string{"n2": "0", "n3": "0"})
	}
	site(siteOf("n2", "n3"))
	for content, said := range map[string]string{
		"":                "has no key any more; write it anew",
		keysOfPeers("n7"): "has no key for node n2 of the site file, nor for any other",
	} {
		keys(content)
		testutil.WaitFor(t, "wrong keys in the log", func() bool { return strings.Contains(r.d.Stderr.String(), said) })
		becomes("nothing else", map[string]string{"n2": "0", "n3": "0"})
	}
	keys(keysOfPeers("n2", "n3"))
	site(siteOf("n3"))
	becomes("a node to go", map[string]string{"n2": "absent", "n3": "0"})
	// A restart with a node that has no key yet is no reason to stop.
	site(siteOf("n2", "n3", "n4"))
	becomes("a third node", map[string]string{"n2": "0", "n3": "0", "n4": "1"})
	if code := r.d.Stop(); code != 0 {
		t.Fatalf("exit code %d\n%s", code, r.d.Stderr)
	}
	r.start()
	becomes("all of it after a restart", map[string]string{"n2": "0", "n3": "0", "n4": "1"})
}

// TestKeysOfAnotherSiteAreRefused when the enforcer starts: nobody here could hear it.
func TestKeysOfAnotherSiteAreRefused(t *testing.T) {
	r := newScheduledRig(t)
	r.write("site.yaml", siteOf("n2", "n3"))
	r.write("keys", keysOfPeers("n7"))
	code, said := r.d.Do("POST", "/-/reload", "", "")
	const want = "has no key for node n2 of the site file, nor for any other; write it anew by vigia-enforcer issue-keys"
	if code == 200 || !strings.Contains(said, want) {
		t.Errorf("%d %s", code, said)
	}
}

// TestASiteThatHadOneNode may get a second one before anybody has issued keys.
func TestASiteThatHadOneNode(t *testing.T) {
	r := newScheduledRig(t)
	r.write("site.yaml", siteOf())
	r.write("keys", "# of the only node\n")
	if code, said := r.d.Do("POST", "/-/reload", "", ""); code != 200 {
		t.Fatal(said)
	}
	replace(t, filepath.Join(r.dir, "site.yaml"), siteOf("n2"))
	testutil.WaitFor(t, "the second node", func() bool { return r.d.Metrics()[`vigia_enforcer_peer_unresponsive{peer="n2"}`] == 1 })
}
