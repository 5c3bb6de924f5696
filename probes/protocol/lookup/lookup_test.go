package lookup

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"go.yaml.in/yaml/v3"

	"vigia/internal/catalog"
	"vigia/probes/protocol"
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
	const text = `{query_name: www.example.net, query_type: AAAA, valid_rcodes: [NOERROR, NXDOMAIN], fail_if_matches_regexp: [bad]}`
	a, said := configure(t, text)
	b, _ := configure(t, strings.Replace(text, "example.net", "example.net.", 1))
	if a != b || len(said) != 0 {
		t.Errorf("%+v %+v: %v", a, b, said)
	}
	if c, _ := configure(t, strings.Replace(text, "NXDOMAIN", "REFUSED", 1)); a == c {
		t.Error("protocols with other codes are equal")
	}
}

func TestMistakesInOptions(t *testing.T) {
	for text, want := range map[string]string{
		`{}`:                                                 "query_name: <nil>: is missing; add for example query_name: www.example.net",
		`{query_name: a..b}`:                                 "query_name: a..b: has a label without letters, or with more than 63",
		`{query_name: "a b"}`:                                "query_name: a b: has letters that names do not have",
		`{query_name: ä.example.net}`:                        "has letters that names do not have",
		`{query_name: a, query_type: ANY}`:                   "query_type: ANY: is not a type of records that can be asked for; write A, AAAA, CNAME, MX, NS, PTR, SOA, SRV, TXT",
		`{query_name: a, transport_protocol: t}`:             "transport_protocol: t: does not carry questions of probes; write udp or tcp",
		`{query_name: a, valid_rcodes: [OK]}`:                "valid_rcodes[0]: OK: is not a code of answers; write NOERROR, FORMERR",
		`{query_name: a, fail_if_matches_regexp: ["("]}`:     "fail_if_matches_regexp[0]: (: is not a regular expression",
		`{query_name: a, fail_if_not_matches_regexp: ["("]}`: "fail_if_not_matches_regexp[0]: (: is not a regular expression",
		`{query_name: ` + strings.Repeat("a", 64) + `}`:      "has a label without letters, or with more than 63",
		`{query_name: ` + strings.Repeat(strings.Repeat("a", 60)+".", 5) + `}`: "is longer than 255 bytes",
	} {
		_, said := configure(t, text)
		if !slices.ContainsFunc(said, func(s string) bool { return strings.Contains(s, want) }) {
			t.Errorf("%s: %q\nwant %q", text, said, want)
		}
	}
	if _, said := configure(t, "{query_name: .}"); len(said) != 0 {
		t.Errorf("the root: %q", said)
	}
}

// TestCatalogue: the metrics, and all failures and phases, are in the catalogue.
func TestCatalogue(t *testing.T) {
	all, err := catalog.Load()
	if err != nil {
		t.Fatal(err)
	}
	reg := prometheus.NewPedanticRegistry()
	Protocol{}.Metrics(all.NewFactory("probe", reg)).Added([]string{"a", "b", "p", "_infra", "c"})
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
