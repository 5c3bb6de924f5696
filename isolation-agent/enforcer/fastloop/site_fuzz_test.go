package fastloop

import (
	"net"
	"os"
	"path/filepath"
	"testing"
)

// FuzzSite reads any bytes as a site file: what is taken names only nodes that are listed, each once, and
// addresses that are addresses.
func FuzzSite(f *testing.F) {
	for _, seed := range []string{
		site, "", "version: 1\n", "version: 1\nnodes: []\nports: []\n", "version: [1]\n", "nodes: {a: b}\n",
		"version: 1\nnodes: [{node: n, address: \"[::1]:1\", tunnel: \"::1\"}]\n", "version: 1\nnodes: &a [*a]\n", "\x00", "version: 1e99\n",
		"version: 1\nports: [{node: n, port: p, tenant: t, mac: 02:00:00:00:00:00:00:01, ip: 10.0.0.1}]\n",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		path := filepath.Join(t.TempDir(), "site.yaml")
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := LoadSite(path)
		if err != nil {
			if s != nil {
				t.Fatalf("both a site and %v", err)
			}
			return
		}
		nodes := map[string]bool{}
		for _, n := range s.Nodes {
			if n.Node == "" || nodes[n.Node] {
				t.Fatalf("node %q is empty or there twice", n.Node)
			}
			nodes[n.Node] = true
		}
		for _, p := range s.Ports {
			if mac, err := net.ParseMAC(p.MAC); !nodes[p.Node] || err != nil || len(mac) != 6 || (p.IP != "" && net.ParseIP(p.IP) == nil) {
				t.Fatalf("port %+v", p)
			}
		}
	})
}
