package app

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"vigia/internal/netns"
	"vigia/internal/testutil"
)

// newScheduledRig is a rig whose node has an uplink with contracts and a fast
// loop, and whose API listens on a socket, too.
func newScheduledRig(t *testing.T) *rig {
	t.Helper()
	r := newRig(t)
	if code := r.d.Stop(); code != 0 {
		t.Fatalf("exit code %d\n%s", code, r.d.Stderr)
	}
	testutil.IP(t, "-n", r.node, "link", "add", "up0", "type", "veth", "peer", "name", "up1")
	testutil.IP(t, "-n", r.node, "link", "set", "up0", "up")
	testutil.IP(t, "-n", r.node, "link", "set", "up1", "up")
	site := r.write("site.yaml", `version: 1
nodes: [{node: n1, address: "127.0.0.1:19876"}, {node: n2, address: "127.0.0.1:19877"}]
ports: [{node: n1, port: p-red, tenant: red, mac: "02:00:00:00:00:01", ip: 10.7.0.2}]
`)
	keys := r.write("keys", "1 n2 "+strings.Repeat("ab", 32)+"\n1 n1 "+strings.Repeat("ab", 32)+"\n")
	content, err := os.ReadFile(r.config)
	if err != nil {
		t.Fatal(err)
	}
	r.write("enforcer.yaml", strings.Replace(string(content), "ceiling: 100Mbit}",
		"ceiling: 100Mbit, packets_per_second: 5000, new_flows_per_second: 400, match: [{vxlan: 7}]}", 1)+
		"links: [{device: up0, rate: 100Mbit}]\n"+
		"fast_loop: {listen: \"127.0.0.1:19876\", site_file: "+site+", keys_file: "+keys+"}\n"+
		"api_socket: {path: "+filepath.Join(r.dir, "api.sock")+"}\n")
	r.start()
	return r
}

// view fetches a document of the API.
func (r *rig) view(path string, into any) {
	r.t.Helper()
	code, raw := r.d.Do("GET", path, token, "")
	if code != http.StatusOK {
		r.t.Fatalf("%s: %d %s", path, code, raw)
	}
	if err := json.Unmarshal([]byte(raw), into); err != nil {
		r.t.Fatalf("%s: %v in %s", path, err, raw)
	}
}

func TestContractsAreScheduledShownAndChangedByReload(t *testing.T) {
	r := newScheduledRig(t)
	var desired struct {
		Links []struct {
			Limit uint64 `json:"limit_bytes_per_second"`
		}
		Contracts []struct {
			Contract string
			Send     struct {
				Guarantee uint64 `json:"guarantee_bytes_per_second"`
			} `json:"from_tenant"`
		}
	}
	r.view("/v1/desired", &desired)
	if len(desired.Links) != 1 || desired.Links[0].Limit != 95*125_000 || len(desired.Contracts) != 1 || desired.Contracts[0].Send.Guarantee != guarantee {
		t.Errorf("desired %+v", desired)
	}
	type actual struct {
		Devices []struct {
			Direction string
			Classes   []struct {
				Contract  string
				Guarantee uint64 `json:"guarantee_bytes_per_second"`
			}
		}
		Drift []struct{ State, Action, Object string }
	}
	guaranteed := func(a *actual, rate uint64) (directions int) {
		for _, d := range a.Devices {
			for _, c := range d.Classes {
				if c.Contract == "red" && c.Guarantee == rate {
					directions++
				}
			}
		}
		return directions
	}
	var got actual
	r.view("/v1/actual", &got)
	if guaranteed(&got, guarantee) != 2 || len(got.Drift) != 0 {
		t.Errorf("actual %+v", got)
	}
	testutil.Attempts(t, 2, func() error { // the enforcer looks by itself every quarter of a minute, which may be in between
		testutil.Run(t, "tc", "-n", r.node, "qdisc", "del", "dev", "up0", "root")
		if code, raw := r.d.Do("POST", "/v1/reconcile", token, ""); code != 200 || !strings.Contains(raw, `"missing"`) {
			return fmt.Errorf("reconcile: %d %s", code, raw)
		}
		got = actual{}
		r.view("/v1/actual", &got)
		if guaranteed(&got, guarantee) != 2 || len(got.Drift) == 0 {
			return fmt.Errorf("after the repair %+v", got)
		}
		return nil
	})
	content, err := os.ReadFile(r.config)
	if err != nil {
		t.Fatal(err)
	}
	r.write("enforcer.yaml", strings.Replace(string(content), "guarantee: 8Mbit", "guarantee: 16Mbit", 1))
	if code, raw := r.d.Do("POST", "/-/reload", "", ""); code != 200 {
		t.Fatalf("reload: %d %s", code, raw)
	}
	testutil.WaitFor(t, "the new guarantee in the kernel", func() bool {
		got = actual{}
		r.view("/v1/actual", &got)
		return guaranteed(&got, 2*guarantee) == 2
	})
	r.write("enforcer.yaml", strings.Replace(string(content), "rate: 100Mbit", "rate: 8Mbit", 1))
	if code, raw := r.d.Do("POST", "/-/reload", "", ""); code != 500 || !strings.Contains(raw, "links[0].rate") {
		t.Errorf("more than the link has: %d %s", code, raw)
	}
}

func TestALimitIsShapedAfterTwoSecondsAndReverted(t *testing.T) {
	r := newScheduledRig(t)
	type shaped struct{ Limit struct{ Shaped bool } }
	code, raw := r.d.Do("PUT", "/v1/ports/p-red/limit", token, body(actionA, "red", "udp", guarantee, 0, 60))
	var first shaped
	if err := json.Unmarshal([]byte(raw), &first); code != 200 || err != nil || first.Limit.Shaped {
		t.Fatalf("%d %s %v", code, raw, err)
	}
	testutil.WaitFor(t, "the shaper to take over", func() bool {
		_, raw := r.d.Do("GET", "/v1/state", token, "")
		return strings.Contains(raw, `"shaped":true`)
	})
	if got := testutil.Run(t, "tc", "-n", r.node, "class", "show", "dev", "up0"); !strings.Contains(got, "1150:8000") || !strings.Contains(got, "ceil 8Mbit") {
		t.Errorf("no class of the limit in\n%s", got)
	}
	if code, raw := r.d.Do("DELETE", "/v1/limits", token, ""); code != 200 || !strings.Contains(raw, `"removed":1`) {
		t.Errorf("revert all: %d %s", code, raw)
	}
	testutil.WaitFor(t, "the class of the limit to drain, and go", func() bool {
		return !strings.Contains(testutil.Run(t, "tc", "-n", r.node, "class", "show", "dev", "up0"), "1150:8000")
	})
}

func TestLivePairsAndPeersAreShown(t *testing.T) {
	r := newScheduledRig(t)
	var got struct {
		Pairs []any
		Peers []struct {
			Node  string
			Known bool
		}
	}
	r.view("/v1/pairs", &got)
	if len(got.Pairs) != 0 || len(got.Peers) != 1 || got.Peers[0].Node != "n2" || got.Peers[0].Known {
		t.Errorf("%+v", got)
	}
}

// socketClient speaks to the API's unix socket, without a token.
func (r *rig) socketClient() *http.Client {
	return &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", filepath.Join(r.dir, "api.sock"))
	}}}
}

func TestTheSocketKnowsWhoConnects(t *testing.T) {
	r := newScheduledRig(t)
	resp, err := r.socketClient().Get("http://enforcer/v1/state")
	if err != nil {
		t.Fatal(err)
	}
	raw, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	if err != nil || resp.StatusCode != 200 || !strings.Contains(string(raw), `"p-red"`) {
		t.Errorf("root without a token: %d %s %v", resp.StatusCode, raw, err)
	}
	// Another user is let in by the file's mode, and refused by its credentials.
	for _, folder := range []string{r.dir, filepath.Dir(r.dir)} {
		if err := os.Chmod(folder, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	out := testutil.Run(t, "setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "/usr/bin/python3", "-c", `
import socket, sys
s = socket.socket(socket.AF_UNIX)
s.connect(sys.argv[1])
s.sendall(b"GET /v1/state HTTP/1.0\r\n\r\n")
print(s.recv(4096).split(b"\r\n")[0].decode())`, filepath.Join(r.dir, "api.sock"))
	if !strings.Contains(out, "401") {
		t.Errorf("another user: %q", out)
	}
}

func TestAPortMayHaveAContractOfItsOwn(t *testing.T) {
	r := newScheduledRig(t)
	content, err := os.ReadFile(r.config)
	if err != nil {
		t.Fatal(err)
	}
	own := `contracts:
  - tenant: red
    port: p-red
    guarantee: 24Mbit
    ceiling: 100Mbit
    receive: {guarantee: 16Mbit, ceiling: 50Mbit, packets_per_second: 10}
    match: [{vxlan: 7, mac: "02:00:00:00:00:01"}]
`
	r.write("enforcer.yaml", strings.Replace(string(content), "contracts:\n", own, 1))
	if code, raw := r.d.Do("POST", "/-/reload", "", ""); code != 200 {
		t.Fatalf("reload: %d %s", code, raw)
	}
	testutil.WaitFor(t, "the port's class in the kernel", func() bool {
		_, raw := r.d.Do("GET", "/v1/actual", token, "")
		return strings.Count(raw, `"contract":"red/p-red"`) == 3 // an inner class and a leaf to send, a leaf to receive
	})
	metrics := r.d.Metrics()
	for direction, want := range map[string]float64{"from_tenant": 3 * guarantee, "to_tenant": 2 * guarantee} {
		if got := metrics[`vigia_isolation_guarantee_bytes_per_second{direction="`+direction+`",port="p-red",tenant="red"}`]; got != want {
			t.Errorf("%s: guarantee %v, want %v", direction, got, want)
		}
	}
	if code, raw := r.d.Do("PUT", "/v1/ports/p-red/limit", token, body(actionA, "red", "udp", 3*guarantee-1, 0, 60)); code != 409 || !strings.Contains(raw, "below_floor") {
		t.Errorf("below what the port has: %d %s", code, raw)
	}
	var conn net.PacketConn
	if err := netns.Do(r.node, func() (err error) {
		conn, err = net.ListenPacket("udp4", nodeIP+":0")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	testutil.WaitFor(t, "packets to the port beyond its contract to be refused", func() bool {
		for range 300 {
			if _, err := conn.WriteTo([]byte("to red"), &net.UDPAddr{IP: net.ParseIP("10.7.0.2"), Port: 9}); err != nil {
				t.Fatal(err)
			}
		}
		return r.d.Metrics()[`vigia_isolation_refused_packets_total{port="p-red",tenant="red"}`] > 0
	})
}

func TestPortsAreHeldToTheContractsPacketsAndFlows(t *testing.T) {
	r := newScheduledRig(t)
	testutil.WaitFor(t, "packets beyond the contract to be policed", func() bool {
		r.udp(3000)
		return r.d.Metrics()[`vigia_isolation_policed_packets_total{port="p-red",tenant="red"}`] > 0
	})
}

// TestNewMACPairsAreBoundedUnlessAContractSaysOtherwise.
func TestNewMACPairsAreBoundedUnlessAContractSaysOtherwise(t *testing.T) {
	unbound, more := uint64(0), uint64(500)
	for _, tc := range []struct {
		key  *uint64
		want uint64
	}{{nil, 20}, {&unbound, 0}, {&more, 500}} {
		keys := contractKeys{Tenant: "red", NewMACPairs: tc.key}
		if got := keys.contract(0, &faults{}).NewMACPairsPerSecond; got != tc.want {
			t.Errorf("%d a second, want %d", got, tc.want)
		}
	}
}
