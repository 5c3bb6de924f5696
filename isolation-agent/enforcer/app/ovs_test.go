package app

import (
	"encoding/json"
	"net"
	"os"
	"strings"
	"testing"

	"vigia/internal/netns"
	"vigia/internal/testutil"
)

// TestALimitHoldsOnOpenVSwitchsUserspaceDatapath lets red send through a real
// ovs-vswitchd, which reads its ports by packet sockets, before tc.
func TestALimitHoldsOnOpenVSwitchsUserspaceDatapath(t *testing.T) {
	r := newRig(t)
	if code := r.d.Stop(); code != 0 {
		t.Fatalf("exit code %d\n%s", code, r.d.Stderr)
	}
	far := testutil.NewNetNS(t)
	testutil.DisableIPv6(t, far)
	testutil.NewVethPair(t, r.node, "up0", far, "eth0")
	testutil.IP(t, "-n", far, "addr", "add", "10.7.0.3/24", "dev", "eth0")
	testutil.IP(t, "-n", r.node, "addr", "flush", "dev", "tap-red")
	for _, ns := range []string{r.red, far} { // packet sockets get checksums unfinished otherwise
		testutil.Run(t, "ip", "netns", "exec", ns, "ethtool", "-K", "eth0", "tx", "off", "tso", "off", "gso", "off")
	}
	s := testutil.NewVSwitch(t, r.node)
	s.Set("add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=netdev", "fail_mode=standalone",
		"--", "add-port", "br0", "up0", "--", "add-port", "br0", "tap-red",
		"--", "set", "interface", "tap-red", "external_ids:iface-id=p-red", "external_ids:vigia-tenant=red")
	content, err := os.ReadFile(r.config)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(content), "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, "ports_file:") {
			lines[i] = "ovsdb: unix:" + s.Socket
		}
	}
	r.write("enforcer.yaml", strings.Join(lines, "\n"))
	r.d = testutil.StartDaemon(t, run, "--config", r.config)
	testutil.WaitFor(t, "red's port to be attached at XDP", func() bool {
		for _, p := range r.state().Ports {
			if p.Port == "p-red" {
				return p.Attached && p.Hook == "xdp" && r.programs("tap-red") == 3
			}
		}
		return false
	})
	r.reach("10.7.0.3")
	before := arrived(t, far)
	testutil.WaitFor(t, "datagrams to pass the switch", func() bool { // which loses some on a busy machine
		r.datagrams("10.7.0.3", 50)
		return arrived(t, far)-before >= 300
	})
	r.reach("10.7.0.3") // the switch keeps the order: nothing of before is under way any more
	if code, raw := r.d.Do("PUT", "/v1/ports/p-red/limit", token, body(actionA, "red", "udp", guarantee, 20*1042, 60)); code != 200 {
		t.Fatalf("%d %s", code, raw)
	}
	before = arrived(t, far)
	const sent = 3000 // 3 MB at 1 MB/s: however slow the machine, some must fall
	r.datagrams("10.7.0.3", sent)
	policed := int(r.d.Metrics()[`vigia_isolation_policed_packets_total{port="p-red",tenant="red"}`])
	if policed == 0 {
		t.Fatal("nothing was policed")
	}
	// The switch may lose some of its own under load; none that was policed comes through.
	if got := arrived(t, far) - before; got > sent-policed+10 { // and a few ARP packets
		t.Errorf("%d packets came through the switch; %d of %d were policed", got, policed, sent)
	}
}

// arrived counts the packets that eth0 of a namespace has received.
func arrived(t *testing.T, ns string) int {
	t.Helper()
	var links []struct {
		Stats struct{ RX struct{ Packets int } } `json:"stats64"`
	}
	if err := json.Unmarshal([]byte(testutil.IP(t, "-n", ns, "-s", "-j", "link", "show", "dev", "eth0")), &links); err != nil {
		t.Fatal(err)
	}
	return links[0].Stats.RX.Packets
}

// datagrams sends n datagrams of 1000 bytes from red.
func (r *rig) datagrams(to string, n int) {
	r.t.Helper()
	var conn net.PacketConn
	if err := netns.Do(r.red, func() (err error) { conn, err = net.ListenPacket("udp4", "10.7.0.2:0"); return err }); err != nil {
		r.t.Fatal(err)
	}
	defer conn.Close()
	for i := range n {
		if _, err := conn.WriteTo(make([]byte, 1000), &net.UDPAddr{IP: net.ParseIP(to), Port: 1024 + i*17%60000}); err != nil {
			r.t.Fatal(err)
		}
	}
}
