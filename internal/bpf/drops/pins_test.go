package drops

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"vigia/internal/bpf/vport"
	"vigia/internal/bpf/vport/vporttest"
	"vigia/internal/netns"
	"vigia/internal/testutil"
)

// grew returns by how much the count of a port's event has grown by what fn sends. When the map
// fills up, what is no port's is forgotten.
func grew(t *testing.T, c *Counter, e Event, sent uint64, fn func()) uint64 {
	t.Helper()
	isPort := func(index int) bool { return index == e.Device }
	before := readOf(t, c, isPort)[e]
	fn()
	return counted(t, sent, func() uint64 { return readOf(t, c, isPort)[e] - before })
}

// TestAnotherBuildsProgramIsReplaced leaves one behind that counts nothing.
func TestAnotherBuildsProgramIsReplaced(t *testing.T) {
	r := newRig(t)
	c := r.open()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(c.Close())
	pin := filepath.Join(r.PinDir, pinFolder, linkPin)
	must(os.Remove(pin))
	other, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "other", Type: ebpf.RawTracepoint, License: "Dual BSD/GPL", Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()},
	})
	must(err)
	defer other.Close()
	l, err := link.AttachRawTracepoint(link.RawTracepointOptions{Name: "kfree_skb", Program: other})
	must(err)
	must(l.Pin(pin))
	must(l.Close())
	for range 2 { // and then it is our own
		c = r.open()
		if got := grew(t, c, r.event("NO_SOCKET", "udp"), 20, func() { r.udp(20, 100, 9) }); got != 20 {
			t.Errorf("counted %d drops, sent 20", got)
		}
		pinned, err := link.LoadPinnedLink(pin, nil)
		must(err)
		if same, err := sameProgram(pinned, c.program); err != nil || !same {
			t.Errorf("the pinned link has our program: %v, %v", same, err)
		}
		if same, err := sameProgram(pinned, other); err != nil || same {
			t.Errorf("the pinned link has the other program: %v, %v", same, err)
		}
		must(errors.Join(pinned.Close(), c.Close()))
	}
}

// TestPinsOfAnotherVersionAreReplaced finds a map of another size.
func TestPinsOfAnotherVersionAreReplaced(t *testing.T) {
	r := newRig(t)
	dir := filepath.Join(r.PinDir, pinFolder)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	m, err := ebpf.NewMap(&ebpf.MapSpec{Name: "drop_set", Type: ebpf.Array, KeySize: 4, ValueSize: 64, MaxEntries: 3})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if err := m.Pin(filepath.Join(dir, "drop_set")); err != nil {
		t.Fatal(err)
	}
	c := r.open()
	if got := grew(t, c, r.event("NO_SOCKET", "udp"), 10, func() { r.udp(10, 100, 9) }); got != 10 {
		t.Errorf("counted %d drops, sent 10", got)
	}
}

// TestDropsThatFindNoPlaceAreCounted fills the map.
func TestDropsThatFindNoPlaceAreCounted(t *testing.T) {
	r := newRig(t)
	c := r.open()
	value := make([]uint64, ebpf.MustPossibleCPU())
	full := false // what the kernel dropped meanwhile may have taken some places
	for i := range c.maps.DropCount.MaxEntries() {
		if err := c.maps.DropCount.Put(dropsEvent{Device: 1_000_000 + i}, value); err != nil {
			full = true
			break
		}
	}
	// Each processor has places of its own in reserve: not every drop is lost at once.
	lostBefore, err := c.Lost()
	if err != nil {
		t.Fatal(err)
	}
	noSocket := r.event("NO_SOCKET", "udp")
	r.udp(30, 100, 9)
	var lost uint64
	t.Logf("the map is full: %v", full)
	counted(t, 30, func() uint64 {
		if lost, err = c.Lost(); err != nil {
			t.Fatal(err)
		}
		return lost - lostBefore + read(t, c)[noSocket]
	})
	// A reading makes room: then nothing is lost any more.
	readOf(t, c, func(index int) bool { return index == r.Index })
	if lostBefore, err = c.Lost(); err != nil {
		t.Fatal(err)
	}
	if got := grew(t, c, noSocket, 30, func() { r.udp(30, 100, 9) }); got != 30 {
		t.Errorf("counted %d drops after there is room, sent 30", got)
	}
	if lost, err = c.Lost(); err != nil || lost != lostBefore {
		t.Errorf("%d more are lost, %v", lost-lostBefore, err)
	}
}

// TestADropBehindABridgeIsItsSenders drops where a frame would leave: the interface that
// it came in by stays known, but not through a tunnel.
func TestADropBehindABridgeIsItsSenders(t *testing.T) {
	for _, tunnelled := range []bool{false, true} {
		r := newRig(t)
		far := testutil.NewNetNS(t)
		testutil.DisableIPv6(t, far)
		testutil.NewVethPair(t, r.Node, "up0", far, "eth0")
		testutil.IP(t, "-n", r.Node, "addr", "flush", "dev", "tap0")
		testutil.IP(t, "-n", r.Node, "link", "add", "br0", "type", "bridge", "mcast_snooping", "0")
		out := "up0"
		if tunnelled {
			testutil.IP(t, "-n", r.Node, "addr", "add", "10.99.0.1/24", "dev", "up0")
			testutil.IP(t, "-n", r.Node, "neigh", "add", "10.99.0.2", "lladdr", "02:00:00:00:00:99", "dev", "up0", "nud", "permanent")
			testutil.IP(t, "-n", r.Node, "link", "add", "vx0", "type", "vxlan", "id", "7", "local", "10.99.0.1", "remote", "10.99.0.2", "dstport", "4789", "dev", "up0")
			out = "vx0"
		}
		for _, device := range []string{"tap0", out, "br0"} {
			if device != "br0" {
				testutil.IP(t, "-n", r.Node, "link", "set", device, "master", "br0")
			}
			testutil.IP(t, "-n", r.Node, "link", "set", device, "up")
		}
		testutil.IP(t, "-n", r.Tenant, "neigh", "replace", vporttest.NodeIP, "lladdr", "02:00:00:00:00:77", "dev", "eth0", "nud", "permanent")
		r.nft("table netdev t {\n chain out { type filter hook egress device \"up0\" priority 0;\n  meta length > 0 counter drop\n }\n}\n")
		c := r.open()
		up := vporttest.Index(t, r.Node, "up0")
		want := Event{Device: up, Arrival: r.Index, Reason: "NETFILTER_DROP", Protocol: "udp"}
		if tunnelled {
			want.Arrival = 0
		}
		if !hasReason(t, "NETFILTER_DROP") {
			t.Skip("the kernel does not name what nft drops on egress")
		}
		before := read(t, c)
		r.udp(40, 100, 9)
		atUplink := func() (found uint64) {
			for e, n := range read(t, c) {
				if e.Device == up {
					found += n - before[e]
				}
			}
			return found
		}
		found := counted(t, 40, atUplink)
		for e, n := range read(t, c) {
			if n -= before[e]; n > 0 && e.Device == up && (e.Arrival != want.Arrival || e.Protocol != "udp") {
				t.Errorf("tunnelled %v: %d drops as %+v, want %+v", tunnelled, n, e, want)
			}
		}
		if found != 40 {
			t.Errorf("tunnelled %v: %d drops at the uplink, sent 40", tunnelled, found)
		}
	}
}

// TestWhatADeviceCannotTakeIsTooBig sends packets around the length that a port of a bridge takes. The kernel drops
// longer ones, and does not say why. Some kernels let four bytes more pass, the room of a VLAN's tag.
func TestWhatADeviceCannotTakeIsTooBig(t *testing.T) {
	if !hasReason(t, "PKT_TOO_BIG") {
		t.Skip("the kernel has no drop reason PKT_TOO_BIG (Linux 5.18)")
	}
	const mtu, headers, tag = 500, 28, 4 // bytes; headers are of IPv4 and UDP
	r := newRig(t)
	bridged(r, "02:00:00:00:00:77")
	testutil.IP(t, "-n", r.Node, "link", "set", "up0", "mtu", strconv.Itoa(mtu))
	up := vporttest.Index(t, r.Node, "up0")
	byEachMethod(t, r, func(on *rig, c *Counter) {
		before := read(on.t, c)
		on.udp(30, mtu-headers, 9)
		on.udp(40, mtu-headers+tag+1, 9)
		on.udp(50, 1400, 9)
		want := Event{Device: up, Arrival: r.Index, Reason: "PKT_TOO_BIG", Protocol: "udp"}
		if n := counted(on.t, 90, func() uint64 { return read(on.t, c)[want] - before[want] }); n != 90 {
			on.t.Errorf("%d are too big, sent 90 of those", n)
		}
		for e, n := range read(on.t, c) {
			if n -= before[e]; n > 0 && e.Device == up && e != want {
				on.t.Errorf("%d drops as %+v", n, e)
			}
		}
	})
}

// TestSegmentsAreNotTooBig lets a bridge drop packets for another reason, which it does not say either: ports that are
// isolated from each other. One of them is longer than a device's MTU, and is still to be cut into segments that fit.
func TestSegmentsAreNotTooBig(t *testing.T) {
	const mtu, headers, segments, mac = 1500, 28, 4, "02:00:00:00:00:77"
	r := newRig(t)
	bridged(r, mac)
	for _, device := range []string{"tap0", "up0"} {
		testutil.IP(t, "-n", r.Node, "link", "set", device, "type", "bridge_slave", "isolated", "on")
	}
	testutil.Run(t, "bridge", "-n", r.Node, "fdb", "replace", mac, "dev", "up0", "master", "static")
	byEachMethod(t, r, func(on *rig, c *Counter) {
		before, sentBefore := read(on.t, c), on.sent()
		on.udp(30, mtu-headers, 9)
		on.segmented(20, segments, mtu-headers)
		sent := on.sent() - sentBefore
		var dropped map[string]uint64
		counted(on.t, sent, func() (sum uint64) {
			dropped = make(map[string]uint64)
			for e, n := range read(on.t, c) {
				if e.Arrival == r.Index && e.Protocol == "udp" {
					dropped[e.Reason] += n - before[e]
					sum += n - before[e]
				}
			}
			return sum
		})
		if dropped["PKT_TOO_BIG"] != 0 {
			on.t.Errorf("%v: nothing is longer than the devices take", dropped)
		}
		// The sender's device cuts a packet itself where it cannot pass it on whole.
		if n := dropped["NOT_SPECIFIED"]; n != 30+20 && n != 30+20*segments {
			on.t.Errorf("%v: sent 30 packets, and 20 of %d segments", dropped, segments)
		}
	})
}

// bridged puts the tenant's port and an uplink, up0, into a bridge, behind which the tenant finds its peer.
func bridged(r *rig, peer string) {
	r.t.Helper()
	far := testutil.NewNetNS(r.t)
	testutil.DisableIPv6(r.t, far)
	testutil.NewVethPair(r.t, r.Node, "up0", far, "eth0")
	testutil.IP(r.t, "-n", r.Node, "addr", "flush", "dev", "tap0")
	testutil.IP(r.t, "-n", r.Node, "link", "add", "br0", "type", "bridge", "mcast_snooping", "0")
	for _, device := range []string{"tap0", "up0"} {
		testutil.IP(r.t, "-n", r.Node, "link", "set", device, "master", "br0")
		testutil.IP(r.t, "-n", r.Node, "link", "set", device, "up")
	}
	testutil.IP(r.t, "-n", r.Node, "link", "set", "br0", "up")
	testutil.IP(r.t, "-n", r.Tenant, "neigh", "replace", vporttest.NodeIP, "lladdr", peer, "dev", "eth0", "nud", "permanent")
}

// byEachMethod counts drops by each way to attach to the tracepoint, and takes the program away again.
func byEachMethod(t *testing.T, r *rig, test func(on *rig, c *Counter)) {
	t.Helper()
	for _, m := range attachMethods() {
		t.Run(m.program, func(t *testing.T) {
			on := &rig{r.Port, t}
			c := on.openBy(m)
			defer func() {
				if err := Uninstall(r.PinDir); err != nil {
					t.Error(err)
				}
			}()
			test(on, c)
		})
	}
}

// sent returns how many packets the tenant's device has sent, as the kernel has them.
func (r *rig) sent() uint64 {
	r.t.Helper()
	said := testutil.Run(r.t, "ip", "netns", "exec", r.Tenant, "cat", "/sys/class/net/eth0/statistics/tx_packets")
	n, err := strconv.ParseUint(strings.TrimSpace(said), 10, 64)
	if err != nil {
		r.t.Fatal(err)
	}
	return n
}

// segmented sends n packets from the tenant to the node, each of so many datagrams that a device is to cut it into.
func (r *rig) segmented(n, segments, size int) {
	r.t.Helper()
	err := netns.Do(r.Tenant, func() error {
		s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(s)
		if err := unix.SetsockoptInt(s, unix.IPPROTO_UDP, unix.UDP_SEGMENT, size); err != nil {
			return err
		}
		to := &unix.SockaddrInet4{Port: 9, Addr: netip.MustParseAddr(vporttest.NodeIP).As4()}
		for range n {
			if err := unix.Sendto(s, make([]byte, segments*size), 0, to); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		r.t.Fatal(err)
	}
}

func hasReason(t *testing.T, name string) bool {
	t.Helper()
	r, err := KernelReasons()
	if err != nil {
		t.Fatal(err)
	}
	return r.Number(name) != 0
}

func TestUnknownProtocolsAndReasonsHaveNames(t *testing.T) {
	names := vport.Protocols()
	for i, name := range names {
		if got := protocolName(uint32(i)); got != name {
			t.Errorf("protocol %d is %s, want %s", i, got, name)
		}
	}
	for _, n := range []uint32{uint32(len(names)), 1 << 31} {
		if got := protocolName(n); got != "other" {
			t.Errorf("protocol %d is %s", n, got)
		}
	}
	r := newReasons()
	r.add(5, "SOCKET_FILTER")
	r.add(0x30002, "OVS_DROP_METER")
	for n, want := range map[uint32]string{5: "SOCKET_FILTER", 0x30002: "OVS_DROP_METER", 6: "REASON_6", 0xffffffff: "REASON_4294967295"} {
		if got := r.Name(n); got != want {
			t.Errorf("reason %d is %s, want %s", n, got, want)
		}
	}
	if got := sum([]uint64{1, 2, 1 << 60}); got != 1<<60+3 {
		t.Errorf("sum %d", got)
	}
}

func TestBothProgramsAreThere(t *testing.T) {
	spec, err := loadDrops()
	if err != nil {
		t.Fatal(err)
	}
	var wanted []string
	for _, m := range attachMethods() {
		wanted = append(wanted, m.program)
	}
	for name := range spec.Programs {
		if !slices.Contains(wanted, name) {
			t.Errorf("program %s is never attached", name)
		}
	}
	if len(spec.Programs) != len(wanted) {
		t.Errorf("%d programs, want %v", len(spec.Programs), wanted)
	}
}
