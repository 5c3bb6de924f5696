package daemon

import (
	"bytes"
	"crypto/tls"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/exporter-toolkit/web"

	"vigia/internal/testutil"
)

// certified makes a certificate for 127.0.0.1, and the web configuration with it, as paths
// from its own folder.
func certified(t *testing.T) string {
	t.Helper()
	authority := testutil.NewAuthority(t)
	certificate, _ := authority.Issue("test", net.IPv4(127, 0, 0, 1))
	return write(t, filepath.Dir(certificate), "tls_server_config: {cert_file: own.crt, key_file: own.key, client_ca_file: "+authority.File+
		", client_auth_type: RequireAndVerifyClientCert}")
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
	testutil.WaitFor(t, "an answer", func() bool {
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

// TestADaemonServesItsOwnTLS has clients with a certificate and without, and asks by the
// command that a service manager would.
func TestADaemonServesItsOwnTLS(t *testing.T) {
	f := &fake{}
	f.ready.Store(true)
	settings := certified(t)
	in := start(t, f, "--web.config.file", settings)
	if code, body := in.do("GET", "/-/ready"); code != http.StatusBadRequest {
		t.Errorf("without TLS: %d %q", code, body)
	}
	var out, stderr bytes.Buffer
	args := []string{"healthcheck", "--url", in.URL + "/-/ready", "--web.config.file", settings}
	if code := program(f).Run(t.Context(), args, &out, &stderr); code != ExitOK || !strings.Contains(out.String(), "https://") {
		t.Errorf("with the certificate: %d %q %q", code, out.String(), stderr.String())
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	defer client.CloseIdleConnections()
	if resp, err := client.Get(strings.Replace(in.URL, "http:", "https:", 1) + "/-/ready"); err == nil {
		resp.Body.Close()
		t.Errorf("without a certificate: %s", resp.Status)
	}
	f.ready.Store(false)
	if code := program(f).Run(t.Context(), args, &out, &stderr); code != ExitError || !strings.Contains(stderr.String(), "warming up") {
		t.Errorf("not ready: %d %q", code, stderr.String())
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
