package app

import (
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"vigia/internal/testutil"
)

// TestTenantsOwnDevicesAreSeenFromTheTenant has ports whose device is the tenant's
// own end, so that all counters of the kernel are the other way round.
func TestTenantsOwnDevicesAreSeenFromTheTenant(t *testing.T) {
	for _, tc := range []struct {
		name  string
		build func(t *testing.T, r *rig) (sources string)
	}{
		{"OVS internal port", func(t *testing.T, r *rig) string {
			s := testutil.NewVSwitch(t, r.node)
			s.Set("add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=netdev", "fail_mode=standalone",
				"--", "add-port", "br0", "up0", "--", "add-port", "br0", "own0",
				"--", "set", "interface", "own0", "type=internal", "external_ids:iface-id=p1", "external_ids:vigia-tenant=red")
			return "ovsdb: unix:" + s.Socket
		}},
		{"macvlan", func(t *testing.T, r *rig) string {
			testutil.IP(t, "-n", r.node, "link", "add", "own0", "link", "up0", "type", "macvlan", "mode", "bridge")
			r.write("ports.yaml", "version: 1\nports:\n  - {device: own0, port: p1, tenant: red}\n")
			return "ports_file: " + filepath.Join(r.dir, "ports.yaml")
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := &rig{t: t, node: testutil.NewNetNS(t), dir: t.TempDir()}
			peer := testutil.NewNetNS(t)
			testutil.DisableIPv6(t, r.node)
			testutil.DisableIPv6(t, peer)
			testutil.NewVethPair(t, r.node, "up0", peer, "eth0")
			testutil.Run(t, "ip", "netns", "exec", peer, "ethtool", "-K", "eth0", "tx", "off", "tso", "off", "gso", "off")
			sources := tc.build(t, r)
			testutil.IP(t, "-n", r.node, "addr", "add", vmIP+"/24", "dev", "own0")
			testutil.IP(t, "-n", r.node, "link", "set", "own0", "up")
			testutil.IP(t, "-n", peer, "addr", "add", peerIP+"/24", "dev", "eth0")
			testutil.WaitFor(t, "the path", func() bool { return answers(t, r.node, peerIP) })
			r.config = r.write("exporter.yaml", fmt.Sprintf("node: n1\nnetns: %s\n%s\nbpf: {pin_dir: %s, max_ports: 8}\n", r.node, sources, testutil.NewBPFFS(t)))
			d := r.start()
			before := d.Metrics()
			const up, down, size = 60, 25, 200
			r.datagrams(r.node, vmIP, peer, peerIP, up, size)
			r.datagrams(peer, peerIP, r.node, vmIP, down, size)
			after := d.Metrics()
			for direction, want := range map[string]float64{"from_tenant": up, "to_tenant": down} {
				programs := series("vigia_tenant_protocol_packets_total", fmt.Sprintf(`direction=%q,protocol="udp",tenant="red"`, direction))
				if got := after[programs] - before[programs]; got != want {
					t.Errorf("%s: the programs count %v datagrams, want %v", direction, got, want)
				}
				device := series("vigia_port_bytes_total", fmt.Sprintf(`direction=%q,port="p1",tenant="red"`, direction))
				least := want * size // and little beside: ARP
				if got := after[device] - before[device]; got < least || got > least+want*42+500 {
					t.Errorf("%s: the device counts %v bytes, want some %v", direction, got, least+want*42)
				}
			}
			if code, page := d.Get("/debug/ports"); code != 200 || !strings.Contains(page, `"Hook": "tcx-tenant"`) {
				t.Errorf("/debug/ports: %d %s", code, page)
			}
		})
	}
}

// datagrams sends from one namespace to another, and waits until all have arrived.
func (r *rig) datagrams(from, fromIP, to, toIP string, n, size int) {
	r.t.Helper()
	sink, conn := r.listenUDP(to, toIP+":5353"), r.listenUDP(from, fromIP+":0")
	defer sink.Close()
	defer conn.Close()
	if err := sink.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		r.t.Fatal(err)
	}
	buffer := make([]byte, 1<<16)
	for i := range n { // one at a time: none is lost in a queue
		if _, err := conn.WriteTo(make([]byte, size), &net.UDPAddr{IP: net.ParseIP(toIP), Port: 5353}); err != nil {
			r.t.Fatal(err)
		}
		if got, _, err := sink.ReadFrom(buffer); err != nil || got != size {
			r.t.Fatalf("datagram %d: %d bytes, %v", i, got, err)
		}
	}
}

// answers tells whether an address answers a ping from the namespace.
func answers(t *testing.T, ns, address string) bool {
	t.Helper()
	return strings.Contains(testutil.Run(t, "ip", "netns", "exec", ns, "sh", "-c", "ping -c1 -W1 "+address+" || true"), " 0% packet loss")
}
