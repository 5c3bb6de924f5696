package app

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"maps"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"go.yaml.in/yaml/v3"

	"vigia/internal/bpf/vport"
	"vigia/internal/netns"
	"vigia/internal/testutil"
	"vigia/isolation-agent/enforcer/notice"
)

// document is a configuration that a test changes by its keys.
type document map[string]any

// section returns a section, or the first entry of a list of them.
func (d document) section(path ...string) document {
	at := d
	for _, key := range path {
		switch v := at[key].(type) {
		case document:
			at = v
		case map[string]any:
			at = v
		case []any:
			at = v[0].(map[string]any)
		default:
			panic(fmt.Sprintf("%s is a %T", key, v))
		}
	}
	return at
}

func parse(t *testing.T, path string) document {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var d map[string]any
	if err := yaml.Unmarshal(raw, &d); err != nil {
		t.Fatal(err)
	}
	return d
}

// keysOf lists the keys below a type of the configuration, as dotted paths; optional
// sections are keys of their own.
func keysOf(t reflect.Type, path string) []string {
	for t.Kind() == reflect.Slice || (t.Kind() == reflect.Pointer && t.Elem().Kind() != reflect.Struct) {
		t = t.Elem()
	}
	var keys []string
	if t.Kind() == reflect.Pointer {
		keys, t = append(keys, path), t.Elem()
	}
	if t.Kind() != reflect.Struct {
		return []string{path}
	}
	for i := range t.NumField() {
		key, options, _ := strings.Cut(t.Field(i).Tag.Get("yaml"), ",")
		switch {
		case strings.Contains(options, "inline"):
			keys = append(keys, keysOf(t.Field(i).Type, path)...)
		case key == "":
		case path == "":
			keys = append(keys, keysOf(t.Field(i).Type, key)...)
		default:
			keys = append(keys, keysOf(t.Field(i).Type, path+"."+key)...)
		}
	}
	return keys
}

// reloaded is a rig whose configuration a test changes key by key.
type reloaded struct {
	*rig
	base document
}

func newReloaded(t *testing.T) *reloaded {
	t.Helper()
	r := &reloaded{rig: newScheduledRig(t)}
	r.base = parse(t, r.config)
	testutil.IP(t, "-n", r.node, "link", "add", "up2", "type", "veth", "peer", "name", "up3")
	testutil.IP(t, "-n", r.node, "link", "set", "up2", "up")
	return r
}

// reload has the enforcer take up the configuration with a change.
func (r *reloaded) reload(change func(document)) (int, string) {
	r.t.Helper()
	d := document(clone(r.base).(map[string]any))
	change(d)
	raw, err := json.Marshal(d) // which is YAML, too
	if err != nil {
		r.t.Fatal(err)
	}
	r.write("enforcer.yaml", string(raw))
	return r.d.Do("POST", "/-/reload", "", "")
}

func clone(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for key, value := range v {
			out[key] = clone(value)
		}
		return out
	case document:
		return clone(map[string]any(v))
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = clone(v[i])
		}
		return out
	}
	return v
}

// certificate writes a certificate and its key and returns their paths.
func (r *reloaded) certificate(name string) (cert, key string) {
	r.t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		r.t.Fatal(err)
	}
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{SerialNumber: big.NewInt(1)}, &x509.Certificate{SerialNumber: big.NewInt(1)}, &private.PublicKey, private)
	if err != nil {
		r.t.Fatal(err)
	}
	raw, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		r.t.Fatal(err)
	}
	return r.write(name+".crt", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))),
		r.write(name+".key", string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw})))
}

// tlsChange makes the southbound database one that is reached by TLS.
func (r *reloaded) tlsChange(t *testing.T) func(document) {
	cert, key := r.certificate("own")
	return func(d document) {
		d["ovsdb"], d["ovn_southbound"] = "unix:/run/openvswitch/db.sock", "ssl:192.0.2.1:6642"
		d["ovn_tls"] = map[string]any{"ca_file": cert, "cert_file": cert, "key_file": key}
	}
}

// fixedKeys are the keys that a running enforcer refuses to change, with such a change.
func (r *reloaded) fixedKeys(t *testing.T) map[string]func(document) {
	tls := r.tlsChange(t)
	return map[string]func(document){
		"node":              func(d document) { d["node"] = "n2" },
		"netns":             func(d document) { d["netns"] = "" },
		"ovsdb":             func(d document) { d["ovsdb"] = "unix:/run/other.sock" },
		"ovn_southbound":    func(d document) { d["ovsdb"], d["ovn_southbound"] = "unix:/run/other.sock", "unix:/run/sb.sock" },
		"ovn_tls.ca_file":   tls,
		"ovn_tls.cert_file": tls,
		"ovn_tls.key_file":  tls,
		"libvirt_dir":       func(d document) { d["libvirt_dir"] = "/run/libvirt/qemu" },
		"cni_results_dir":   func(d document) { d["cni_results_dir"] = "/run/cni" },
		"ports_file":        func(d document) { d["ports_file"] = r.write("other.yaml", "version: 1\nports: []\n") },
		"bpf.pin_dir":       func(d document) { d.section("bpf")["pin_dir"] = r.pins + "-other" },
		"bpf.max_ports":     func(d document) { d.section("bpf")["max_ports"] = 16 },
		"bpf.attachment":    func(d document) { d.section("bpf")["attachment"] = "clsact" },
		"links":             func(d document) { delete(d, "links"); delete(d, "fast_loop") },
		"fast_loop":         func(d document) { delete(d, "fast_loop") },
		"fast_loop.listen":  func(d document) { d.section("fast_loop")["listen"] = "127.0.0.1:19999" },
		"fast_loop.variant": func(d document) { d.section("fast_loop")["variant"] = "paper" },
		"api_socket":        func(d document) { delete(d, "api_socket") },
		"api_socket.path":   func(d document) { d.section("api_socket")["path"] = filepath.Join(r.dir, "other.sock") },
	}
}

// live is a key that a reload takes up: a change, and what shows that it was.
type live struct {
	change func(document)
	taken  func() bool
}

func (r *reloaded) answer(path string) string {
	r.t.Helper()
	_, raw := r.d.Do("GET", path, token, "")
	return raw
}

// contracts are the live keys of a contract.
func (r *reloaded) contracts() map[string]live {
	contract := func(change func(document), path, want string) live {
		return live{func(d document) { change(d.section("contracts")) }, func() bool { return strings.Contains(r.answer(path), want) }}
	}
	match := func(network, id uint32, mac uint64, keys map[string]any) live {
		return live{
			func(d document) { d.section("contracts")["match"] = []any{keys} },
			func() bool { return r.matched(network, id, mac) },
		}
	}
	receive := func(key string, value any) func(document) {
		return func(d document) {
			d["receive"] = map[string]any{"guarantee": "8Mbit", "ceiling": "100Mbit", key: value}
		}
	}
	return map[string]live{
		"contracts.tenant": contract(func(d document) { d["tenant"] = "green" }, "/v1/desired", `"tenant":"green"`),
		"contracts.port": contract(func(d document) {
			d["port"], d["match"] = "p-red", []any{map[string]any{"vxlan": 7, "mac": "02:00:00:00:00:01"}}
		}, "/v1/desired", `"contract":"red/p-red"`),
		"contracts.guarantee":            contract(func(d document) { d["guarantee"] = "16Mbit" }, "/v1/actual", `"guarantee_bytes_per_second":2000000`),
		"contracts.ceiling":              contract(func(d document) { d["ceiling"] = "40Mbit" }, "/v1/actual", `"ceiling_bytes_per_second":5000000`),
		"contracts.packets_per_second":   contract(func(d document) { d["packets_per_second"] = 4321 }, "/v1/state", `"pps_guarantee":4321`),
		"contracts.new_flows_per_second": contract(func(d document) { d["new_flows_per_second"] = 321 }, "/v1/state", `"new_flows_guarantee":321`),
		"contracts.new_mac_pairs_per_second": {
			func(d document) { d.section("contracts")["new_mac_pairs_per_second"] = 21 },
			func() bool { return r.bounds().MACPairs == 21 },
		},
		"contracts.receive":           contract(receive("ceiling", "50Mbit"), "/v1/desired", `"to_tenant":{"guarantee_bytes_per_second":1000000,"ceiling_bytes_per_second":6250000}`),
		"contracts.receive.guarantee": contract(receive("guarantee", "24Mbit"), "/v1/actual", `"guarantee_bytes_per_second":3000000`),
		"contracts.receive.ceiling":   contract(receive("ceiling", "32Mbit"), "/v1/actual", `"ceiling_bytes_per_second":4000000`),
		"contracts.receive.packets_per_second": {
			func(d document) { receive("packets_per_second", 77)(d.section("contracts")) },
			func() bool { return r.refuses(300) },
		},
		"contracts.match.vxlan":  match(2, 8, 0, map[string]any{"vxlan": 8}),
		"contracts.match.geneve": match(4, 9, 0, map[string]any{"geneve": 9}),
		"contracts.match.gre":    match(3, 10, 0, map[string]any{"gre": 10}),
		"contracts.match.vlan":   match(1, 11, 0, map[string]any{"vlan": 11}),
		"contracts.match.mac":    match(0, 0, 0x020000000005, map[string]any{"mac": "02:00:00:00:00:05"}),
	}
}

// bounds returns what red's port is held to in the kernel.
func (r *reloaded) bounds() vport.Bounds {
	r.t.Helper()
	kernel, err := vport.Open(vport.Options{PinDir: r.pins, NetNS: r.node, MaxPorts: 8})
	if err != nil {
		r.t.Fatal(err)
	}
	defer kernel.Close()
	out, err := kernel.Contract(r.index("tap-red"))
	if err != nil {
		r.t.Fatal(err)
	}
	return out
}

// refuses reports whether some of n packets to red's port are refused there.
func (r *reloaded) refuses(n int) bool {
	r.t.Helper()
	refused := func() float64 {
		return r.d.Metrics()[`vigia_isolation_refused_packets_total{port="p-red",tenant="red"}`]
	}
	before := refused()
	var conn net.PacketConn
	if err := netns.Do(r.node, func() (err error) { conn, err = net.ListenPacket("udp4", nodeIP+":0"); return err }); err != nil {
		r.t.Fatal(err)
	}
	defer conn.Close()
	for range n {
		if _, err := conn.WriteTo([]byte("to red"), &net.UDPAddr{IP: net.ParseIP("10.7.0.2"), Port: 9}); err != nil {
			r.t.Fatal(err)
		}
	}
	return refused() > before
}

// matched reports whether the classifier leads such frames to a class.
func (r *reloaded) matched(network, id uint32, mac uint64) bool {
	r.t.Helper()
	m, err := ebpf.LoadPinnedMap(filepath.Join(r.pins, "classify", "class_match"), nil)
	if err != nil {
		r.t.Fatal(err)
	}
	defer m.Close()
	var class uint32
	key := struct {
		Network, ID uint32
		MAC         uint64
	}{network, id, mac}
	return m.Lookup(key, &class) == nil && class != 0
}

// others are the live keys that are no contract's.
func (r *reloaded) others(user *socketUser) map[string]live {
	links := func(change func(document), want string) live {
		return live{func(d document) { change(d.section("links")) }, func() bool { return strings.Contains(r.answer("/v1/desired"), want) }}
	}
	const token2 = "another-token-of-some-length"
	return map[string]live{
		"token_file": {
			func(d document) { d["token_file"] = r.write("token2", token2) },
			func() bool {
				code, _ := r.d.Do("GET", "/v1/state", token2, "")
				old, _ := r.d.Do("GET", "/v1/state", token, "")
				return code == 200 && old == 401
			},
		},
		"contracts_file": {
			func(d document) {
				d["contracts_file"] = r.write("contracts.yaml", "version: 1\ncontracts: [{tenant: green, guarantee: 3Mbit, ceiling: 4Mbit}]\n")
			},
			func() bool { return strings.Contains(r.answer("/v1/desired"), `"green"`) },
		},
		"links.device": {
			func(d document) { d.section("links")["device"] = "up2" },
			func() bool {
				before, after := testutil.Run(r.t, "tc", "-n", r.node, "qdisc", "show", "dev", "up0"), testutil.Run(r.t, "tc", "-n", r.node, "qdisc", "show", "dev", "up2")
				return !strings.Contains(before, "htb") && strings.Contains(after, "htb 1150:")
			},
		},
		"links.rate":     links(func(d document) { d["rate"] = "80Mbit" }, `"rate_bytes_per_second":10000000`),
		"links.headroom": links(func(d document) { d["headroom"] = 0.2 }, `"limit_bytes_per_second":10000000`),
		"fast_loop.site_file": {
			func(d document) {
				d.section("fast_loop")["keys_file"] = r.write("keys3", "1 n3 "+strings.Repeat("ab", 32)+"\n")
				d.section("fast_loop")["site_file"] = r.write("site2.yaml", "version: 1\nnodes: [{node: n1, address: \"127.0.0.1:19876\"}, {node: n3, address: \"127.0.0.1:19879\"}]\nports: []\n")
			},
			func() bool { return strings.Contains(r.answer("/v1/pairs"), `"node":"n3"`) },
		},
		"fast_loop.keys_file": {
			func(d document) {
				d.section("fast_loop")["keys_file"] = r.write("keys2", "2 n2 "+strings.Repeat("cd", 32)+"\n")
			},
			func() bool {
				before := r.d.Metrics()[`vigia_enforcer_notices_total{kind="hello",outcome="received"}`]
				r.hello(2, strings.Repeat("\xcd", 32))
				return r.d.Metrics()[`vigia_enforcer_notices_total{kind="hello",outcome="received"}`] > before
			},
		},
		"api_socket.uids": {
			func(d document) { d.section("api_socket")["uids"] = []any{nobody} },
			func() bool { return user.ask() == "200" },
		},
	}
}

// hello greets the enforcer as node n2's would.
func (r *reloaded) hello(id uint16, key string) {
	r.t.Helper()
	n := notice.Notice{Kind: notice.Hello, KeyID: id, From: notice.ID("n2"), To: notice.ID("n1"), Boot: 1, Seq: 1, Nonce: 1}
	var conn net.Conn
	if err := netns.Do(r.node, func() (err error) { conn, err = net.Dial("udp4", "127.0.0.1:19876"); return err }); err != nil {
		r.t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write(n.Append(nil, []byte(key))); err != nil {
		r.t.Fatal(err)
	}
}

const nobody = 65534

// socketUser is another user's process with one connection to the API's socket.
type socketUser struct {
	t     *testing.T
	stdin io.WriteCloser
	lines *bufio.Scanner
}

func newSocketUser(r *rig) *socketUser {
	r.t.Helper()
	for _, folder := range []string{r.dir, filepath.Dir(r.dir)} {
		if err := os.Chmod(folder, 0o755); err != nil {
			r.t.Fatal(err)
		}
	}
	cmd := exec.Command("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "/usr/bin/python3", "-u", "-c", `
import http.client, socket, sys
class Connection(http.client.HTTPConnection):
    def connect(self):
        if self.sock:
            sys.exit("connected anew")
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(sys.argv[1])
c = Connection("enforcer")
c.connect()
c.auto_open = 0
for line in sys.stdin:
    c.request("GET", "/v1/state")
    r = c.getresponse()
    r.read()
    print(r.status)`, filepath.Join(r.dir, "api.sock"))
	cmd.Stderr = &testutil.Output{}
	u := &socketUser{t: r.t}
	var err error
	if u.stdin, err = cmd.StdinPipe(); err != nil {
		r.t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		r.t.Fatal(err)
	}
	u.lines = bufio.NewScanner(out)
	if err := cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		u.stdin.Close()
		if err := cmd.Wait(); err != nil {
			r.t.Errorf("the other user's process: %v\n%s", err, cmd.Stderr)
		}
	})
	return u
}

// ask sends a request on the connection and returns the answer's status.
func (u *socketUser) ask() string {
	u.t.Helper()
	if _, err := io.WriteString(u.stdin, "\n"); err != nil {
		u.t.Fatal(err)
	}
	if !u.lines.Scan() {
		u.t.Fatal("the other user's process has ended")
	}
	return u.lines.Text()
}

// TestEveryKeyIsLiveOrRefused changes every key of the configuration of a running
// enforcer. A key that this test does not know fails it.
func TestEveryKeyIsLiveOrRefused(t *testing.T) {
	r := newReloaded(t)
	user := newSocketUser(r.rig)
	if got := user.ask(); got != "401" {
		t.Fatalf("another user gets %s before it is listed", got)
	}
	refused, taken := r.fixedKeys(t), r.contracts()
	maps.Copy(taken, r.others(user))
	for _, key := range keysOf(reflect.TypeFor[Config](), "") {
		_, isFixed := refused[key]
		if _, isLive := taken[key]; isFixed == isLive {
			t.Errorf("%s is neither refused by a reload nor taken up, or both", key)
		}
	}
	if t.Failed() {
		return
	}
	t.Run("refused", func(t *testing.T) {
		for _, key := range slices.Sorted(maps.Keys(refused)) {
			code, raw := r.reload(refused[key])
			if code != 500 || !strings.Contains(raw, key+": ") || !strings.Contains(raw, "restart vigia-enforcer") {
				t.Errorf("%s: %d %s", key, code, raw)
			}
			if got := user.ask(); got != "401" { // which also keeps the connection from being idle for too long
				t.Errorf("%s: another user gets %s", key, got)
			}
		}
		if code, raw := r.reload(func(document) {}); code != 200 {
			t.Errorf("the running configuration is refused: %d %s", code, raw)
		}
	})
	t.Run("live", func(t *testing.T) {
		for _, key := range slices.Sorted(maps.Keys(taken)) {
			if taken[key].taken() {
				t.Errorf("%s: what shows that it was taken up is there before", key)
			}
			if code, raw := r.reload(taken[key].change); code != 200 {
				t.Errorf("%s: %d %s", key, code, raw)
				continue
			}
			testutil.WaitFor(t, key+" to be taken up", taken[key].taken)
			if code, raw := r.reload(func(document) {}); code != 200 {
				t.Fatalf("%s: back again: %d %s", key, code, raw)
			}
			testutil.WaitFor(t, key+" to be back", func() bool { return !taken[key].taken() })
		}
	})
}

// TestTheFixedPartHasTheKeysThatAreRefused holds the type of what is fixed against the
// test above: what is in it is refused, and nothing else is.
func TestTheFixedPartHasTheKeysThatAreRefused(t *testing.T) {
	r := &reloaded{rig: &rig{t: t, dir: t.TempDir(), pins: "/x"}}
	want := slices.Sorted(maps.Keys(r.fixedKeys(t)))
	got := keysOf(reflect.TypeFor[fixed](), "")
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("fixed are\n%q\nrefused are\n%q", got, want)
	}
	all := keysOf(reflect.TypeFor[Config](), "")
	for _, key := range got {
		if !slices.Contains(all, key) && key != "links" {
			t.Errorf("%s is no key of the configuration", key)
		}
	}
}

func TestAReloadThatFailsHalfwayChangesNothing(t *testing.T) {
	r := newReloaded(t)
	before := r.answer("/v1/desired")
	for name, change := range map[string]func(document){
		"a bad guarantee":     func(d document) { d.section("contracts")["guarantee"] = "200Mbit" },
		"a file that is none": func(d document) { d["contracts_file"] = r.write("none.yaml", "{") },
		"a file that goes beyond the link": func(d document) {
			d["contracts_file"] = r.write("much.yaml", "version: 1\ncontracts: [{tenant: green, guarantee: 90Mbit, ceiling: 90Mbit}]\n")
		},
		"an absent token": func(d document) { d["token_file"] = "/nonexistent" },
		"an absent site":  func(d document) { d.section("fast_loop")["site_file"] = "/nonexistent" },
		"an absent key":   func(d document) { d.section("fast_loop")["keys_file"] = "/nonexistent" },
		"a fixed key, and live ones": func(d document) {
			d.section("contracts")["guarantee"], d["node"], d.section("api_socket")["uids"] = "16Mbit", "n2", []any{nobody}
		},
	} {
		if code, raw := r.reload(change); code != 500 || !strings.Contains(raw, "still running on the old configuration") {
			t.Errorf("%s: %d %s", name, code, raw)
		}
		if after := r.answer("/v1/desired"); after != before {
			t.Errorf("%s: desired was %s and is %s", name, before, after)
		}
	}
	if got := newSocketUser(r.rig).ask(); got != "401" {
		t.Errorf("a user of a configuration that was refused gets %s", got)
	}
	if ok := r.d.Metrics()["vigia_enforcer_config_last_reload_successful"]; ok != 0 {
		t.Errorf("the last reload counts as %v", ok)
	}
}

func TestAUserThatIsTakenOffTheListLosesAccessAtOnce(t *testing.T) {
	r := newReloaded(t)
	listed := func(d document) { d.section("api_socket")["uids"] = []any{nobody} }
	if code, raw := r.reload(listed); code != 200 {
		t.Fatalf("%d %s", code, raw)
	}
	user := newSocketUser(r.rig)
	for range 2 {
		if got := user.ask(); got != "200" {
			t.Fatalf("a listed user gets %s", got)
		}
	}
	if code, raw := r.reload(func(document) {}); code != 200 {
		t.Fatalf("%d %s", code, raw)
	}
	if got := user.ask(); got != "401" { // on the connection that it had before
		t.Errorf("a user that is listed no more gets %s", got)
	}
	if code, raw := r.reload(listed); code != 200 {
		t.Fatalf("%d %s", code, raw)
	}
	if got := user.ask(); got != "200" {
		t.Errorf("listed again, it gets %s", got)
	}
}

func TestMoreContractsThanThereIsRoomForNeedARestart(t *testing.T) {
	r := newReloaded(t)
	code, raw := r.reload(func(d document) {
		var list []any
		for i := range 600 {
			list = append(list, map[string]any{"tenant": fmt.Sprint("t", i), "guarantee": "1kbit", "ceiling": "1Mbit", "match": []any{map[string]any{"vxlan": 1000 + i}}})
		}
		d["contracts"] = list
	})
	if code != 500 || !strings.Contains(raw, "600 contracts on 1 links are more than a running enforcer has room for; restart it") {
		t.Errorf("%d %s", code, raw)
	}
}

// TestTheREADMENamesWhatNeedsARestart keeps the README's list of fixed keys true.
func TestTheREADMENamesWhatNeedsARestart(t *testing.T) {
	raw, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, list, found := strings.Cut(string(raw), "needs a restart:")
	list, _, _ = strings.Cut(list, "\n\n")
	if !found {
		t.Fatal("the README does not say what needs a restart")
	}
	named := map[string]bool{}
	for i, word := range strings.Split(list, "`") {
		if i%2 == 1 {
			named[word] = true
		}
	}
	unknown := maps.Clone(named)
	for _, key := range keysOf(reflect.TypeFor[fixed](), "") {
		section, _, _ := strings.Cut(key, ".")
		whole := section == "bpf" || section == "ovn_tls" // all of it is fixed
		if !named[key] && !(whole && named[section]) {
			t.Errorf("%s is not in the README", key)
		}
		delete(unknown, key)
		if whole {
			delete(unknown, section)
		}
	}
	if len(unknown) > 0 {
		t.Errorf("the README names %v, which can change", unknown)
	}
}
