package get

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"vigia/internal/catalog"
	"vigia/probes/protocol"

	"github.com/prometheus/client_golang/prometheus"
)

// configure reads options as the configuration has them.
func configure(t *testing.T, text string) (protocol.Protocol, []string) {
	t.Helper()
	o := Protocol{}.Options()
	if err := yaml.Unmarshal([]byte(text), o); err != nil {
		t.Fatal(err)
	}
	var said []string
	p := Protocol{}.Configure(o, func(key string, value any, problem, fix string) {
		said = append(said, fmt.Sprintf("%s: %v: %s; %s", key, value, problem, fix))
	})
	return p, said
}

func TestEqualOptionsMakeEqualProtocols(t *testing.T) {
	const text = `{scheme: https, path: /healthz, valid_status_codes: [200, 401], fail_if_body_matches_regexp: [bad], tls_insecure_skip_verify: true}`
	a, said := configure(t, text)
	b, _ := configure(t, text)
	if a != b || len(said) != 0 {
		t.Errorf("%+v %+v: %v", a, b, said)
	}
	if c, _ := configure(t, strings.Replace(text, "401", "403", 1)); a == c {
		t.Error("protocols with other codes are equal")
	}
}

func TestMistakesInOptions(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(empty, []byte("nothing"), 0o600); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		`{scheme: ftp}`:                                  "scheme: ftp: is not a scheme of HTTP; write http or https",
		`{method: POST}`:                                 "method: POST: is not a method of probes, which change nothing; write GET or HEAD",
		`{path: healthz}`:                                "path: healthz: is not a path; write for example /healthz",
		`{path: "/a b"}`:                                 "path: /a b: is not a path",
		`{host: "a/b"}`:                                  "host: a/b: is not a host",
		`{valid_status_codes: [200, 99]}`:                "valid_status_codes[1]: 99: is not a status code; write 100 to 599",
		`{valid_http_versions: [HTTP/3]}`:                "valid_http_versions[0]: HTTP/3: is not a version of HTTP; write HTTP/1.0, HTTP/1.1, HTTP/2.0",
		`{fail_if_body_matches_regexp: ["("]}`:           "fail_if_body_matches_regexp[0]: (: is not a regular expression",
		`{fail_if_body_not_matches_regexp: [""]}`:        "fail_if_body_not_matches_regexp[0]: : is not a regular expression",
		`{body_size_limit: -1}`:                          "body_size_limit: -1: is out of bounds; write 1 to 67108864",
		`{tls_ca_file: /a}`:                              "tls_ca_file: <nil>: means nothing without TLS; write scheme: https, or remove it",
		`{tls_insecure_skip_verify: true}`:               "tls_insecure_skip_verify: <nil>: means nothing without TLS",
		`{scheme: https, tls_ca_file: ca.crt}`:           "tls_ca_file: ca.crt: is not an absolute path",
		`{scheme: https, tls_ca_file: ` + empty + `}`:    "there is no certificate in it; name a readable file of certificates (PEM)",
		`{scheme: https, tls_ca_file: ` + empty + `x}`:   "no such file or directory",
		`{scheme: http, tls_server_name: example.net}`:   "tls_server_name: <nil>: means nothing without TLS",
		`{host: "a b", body_size_limit: 99999999999999}`: "host: a b: is not a host",
	} {
		_, said := configure(t, text)
		if !slices.ContainsFunc(said, func(s string) bool { return strings.Contains(s, want) }) {
			t.Errorf("%s: %q\nwant %q", text, said, want)
		}
	}
}

// TestCatalogue: the metrics, and all failures and phases, are in the catalogue.
func TestCatalogue(t *testing.T) {
	all, err := catalog.Load()
	if err != nil {
		t.Fatal(err)
	}
	reg := prometheus.NewPedanticRegistry()
	m := Protocol{}.Metrics(all.NewFactory("probe", reg))
	m.Added([]string{"a", "b", "p", "_infra", "c"})
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	series := 0
	for _, f := range families {
		series += len(f.Metric)
	}
	if series != len(Failures())+numPhases || len(Phases()) != numPhases {
		t.Errorf("%d series", series)
	}
}
