package app

import (
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"vigia/internal/bpf/vport"
	"vigia/internal/netns"
	"vigia/internal/testutil"
	"vigia/internal/testutil/frame"
)

// end is one of the two that talk: the tenant, or a peer behind the node.
type end struct {
	ns       string // empty for a virtual machine, which has no stack here
	mac      frame.MAC
	ip4, ip6 string
	// send hands frames over as they are.
	send func(n int, data []byte)
	// offload hands a super-frame over, whose segments have so many bytes of payload
	// behind so many of headers; nil where that is left to nobody.
	offload func(data []byte, kind byte, headers, segment int)
}

// wire is a path between a tenant and a peer, whose every frame is counted by others:
// in and out where the tenant is, beyond where the peer is.
type wire struct {
	*rig
	tenant, peer    *end
	in, out, beyond *tally
	captures        []*capture
	plane           *wirePlane
	upNode          string        // the namespace that up0 is in
	tunnelled       map[*end]bool // ends with a tunnel of their own
}

// wirePlane is a data plane with the tenant's port.
type wirePlane struct {
	name     string
	offload  bool // whether the ends may leave segmentation to the node
	delivers bool // whether its frames then arrive
	tap      bool // whether the port is a virtual machine's
	// join joins tap0 and up0 in the node and returns the sources of ports' identity.
	join func(w *wire) string
}

func wirePlanes() []wirePlane {
	bridge := func(w *wire) string {
		testutil.IP(w.t, "-n", w.node, "link", "add", "br0", "mtu", jumboMTU, "type", "bridge", "mcast_snooping", "0")
		for _, device := range []string{"tap0", "up0"} {
			testutil.IP(w.t, "-n", w.node, "link", "set", device, "master", "br0")
			segmentHere(w.t, w.node, device)
		}
		testutil.IP(w.t, "-n", w.node, "link", "set", "br0", "up")
		return w.tap0()
	}
	overlay := func(w *wire) string {
		// tap0 and a VXLAN device below one bridge, and the same at another node.
		other := testutil.NewNetNS(w.t)
		testutil.DisableIPv6(w.t, other)
		w.upNode = other
		testutil.IP(w.t, "-n", w.node, "link", "set", "up0", "netns", other)
		testutil.IP(w.t, "-n", other, "link", "set", "up0", "up")
		testutil.NewVethPair(w.t, w.node, "phy0", other, "phy0")
		for ns, at := range map[string]struct{ port, local, remote string }{w.node: {"tap0", "10.99.0.1", "10.99.0.2"}, other: {"up0", "10.99.0.2", "10.99.0.1"}} {
			testutil.IP(w.t, "-n", ns, "addr", "add", at.local+"/24", "dev", "phy0")
			testutil.IP(w.t, "-n", ns, "link", "set", "phy0", "mtu", "9200")
			testutil.IP(w.t, "-n", ns, "link", "add", "br0", "mtu", jumboMTU, "type", "bridge", "mcast_snooping", "0")
			testutil.IP(w.t, "-n", ns, "link", "add", "vx0", "mtu", jumboMTU, "type", "vxlan", "id", "10", "local", at.local, "remote", at.remote, "dstport", "4789", "dev", "phy0")
			for _, device := range []string{"vx0", at.port} {
				testutil.IP(w.t, "-n", ns, "link", "set", device, "master", "br0", "up")
			}
			testutil.IP(w.t, "-n", ns, "link", "set", "br0", "up")
			segmentHere(w.t, ns, at.port)
		}
		return w.tap0()
	}
	userspace := func(w *wire) string {
		s := testutil.NewVSwitch(w.t, w.node)
		s.Set("add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=netdev", "fail_mode=standalone",
			"--", "add-port", "br0", "up0", "--", "add-port", "br0", "tap0",
			"--", "set", "interface", "tap0", "external_ids:iface-id=p1", "external_ids:vigia-tenant=red")
		return "ovsdb: unix:" + s.Socket
	}
	return []wirePlane{
		{"veth on a Linux bridge", true, true, false, bridge},
		{"veth on a Linux bridge and VXLAN", true, true, false, overlay},
		{"tap on a Linux bridge", true, true, true, bridge},
		{"veth on Open vSwitch userspace", false, false, false, userspace},
		{"tap on Open vSwitch userspace", true, false, true, userspace},
	}
}

const (
	jumboMTU = "9000"
	vm6      = "fd07::2"
	peer6    = "fd07::3"
	repeats  = 5 // frames of a kind
)

// segmentHere has a device take frames alone, so that what is sent there arrives as
// frames and can be counted as such.
func segmentHere(t *testing.T, ns, device string) {
	t.Helper()
	args := []string{"netns", "exec", ns, "ethtool", "-K", device, "gro", "off"}
	offloads := testutil.Run(t, "ip", "netns", "exec", ns, "ethtool", "-k", device)
	for line := range strings.SplitSeq(offloads, "\n") {
		name, value, ok := strings.Cut(strings.TrimSpace(line), ": ")
		if ok && value == "on" && (strings.HasPrefix(name, "tx-") && strings.HasSuffix(name, "segmentation") || name == "tx-gso-list" || name == "tx-gso-partial") {
			args = append(args, name, "off")
		}
	}
	testutil.IP(t, args...)
}

func newWire(t *testing.T, p *wirePlane) *wire {
	t.Helper()
	w := &wire{rig: &rig{t: t, node: testutil.NewNetNS(t), dir: t.TempDir()}, plane: p, tunnelled: make(map[*end]bool)}
	w.upNode = w.node
	testutil.DisableIPv6(t, w.node)
	w.peer = w.stack("up0", frame.MAC{2, 0, 0, 0, 0, 3}, peerIP, peer6)
	if p.tap {
		w.machine()
	} else {
		w.tenant = w.stack("tap0", frame.MAC{2, 0, 0, 0, 0, 2}, vmIP, vm6)
		c := w.capture(w.tenant)
		w.in, w.out = &c.in, &c.out
		w.rig.tenant = w.tenant.ns
	}
	w.beyond = &w.capture(w.peer).in
	for _, e := range []struct{ of, other *end }{{w.peer, w.tenant}, {w.tenant, w.peer}} {
		if e.of.ns == "" {
			continue
		}
		for _, ip := range []string{e.other.ip4, e.other.ip6} { // nobody has to ask, now or later
			testutil.IP(t, "-n", e.of.ns, "neigh", "replace", ip, "lladdr", net.HardwareAddr(e.other.mac[:]).String(), "dev", "eth0", "nud", "permanent")
		}
	}
	sources := p.join(w)
	w.config = w.write("exporter.yaml", fmt.Sprintf("node: n1\nnetns: %s\n%s\nbpf: {pin_dir: %s, max_ports: 8}\n", w.node, sources, testutil.NewBPFFS(t)))
	w.start()
	return w
}

// capture counts at an end's eth0.
func (w *wire) capture(e *end) *capture {
	w.t.Helper()
	c := newCapture(w.t, e.ns, "eth0")
	w.captures = append(w.captures, c)
	return c
}

// stack makes a namespace with eth0, whose other end is a device of the node.
func (w *wire) stack(device string, mac frame.MAC, ip4, ip6 string) *end {
	w.t.Helper()
	e := &end{ns: testutil.NewNetNS(w.t), mac: mac, ip4: ip4, ip6: ip6}
	testutil.Run(w.t, "ip", "netns", "exec", e.ns, "sysctl", "-qw", "net.ipv6.conf.default.accept_ra=0", "net.ipv6.conf.default.router_solicitations=0",
		"net.ipv6.conf.default.accept_dad=0", "net.ipv6.conf.default.addr_gen_mode=1")
	testutil.NewVethPair(w.t, w.node, device, e.ns, "eth0")
	testutil.IP(w.t, "-n", e.ns, "link", "set", "eth0", "address", net.HardwareAddr(mac[:]).String())
	testutil.IP(w.t, "-n", e.ns, "addr", "add", ip4+"/24", "dev", "eth0")
	testutil.IP(w.t, "-n", e.ns, "addr", "add", ip6+"/64", "dev", "eth0", "nodad")
	testutil.IP(w.t, "-n", e.ns, "link", "set", "eth0", "mtu", jumboMTU)
	testutil.IP(w.t, "-n", w.node, "link", "set", device, "mtu", jumboMTU)
	if !w.plane.delivers { // packet sockets get checksums unfinished otherwise
		testutil.Run(w.t, "ip", "netns", "exec", e.ns, "ethtool", "-K", "eth0", "tx", "off", "tso", "off", "gso", "off")
	}
	e.send = func(n int, data []byte) { w.inject(e.ns, n, data, false) }
	if w.plane.offload {
		e.offload = func(data []byte, kind byte, headers, segment int) {
			w.inject(e.ns, repeats, append(virtioHeader(data, kind, headers, segment), data...), true)
		}
	}
	return e
}

// inject puts frames on eth0 by a packet socket, with or without a virtio header.
func (w *wire) inject(ns string, n int, data []byte, virtio bool) {
	w.t.Helper()
	err := netns.Do(ns, func() error {
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		if virtio {
			if err := unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_VNET_HDR, 1); err != nil {
				return err
			}
		}
		device, err := net.InterfaceByName("eth0")
		if err != nil {
			return err
		}
		for range n {
			if err := unix.Sendto(fd, data, 0, &unix.SockaddrLinklayer{Ifindex: device.Index}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		w.t.Fatalf("send % x...: %v", data[:min(len(data), 40)], err)
	}
}

// machine makes a virtual machine on tap0: what it writes it sent, what it reads it got.
func (w *wire) machine() {
	w.t.Helper()
	g := newGuest(w.t, w.node)
	testutil.IP(w.t, "-n", w.node, "link", "set", "tap0", "mtu", jumboMTU)
	w.in, w.out = &tally{}, &tally{}
	write := func(data []byte) {
		if _, err := g.tap.Write(data); err != nil {
			w.t.Fatal(err)
		}
	}
	w.tenant = &end{mac: frame.MAC{2, 0, 0, 0, 0, 2}, ip4: vmIP, ip6: vm6}
	w.tenant.send = func(n int, data []byte) {
		for range n {
			write(append(make([]byte, vnetHeader), data...))
			w.out.add(len(data))
		}
	}
	w.tenant.offload = func(data []byte, kind byte, headers, segment int) {
		for range repeats {
			write(append(virtioHeader(data, kind, headers, segment), data...))
			for left := len(data) - headers; left > 0; left -= segment {
				w.out.add(headers + min(left, segment))
			}
		}
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		buffer := make([]byte, 1<<17)
		for {
			n, err := g.tap.Read(buffer)
			if err != nil {
				return
			}
			w.in.add(n - vnetHeader)
		}
	}()
	w.t.Cleanup(func() { g.tap.Close(); <-done })
}

// Kinds of super-frames, VIRTIO_NET_HDR_GSO_*.
const (
	gsoTCPv6 = 4
	gsoUDP   = 5 // UDP_L4
)

// virtioHeader makes the header of a super-frame whose transport header is the last of
// its headers.
func virtioHeader(data []byte, kind byte, headers, segment int) []byte {
	out := make([]byte, vnetHeader)
	transport, checksum := 20, 16
	if kind == gsoUDP {
		transport, checksum = 8, 6
	}
	put := func(at, value int) { out[at], out[at+1] = byte(value), byte(value>>8) }
	out[0], out[1] = needsCsum, kind
	put(2, headers)
	put(4, segment)
	put(6, headers-transport)
	put(8, checksum)
	return out
}

// seen is what the exporter says of the port: by its own series, and as the sum of its
// tenant's protocols.
type seen struct{ port, protocols [2]flow }

func (w *wire) seen() (s seen) {
	w.t.Helper()
	page := w.daemon.Scrape("/metrics?collect[]=netdev&collect[]=bpf")
	for d, direction := range vport.Directions() {
		at := fmt.Sprintf(`direction=%q,port="p1",tenant="red"`, direction)
		s.port[d] = flow{uint64(page[series("vigia_port_packets_total", at)]), uint64(page[series("vigia_port_bytes_total", at)])}
		for _, protocol := range vport.Protocols() {
			at := fmt.Sprintf(`direction=%q,protocol=%q,tenant="red"`, direction, protocol)
			s.protocols[d].frames += uint64(page[series("vigia_tenant_protocol_packets_total", at)])
			s.protocols[d].bytes += uint64(page[series("vigia_tenant_protocol_bytes_total", at)])
		}
	}
	return s
}

// counted is what others count, by direction.
func (w *wire) counted(k *wireKind) [2]flow {
	if k.merged && w.plane.delivers { // where it is sent, it still is super-frames
		return [2]flow{w.beyond.read(), w.in.read()}
	}
	return [2]flow{w.out.read(), w.in.read()}
}

// caughtUp tells whether captures have counted all that came to them.
func (w *wire) caughtUp() bool {
	return !slices.ContainsFunc(w.captures, func(c *capture) bool { return !c.caughtUp() })
}

// before returns what the exporter says and what others count, once neither changes any
// more: late acknowledgements of what was sent before may still be under way, and captures
// have to be read.
func (w *wire) before(k *wireKind) (s seen, others [2]flow) {
	w.t.Helper()
	const still = 3 // times
	same := 0
	testutil.WaitFor(w.t, "a moment in which nothing is under way", func() bool {
		counted, now := w.counted(k), w.seen()
		if same++; counted != others || now != s || !w.caughtUp() || w.counted(k) != counted {
			same = 0
		}
		s, others = now, counted
		return same == still
	})
	return s, others
}

// check has a kind of traffic sent both ways and holds what the exporter says to what
// others counted.
func (w *wire) check(t *testing.T, k *wireKind) {
	before, others := w.before(k)
	arrive := k.least
	switch {
	case k.oneWay:
		arrive = 0
	case !w.plane.delivers: // a userspace switch that gets no processor loses some
		arrive = 1
	}
	for _, way := range []struct{ from, to *end }{{w.tenant, w.peer}, {w.peer, w.tenant}} {
		k.send(w, way.from, way.to)
	}
	var now seen
	var want, got [2]flow
	agree := func() bool {
		counted := w.counted(k)
		now = w.seen()
		for d := range want {
			want[d], got[d] = counted[d].since(others[d]), now.port[d].since(before.port[d])
		}
		return got == want && want[vport.FromTenant].frames >= k.least && want[vport.ToTenant].frames >= arrive
	}
	for deadline := time.Now().Add(agreeWithin); !agree(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the port counts %+v from the tenant and %+v to it; others counted %+v and %+v, and at least %d frames were sent", got[0], got[1], want[0], want[1], k.least)
		}
	}
	if now.port != now.protocols {
		t.Errorf("the port counts %+v, its protocols %+v", now.port, now.protocols)
	}
}

// agreeWithin is how long what is under way may take.
const agreeWithin = 2 * time.Minute

// TestPortsCountWhatIsOnTheWire sends every kind of traffic both ways over every data
// plane and compares with counts of raw frames.
func TestPortsCountWhatIsOnTheWire(t *testing.T) {
	if n := len(wireKinds()); n < 48 {
		t.Fatalf("%d kinds of traffic", n)
	}
	for _, p := range wirePlanes() {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			w := newWire(t, &p)
			for _, k := range wireKinds() {
				if k.fits(w) {
					t.Run(k.name, func(t *testing.T) { w.check(t, &k) })
				}
			}
		})
	}
}

// TestAFrameWithATagCutShortIsSeen sends what the kernel drops before tc: on a kernel data
// plane it is a drop. What it drops of a userspace switch's frames are copies, but there
// XDP has counted it.
func TestAFrameWithATagCutShortIsSeen(t *testing.T) {
	for _, p := range wirePlanes() {
		t.Run(p.name, func(t *testing.T) {
			w := newWire(t, &p)
			lost := series("vigia_port_drops_total", `direction="from_tenant",port="p1",reason="other",tenant="red"`)
			before, others := w.before(&wireKind{})
			drops := w.daemon.Metrics()[lost]
			w.tenant.send(repeats, eth(w.tenant, w.peer, frame.TypeVLAN, []byte{0, 9}))
			testutil.WaitFor(t, "the frames to show", func() bool {
				if p.delivers {
					return w.daemon.Metrics()[lost]-drops == repeats
				}
				counted := w.seen().port[vport.FromTenant].since(before.port[vport.FromTenant])
				sent := w.out.read().since(others[vport.FromTenant])
				return counted == sent && sent.frames >= repeats
			})
		})
	}
}

// transfer sends so many bytes over TCP and waits until both ends have closed.
func transfer(t *testing.T, from, to *end, address string, bytes int) {
	t.Helper()
	var l net.Listener
	if err := netns.Do(to.ns, func() (err error) { l, err = net.Listen("tcp", net.JoinHostPort(address, "0")); return err }); err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	done := make(chan error, 1)
	go func() {
		c, err := l.Accept()
		if err == nil {
			_, err = io.Copy(io.Discard, c)
			c.Close()
		}
		done <- err
	}()
	var c net.Conn
	if err := netns.Do(from.ns, func() (err error) { c, err = net.Dial("tcp", l.Addr().String()); return err }); err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Write(make([]byte, bytes)); err != nil {
		t.Fatal(err)
	}
	if err := c.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, c); err != nil {
		t.Fatal(err)
	}
}

// datagrams sends n datagrams; with a segment size the stack gets each as one super-frame.
func datagrams(t *testing.T, from *end, address string, n, size, segment int) {
	t.Helper()
	var c *net.UDPConn
	if err := netns.Do(from.ns, func() (err error) { c, err = net.ListenUDP("udp", nil); return err }); err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if segment > 0 {
		raw, err := c.SyscallConn()
		if err == nil {
			err = raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_UDP, unix.UDP_SEGMENT, segment) })
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	to := &net.UDPAddr{IP: net.ParseIP(address), Port: 9}
	for range n {
		if _, err := c.WriteTo(make([]byte, size), to); err != nil {
			t.Fatal(err)
		}
	}
}
