package app

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestEveryMistakeHasItsMessage checks configurations with one mistake each, below
// testdata/mistakes. A file begins with the whole of what is said of it, in lines that
// begin with "#: "; DIR is the folder that the configuration and the files that it names
// are in.
func TestEveryMistakeHasItsMessage(t *testing.T) {
	dir := t.TempDir()
	file := func(name, content string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	file("ports.yaml", "version: 1\nports: []\n", 0o600)
	file("site.yaml", "version: 1\nnodes: [{node: n1, address: \"127.0.0.1:9876\"}]\nports: []\n", 0o600)
	file("site3.yaml", "version: 1\nnodes: [{node: n1, address: \"127.0.0.1:9876\"}, {node: n3, address: \"127.0.0.1:9878\"}]\nports: []\n", 0o600)
	file("keys", "1 n2 "+strings.Repeat("ab", 32)+"\n", 0o600)
	secrets := map[string]string{
		"token": token, "open": token + "-open", "short": "hunter2", "long": strings.Repeat("0123456789abcdef", 257),
	}
	for name, secret := range secrets {
		file(name, secret, 0o600)
	}
	if err := os.Chmod(filepath.Join(dir, "open"), 0o644); err != nil {
		t.Fatal(err)
	}
	mistakes, err := filepath.Glob("testdata/mistakes/*.yaml")
	if err != nil || len(mistakes) < 50 {
		t.Fatalf("%d mistakes, %v", len(mistakes), err)
	}
	for _, path := range mistakes {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".yaml"), func(t *testing.T) {
			raw, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			var want strings.Builder
			rest := raw
			for bytes.HasPrefix(rest, []byte("#: ")) {
				line, after, _ := bytes.Cut(rest, []byte("\n"))
				want.WriteString(strings.ReplaceAll(string(line[3:]), "DIR", dir) + "\n")
				rest = after
			}
			config := file("c.yaml", strings.ReplaceAll(string(rest), "DIR", dir), 0o600)
			var stderr strings.Builder
			code := run(t.Context(), []string{"check-config", "--config", config}, io.Discard, &stderr)
			if code != 1 || stderr.String() != want.String() {
				t.Errorf("exit %d and\n%swant\n%s", code, stderr.String(), want.String())
			}
			for _, secret := range secrets {
				if strings.Contains(stderr.String(), secret) {
					t.Error("the error shows a secret")
				}
			}
		})
	}
}
