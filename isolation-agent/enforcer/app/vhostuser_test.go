package app

import (
	"fmt"
	"strings"
	"testing"

	"vigia/internal/testutil"
)

// vhostUser is a node whose Open vSwitch has a vhost-user port of red: no device in the kernel. That a switch with DPDK
// polices by what is written is tested in tests/openstack, which has one.
func vhostUser(t *testing.T) (*rig, *testutil.OVSDBServer) {
	t.Helper()
	s := testutil.NewOVSDBServer(t)
	s.VSCtl("add-br", "br-int", "--", "set", "Bridge", "br-int", "datapath_type=netdev", "--", "add-port", "br-int", "vhu0", "--", "set", "Interface", "vhu0",
		"type=dpdkvhostuserclient", "external_ids:iface-id=p-vhu", "external_ids:vigia-tenant=red")
	r := &rig{t: t, node: testutil.NewNetNS(t), dir: t.TempDir(), pins: testutil.NewBPFFS(t)}
	r.write("token", token+"\n")
	r.write("ports.yaml", "version: 1\nports: []\n")
	r.config = r.write("enforcer.yaml", fmt.Sprintf(`node: n1
netns: %s
ovsdb: unix:%s
ports_file: %s/ports.yaml
token_file: %s/token
bpf: {pin_dir: %s, max_ports: 8}
contracts:
  - {tenant: red, guarantee: 8Mbit, ceiling: 100Mbit}
`, r.node, s.Socket, r.dir, r.dir, r.pins))
	r.startVhost()
	return r, s
}

func (r *rig) startVhost() {
	r.t.Helper()
	r.d = testutil.StartDaemon(r.t, run, "--config", r.config)
	testutil.WaitFor(r.t, "the port", func() bool { return r.d.Metrics()[`vigia_enforcer_ports{state="attached"}`] == 1 })
}

func policed(s *testutil.OVSDBServer) string {
	return s.VSCtl("get", "Interface", "vhu0", "ingress_policing_rate")
}

func TestAPortWithoutADeviceIsLimitedByTheSwitch(t *testing.T) {
	r, s := vhostUser(t)
	_, raw := r.d.Do("GET", "/v1/state", token, "")
	for _, want := range []string{`"port":"p-vhu"`, `"attached":true`, `"hook":""`, `"offered":null`, `"signals":null`, `"limit":null`} {
		if !strings.Contains(raw, want) {
			t.Errorf("%s is not in %s", want, raw)
		}
	}
	// What the switch cannot hold is refused, with what it can.
	code, raw := r.d.Do("PUT", "/v1/ports/p-vhu/limit", token, strings.Replace(body(actionA, "red", "all", guarantee, 0, 60), "{", `{"packets_per_second":1000,`, 1))
	if code != 409 || !strings.Contains(raw, "not_attached") || !strings.Contains(raw, "bytes per second") || policed(s) != "0" {
		t.Errorf("packets: %d %s; the switch has %s", code, raw, policed(s))
	}
	// So is what is below the guarantee, and what is another tenant's.
	for _, bad := range []string{body(actionA, "red", "all", guarantee-1, 0, 60), body(actionA, "blue", "all", guarantee, 0, 60)} {
		if code, raw := r.d.Do("PUT", "/v1/ports/p-vhu/limit", token, bad); code != 409 || policed(s) != "0" {
			t.Errorf("%s: %d %s; the switch has %s", bad, code, raw, policed(s))
		}
	}
	for range 2 { // put, and renewed
		code, raw := r.d.Do("PUT", "/v1/ports/p-vhu/limit", token, body(actionA, "red", "udp", guarantee, 0, 60))
		if code != 200 || !strings.Contains(raw, `"whole_port":true`) || policed(s) != "8000" {
			t.Fatalf("%d %s; the switch has %s", code, raw, policed(s))
		}
	}
	if got := r.d.Metrics()[`vigia_isolation_limit_bytes_per_second{direction="from_tenant",port="p-vhu",protocol="udp",tenant="red"}`]; got != guarantee {
		t.Errorf("the limit is exported as %v", got)
	}
	if code, out := r.call("PUT", "/v1/ports/p-vhu/limit", body(actionB, "red", "udp", guarantee, 0, 60)); code != 409 || out.Error.Code != "other_limit" {
		t.Errorf("another action's limit: %d %+v", code, out)
	}
	if code, out := r.call("DELETE", "/v1/ports/p-vhu/limit?id="+actionA, ""); code != 200 || out.Removed != true || policed(s) != "0" {
		t.Errorf("removal: %d %+v; the switch has %s", code, out, policed(s))
	}
}

func TestALimitOfTheSwitchEndsInTime(t *testing.T) {
	r, s := vhostUser(t)
	if code, out := r.call("PUT", "/v1/ports/p-vhu/limit", body(actionA, "red", "all", guarantee, 0, 2)); code != 200 {
		t.Fatalf("%d %+v", code, out)
	}
	testutil.WaitFor(t, "the limit to be taken off the switch", func() bool { return policed(s) == "0" })
	if got := r.d.Metrics()[`vigia_enforcer_limits_total{change="expire"}`]; got != 1 {
		t.Errorf("%v limits have expired", got)
	}
}

// TestALimitOfTheSwitchIsAdopted restarts the enforcer, which knows from the database until when a limit holds.
func TestALimitOfTheSwitchIsAdopted(t *testing.T) {
	r, s := vhostUser(t)
	for _, tc := range []struct {
		ttl  float64
		want string
	}{{60, "8000"}, {1, "0"}} {
		if code, out := r.call("PUT", "/v1/ports/p-vhu/limit", body(actionA, "red", "all", guarantee, 0, tc.ttl)); code != 200 {
			t.Fatalf("%d %+v", code, out)
		}
		if code := r.d.Stop(); code != 0 {
			t.Fatalf("exit code %d\n%s", code, r.d.Stderr)
		}
		r.startVhost()
		testutil.WaitFor(t, "what the new process makes of it", func() bool { return policed(s) == tc.want })
		got := r.state().Ports[0].Limit
		if (got != nil) != (tc.want != "0") || got != nil && (got.ID != actionA || got.ExpiresIn <= 0 || got.ExpiresIn > tc.ttl) {
			t.Errorf("after %v s: %+v", tc.ttl, got)
		}
	}
}

func TestADatabaseThatIsAwayBlindsNoOtherPort(t *testing.T) {
	r, s := vhostUser(t)
	testutil.IP(t, "-n", r.node, "link", "add", "tap-red", "type", "veth", "peer", "name", "redp")
	r.write("ports.yaml", "version: 1\nports:\n  - {device: tap-red, port: p-red, tenant: red}\n")
	testutil.WaitFor(t, "the other port", func() bool { return r.d.Metrics()[`vigia_enforcer_ports{state="attached"}`] == 2 })
	if code, out := r.call("PUT", "/v1/ports/p-vhu/limit", body(actionA, "red", "all", guarantee, 0, 60)); code != 200 {
		t.Fatalf("%d %+v", code, out)
	}
	s.Stop()
	testutil.WaitFor(t, "the source and its port to be seen as out of reach", func() bool {
		code, raw := r.d.Do("GET", "/v1/state", token, "")
		return code == 200 && strings.Contains(raw, `"complete":false`) && strings.Contains(raw, `"attached":false`) && strings.Contains(raw, `"attached":true`)
	})
	for range 2 { // put, and renewed
		if code, out := r.call("PUT", "/v1/ports/p-red/limit", body(actionB, "red", "udp", guarantee, 0, 60)); code != 200 {
			t.Errorf("the other port: %d %+v", code, out)
		}
	}
	if code, out := r.call("PUT", "/v1/ports/p-vhu/limit", body(actionA, "red", "all", guarantee, 0, 60)); code != 409 || out.Error.Code != "not_attached" {
		t.Errorf("a renewal: %d %+v", code, out)
	}
	s.Start()
	testutil.WaitFor(t, "the limit to be there again", func() bool {
		p := r.state().Ports
		return len(p) == 2 && p[1].Limit != nil && p[1].Limit.ID == actionA
	})
	if code, out := r.call("DELETE", "/v1/ports/p-vhu/limit", ""); code != 200 || policed(s) != "0" {
		t.Errorf("removal: %d %+v; the switch has %s", code, out, policed(s))
	}
}
