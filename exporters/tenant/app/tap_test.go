package app

import (
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"vigia/internal/netns"
	"vigia/internal/testutil"
)

// guest is a virtual machine as its tap sees it: frames with a virtio header.
type guest struct {
	t   *testing.T
	tap *os.File
}

const (
	vnetHeader = 10 // struct virtio_net_hdr
	gsoTCPv4   = 1  // VIRTIO_NET_HDR_GSO_TCPV4
	needsCsum  = 1  // VIRTIO_NET_HDR_F_NEEDS_CSUM
)

// newGuest makes the tap "tap0" in the namespace and plugs a virtual machine in.
func newGuest(t *testing.T, ns string) *guest {
	t.Helper()
	var fd int
	err := netns.Do(ns, func() (err error) {
		if fd, err = unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0); err != nil {
			return err
		}
		req, err := unix.NewIfreq("tap0")
		if err != nil {
			return err
		}
		req.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI | unix.IFF_VNET_HDR)
		return unix.IoctlIfreq(fd, unix.TUNSETIFF, req)
	})
	if err != nil {
		t.Fatal(err)
	}
	g := &guest{t: t, tap: os.NewFile(uintptr(fd), "tap0")}
	t.Cleanup(func() { g.tap.Close() })
	testutil.IP(t, "-n", ns, "link", "set", "tap0", "up")
	return g
}

// send writes n frames of the machine's; see virtioFrame.
func (g *guest) send(n int, protocol byte, fragment uint16, payload []byte, segment int) {
	g.t.Helper()
	frame := virtioFrame(protocol, fragment, payload, segment)
	for range n {
		if _, err := g.tap.Write(frame); err != nil {
			g.t.Fatal(err)
		}
	}
}

// inject puts n frames onto the tap as if the node's kernel sent them to the machine.
func (g *guest) inject(ns string, n int, frame []byte) {
	g.t.Helper()
	err := netns.Do(ns, func() error {
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		if err := unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_VNET_HDR, 1); err != nil {
			return err
		}
		device, err := net.InterfaceByName("tap0")
		if err != nil {
			return err
		}
		for range n {
			if err := unix.Sendto(fd, frame, 0, &unix.SockaddrLinklayer{Ifindex: device.Index, Protocol: 8}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		g.t.Fatal(err)
	}
}

// virtioFrame is a frame with an IPv4 payload as virtio hands it over; with a segment
// size it is a super-frame of TCP, whose headers have 54 bytes.
func virtioFrame(protocol byte, fragment uint16, payload []byte, segment int) []byte {
	frame := make([]byte, vnetHeader+14+20, vnetHeader+14+20+len(payload))
	if segment > 0 {
		frame[0], frame[1] = needsCsum, gsoTCPv4
		binary.LittleEndian.PutUint16(frame[2:], 54)
		binary.LittleEndian.PutUint16(frame[4:], uint16(segment))
		binary.LittleEndian.PutUint16(frame[6:], 34) // where the checksum starts
		binary.LittleEndian.PutUint16(frame[8:], 16) // and where it goes
	}
	eth := frame[vnetHeader:]
	copy(eth, []byte{2, 0, 0, 0, 0, 9, 2, 0, 0, 0, 0, 1, 8, 0}) // to somebody else: nobody answers
	ip := eth[14:]
	ip[0], ip[8], ip[9] = 0x45, 64, protocol
	binary.BigEndian.PutUint16(ip[2:], uint16(20+len(payload)))
	binary.BigEndian.PutUint16(ip[6:], fragment)
	copy(ip[12:], net.ParseIP(vmIP).To4())
	copy(ip[16:], net.ParseIP(nodeIP).To4())
	return append(frame, payload...)
}

func tcpHeader() []byte { return append(make([]byte, 12), 0x50, 0x10, 0, 0, 0, 0, 0, 0) }

// TestTapIsCountedAsTheMachineSends hands frames over as virtio does: segmentation
// is left to the host.
func TestTapIsCountedAsTheMachineSends(t *testing.T) {
	r := &rig{t: t, node: testutil.NewNetNS(t), dir: t.TempDir()}
	testutil.DisableIPv6(t, r.node)
	g := newGuest(t, r.node)
	testutil.IP(t, "-n", r.node, "addr", "add", nodeIP+"/24", "dev", "tap0")
	testutil.IP(t, "-n", r.node, "neigh", "add", vmIP, "lladdr", "02:00:00:00:00:01", "dev", "tap0")
	r.config = r.write("exporter.yaml", fmt.Sprintf("node: n1\nnetns: %s\n%s\nbpf: {pin_dir: %s, max_ports: 8}\n", r.node, r.tap0(), testutil.NewBPFFS(t)))
	d := r.start()
	r.nftCounters(r.node, "tap0", "ingress", "egress")
	before := d.Metrics()
	const udp, icmp, fragments, super, segments, segment = 30, 20, 10, 5, 8, 1000
	g.send(udp, 17, 0, make([]byte, 108), 0)
	g.send(icmp, 1, 0, make([]byte, 64), 0)
	g.send(fragments, 17, 0x0010, make([]byte, 200), 0)
	g.send(super, 6, 0, append(tcpHeader(), make([]byte, (segments-1)*segment+1)...), segment)

	conn := r.listenUDP(r.node, nodeIP+":0")
	defer conn.Close()
	const down, size = 25, 300
	for range down {
		if _, err := conn.WriteTo(make([]byte, size), &net.UDPAddr{IP: net.ParseIP(vmIP), Port: 9}); err != nil {
			t.Fatal(err)
		}
	}
	const bigs, big, bursts = 6, 4000, 4
	r.toGuest(conn, bigs, big, bursts, segments*segment, segment)
	g.inject(r.node, super, virtioFrame(6, 0, append(tcpHeader(), make([]byte, (segments-1)*segment+1)...), segment))
	received := 0
	buffer := make([]byte, 1<<16)
	for received < down {
		n, err := g.tap.Read(buffer)
		if err != nil {
			t.Fatal(err)
		}
		if n == vnetHeader+42+size {
			received++
		}
	}

	after := d.Metrics()
	for _, tc := range []struct {
		direction, protocol string
		packets, bytes      float64
	}{
		{"from_tenant", "udp", udp, udp * (34 + 108)},
		{"from_tenant", "icmp", icmp, icmp * (34 + 64)},
		{"from_tenant", "fragment", fragments, fragments * (34 + 200)},
		{"from_tenant", "tcp", super * segments, super * (segments*54 + (segments-1)*segment + 1)},
		{"to_tenant", "udp", down + bigs + bursts*segments, down*(42+size) + bigs*(34+1480) + bursts*segments*(42+segment)},
		{"to_tenant", "fragment", bigs * 2, bigs * (2*34 + 8 + big - 1480)},
		{"to_tenant", "icmp", pings, pings * 98},
		{"to_tenant", "tcp", super * segments, super * (segments*54 + (segments-1)*segment + 1)},
	} {
		labels := fmt.Sprintf(`direction=%q,protocol=%q,tenant="red"`, tc.direction, tc.protocol)
		for unit, want := range map[string]float64{"packets": tc.packets, "bytes": tc.bytes} {
			s := series("vigia_tenant_protocol_"+unit+"_total", labels)
			if got := after[s] - before[s]; got != want {
				t.Errorf("%s grew by %v, want %v", s, got, want)
			}
		}
	}
	// nft counts a super-frame once.
	nft := r.nftRead(r.node)
	for counter, want := range map[string]uint64{
		"from_tenant_udp": udp, "from_tenant_icmp": icmp, "from_tenant_fragment": fragments, "from_tenant_tcp": super,
		"to_tenant_udp": down + bigs + bursts, "to_tenant_fragment": bigs * 2, "to_tenant_icmp": pings, "to_tenant_tcp": super,
	} {
		if nft[counter] != want {
			t.Errorf("nft: %s is %d, want %d", counter, nft[counter], want)
		}
	}
	// What was for somebody else is named for what it is.
	lost := `vigia_port_drops_total{direction="from_tenant",port="p1",reason="mac_vlan_filter",tenant="red"}`
	testutil.WaitFor(t, "the drops to show", func() bool { return d.Metrics()[lost] > 0 })
	if got := d.Metrics()[lost]; got != udp+icmp+fragments+super {
		t.Errorf("%v frames for somebody else, sent %d", got, udp+icmp+fragments+super)
	}
}

const pings = 5

// toGuest sends datagrams that need fragments, super-frames of UDP, and pings that
// nobody answers.
func (r *rig) toGuest(conn *net.UDPConn, bigs, big, bursts, burst, segment int) {
	r.t.Helper()
	to := &net.UDPAddr{IP: net.ParseIP(vmIP), Port: 9}
	for range bigs {
		if _, err := conn.WriteTo(make([]byte, big), to); err != nil {
			r.t.Fatal(err)
		}
	}
	raw, err := conn.SyscallConn()
	if err == nil {
		err = raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_UDP, unix.UDP_SEGMENT, segment) })
	}
	if err != nil {
		r.t.Fatal(err)
	}
	for range bursts {
		if _, err := conn.WriteTo(make([]byte, burst), to); err != nil {
			r.t.Fatal(err)
		}
	}
	testutil.Run(r.t, "ip", "netns", "exec", r.node, "sh", "-c", fmt.Sprintf("ping -c%d -i0.2 -W1 %s || true", pings, vmIP))
}
