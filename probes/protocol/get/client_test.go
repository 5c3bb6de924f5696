package get

import (
	"context"
	"encoding/pem"
	"fmt"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"vigia/probes/protocol/background"
)

// answers is a server of all that a probe may meet.
func answers(t *testing.T) http.Handler {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("/{$}", func(w http.ResponseWriter, r *http.Request) { fmt.Fprintf(w, "%s to %s", r.Method, r.Host) })
	mux.HandleFunc("/status/{code}", func(w http.ResponseWriter, r *http.Request) {
		var code int
		fmt.Sscan(r.PathValue("code"), &code)
		w.WriteHeader(code)
	})
	mux.HandleFunc("/here", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/", http.StatusFound) })
	mux.HandleFunc("/round", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/round", http.StatusFound) })
	mux.HandleFunc("/elsewhere", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "http://169.254.169.254/secret", http.StatusFound)
	})
	mux.HandleFunc("/long", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, strings.Repeat("x", 4096)) })
	mux.HandleFunc("/cut", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "100")
		fmt.Fprint(w, "ten bytes.")
	})
	return mux
}

// probe asks a server once.
func probe(t *testing.T, server *httptest.Server, options string) background.Outcome {
	t.Helper()
	p, said := configure(t, options)
	if len(said) > 0 {
		t.Fatal(options, said)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	at := netip.MustParseAddrPort(server.Listener.Addr().String())
	return newClient(p.(Protocol)).get(ctx, &background.Endpoint{Address: at})
}

func TestSuccessAndFailure(t *testing.T) {
	server := httptest.NewServer(answers(t))
	defer server.Close()
	for _, tc := range []struct {
		options, failure, said string
		status                 float64
	}{
		{`{}`, "", "", 200},
		{`{method: HEAD}`, "", "", 200},
		{`{path: /status/204}`, "", "", 204},
		{`{path: /status/404}`, badStatus, "the status is 404", 404},
		{`{path: /status/404, valid_status_codes: [401, 404]}`, "", "", 404},
		{`{valid_status_codes: [401]}`, badStatus, "the status is 200", 200},
		{`{valid_http_versions: [HTTP/1.1]}`, "", "", 200},
		{`{valid_http_versions: [HTTP/2.0]}`, badVersion, `the version is "HTTP/1.1"`, 200},
		{`{path: /here}`, "", "", 200},
		{`{path: /here, follow_redirects: false}`, badStatus, "the status is 302", 302},
		{`{path: /here, follow_redirects: false, valid_status_codes: [302]}`, "", "", 302},
		{`{path: /round}`, badRedirect, "more than 10 redirects", math.NaN()},
		{`{path: /elsewhere}`, badRedirect, "redirected to http://169.254.169.254/secret, which is another path", math.NaN()},
		{`{fail_if_body_not_matches_regexp: [^GET, "127.0.0.1"]}`, "", "", 200},
		{`{host: www.example.net, fail_if_body_not_matches_regexp: [to www.example.net$]}`, "", "", 200},
		{`{path: /here, host: www.example.net, fail_if_body_not_matches_regexp: [to www.example.net$]}`, "", "", 200},
		{`{fail_if_body_not_matches_regexp: [^GET, "nothing"]}`, badBody, `the body does not match "nothing"`, 200},
		{`{fail_if_body_matches_regexp: [nothing, ^GET]}`, badBody, `the body matches "^GET"`, 200},
		{`{path: /long, body_size_limit: 4096}`, "", "", 200},
		{`{path: /long, body_size_limit: 4095}`, badBody, "the body is longer than 4095 bytes", 200},
		{`{path: /cut}`, badAnswer, "unexpected EOF", 200},
		{`{scheme: https}`, badTLS, "", math.NaN()},
	} {
		o := probe(t, server, tc.options)
		same := o.Values[status] == tc.status || math.IsNaN(tc.status) && math.IsNaN(o.Values[status])
		if o.Failure != tc.failure || !same || (o.Err == nil) != (tc.failure == "") || !math.IsNaN(o.Values[expiry]) {
			t.Errorf("%s: %+v", tc.options, o)
		}
		if o.Err != nil && !strings.Contains(o.Err.Error(), tc.said) {
			t.Errorf("%s: %v, want %q", tc.options, o.Err, tc.said)
		}
		if o.Phases[connecting] <= 0 || tc.failure == "" && (o.Phases[processing] <= 0 || o.Phases[transferring] <= 0 || o.Phases[securing] != 0) {
			t.Errorf("%s: phases %v", tc.options, o.Phases)
		}
	}
	at := server.Listener.Addr().String()
	server.Close()
	o := newClient(Protocol{}).get(t.Context(), &background.Endpoint{Address: netip.MustParseAddrPort(at)})
	if o.Failure != noConnection || !strings.Contains(o.Err.Error(), "connection refused") {
		t.Errorf("nobody listens: %+v", o)
	}
}

// TestTLS checks certificates, and says when they expire.
func TestTLS(t *testing.T) {
	server := httptest.NewUnstartedServer(answers(t))
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	ca := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	for options, failure := range map[string]string{
		`{scheme: https, tls_ca_file: ` + ca + `, valid_http_versions: [HTTP/2.0]}`:    "",
		`{scheme: https, tls_ca_file: ` + ca + `, host: "example.com:8443"}`:           "",
		`{scheme: https, tls_ca_file: ` + ca + `, tls_server_name: other.example.net}`: badTLS,
		`{scheme: https, tls_insecure_skip_verify: true, path: /here}`:                 "",
		`{scheme: https}`: badTLS,
		`{}`:              badStatus, // the server says in clear text that it wants TLS
	} {
		o := probe(t, server, options)
		if o.Failure != failure {
			t.Errorf("%s: %+v, want %q", options, o, failure)
		}
		if failure == "" && (o.Values[expiry] != float64(server.Certificate().NotAfter.Unix()) || o.Phases[securing] <= 0) {
			t.Errorf("%s: %+v", options, o)
		}
	}
	p, _ := configure(t, `{scheme: https, tls_ca_file: `+ca+`}`)
	if err := os.Remove(ca); err != nil {
		t.Fatal(err)
	}
	at := netip.MustParseAddrPort(server.Listener.Addr().String())
	if o := newClient(p.(Protocol)).get(t.Context(), &background.Endpoint{Address: at}); o.Failure != badTLS {
		t.Errorf("the authorities are gone: %+v", o)
	}
}

// TestASilentServer is given up with the probe.
func TestASilentServer(t *testing.T) {
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var o background.Outcome
	for patience := 20 * time.Millisecond; patience < time.Minute; patience *= 2 {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		o = newClient(Protocol{}).get(ctx, &background.Endpoint{Address: netip.MustParseAddrPort(l.Addr().String())})
		cancel()
		if o.Phases[processing] > 0 { // else a stalled machine had not connected
			break
		}
	}
	if o.Err == nil || o.Phases[processing] <= 0 || o.Phases[transferring] != 0 {
		t.Errorf("%+v", o)
	}
}
