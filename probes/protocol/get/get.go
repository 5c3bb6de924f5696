// Package get probes with requests of HTTP and HTTPS, as blackbox_exporter's module http
// does: a probe is a success when the whole answer has come, and is what was asked for.
package get

import (
	"cmp"
	"crypto/x509"
	"fmt"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"vigia/internal/catalog"
	"vigia/probes/protocol"
	"vigia/probes/protocol/background"
	"vigia/probes/protocol/pattern"
)

// Name is the protocol's name in the configuration.
const Name = "http"

const (
	defaultPort = 80
	// defaultBody is how much of an answer's body is read at most, maxBody how much may be asked for.
	defaultBody = 1 << 20
	maxBody     = 64 << 20
)

// The schemes.
const (
	plain  = "http"
	secure = "https"
)

// Protocol is HTTP. Its zero value asks for / without TLS.
type Protocol struct {
	scheme, method, path, host string
	codes, versions            pattern.List
	matches, misses            pattern.List // of bodies that are failures, and that have to be there
	stay                       bool         // redirects are failures
	insecure                   bool
	caFile, serverName         string
	limit                      int64
}

var (
	_ protocol.Configurable = Protocol{}
	_ protocol.Metered      = Protocol{}
)

// Traits say what the protocol is like.
func (Protocol) Traits() protocol.Traits {
	return protocol.Traits{
		Name: Name, Title: "HTTP", Noun: "a request of HTTP", Socketless: true, Port: defaultPort, Flows: protocol.NewFlows,
	}
}

// CheckSize accepts any size: requests have none.
func (Protocol) CheckSize(int) (problem, fix string) { return "", "" }

// NewSession returns the exchange of a session.
func (p Protocol) NewSession(s *protocol.Session) any { return background.New(s, newClient(p).get) }

// options are the keys of the configuration. Those that blackbox_exporter has as well have its names.
type options struct {
	Scheme             string   `yaml:"scheme" help:"'http' (default) or 'https'"`
	Method             string   `yaml:"method" help:"'GET' (default) or 'HEAD'"`
	Path               string   `yaml:"path" help:"what is asked for, default '/'"`
	Host               string   `yaml:"host" help:"header Host, and the name in the certificate; default: the address"`
	ValidStatusCodes   []int    `yaml:"valid_status_codes" help:"status codes of a success, default 200 to 299"`
	ValidHTTPVersions  []string `yaml:"valid_http_versions" help:"versions of a success, for example 'HTTP/1.1', 'HTTP/2.0'; default: any"`
	FollowRedirects    bool     `yaml:"follow_redirects" help:"default true; one that leads to another address or port is a failure all the same: it would measure another path"`
	FailIfBodyMatches  []string `yaml:"fail_if_body_matches_regexp" help:"a body that matches one of these (RE2) is a failure"`
	FailIfBodyMisses   []string `yaml:"fail_if_body_not_matches_regexp" help:"a body that does not match all of these (RE2) is a failure"`
	BodySizeLimit      int64    `yaml:"body_size_limit" help:"bytes; a longer body is a failure; default 1048576, at most 67108864"`
	CAFile             string   `yaml:"tls_ca_file" help:"certificates of authorities that are trusted in place of the system's, read at every probe"`
	ServerName         string   `yaml:"tls_server_name" help:"name in the certificate, in place of host"`
	InsecureSkipVerify bool     `yaml:"tls_insecure_skip_verify" help:"take any certificate"`
}

// Options returns the defaults.
func (Protocol) Options() any { return &options{FollowRedirects: true} }

// Configure returns the protocol with options.
func (p Protocol) Configure(from any, report protocol.Report) protocol.Protocol {
	o := from.(*options)
	o.check(report)
	o.checkTLS(report)
	p.scheme, p.method, p.path, p.host = o.Scheme, o.Method, o.Path, o.Host
	texts := make([]string, len(o.ValidStatusCodes))
	for i, code := range o.ValidStatusCodes {
		texts[i] = strconv.Itoa(code)
	}
	p.codes, p.versions = pattern.ListOf(texts...), pattern.ListOf(o.ValidHTTPVersions...)
	p.matches = pattern.Checked(o.FailIfBodyMatches, "fail_if_body_matches_regexp", report)
	p.misses = pattern.Checked(o.FailIfBodyMisses, "fail_if_body_not_matches_regexp", report)
	p.stay, p.limit = !o.FollowRedirects, o.BodySizeLimit
	p.insecure, p.caFile, p.serverName = o.InsecureSkipVerify, o.CAFile, o.ServerName
	return p
}

func (o *options) check(report protocol.Report) {
	if o.Scheme != "" && o.Scheme != plain && o.Scheme != secure {
		report("scheme", o.Scheme, "is not a scheme of HTTP", "write "+plain+" or "+secure)
	}
	if o.Method != "" && o.Method != http.MethodGet && o.Method != http.MethodHead {
		report("method", o.Method, "is not a method of probes, which change nothing", "write GET or HEAD")
	}
	if o.Path != "" && (!strings.HasPrefix(o.Path, "/") || strings.ContainsFunc(o.Path, unprintable)) {
		report("path", o.Path, "is not a path", "write for example /healthz")
	}
	if strings.ContainsFunc(o.Host, unprintable) || strings.ContainsAny(o.Host, "/?#@") {
		report("host", o.Host, "is not a host", "write for example www.example.net")
	}
	for i, code := range o.ValidStatusCodes {
		if code < 100 || code > 599 {
			report(fmt.Sprintf("valid_status_codes[%d]", i), code, "is not a status code", "write 100 to 599")
		}
	}
	versions := []string{"HTTP/1.0", "HTTP/1.1", "HTTP/2.0"}
	for i, version := range o.ValidHTTPVersions {
		if !slices.Contains(versions, version) {
			report(fmt.Sprintf("valid_http_versions[%d]", i), version, "is not a version of HTTP", "write "+strings.Join(versions, ", "))
		}
	}
	if o.BodySizeLimit < 0 || o.BodySizeLimit > maxBody {
		report("body_size_limit", o.BodySizeLimit, "is out of bounds", fmt.Sprintf("write 1 to %d", maxBody))
	}
}

func (o *options) checkTLS(report protocol.Report) {
	for _, key := range []struct {
		name  string
		given bool
	}{
		{"tls_ca_file", o.CAFile != ""}, {"tls_server_name", o.ServerName != ""}, {"tls_insecure_skip_verify", o.InsecureSkipVerify},
	} {
		if key.given && o.Scheme != secure {
			report(key.name, nil, "means nothing without TLS", "write scheme: "+secure+", or remove it")
		}
	}
	if o.CAFile == "" {
		return
	}
	if !filepath.IsAbs(o.CAFile) {
		report("tls_ca_file", o.CAFile, "is not an absolute path", "write for example /etc/vigia/ca.crt")
	} else if _, err := authorities(o.CAFile); err != nil {
		report("tls_ca_file", o.CAFile, "cannot be used: "+err.Error(), "name a readable file of certificates (PEM)")
	}
}

// authorities reads the certificates of a file.
func authorities(file string) (*x509.CertPool, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s: there is no certificate in it", file)
	}
	return pool, nil
}

func unprintable(r rune) bool { return r <= ' ' || r == 0x7f }

// The phases of a request, as blackbox_exporter tells them apart. Names are resolved before.
const (
	connecting   = iota // until the connection stands
	securing            // the handshake of TLS
	processing          // from then on until the first byte of the answer
	transferring        // until its last
	numPhases
)

// Phases returns what requests consist of, for metrics.
func Phases() []string { return []string{"connect", "tls", "processing", "transfer"} }

// The failures.
const (
	noConnection = "connect"
	badTLS       = "tls"
	badAnswer    = "answer"
	badStatus    = "status"
	badVersion   = "version"
	badRedirect  = "redirect"
	badBody      = "body"
)

// Failures returns by what requests fail, for metrics.
func Failures() []string {
	return []string{
		background.Unsent, background.Timeout, noConnection, badTLS, badAnswer, badStatus, badVersion, badRedirect, badBody,
	}
}

// The gauges.
const (
	status = iota
	expiry // of the certificate of the chain that expires first, in seconds since 1970
	numGauges
)

func unknown() []float64 { return slices.Repeat([]float64{math.NaN()}, numGauges) }

// Metrics registers what requests have beside the delay.
func (Protocol) Metrics(f *catalog.Factory) protocol.Metrics {
	return &background.Meter{
		Failed: f.Counter("vigia_probe_http_failed_total"), Failures: Failures(),
		Seconds: f.Counter("vigia_probe_http_phase_seconds_total"), Phases: Phases(),
		Gauges: []*prometheus.GaugeVec{
			status: f.Gauge("vigia_probe_http_status_code"),
			expiry: f.Gauge("vigia_probe_http_certificate_expiry_timestamp_seconds"),
		},
	}
}

// orDefault returns what is asked for and how.
func (p Protocol) orDefault() Protocol {
	p.scheme, p.method, p.path = cmp.Or(p.scheme, plain), cmp.Or(p.method, http.MethodGet), cmp.Or(p.path, "/")
	p.limit = cmp.Or(p.limit, defaultBody)
	return p
}
