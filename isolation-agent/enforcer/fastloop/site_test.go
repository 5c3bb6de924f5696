package fastloop

import (
	"os"
	"path/filepath"
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
		{"version: 1", "version: 2"}:                       "version",
		{`"127.0.0.1:1"`, "nowhere"}:                       "nodes[0].address",
		{"node: n2, address", "node: n1, address"}:         "nodes[1].node",
		{"tunnel: 10.0.0.2", "tunnel: x"}:                  "nodes[1].tunnel",
		{`"02:00:00:00:00:02"`, "x"}:                       "ports[1].mac",
		{"ip: 192.168.0.2", "ip: x"}:                       "ports[1].ip",
		{"node: n2, port: p3", "node: n9, port: p3"}:       "ports[2].node",
		{"tenant: blue", "tenant: red"}:                    "ports[2].port",
		{"port: p1, tenant: red", "port: p1, tenent: red"}: "tenent",
	} {
		_, err := LoadSite(write(t, strings.Replace(site, change[0], change[1], 1), 0o600))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", change[1], err, want)
		}
	}
}

func TestKeyFilesAreHeldToTheirRules(t *testing.T) {
	secret := strings.Repeat("ab", 32)
	keys, err := LoadKeys(write(t, "# in use, and the next\n7 "+secret+"\n\n8 "+strings.Repeat("cd", 40)+"\n", 0o600))
	if err != nil || len(keys) != 2 || keys[0].ID != 7 || len(keys[1].Secret) != 40 {
		t.Fatalf("%+v %v", keys, err)
	}
	for name, tc := range map[string]struct {
		content string
		mode    os.FileMode
		want    string
	}{
		"readable":     {"7 " + secret, 0o644, "mode 0644"},
		"empty":        {"", 0o600, "holds 0 keys"},
		"three":        {"1 " + secret + "\n2 " + secret + "\n3 " + secret, 0o600, "holds 3 keys"},
		"same numbers": {"1 " + secret + "\n1 " + secret, 0o600, "different numbers"},
		"short":        {"1 abcd", 0o600, "at least 32 bytes"},
		"no number":    {"x " + secret, 0o600, "at least 32 bytes"},
		"no hex":       {"1 " + strings.Repeat("zz", 32), 0o600, "at least 32 bytes"},
	} {
		_, err := LoadKeys(write(t, tc.content, tc.mode))
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v", name, err)
		} else if strings.Contains(err.Error(), secret) {
			t.Errorf("%s: the error shows the key", name)
		}
	}
	if _, err := LoadKeys("/nonexistent"); err == nil {
		t.Error("a missing file was read")
	}
}
