package app

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"vigia/internal/netns"
	"vigia/internal/testutil"
)

const (
	nodeIP    = "10.7.0.1"
	token     = "0123456789abcdef-token"
	actionA   = "11111111-1111-4111-8111-111111111111"
	actionB   = "22222222-2222-4222-8222-222222222222"
	guarantee = 1_000_000 // bytes per second: 8Mbit
)

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	return Program().Run(ctx, args, stdout, stderr)
}

// rig is a node with the ports of tenants red (with a contract) and blue
// (without), and the enforcer on it.
type rig struct {
	t         *testing.T
	node, red string
	dir       string
	config    string
	pins      string
	d         *testutil.Daemon
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{t: t, node: testutil.NewNetNS(t), red: testutil.NewNetNS(t), dir: t.TempDir(), pins: testutil.NewBPFFS(t)}
	testutil.DisableIPv6(t, r.node)
	testutil.DisableIPv6(t, r.red)
	testutil.NewVethPair(t, r.node, "tap-red", r.red, "eth0")
	testutil.IP(t, "-n", r.node, "link", "add", "tap-blue", "type", "veth", "peer", "name", "bluep")
	testutil.IP(t, "-n", r.node, "addr", "add", nodeIP+"/24", "dev", "tap-red")
	testutil.IP(t, "-n", r.red, "addr", "add", "10.7.0.2/24", "dev", "eth0")
	r.reach(nodeIP)
	r.write("ports.yaml", "version: 1\nports:\n  - {device: tap-red, port: p-red, tenant: red}\n  - {device: tap-blue, port: p-blue, tenant: blue}\n")
	r.write("token", token+"\n")
	r.config = r.write("enforcer.yaml", fmt.Sprintf(`node: n1
netns: %s
ports_file: %s
token_file: %s
bpf: {pin_dir: %s, max_ports: 8}
contracts:
  - {tenant: red, guarantee: 8Mbit, ceiling: 100Mbit}
`, r.node, filepath.Join(r.dir, "ports.yaml"), filepath.Join(r.dir, "token"), r.pins))
	r.start()
	return r
}

func (r *rig) write(name, content string) string {
	r.t.Helper()
	path := filepath.Join(r.dir, name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		r.t.Fatal(err)
	}
	return path
}

func (r *rig) start() {
	r.t.Helper()
	r.d = testutil.StartDaemon(r.t, run, "--config", r.config)
	testutil.WaitFor(r.t, "the ports to be attached", func() bool {
		return r.d.Metrics()[`vigia_enforcer_ports{state="attached"}`] == 2 && r.programs("tap-red") == 2 && r.programs("tap-blue") == 2
	})
}

// programs returns how many programs are pinned at a device. A port's counters are there a moment before its programs.
func (r *rig) programs(device string) int {
	r.t.Helper()
	pins, err := filepath.Glob(filepath.Join(r.pins, "links", fmt.Sprint(r.index(device), "-*")))
	if err != nil {
		r.t.Fatal(err)
	}
	return len(pins)
}

// reach waits until an address answers red.
func (r *rig) reach(address string) {
	r.t.Helper()
	testutil.WaitFor(r.t, address+" to answer", func() bool {
		return exec.Command("ip", "netns", "exec", r.red, "ping", "-c1", "-W1", address).Run() == nil
	})
}

type reply struct {
	Limit    *limit
	Verified bool
	Removed  any
	Error    struct{ Code, Message, Field string }
}

type limit struct {
	ID             string  `json:"id"`
	Protocol       string  `json:"protocol"`
	Rate           uint64  `json:"rate_bytes_per_second"`
	Burst          uint64  `json:"burst_bytes"`
	ExpiresIn      float64 `json:"expires_in_seconds"`
	PolicedPackets uint64  `json:"policed_packets"`
}

func (r *rig) call(method, path, body string) (int, reply) {
	r.t.Helper()
	code, raw := r.d.Do(method, path, token, body)
	var out reply
	if err := json.Unmarshal([]byte(raw), &out); err != nil {
		r.t.Fatalf("%s %s: %d %q: %v", method, path, code, raw, err)
	}
	return code, out
}

func body(id, tenant, protocol string, rate, burst uint64, ttl float64) string {
	return fmt.Sprintf(`{"id":%q,"tenant":%q,"protocol":%q,"rate_bytes_per_second":%d,"burst_bytes":%d,"ttl_seconds":%v}`,
		id, tenant, protocol, rate, burst, ttl)
}

type state struct {
	Node     string
	Time     time.Time
	Supports []string
	Term     uint64
	Ports    []struct {
		Port, Tenant, Device, Hook string
		Attached                   bool
		Guarantee                  *uint64 `json:"guarantee_bytes_per_second"`
		Ceiling                    *uint64 `json:"ceiling_bytes_per_second"`
		Offered                    *struct {
			Bytes   float64 `json:"udp_bytes_per_second"`
			Packets float64 `json:"udp_packets_per_second"`
		}
		Signals *struct {
			Score    float64    `json:"flood_score"`
			Ports    float64    `json:"udp_destination_ports"`
			Detected *time.Time `json:"flood_detected_at"`
		}
		Limit *limit
	}
}

func (r *rig) state() state {
	r.t.Helper()
	code, raw := r.d.Do("GET", "/v1/state", token, "")
	var out state
	if err := json.Unmarshal([]byte(raw), &out); code != 200 || err != nil {
		r.t.Fatalf("state: %d %s %v", code, raw, err)
	}
	return out
}

// udp sends n datagrams of 1000 bytes from red to random ports and returns how
// many got to the node.
func (r *rig) udp(n int) int {
	r.t.Helper()
	before := r.received()
	var conn net.PacketConn
	if err := netns.Do(r.red, func() (err error) { conn, err = net.ListenPacket("udp4", "10.7.0.2:0"); return err }); err != nil {
		r.t.Fatal(err)
	}
	defer conn.Close()
	payload := make([]byte, 1000)
	lost := testutil.SendDrops(r.t, r.red, "eth0")
	for i := 0; i < n; i++ {
		if _, err := conn.WriteTo(payload, &net.UDPAddr{IP: net.ParseIP(nodeIP), Port: 1024 + i*17%60000}); err != nil {
			r.t.Fatal(err)
		}
		if i == n-1 { // what the backlog of a busy processor had no room for never came to the port
			now := testutil.SendDrops(r.t, r.red, "eth0")
			i, lost = i-min(now-lost, n), now
		}
	}
	return r.received() - before
}

// received counts the UDP datagrams that the node's IP layer has seen.
func (r *rig) received() int {
	r.t.Helper()
	out := testutil.Run(r.t, "ip", "netns", "exec", r.node, "nstat", "-asz", "UdpNoPorts", "UdpInDatagrams")
	total := 0
	for line := range strings.SplitSeq(out, "\n") {
		var name string
		var v int
		if n, _ := fmt.Sscan(line, &name, &v); n == 2 {
			total += v
		}
	}
	return total
}

func TestLimitIsSetVerifiedExtendedAndRemoved(t *testing.T) {
	r := newRig(t)
	const path = "/v1/ports/p-red/limit"
	if got := r.udp(200); got != 200 {
		t.Fatalf("%d of 200 datagrams arrived without a limit", got)
	}
	code, got := r.call("PUT", path, body(actionA, "red", "udp", guarantee, 20*1042, 30))
	if code != 200 || !got.Verified || got.Limit.ID != actionA || got.Limit.Rate != guarantee || got.Limit.Burst != 20*1042 || got.Limit.ExpiresIn > 30 || got.Limit.ExpiresIn <= 0 {
		t.Fatalf("set: %d %+v", code, got)
	}
	// 3000 packets are 3 MB at 1 MB/s: however slow the machine, some must fall.
	passed := r.udp(3000)
	p := r.state().Ports[1]
	if p.Port != "p-red" || p.Limit == nil || p.Limit.PolicedPackets == 0 || int(p.Limit.PolicedPackets)+passed != 3000 {
		t.Errorf("%d passed, state %+v; want passed and policed to make 3000", passed, p.Limit)
	}
	policed := p.Limit.PolicedPackets
	if p.Guarantee == nil || *p.Guarantee != guarantee || p.Ceiling == nil || *p.Ceiling != 12_500_000 || !p.Attached || p.Hook != "tcx" {
		t.Errorf("state %+v", p)
	}
	if code, got = r.call("PUT", path, body(actionA, "red", "udp", guarantee, 20*1042, 60)); code != 200 || got.Limit.PolicedPackets < policed || got.Limit.ExpiresIn <= 30 {
		t.Errorf("extend: %d %+v", code, got)
	}
	if code, got = r.call("PUT", path, body(actionB, "red", "udp", guarantee, 0, 60)); code != 409 || got.Error.Code != "other_limit" {
		t.Errorf("another action: %d %+v", code, got)
	}
	if code, got = r.call("DELETE", path+"?id="+actionB, ""); code != 409 || got.Error.Code != "other_limit" {
		t.Errorf("another action's removal: %d %+v", code, got)
	}
	m := r.d.Metrics()
	if m[`vigia_isolation_limit_bytes_per_second{direction="from_tenant",port="p-red",protocol="udp",tenant="red"}`] != guarantee {
		t.Error("the limit is not exported")
	}
	testutil.WaitFor(t, "the policed packets to be exported, after zeros", func() bool {
		v, ok := r.d.Metrics()[`vigia_isolation_policed_packets_total{port="p-red",tenant="red"}`]
		if ok && v != 0 && v < float64(policed) {
			t.Fatalf("%v policed packets are exported, %d were policed", v, policed)
		}
		return v >= float64(policed)
	})
	if v, ok := m[`vigia_isolation_refused_packets_total{port="p-red",tenant="red"}`]; ok {
		t.Errorf("%v refused packets are exported where none was", v)
	}
	if _, ok := m[`vigia_isolation_offered_bytes_total{port="p-red",protocol="udp",tenant="red"}`]; !ok {
		t.Error("what a limited port offers is not exported")
	}
	if code, got = r.call("DELETE", path+"?id="+actionA, ""); code != 200 || got.Removed != true || !got.Verified {
		t.Errorf("remove: %d %+v", code, got)
	}
	if code, got = r.call("DELETE", path+"?id="+actionA, ""); code != 200 || got.Removed != false {
		t.Errorf("remove again: %d %+v", code, got)
	}
	if got := r.udp(300); got != 300 {
		t.Errorf("%d of 300 datagrams arrived after the removal", got)
	}
	m = r.d.Metrics()
	for change, want := range map[string]float64{"set": 1, "extend": 1, "remove": 1, "expire": 0, "refuse": 1} {
		if got := m[`vigia_enforcer_limits_total{change="`+change+`"}`]; got != want {
			t.Errorf("%s counted %v times, want %v", change, got, want)
		}
	}
}

// more is a request's body with further fields.
func more(body, fields string) string { return strings.TrimSuffix(body, "}") + "," + fields + "}" }

func TestALeaderOfThePastIsRefusedAlsoAfterARestart(t *testing.T) {
	r := newRig(t)
	const path = "/v1/ports/p-red/limit"
	if s := r.state(); s.Term != 0 || !slices.Contains(s.Supports, "term") {
		t.Fatalf("before any leader: %+v", s)
	}
	if code, got := r.call("PUT", path, more(body(actionA, "red", "udp", guarantee, 0, 60), `"term":7`)); code != 200 {
		t.Fatalf("%d %+v", code, got)
	}
	stale := func() {
		t.Helper()
		for _, c := range [][3]string{
			{"PUT", path, more(body(actionA, "red", "udp", 2*guarantee, 0, 60), `"term":6`)},
			{"DELETE", path + "?id=" + actionA + "&term=6", ""},
			{"DELETE", "/v1/limits?term=6", ""},
		} {
			if code, got := r.call(c[0], c[1], c[2]); code != 409 || got.Error.Code != "stale_term" {
				t.Errorf("%s %s: %d %+v", c[0], c[1], code, got)
			}
		}
		if s := r.state(); s.Term != 7 || s.Ports[1].Limit == nil || s.Ports[1].Limit.Rate != guarantee {
			t.Errorf("state %+v", s)
		}
	}
	stale()
	if code := r.d.Stop(); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	r.start()
	stale()
	if code, got := r.call("DELETE", path+"?id="+actionA+"&term=8", ""); code != 200 || got.Removed != true || r.state().Term != 8 {
		t.Errorf("the leader: %d %+v", code, got)
	}
}

func TestAPersonMayDropUDP(t *testing.T) {
	r := newRig(t)
	const path = "/v1/ports/p-red/limit"
	if code, got := r.call("PUT", path, more(body(actionA, "red", "udp", 0, 0, 60), `"approved_by":"maria"`)); code != 200 || !got.Verified || got.Limit.Rate != 0 {
		t.Fatalf("%d %+v", code, got)
	}
	if got := r.udp(300); got != 0 {
		t.Errorf("%d datagrams passed", got)
	}
	// Nobody listens there: the node's refusal shows that a connection's first packet arrived.
	connect := func(seconds string) string {
		t.Helper()
		out, _ := exec.Command("ip", "netns", "exec", r.red, "timeout", seconds, "bash", "-c", "exec 3<>/dev/tcp/"+nodeIP+"/9").CombinedOutput()
		return string(out)
	}
	if out := connect("60"); !strings.Contains(out, "refused") {
		t.Errorf("TCP did not pass a limit on UDP: %s", out)
	}
	if out, err := exec.Command("ip", "netns", "exec", r.red, "ping", "-c1", "-W1", nodeIP).CombinedOutput(); err == nil {
		t.Errorf("a ping passed a limit on whatever is not TCP: %s", out)
	}
	if code, got := r.call("PUT", path, more(body(actionA, "red", "all", 0, 0, 60), `"approved_by":"maria"`)); code != 200 || got.Limit.Protocol != "all" {
		t.Fatalf("%d %+v", code, got)
	}
	if out := connect("2"); strings.Contains(out, "refused") {
		t.Errorf("TCP passed a limit on everything: %s", out)
	}
}

// TestRefusalsLeaveTheKernelAlone has one request refused at each stage; all refusals are
// tests of package api.
func TestRefusalsLeaveTheKernelAlone(t *testing.T) {
	r := newRig(t)
	red := "/v1/ports/p-red/limit"
	for _, tc := range []struct {
		name, method, path, body, code, field string
		status                                int
	}{
		{"by its body", "PUT", red, `{"rate_bytes_per_second":"fast"}`, "bad_body", "", 400},
		{"by a field", "PUT", red, body(actionA, "red", "tcp", guarantee, 0, 60), "bad_field", "protocol", 400},
		{"by the inventory", "PUT", "/v1/ports/nope/limit", body(actionA, "red", "udp", guarantee, 0, 60), "unknown_port", "", 404},
		{"by its owner", "PUT", red, body(actionA, "blue", "udp", guarantee, 0, 60), "tenant_mismatch", "tenant", 409},
		{"by the contracts", "PUT", "/v1/ports/p-blue/limit", body(actionA, "blue", "udp", guarantee, 0, 60), "no_contract", "tenant", 409},
		{"by the floor", "PUT", red, body(actionA, "red", "udp", guarantee-1, 0, 60), "below_floor", "rate_bytes_per_second", 409},
	} {
		t.Run(tc.name, func(t *testing.T) {
			code, got := r.call(tc.method, tc.path, tc.body)
			if code != tc.status || got.Error.Code != tc.code || got.Error.Field != tc.field || got.Error.Message == "" {
				t.Errorf("got %d %+v; want %d %s %s", code, got.Error, tc.status, tc.code, tc.field)
			}
		})
	}
	for _, p := range r.state().Ports {
		if p.Limit != nil {
			t.Errorf("a refused request left a limit on %s", p.Port)
		}
	}
}

func TestOnlyTheTokenOpensTheAPI(t *testing.T) {
	r := newRig(t)
	for _, given := range []string{"", "wrong", token + "x", token[:len(token)-1]} {
		for _, route := range [][2]string{
			{"GET", "/v1/state"}, {"PUT", "/v1/ports/p-red/limit"}, {"DELETE", "/v1/ports/p-red/limit"}, {"DELETE", "/v1/limits"},
		} {
			code, raw := r.d.Do(route[0], route[1], given, "{}")
			if code != http.StatusUnauthorized || strings.Contains(raw, token) {
				t.Errorf("%s %s with token %q: %d %s", route[0], route[1], given, code, raw)
			}
		}
	}
	if strings.Contains(r.d.Stderr.String(), token) {
		t.Error("the token is in the log")
	}
	r.write("token", "another-token-of-some-length")
	if code, raw := r.d.Do("POST", "/-/reload", "", ""); code != 200 {
		t.Fatalf("reload: %d %s", code, raw)
	}
	if code, _ := r.d.Do("GET", "/v1/state", token, ""); code != 401 {
		t.Errorf("the old token still opens after the reload: %d", code)
	}
	if code, _ := r.d.Do("GET", "/v1/state", "another-token-of-some-length", ""); code != 200 {
		t.Errorf("the new token does not open: %d", code)
	}
}

func TestLimitEndsByItself(t *testing.T) {
	r := newRig(t)
	if code, got := r.call("PUT", "/v1/ports/p-red/limit", body(actionA, "red", "udp", guarantee, 0, 1)); code != 200 {
		t.Fatalf("%d %+v", code, got)
	}
	testutil.WaitFor(t, "the limit to expire", func() bool { return r.state().Ports[1].Limit == nil })
	testutil.WaitFor(t, "the expiry to be counted", func() bool { return r.d.Metrics()[`vigia_enforcer_limits_total{change="expire"}`] == 1 })
	if got := r.udp(300); got != 300 {
		t.Errorf("%d of 300 datagrams arrived after expiry", got)
	}
}

func TestLimitOutlivesTheEnforcerAndIsAdopted(t *testing.T) {
	r := newRig(t)
	if code, got := r.call("PUT", "/v1/ports/p-red/limit", body(actionA, "red", "udp", guarantee, 5*1042, 60)); code != 200 {
		t.Fatalf("%d %+v", code, got)
	}
	if code := r.d.Stop(); code != 0 {
		t.Fatalf("exit code %d\n%s", code, r.d.Stderr)
	}
	if passed := r.udp(3000); passed == 3000 {
		t.Error("without the process the limit does not bite")
	}
	r.start()
	if p := r.state().Ports[1]; p.Limit == nil || p.Limit.ID != actionA || p.Limit.PolicedPackets == 0 {
		t.Errorf("after the restart: %+v", p.Limit)
	}
	testutil.WaitFor(t, "the adoption", func() bool { return strings.Contains(r.d.Stderr.String(), "limit adopted") })
	if code, got := r.call("DELETE", "/v1/limits", ""); code != 200 || got.Removed != float64(1) {
		t.Errorf("remove all: %d %+v", code, got)
	}
	if code, got := r.call("DELETE", "/v1/limits", ""); code != 200 || got.Removed != float64(0) {
		t.Errorf("remove all again: %d %+v", code, got)
	}
}

func TestStateShowsTheFloodAtItsSource(t *testing.T) {
	r := newRig(t)
	testutil.WaitFor(t, "the flood to show", func() bool {
		r.udp(3000)
		p := r.state().Ports[1]
		return p.Signals.Score >= 70 && p.Signals.Detected != nil && p.Offered.Packets >= 200 && p.Offered.Bytes >= 200*1000
	})
	s := r.state()
	if s.Node != "n1" || time.Since(s.Time) > time.Minute {
		t.Errorf("node %q at %s", s.Node, s.Time)
	}
	if blue := s.Ports[0]; blue.Port != "p-blue" || blue.Guarantee != nil || blue.Signals.Score != 0 {
		t.Errorf("blue: %+v", blue)
	}
	testutil.WaitFor(t, "the flood to be over", func() bool { return r.state().Ports[1].Offered.Packets == 0 })
}

func TestUnattachedPortIsNotLimited(t *testing.T) {
	r := newRig(t)
	testutil.IP(t, "-n", r.node, "link", "del", "tap-red")
	testutil.WaitFor(t, "the port to go", func() bool { return len(r.state().Ports) == 1 })
	if code, got := r.call("PUT", "/v1/ports/p-red/limit", body(actionA, "red", "udp", guarantee, 0, 60)); code != 404 {
		t.Errorf("a port that went away: %d %+v", code, got)
	}
}

func TestReload(t *testing.T) {
	r := newRig(t)
	content, err := os.ReadFile(r.config)
	if err != nil {
		t.Fatal(err)
	}
	r.write("enforcer.yaml", strings.Replace(string(content), "guarantee: 8Mbit", "guarantee: 16Mbit", 1))
	if code, raw := r.d.Do("POST", "/-/reload", "", ""); code != 200 {
		t.Fatalf("%d %s", code, raw)
	}
	if code, got := r.call("PUT", "/v1/ports/p-red/limit", body(actionA, "red", "udp", guarantee, 0, 60)); code != 409 || got.Error.Code != "below_floor" {
		t.Errorf("under the new guarantee: %d %+v", code, got)
	}
	r.write("enforcer.yaml", strings.Replace(string(content), "node: n1", "node: n2", 1))
	if code, raw := r.d.Do("POST", "/-/reload", "", ""); code != 500 || !strings.Contains(raw, "restart vigia-enforcer") {
		t.Errorf("a change of node: %d %s", code, raw)
	}
}
