package daemon

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/exporter-toolkit/web"
)

// certified writes a certificate for 127.0.0.1 that is its own authority, and
// the web configuration with it, as relative paths.
func certified(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for name, block := range map[string]*pem.Block{
		"own.crt": {Type: "CERTIFICATE", Bytes: der},
		"own.key": {Type: "PRIVATE KEY", Bytes: raw},
	} {
		if err := os.WriteFile(filepath.Join(folder, name), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return write(t, folder, "tls_server_config: {cert_file: own.crt, key_file: own.key, client_ca_file: own.crt, client_auth_type: RequireAndVerifyClientCert}")
}

func write(t *testing.T, folder, content string) string {
	t.Helper()
	file := filepath.Join(folder, "web.yml")
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestHealthcheckSpeaksTheTLSOfTheInstance(t *testing.T) {
	file := certified(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Write([]byte("ready\n"))
	})}
	t.Cleanup(func() { server.Close() })
	system, addresses := false, []string{listener.Addr().String()}
	go web.Serve(listener, server, &web.FlagConfig{WebListenAddresses: &addresses, WebSystemdSocket: &system, WebConfigFile: &file}, slog.New(slog.DiscardHandler))
	url := "http://" + listener.Addr().String() + "/-/ready"

	var out bytes.Buffer
	waitFor(t, "an answer", func() bool {
		out.Reset()
		return healthcheck(t.Context(), url, file, &out) == nil
	})
	if !strings.Contains(out.String(), "https://") || !strings.Contains(out.String(), "ready") {
		t.Errorf("got %q", out.String())
	}
	if err := healthcheck(t.Context(), strings.Replace(url, "http:", "https:", 1), "", &out); err == nil {
		t.Error("served without a certificate")
	}
}

func TestHealthcheckWithoutTLS(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.Write([]byte("ready\n")) }))
	defer server.Close()
	var out bytes.Buffer
	if err := healthcheck(t.Context(), server.URL, write(t, t.TempDir(), "{}"), &out); err != nil {
		t.Error(err)
	}
}

func TestHealthcheckNamesWhatIsWrongWithTheWebConfiguration(t *testing.T) {
	for content, want := range map[string]string{
		"tls_server_config: [": "yaml",
		"tls_server_config: {cert_file: no.crt, key_file: no.key}": "no.crt",
	} {
		file := write(t, t.TempDir(), content)
		err := healthcheck(t.Context(), "http://127.0.0.1:1/", file, &bytes.Buffer{})
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), file) {
			t.Errorf("%s: got %v", content, err)
		}
	}
}
