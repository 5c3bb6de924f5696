package app

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"vigia/isolation-agent/enforcer/fastloop"
)

// TestIssueKeysPrintsWhatANodeMayHave, and nothing of the master key.
func TestIssueKeysPrintsWhatANodeMayHave(t *testing.T) {
	dir := t.TempDir()
	file := func(name, content string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	secret := strings.Repeat("ab", 32)
	site := file("site.yaml", "version: 1\nnodes: [{node: n1, address: \"127.0.0.1:1\"}, {node: n2, address: \"127.0.0.1:2\"}, {node: n3, address: \"127.0.0.1:3\"}]\nports: []\n")
	master := file("master", "7 "+secret+"\n8 "+strings.Repeat("cd", 32)+"\n")
	issue := func(node string) (int, string, string) {
		var stdout, stderr strings.Builder
		code := run(t.Context(), []string{"issue-keys", "--site", site, "--master", master, "--node", node}, &stdout, &stderr)
		return code, stdout.String(), stderr.String()
	}
	code, keys, said := issue("n2")
	if code != 0 || strings.Count(keys, "\n") != 4 || !strings.HasPrefix(keys, "7 n1 ") || strings.Contains(keys, secret) {
		t.Fatalf("exit %d, %s\n%s", code, keys, said)
	}
	if _, err := fastloop.LoadKeys(file("n2.keys", keys)); err != nil {
		t.Error(err)
	}
	code, keys, said = issue("n9")
	if code == 0 || keys != "" || !strings.Contains(said, `node "n9" is not in the site file`) {
		t.Errorf("exit %d, %s\n%s", code, keys, said)
	}
	master = file("bad", "x "+secret+"\n")
	if code, _, said = issue("n2"); code == 0 || strings.Contains(said, secret) || !strings.Contains(said, "has a line 1") {
		t.Errorf("exit %d, %s", code, said)
	}
}
