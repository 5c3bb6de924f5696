package app

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"vigia/internal/netns"
	"vigia/internal/testutil"
)

// plane is a data plane between a tenant and a peer: what the tenant sends and
// gets must be counted exactly on each.
type plane struct {
	name    string
	offload bool // whether segmentation offload can be on
	// build joins tap0 in the node, whose other end the tenant has as eth0,
	// with eth0 of the peer, and returns the sources of the ports' identity.
	build func(t *testing.T, r *rig, peer string) (sources string)
}

func planes() []plane {
	return []plane{
		{"veth", true, func(t *testing.T, r *rig, peer string) string {
			// No switch: the node routes between two veth pairs.
			testutil.NewVethPair(t, r.node, "up0", peer, "eth0")
			testutil.IP(t, "-n", r.node, "addr", "add", nodeIP+"/32", "dev", "tap0")
			for device, address := range map[string]string{"tap0": vmIP, "up0": peerIP} {
				testutil.IP(t, "-n", r.node, "route", "add", address+"/32", "dev", device)
			}
			testutil.Run(t, "ip", "netns", "exec", r.node, "sysctl", "-qw", "net.ipv4.ip_forward=1", "net.ipv4.conf.all.proxy_arp=1", "net.ipv4.conf.tap0.proxy_arp=1",
				"net.ipv4.conf.up0.proxy_arp=1", "net.ipv4.conf.all.send_redirects=0", "net.ipv4.neigh.tap0.proxy_delay=0", "net.ipv4.neigh.up0.proxy_delay=0")
			return r.tap0()
		}},
		{"bridge and VXLAN", true, func(t *testing.T, r *rig, peer string) string {
			other := testutil.NewNetNS(t)
			testutil.DisableIPv6(t, other)
			testutil.NewVethPair(t, r.node, "up0", other, "up0")
			testutil.NewVethPair(t, other, "tap1", peer, "eth0")
			for ns, at := range map[string]struct{ tap, local, remote string }{r.node: {"tap0", "10.99.0.1", "10.99.0.2"}, other: {"tap1", "10.99.0.2", "10.99.0.1"}} {
				testutil.IP(t, "-n", ns, "addr", "add", at.local+"/24", "dev", "up0")
				testutil.IP(t, "-n", ns, "link", "set", "up0", "mtu", "1600")
				testutil.IP(t, "-n", ns, "link", "add", "br10", "type", "bridge")
				testutil.IP(t, "-n", ns, "link", "add", "vx10", "type", "vxlan", "id", "10", "local", at.local, "remote", at.remote, "dstport", "4789", "dev", "up0")
				for _, device := range []string{"vx10", at.tap} {
					testutil.IP(t, "-n", ns, "link", "set", device, "master", "br10", "up")
				}
				testutil.IP(t, "-n", ns, "link", "set", "vx10", "mtu", "1500")
				testutil.IP(t, "-n", ns, "link", "set", "br10", "up")
			}
			return r.tap0()
		}},
		{"Open vSwitch userspace", false, func(t *testing.T, r *rig, peer string) string {
			testutil.NewVethPair(t, r.node, "up0", peer, "eth0")
			for _, ns := range []string{r.tenant, peer} { // packet sockets get checksums unfinished otherwise
				testutil.Run(t, "ip", "netns", "exec", ns, "ethtool", "-K", "eth0", "tx", "off", "tso", "off", "gso", "off")
			}
			s := testutil.NewVSwitch(t, r.node)
			s.Set("add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=netdev", "fail_mode=standalone",
				"--", "add-port", "br0", "up0", "--", "add-port", "br0", "tap0",
				"--", "set", "interface", "tap0", "external_ids:iface-id=p1", "external_ids:vigia-tenant=red")
			return "ovsdb: unix:" + s.Socket
		}},
	}
}

const peerIP = "10.7.0.3"

// tap0 writes a ports file.
func (r *rig) tap0() string {
	r.write("ports.yaml", "version: 1\nports:\n  - {device: tap0, port: p1, tenant: red}\n")
	return "ports_file: " + filepath.Join(r.dir, "ports.yaml")
}

func TestCountersAgreeWithIndependentCounts(t *testing.T) {
	for _, p := range planes() {
		t.Run(p.name, func(t *testing.T) { exact(t, p) })
	}
}

func exact(t *testing.T, p plane) {
	r := &rig{t: t, node: testutil.NewNetNS(t), tenant: testutil.NewNetNS(t), dir: t.TempDir()}
	peer := testutil.NewNetNS(t)
	for _, ns := range []string{r.node, r.tenant, peer} {
		testutil.DisableIPv6(t, ns)
	}
	testutil.NewVethPair(t, r.node, "tap0", r.tenant, "eth0")
	sources := p.build(t, r, peer)
	testutil.IP(t, "-n", r.tenant, "addr", "add", vmIP+"/24", "dev", "eth0")
	testutil.IP(t, "-n", peer, "addr", "add", peerIP+"/24", "dev", "eth0")
	r.config = r.write("exporter.yaml", fmt.Sprintf("node: n1\nnetns: %s\n%s\nbpf: {pin_dir: %s, max_ports: 8}\n", r.node, sources, testutil.NewBPFFS(t)))
	testutil.WaitFor(t, "the path", func() bool { // a switch may have to learn first
		return answers(t, r.tenant, peerIP)
	})
	d := r.start()
	r.nftCounters(r.tenant, "eth0", "egress", "ingress") // the tenant's own end

	before, tcpBefore := d.Metrics(), [2]uint64{outSegs(t, r.tenant), outSegs(t, peer)}
	sent := r.traffic(peer, p.offload)
	var wrong []string
	for deadline := time.Now().Add(agreeWithin); ; time.Sleep(10 * time.Millisecond) { // the last ACK may be under way
		after, tcpAfter := d.Metrics(), [2]uint64{outSegs(t, r.tenant), outSegs(t, peer)}
		segments := [2]uint64{tcpAfter[0] - tcpBefore[0], tcpAfter[1] - tcpBefore[1]}
		if wrong = disagreements(before, after, sent, segments, r.nftRead(r.tenant), p.offload); len(wrong) == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(strings.Join(wrong, "\n"))
		}
	}
}

// disagreements compares what the exporter counted between two scrapes with what was
// sent, what TCP sent itself in each direction, and what nft counted.
func disagreements(before, after map[string]float64, sent counts, segments [2]uint64, nft map[string]uint64, offload bool) (wrong []string) {
	fault := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	grew := func(unit, direction, protocol string) uint64 {
		s := series("vigia_tenant_protocol_"+unit+"_total", fmt.Sprintf(`direction=%q,protocol=%q,tenant="red"`, direction, protocol))
		if _, ok := after[s]; !ok {
			fault("no series %s", s)
		}
		return uint64(after[s] - before[s])
	}
	for i, direction := range []string{"from_tenant", "to_tenant"} {
		want := sent
		want.tcp = segments[i]
		if !offload && direction == "to_tenant" {
			// On its way the switch may lose some when it gets no processor:
			// then what arrived counts, and nothing is merged.
			want = counts{tcp: nft[direction+"_tcp"], udp: nft[direction+"_udp"], fragments: nft[direction+"_fragment"], udpBytes: grew("bytes", direction, "udp")}
		}
		if want.tcp < 100 || want.udp < 100 || want.fragments == 0 {
			fault("%s: hardly anything was sent: %+v", direction, want)
		}
		got := counts{
			tcp: grew("packets", direction, "tcp"), udp: grew("packets", direction, "udp"), fragments: grew("packets", direction, "fragment"),
			udpBytes: grew("bytes", direction, "udp"), merged: want.merged,
		}
		if got != want {
			fault("%s: counted %+v, sent %+v", direction, got, want)
		}
		for _, protocol := range []string{"icmp", "fragment"} {
			if got, want := grew("packets", direction, protocol), nft[direction+"_"+protocol]; got != want || want == 0 {
				fault("%s: %d %s packets, nft counted %d", direction, got, protocol, want)
			}
		}
		// nft counts a super-frame once: as many fewer as segments were sent in one.
		if got, want := got.udp, nft[direction+"_udp"]+want.merged; got != want {
			fault("%s: %d UDP packets, nft and those merged are %d", direction, got, want)
		}
	}
	return wrong
}

// counts are packets, and bytes of UDP, in a direction; merged is how many packets
// fewer the kernel sees since they are in super-frames.
type counts struct{ tcp, udp, udpBytes, fragments, merged uint64 }

// traffic sends the same in both directions, everything to somebody who reads it.
func (r *rig) traffic(peer string, offload bool) counts {
	r.t.Helper()
	const plain, size, big, bigSize, bursts, segments, segment = 150, 200, 20, 4000, 10, 8, 1000
	ends := []struct{ from, to, fromIP, toIP string }{{r.tenant, peer, vmIP, peerIP}, {peer, r.tenant, peerIP, vmIP}}
	for _, e := range ends {
		sink := r.listenUDP(e.to, e.toIP+":5353")
		conn := r.listenUDP(e.from, e.fromIP+":0")
		to := &net.UDPAddr{IP: net.ParseIP(e.toIP), Port: 5353}
		send := func(n, size int) {
			for i := range n {
				if _, err := conn.WriteTo(make([]byte, size), to); err != nil {
					r.t.Fatal(err)
				}
				if i%20 == 19 { // a userspace switch has a small queue
					time.Sleep(5 * time.Millisecond)
				}
			}
		}
		send(plain, size)
		send(big, bigSize)
		if offload {
			raw, err := conn.SyscallConn()
			if err == nil {
				err = raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_UDP, unix.UDP_SEGMENT, segment) })
			}
			if err != nil {
				r.t.Fatal(err)
			}
			send(bursts, segments*segment)
		}
		conn.Close()
		sink.Close()
		transfer(r.t, &end{ns: e.from}, &end{ns: e.to}, e.toIP, 400_000)
		testutil.Run(r.t, "ip", "netns", "exec", e.from, "ping", "-c5", "-i0.2", "-W5", e.toIP)
	}
	const header = 14 + 20
	c := counts{udp: plain + big, udpBytes: plain*(size+8+header) + big*(1480+header), fragments: big * 2}
	if offload {
		c.udp += bursts * segments
		c.merged = bursts * (segments - 1)
		c.udpBytes += bursts * segments * (segment + 8 + header)
	}
	return c
}

func (r *rig) listenUDP(ns, address string) *net.UDPConn {
	r.t.Helper()
	var conn *net.UDPConn
	err := netns.Do(ns, func() error {
		a, err := net.ResolveUDPAddr("udp4", address)
		if err == nil {
			conn, err = net.ListenUDP("udp4", a)
		}
		return err
	})
	if err != nil {
		r.t.Fatal(err)
	}
	return conn
}

// outSegs returns how many TCP segments the namespace has sent, each of a
// super-frame and each repeated one counted (Tcp OutSegs, which leaves out what is
// retransmitted, and RetransSegs of /proc/net/snmp).
func outSegs(t *testing.T, ns string) (sum uint64) {
	t.Helper()
	lines := strings.Split(testutil.Run(t, "ip", "netns", "exec", ns, "grep", "^Tcp:", "/proc/net/snmp"), "\n")
	names, values := strings.Fields(lines[0]), strings.Fields(lines[1])
	for i, name := range names {
		if name == "OutSegs" || name == "RetransSegs" {
			n, err := strconv.ParseUint(values[i], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			sum += n
		}
	}
	return sum
}

// nftCounters counts at a device, where what the tenant sends comes by one hook and
// what it gets by the other.
func (r *rig) nftCounters(ns, device, fromHook, toHook string) {
	r.t.Helper()
	var script strings.Builder
	script.WriteString("table netdev t {\n")
	for _, at := range []struct{ direction, hook string }{{"from_tenant", fromHook}, {"to_tenant", toHook}} {
		for _, protocol := range []string{"fragment", "udp", "tcp", "icmp"} {
			fmt.Fprintf(&script, "counter %s_%s {}\n", at.direction, protocol)
		}
		fmt.Fprintf(&script, `chain %[1]s { type filter hook %[2]s device %[3]q priority 0; policy accept;
  ip frag-off & 0x1fff != 0 counter name %[1]s_fragment accept
  ip protocol udp counter name %[1]s_udp accept
  ip protocol tcp counter name %[1]s_tcp accept
  ip protocol icmp counter name %[1]s_icmp accept
}
`, at.direction, at.hook, device)
	}
	script.WriteString("}\n")
	path := filepath.Join(r.dir, "count.nft")
	if err := os.WriteFile(path, []byte(script.String()), 0o600); err != nil {
		r.t.Fatal(err)
	}
	testutil.Run(r.t, "ip", "netns", "exec", ns, "nft", "-f", path)
}

var counterRE = regexp.MustCompile(`counter (\w+) \{\s+packets (\d+)`)

func (r *rig) nftRead(ns string) map[string]uint64 {
	r.t.Helper()
	out := make(map[string]uint64)
	for _, m := range counterRE.FindAllStringSubmatch(testutil.Run(r.t, "ip", "netns", "exec", ns, "nft", "list", "counters"), -1) {
		n, err := strconv.ParseUint(m[2], 10, 64)
		if err != nil {
			r.t.Fatal(err)
		}
		out[m[1]] = n
	}
	return out
}
