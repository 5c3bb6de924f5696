package settings

import (
	"encoding/pem"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"vigia/internal/config"
)

// everything has every key, each with a value of its own: changes says by which other one
// it is replaced. FIRST and SECOND stand for files with keys.
const everything = `node: lb1
reflector:
  listeners: [{netns: red, address: "10.99.1.1:862", key_file: FIRST}, {address: "10.99.1.9:8620"}]
  allow: [10.99.1.0/24]
  max_rate: 500
paths:
  - {name: direct, dataplane: none, encap: none, mode: normal, security: none, layer: underlay, placement: remote}
  - {name: pods, dataplane: auto, encap: auto, mode: normal, security: none, layer: overlay, placement: remote, found_by: [/pods.json]}
  - {name: more, dataplane: auto, encap: none, mode: normal, security: none, layer: overlay, placement: remote, further: false}
  - {name: vxlan, dataplane: ovs, encap: vxlan, mode: openflow, security: ipsec, layer: overlay, placement: local}
classes:
  - {name: big, protocol: stamp, size: 1400, interval: 50ms, deadline: 900ms, dscp: 46, priority: 3, mark: 7, dont_fragment: true,
     source_ports: 4, ecmp_paths: 8, path_mtu: {interval: 20m, min: 600, max: 9000}}
  - {name: spare, protocol: stamp, size: 1400, interval: 50ms, flow: warm,
     objectives: [{delay: 20ms, jitter: 10ms}, {path: direct, delay: 30ms}]}
  - {name: twins, protocol: stamp, size: 64, interval: 1s}
  - name: page
    protocol: http
    interval: 10s
    options: {scheme: https, method: GET, path: /healthz, host: www.example.net, valid_status_codes: [200], valid_http_versions: [HTTP/1.1],
      follow_redirects: true, fail_if_body_matches_regexp: [bad], fail_if_body_not_matches_regexp: [good], body_size_limit: 1000,
      tls_ca_file: AUTHORITY, tls_server_name: www.example.org, tls_insecure_skip_verify: false}
  - name: names
    protocol: dns
    interval: 10s
    options: {query_name: www.example.net, query_type: A, transport_protocol: udp, recursion_desired: true, valid_rcodes: [NOERROR],
      fail_if_matches_regexp: [wrong], fail_if_not_matches_regexp: [right]}
targets:
  - {dst: lb2, path: direct, tenant: blue, probe: big, netns: red, source: 10.99.1.1, device: eth0, address: "10.99.1.2:862", key_file: FIRST}
  - {dst: lb3, path: direct, tenant: blue, probe: twins, address: "10.99.1.3:862"}
  - {dst: lb3, path: vxlan, tenant: blue, probe: twins, twin: direct, address: "10.99.1.3:863"}
  - {dst: lb4, path: direct, tenant: blue, probe: spare, address: "10.99.1.4:862"}
  - {dst: www, path: direct, tenant: blue, probe: page, address: "10.99.1.5:443"}
  - {dst: names, path: direct, tenant: blue, probe: names, address: "10.99.1.5:53"}
clock: {error_bound: 10us, chrony: "127.0.0.1:323", ptp4l: /run/ptp4l, max_oneway_error: 2ms}
health: {cpu_pressure: 0.5, steal: 0.2, schedule_lag: 200ms}
timestamps: {hardware: auto}
series: usual
discovery:
  - files: [/nodes.json]
    refresh: 20s
    grace: 10m
    within: rack
    own: false
    per_node: 8
    per_zone: 2
    show: [lb2]
    targets:
      - {path: direct, tenant: green, probe: big, netns: red, source: 10.99.1.1, port: 8620, at: pods, device: eth0, key_file: FIRST}
      - {path: direct, tenant: green, probe: twins}
      - {path: vxlan, tenant: green, probe: twins, twin: direct}
  - {url: "http://inventory.example.net/nodes", targets: [{path: direct, tenant: pink, probe: big}]}
mesh: {pair_series: 500}
moments: {disabled: false, interval: 6m, good_interval: 20m, keep: 50, state: /srv/moments.json}
bulk:
  listeners: [{netns: red, address: "10.99.1.1:9876", link: uplink}]
  allow: [10.99.1.0/24]
  hourly_bytes: 5000000
  state: /srv/spent.json
  slot: 20s
  nodes: [lb1, lb2]
  classes:
    - {name: tcp, protocol: tcp, duration: 2s, max_bytes: 1000000, dscp: 8, priority: 3, mark: 7}
    - {name: udp, protocol: udp, duration: 2s, rates: [100Mbit], size: 1200}
    - {name: lone, protocol: udp, duration: 2s, rates: [50Mbit]}
    - {name: rest, protocol: udp, duration: 2s, rates: [10Mbit]}
  targets:
    - {dst: lb2, path: direct, tenant: blue, probe: tcp, netns: red, source: 10.99.1.1, device: eth0, address: "10.99.1.2:9876", link: uplink,
       machines: [2, 4], pairs: [{netns: red, source: 10.99.1.1, address: "10.99.1.2:9876"}]}
    - {dst: lb2, path: direct, tenant: blue, probe: udp, address: "10.99.1.2:9876"}
    - {dst: lb2, path: direct, tenant: blue, probe: lone, address: "10.99.1.2:9876"}
objectives: [{tenant: blue, ratio: 0.99, rtt: 5ms}]
objectives_state: /srv/learned.json
`

// changes are how keys change: what is replaced by what, pair by pair.
var changes = map[string][]string{
	"node":                                                {"node: lb1\n", "node: lb9\n", "nodes: [lb1,", "nodes: [lb9,"},
	"reflector.listeners[].netns":                         {`{netns: red, address: "10.99.1.1:862"`, `{netns: blue, address: "10.99.1.1:862"`},
	"reflector.listeners[].address":                       {`address: "10.99.1.1:862"`, `address: "10.99.1.1:863"`},
	"reflector.listeners[].key_file":                      {`"10.99.1.1:862", key_file: FIRST`, `"10.99.1.1:862", key_file: SECOND`},
	"reflector.allow[]":                                   {"allow: [10.99.1.0/24]\n  max_rate", "allow: [10.99.2.0/24]\n  max_rate"},
	"reflector.max_rate":                                  {"max_rate: 500", "max_rate: 501"},
	"paths[].name":                                        {"name: direct,", "name: straight,", "path: direct", "path: straight", "twin: direct", "twin: straight"},
	"paths[].dataplane":                                   {"dataplane: ovs", "dataplane: macvlan"},
	"paths[].encap":                                       {"encap: vxlan", "encap: gre"},
	"paths[].further":                                     {"further: false", "further: true"},
	"paths[].found_by[]":                                  {"/pods.json", "/other-pods.json"},
	"classes[].options.scheme":                            {"scheme: https", "scheme: http", "tls_ca_file: AUTHORITY, tls_server_name: www.example.org, ", ""},
	"classes[].options.method":                            {"method: GET", "method: HEAD"},
	"classes[].options.path":                              {"/healthz", "/readyz"},
	"classes[].options.host":                              {"host: www.example.net", "host: www.example.com"},
	"classes[].options.valid_status_codes[]":              {"valid_status_codes: [200]", "valid_status_codes: [200, 401]"},
	"classes[].options.valid_http_versions[]":             {"[HTTP/1.1]", "[HTTP/2.0]"},
	"classes[].options.follow_redirects":                  {"follow_redirects: true", "follow_redirects: false"},
	"classes[].options.fail_if_body_matches_regexp[]":     {"[bad]", "[worse]"},
	"classes[].options.fail_if_body_not_matches_regexp[]": {"[good]", "[better]"},
	"classes[].options.body_size_limit":                   {"body_size_limit: 1000", "body_size_limit: 1001"},
	"classes[].options.tls_ca_file":                       {"tls_ca_file: AUTHORITY, ", ""},
	"classes[].options.tls_server_name":                   {"www.example.org", "www.example.com"},
	"classes[].options.tls_insecure_skip_verify":          {"tls_insecure_skip_verify: false", "tls_insecure_skip_verify: true"},
	"classes[].options.query_name":                        {"query_name: www.example.net", "query_name: www.example.com"},
	"classes[].options.query_type":                        {"query_type: A", "query_type: AAAA"},
	"classes[].options.transport_protocol":                {"transport_protocol: udp", "transport_protocol: tcp"},
	"classes[].options.recursion_desired":                 {"recursion_desired: true", "recursion_desired: false"},
	"classes[].options.valid_rcodes[]":                    {"[NOERROR]", "[NOERROR, NXDOMAIN]"},
	"classes[].options.fail_if_matches_regexp[]":          {"[wrong]", "[worse]"},
	"classes[].options.fail_if_not_matches_regexp[]":      {"[right]", "[better]"},
	"discovery[].own":                                     {"own: false", "own: true"},
	"discovery[].targets[].at":                            {"at: pods", "at: host"},
	"paths[].mode":                                        {"mode: openflow", "mode: meters"},
	"paths[].security":                                    {"security: ipsec", "security: macsec"},
	"paths[].layer":                                       {"layer: overlay", "layer: slice"},
	"paths[].placement":                                   {"placement: local", "placement: rack"},
	"classes[].name":                                      {"name: spare", "name: other", "probe: spare", "probe: other"},
	"classes[].protocol":                                  {"name: spare, protocol: stamp", "name: spare, protocol: icmp", `"10.99.1.4:862"`, `"10.99.1.4"`},
	"classes[].size":                                      {"size: 64,", "size: 68,"},
	"classes[].interval":                                  {"interval: 1s", "interval: 2s"},
	"classes[].deadline":                                  {"deadline: 900ms", "deadline: 800ms"},
	"classes[].dscp":                                      {"dscp: 46", "dscp: 26"},
	"classes[].priority":                                  {"dscp: 46, priority: 3", "dscp: 46, priority: 4"},
	"classes[].mark":                                      {"mark: 7, dont", "mark: 8, dont"},
	"classes[].dont_fragment":                             {"dont_fragment: true", "dont_fragment: false"},
	"classes[].source_ports":                              {"source_ports: 4", "source_ports: 5"},
	"classes[].flow":                                      {"interval: 50ms, flow: warm", "interval: 100ms, flow: cold"},
	"classes[].ecmp_paths":                                {"ecmp_paths: 8", "ecmp_paths: 9"},
	"classes[].objectives[].path":                         {"{path: direct, delay: 30ms}", "{path: vxlan, delay: 30ms}"},
	"classes[].objectives[].delay":                        {"delay: 20ms", "delay: 21ms"},
	"classes[].objectives[].jitter":                       {"jitter: 10ms", "jitter: 11ms"},
	"classes[].path_mtu.interval":                         {"interval: 20m", "interval: 30m"},
	"classes[].path_mtu.min":                              {"min: 600", "min: 700"},
	"classes[].path_mtu.max":                              {"max: 9000", "max: 8000"},
	"targets[].dst":                                       {"dst: lb4", "dst: lb5"},
	"targets[].path":                                      {"dst: lb4, path: direct", "dst: lb4, path: vxlan"},
	"targets[].tenant":                                    {"dst: lb4, path: direct, tenant: blue", "dst: lb4, path: direct, tenant: grey"},
	"targets[].probe":                                     {"probe: spare", "probe: big"},
	"targets[].netns":                                     {`probe: big, netns: red, source: 10.99.1.1, device: eth0, address`, `probe: big, netns: blue, source: 10.99.1.1, device: eth0, address`},
	"targets[].source":                                    {`source: 10.99.1.1, device: eth0, address: "10.99.1.2:862"`, `source: 10.99.1.9, device: eth0, address: "10.99.1.2:862"`},
	"targets[].device":                                    {`device: eth0, address: "10.99.1.2:862"`, `device: eth1, address: "10.99.1.2:862"`},
	"targets[].twin":                                      {"probe: twins, twin: direct, address", "probe: twins, address"},
	"targets[].address":                                   {`"10.99.1.4:862"`, `"10.99.1.5:862"`},
	"targets[].key_file":                                  {`"10.99.1.2:862", key_file: FIRST`, `"10.99.1.2:862", key_file: SECOND`},
	"clock.error_bound":                                   {"error_bound: 10us", "error_bound: 20us"},
	"clock.source":                                        {"error_bound: 10us", "source: chrony"},
	"clock.chrony":                                        {`chrony: "127.0.0.1:323"`, `chrony: "127.0.0.1:324"`},
	"clock.ptp4l":                                         {"ptp4l: /run/ptp4l", "ptp4l: /run/ptp4m"},
	"clock.max_oneway_error":                              {"max_oneway_error: 2ms", "max_oneway_error: 3ms"},
	"health.cpu_pressure":                                 {"cpu_pressure: 0.5", "cpu_pressure: 0.6"},
	"health.steal":                                        {"steal: 0.2", "steal: 0.3"},
	"health.schedule_lag":                                 {"schedule_lag: 200ms", "schedule_lag: 300ms"},
	"timestamps.hardware":                                 {"hardware: auto", "hardware: off"},
	"series":                                              {"series: usual", "series: all"},
	"discovery[].files[]":                                 {"/nodes.json", "/others.json"},
	"discovery[].url":                                     {"http://inventory", "https://inventory"},
	"discovery[].refresh":                                 {"refresh: 20s", "refresh: 30s"},
	"discovery[].grace":                                   {"grace: 10m", "grace: 20m"},
	"discovery[].within":                                  {"within: rack", "within: zone"},
	"discovery[].per_node":                                {"per_node: 8", "per_node: 9"},
	"discovery[].per_zone":                                {"per_zone: 2", "per_zone: 3"},
	"discovery[].show[]":                                  {"show: [lb2]", "show: [lb3]"},
	"mesh.pair_series":                                    {"pair_series: 500", "pair_series: 501"},
	"moments.disabled":                                    {"disabled: false", "disabled: true"},
	"moments.interval":                                    {"interval: 6m, good", "interval: 7m, good"},
	"moments.state":                                       {"/srv/moments.json", "/srv/other-moments.json"},
	"moments.good_interval":                               {"good_interval: 20m", "good_interval: 30m"},
	"moments.keep":                                        {"keep: 50", "keep: 51"},
	"discovery[].targets[].path":                          {"{path: direct, tenant: pink", "{path: vxlan, tenant: pink"},
	"discovery[].targets[].tenant":                        {"tenant: pink", "tenant: teal"},
	"discovery[].targets[].probe":                         {"tenant: pink, probe: big", "tenant: pink, probe: spare"},
	"discovery[].targets[].netns":                         {"netns: red, source: 10.99.1.1, port", "netns: blue, source: 10.99.1.1, port"},
	"discovery[].targets[].source":                        {"source: 10.99.1.1, port", "source: 10.99.1.9, port"},
	"discovery[].targets[].port":                          {"port: 8620", "port: 8621"},
	"discovery[].targets[].device":                        {"at: pods, device: eth0", "at: pods, device: eth1"},
	"discovery[].targets[].twin":                          {"tenant: green, probe: twins, twin: direct", "tenant: green, probe: twins"},
	"discovery[].targets[].key_file":                      {"at: pods, device: eth0, key_file: FIRST", "at: pods, device: eth0, key_file: SECOND"},
	"bulk.listeners[].netns":                              {`{netns: red, address: "10.99.1.1:9876"`, `{netns: blue, address: "10.99.1.1:9876"`},
	"bulk.listeners[].address":                            {`address: "10.99.1.1:9876"`, `address: "10.99.1.1:9877"`},
	"bulk.listeners[].link":                               {`"10.99.1.1:9876", link: uplink`, `"10.99.1.1:9876", link: other`},
	"bulk.allow[]":                                        {"allow: [10.99.1.0/24]\n  hourly", "allow: [10.99.2.0/24]\n  hourly"},
	"bulk.hourly_bytes":                                   {"hourly_bytes: 5000000", "hourly_bytes: 6000000"},
	"bulk.state":                                          {"/srv/spent.json", "/srv/other.json"},
	"bulk.slot":                                           {"slot: 20s", "slot: 21s"},
	"bulk.nodes[]":                                        {"nodes: [lb1, lb2]", "nodes: [lb1, lb2, lb3]"},
	"bulk.classes[].name":                                 {"name: lone", "name: alone", "probe: lone", "probe: alone"},
	"bulk.classes[].protocol":                             {"name: lone, protocol: udp, duration: 2s, rates: [50Mbit]", "name: lone, protocol: tcp, duration: 2s"},
	"bulk.classes[].duration":                             {"name: tcp, protocol: tcp, duration: 2s", "name: tcp, protocol: tcp, duration: 3s"},
	"bulk.classes[].max_bytes":                            {"max_bytes: 1000000", "max_bytes: 2000000"},
	"bulk.classes[].rates[]":                              {"rates: [100Mbit]", "rates: [200Mbit]"},
	"bulk.classes[].size":                                 {"size: 1200", "size: 1300"},
	"bulk.classes[].dscp":                                 {"dscp: 8", "dscp: 9"},
	"bulk.classes[].priority":                             {"dscp: 8, priority: 3", "dscp: 8, priority: 4"},
	"bulk.classes[].mark":                                 {"mark: 7}", "mark: 8}"},
	"bulk.targets[].dst":                                  {"nodes: [lb1, lb2]", "nodes: [lb1, lb2, lb3]", "{dst: lb2, path: direct, tenant: blue, probe: lone", "{dst: lb3, path: direct, tenant: blue, probe: lone"},
	"bulk.targets[].path":                                 {"path: direct, tenant: blue, probe: lone", "path: vxlan, tenant: blue, probe: lone"},
	"bulk.targets[].tenant":                               {"tenant: blue, probe: lone", "tenant: grey, probe: lone"},
	"bulk.targets[].probe":                                {"probe: lone", "probe: rest"},
	"bulk.targets[].netns":                                {"probe: tcp, netns: red", "probe: tcp, netns: blue"},
	"bulk.targets[].source":                               {"probe: tcp, netns: red, source: 10.99.1.1", "probe: tcp, netns: red, source: 10.99.1.9"},
	"bulk.targets[].device":                               {`device: eth0, address: "10.99.1.2:9876"`, `device: eth1, address: "10.99.1.2:9876"`},
	"bulk.targets[].address":                              {`"10.99.1.2:9876", link`, `"10.99.1.2:9877", link`},
	"bulk.targets[].link":                                 {`"10.99.1.2:9876", link: uplink`, `"10.99.1.2:9876", link: other`},
	"bulk.targets[].machines[]":                           {"machines: [2, 4]", "machines: [4]"},
	"bulk.targets[].pairs[].netns":                        {"pairs: [{netns: red", "pairs: [{netns: blue"},
	"bulk.targets[].pairs[].source":                       {"pairs: [{netns: red, source: 10.99.1.1", "pairs: [{netns: red, source: 10.99.1.9"},
	"bulk.targets[].pairs[].address":                      {`source: 10.99.1.1, address: "10.99.1.2:9876"}]`, `source: 10.99.1.1, address: "10.99.1.2:9877"}]`},
	"objectives_state":                                    {"/srv/learned.json", "/srv/other.json"},
	"objectives[].tenant":                                 {"[{tenant: blue", "[{tenant: grey"},
	"objectives[].ratio":                                  {"ratio: 0.99", "ratio: 0.9"},
	"objectives[].rtt":                                    {"rtt: 5ms", "rtt: 6ms"},
}

// fixed are the keys that need a restart.
var fixed = []string{"bulk.state", "objectives_state", "moments.state"}

// TestEveryKeyIsLiveOrRefused changes one key after the other, of all that the reference
// has: a change is put into force by a reload, or refused with the key's name. One that is
// neither would be ignored.
func TestEveryKeyIsLiveOrRefused(t *testing.T) {
	t.Setenv("STATE_DIRECTORY", "")
	dir := t.TempDir()
	files := make([]string, 0, 4)
	for i, name := range []string{"FIRST", "SECOND"} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(strings.Repeat(fmt.Sprint(i+1), 64)+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		files = append(files, name, path)
	}
	files = append(files, "AUTHORITY", authority(t, dir))
	parse := func(t *testing.T, text string) *Settings {
		t.Helper()
		s, err := Parse("f.yaml", []byte(strings.NewReplacer(files...).Replace(text)))
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	before := parse(t, everything)
	if again := parse(t, everything); !reflect.DeepEqual(before, again) {
		t.Fatal("the same file read twice gives different settings")
	}
	seen := make(map[string]bool)
	for _, k := range Keys() {
		seen[k.Path] = true
		if k.Type == "mapping" || k.Type == "list of mapping" {
			continue // what is in it
		}
		t.Run(k.Path, func(t *testing.T) {
			change := changes[k.Path]
			if change == nil {
				t.Fatal("nothing says how this key can change: add it to everything and changes")
			}
			text := strings.NewReplacer(change...).Replace(everything)
			if text == everything {
				t.Fatal("the change changes nothing in the file")
			}
			after := parse(t, text)
			err := config.Unchanged("vigia-probe", before.Fixed, after.Fixed)
			live := !reflect.DeepEqual(before.Live, after.Live)
			switch {
			case slices.Contains(fixed, k.Path):
				if err == nil || !strings.Contains(err.Error(), k.Path+": ") || !strings.Contains(err.Error(), "restart") {
					t.Errorf("the change is not refused by name: %v", err)
				}
			case err != nil:
				t.Errorf("refused: %v", err)
			case !live:
				t.Error("a change is neither live nor refused")
			}
		})
	}
	for path := range changes {
		if !seen[path] {
			t.Errorf("%s is no key", path)
		}
	}
}

// authority writes a certificate of an authority and returns the file.
func authority(t *testing.T, dir string) string {
	t.Helper()
	server := httptest.NewTLSServer(nil)
	defer server.Close()
	path := filepath.Join(dir, "ca.crt")
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestFixedNamesKeys: what is refused is named as in the file.
func TestFixedNamesKeys(t *testing.T) {
	for i := range reflect.TypeFor[Fixed]().NumField() {
		f := reflect.TypeFor[Fixed]().Field(i)
		if !slices.ContainsFunc(Keys(), func(k Key) bool { return k.Path == f.Tag.Get("yaml") }) {
			t.Errorf("%s does not name a key: %q", f.Name, f.Tag.Get("yaml"))
		}
	}
}
