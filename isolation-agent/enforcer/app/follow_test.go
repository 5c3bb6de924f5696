package app

import (
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestFollowConfigMapStartsWithWhatWasBrought as the init container of the chart does, without asking anybody.
func TestFollowConfigMapStartsWithWhatWasBrought(t *testing.T) {
	asked := 0
	server := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked++ }))
	defer server.Close()
	dir := t.TempDir()
	file := func(name, content string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	ca := file("ca.crt", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})))
	to := filepath.Join(dir, "contracts.yaml")
	arguments := []string{
		"follow-config-map", "--namespace=vigia", "--config-map=vigia-contracts", "--api-server=" + server.URL, "--ca-file=" + ca,
		"--token-file=" + file("token", "t"), "--brought=" + file("brought.yaml", "version: 1\n"), "--file=" + to, "--once",
	}
	var stdout, stderr strings.Builder
	if code := run(t.Context(), arguments, &stdout, &stderr); code != 0 {
		t.Fatalf("exit %d: %s", code, stderr.String())
	}
	if raw, err := os.ReadFile(to); err != nil || string(raw) != "version: 1\n" || asked != 0 {
		t.Errorf("%q, %v, asked %d times", raw, err, asked)
	}
	stderr.Reset()
	if code := run(t.Context(), append(arguments, "--key="), &stdout, &stderr); code == 0 || !strings.Contains(stderr.String(), "--key is empty; write a name") {
		t.Errorf("exit %d: %s", code, stderr.String())
	}
}
