package drops

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/features"
	"golang.org/x/sys/unix"

	"vigia/internal/bpf/vport/vporttest"
	"vigia/internal/netns"
	"vigia/internal/testutil"
)

// rig is a port whose drops are counted.
type rig struct {
	*vporttest.Port
	t *testing.T
}

func newRig(t *testing.T) *rig {
	t.Helper()
	return &rig{vporttest.NewPort(t), t}
}

func (r *rig) open() *Counter {
	r.t.Helper()
	c, err := Open(r.PinDir, r.Node)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { c.Close() })
	return c
}

// udp sends n datagrams of size bytes from the tenant to a port of the node.
func (r *rig) udp(n, size, port int) {
	r.t.Helper()
	var conn net.PacketConn
	err := netns.Do(r.Tenant, func() (err error) {
		conn, err = net.ListenPacket("udp4", vporttest.TenantIP+":0")
		return err
	})
	if err != nil {
		r.t.Fatal(err)
	}
	defer conn.Close()
	for range n {
		if _, err := conn.WriteTo(make([]byte, size), &net.UDPAddr{IP: net.ParseIP(vporttest.NodeIP), Port: port}); err != nil {
			r.t.Fatal(err)
		}
	}
}

func (r *rig) nft(script string) {
	r.t.Helper()
	path := filepath.Join(r.t.TempDir(), "rules.nft")
	if err := os.WriteFile(path, []byte(script), 0o600); err != nil {
		r.t.Fatal(err)
	}
	testutil.Run(r.t, "ip", "netns", "exec", r.Node, "nft", "-f", path)
}

func read(t *testing.T, c *Counter) map[Event]uint64 {
	t.Helper()
	return readOf(t, c, func(int) bool { return true })
}

func readOf(t *testing.T, c *Counter, keep func(int) bool) map[Event]uint64 {
	t.Helper()
	got := make(map[Event]uint64)
	if err := c.Read(keep, func(e *Event, count uint64) { got[*e] += count }); err != nil {
		t.Fatal(err)
	}
	return got
}

// counted waits until a count is what was sent, and returns it: a busy kernel drops a moment after it was given a packet.
func counted(t *testing.T, want uint64, count func() uint64) (n uint64) {
	t.Helper()
	testutil.WaitFor(t, strconv.FormatUint(want, 10)+" drops to be counted", func() bool { n = count(); return n >= want })
	return n
}

func (r *rig) event(reason, protocol string) Event {
	return Event{Device: r.Index, Arrival: r.Index, Reason: reason, Protocol: protocol}
}

// openBy attaches to the tracepoint by one method, whichever Open would choose.
func (r *rig) openBy(m attachMethod) *Counter {
	r.t.Helper()
	reasons, err := KernelReasons()
	if err != nil {
		r.t.Fatal(err)
	}
	inode, err := namespace(r.Node)
	if err != nil {
		r.t.Fatal(err)
	}
	c := &Counter{reasons: reasons, pinDir: filepath.Join(r.PinDir, pinFolder)}
	r.t.Cleanup(func() { c.Close() })
	if err := c.start(m, inode); err != nil {
		if missing := features.HaveProgramType(ebpf.Tracing); m.program == "drop_event_typed" && missing != nil {
			r.t.Skipf("this kernel loads no programs of the type tracing (tp_btf): %v", missing)
		}
		r.t.Fatal(err)
	}
	return c
}

func TestDropsAreCountedExactly(t *testing.T) {
	for _, m := range attachMethods() {
		t.Run(m.program, func(t *testing.T) { countedExactly(t, m) })
	}
}

func countedExactly(t *testing.T, m attachMethod) {
	r := newRig(t)
	c := r.openBy(m)
	before := read(t, c)
	grew := func(e Event, want uint64) uint64 {
		t.Helper()
		return counted(t, want, func() uint64 { return read(t, c)[e] - before[e] })
	}

	r.udp(500, 100, 9)
	if got := grew(r.event("NO_SOCKET", "udp"), 500); got != 500 {
		t.Errorf("%d datagrams to a closed port, sent 500; all: %v", got, read(t, c))
	}
	// A foreign MAC address: the frame is for somebody else.
	testutil.IP(t, "-n", r.Tenant, "neigh", "replace", vporttest.NodeIP, "lladdr", "02:00:00:00:00:99", "dev", "eth0")
	r.udp(70, 100, 9)
	if got := grew(r.event("OTHERHOST", "udp"), 70); got != 70 {
		t.Errorf("%d frames for somebody else, sent 70", got)
	}
	if got := grew(r.event("NO_SOCKET", "udp"), 500); got != 500 {
		t.Errorf("they reached a socket: %d", got)
	}
	if lost, err := c.Lost(); lost != 0 || err != nil {
		t.Errorf("%d events found no place, %v", lost, err)
	}
}

// TestProtocolsAgreeWithNFT lets nft drop, which counts what it drops.
func TestProtocolsAgreeWithNFT(t *testing.T) {
	r := newRig(t)
	r.nft(`table netdev t {
  chain in { type filter hook ingress device "tap0" priority 0;
    ip frag-off & 0x1fff != 0 counter drop
    ip protocol udp counter drop
    ip protocol tcp counter drop
    ip protocol icmp counter drop
  }
}`)
	c := r.open()
	r.udp(40, 4000, 9) // three fragments each: one with a header, two without
	r.udp(25, 100, 9)
	testutil.Run(t, "sh", "-c", "ip netns exec "+r.Tenant+" ping -c3 -i0.2 -W1 "+vporttest.NodeIP+" || true")
	r.syn(9)
	var want [4]uint64 // as in the rules
	testutil.WaitFor(t, "nft to drop all of it", func() bool {
		want = r.nftCounters()
		return want[0] >= 80 && want[1] >= 65 && want[2] >= 1 && want[3] >= 3
	})
	if want[0] != 80 || want[1] != 65 || want[3] != 3 {
		t.Fatalf("nft dropped %v", want)
	}
	got := func(protocol string) (sum uint64) {
		for e, n := range read(t, c) {
			if e.Device == r.Index && e.Protocol == protocol && strings.HasPrefix(e.Reason, "NETFILTER_") {
				sum += n
			}
		}
		return sum
	}
	for i, protocol := range []string{"fragment", "udp", "tcp", "icmp"} {
		if n := counted(t, want[i], func() uint64 { return got(protocol) }); n != want[i] {
			t.Errorf("%s: counted %d, nft dropped %d", protocol, n, want[i])
		}
	}
}

// syn has the tenant ask a port of the node for a connection, and gives up: the kernel has sent one segment by then, and
// sends none later.
func (r *rig) syn(port int) {
	r.t.Helper()
	err := netns.Do(r.Tenant, func() error {
		s, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(s)
		err = unix.Connect(s, &unix.SockaddrInet4{Port: port, Addr: netip.MustParseAddr(vporttest.NodeIP).As4()})
		if errors.Is(err, unix.EINPROGRESS) {
			return nil
		}
		return fmt.Errorf("a connection at once: %w", err)
	})
	if err != nil {
		r.t.Fatal(err)
	}
}

// nftCounters returns how many packets the rules of the node have dropped, in their order.
func (r *rig) nftCounters() (counts [4]uint64) {
	r.t.Helper()
	i := 0
	for line := range strings.SplitSeq(testutil.Run(r.t, "ip", "netns", "exec", r.Node, "nft", "list", "ruleset"), "\n") {
		if _, after, ok := strings.Cut(line, "counter packets "); ok {
			n, err := strconv.ParseUint(strings.Fields(after)[0], 10, 64)
			if err != nil {
				r.t.Fatal(err)
			}
			counts[i] = n
			i++
		}
	}
	return counts
}

func TestOtherNamespacesAndPacketFiltersAreNotCounted(t *testing.T) {
	r := newRig(t)
	c := r.open()
	testutil.Run(t, "ip", "netns", "exec", r.Tenant, "sh", "-c", "ping -c1 -W1 10.7.0.9 || true") // nobody there
	err := netns.Do(r.Tenant, func() error {                                                      // a closed port of the tenant's own
		conn, err := net.Dial("udp4", vporttest.TenantIP+":9")
		if err != nil {
			return err
		}
		defer conn.Close()
		_, err = conn.Write([]byte("x"))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for e, n := range read(t, c) {
		if e.Device != r.Index || e.Reason == socketFilter || e.Reason == "NO_SOCKET" {
			t.Errorf("counted %d of %+v", n, e)
		}
	}
}

func TestCountingGoesOnOverARestart(t *testing.T) {
	r := newRig(t)
	c := r.open()
	r.udp(10, 100, 9)
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	r.udp(20, 100, 9) // nobody is looking
	c = r.open()
	r.udp(30, 100, 9)
	if got := counted(t, 60, func() uint64 { return read(t, c)[r.event("NO_SOCKET", "udp")] }); got != 60 {
		t.Errorf("%d drops over the restart, want 60", got)
	}
}

func TestUninstallLeavesNothing(t *testing.T) {
	r := newRig(t)
	c := r.open()
	info, err := c.program.Info()
	if err != nil {
		t.Fatal(err)
	}
	id, _ := info.ID()
	if err := errors.Join(c.Close(), Uninstall(r.PinDir)); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(r.PinDir, pinFolder)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("pins are left: %v", err)
	}
	testutil.WaitFor(t, "the program to go", func() bool {
		p, err := ebpf.NewProgramFromID(id)
		if err == nil {
			p.Close()
		}
		return errors.Is(err, os.ErrNotExist)
	})
	if err := Uninstall(r.PinDir); err != nil {
		t.Errorf("uninstalling nothing: %v", err)
	}
}

func TestForeignEntriesMakeRoom(t *testing.T) {
	r := newRig(t)
	c := r.open()
	n := c.maps.DropCount.MaxEntries()/2 + 1
	value := make([]uint64, ebpf.MustPossibleCPU())
	for i := range n {
		if err := c.maps.DropCount.Put(dropsEvent{Device: 1_000_000 + i}, value); err != nil {
			t.Fatal(err)
		}
	}
	r.udp(5, 100, 9)
	isPort := func(index int) bool { return index == r.Index }
	for range 2 {
		if got := counted(t, 5, func() uint64 { return readOf(t, c, isPort)[r.event("NO_SOCKET", "udp")] }); got != 5 {
			t.Fatalf("the port's drops are %d", got)
		}
	}
	if left := len(read(t, c)); left > int(n)/2 {
		t.Errorf("%d entries are left", left)
	}
}

func TestEveryEntryIsReadOnce(t *testing.T) {
	r := newRig(t)
	c := r.open()
	const entries = 2*piece + 1
	before := len(read(t, c))
	value := make([]uint64, ebpf.MustPossibleCPU())
	for i := range uint32(entries) {
		value[0], value[len(value)-1] = uint64(i), 1_000_000
		if err := c.maps.DropCount.Put(dropsEvent{Device: 1_000_000 + i}, value); err != nil {
			t.Fatal(err)
		}
	}
	seen := make(map[int]int)
	err := c.Read(func(int) bool { return true }, func(e *Event, count uint64) {
		if e.Device >= 1_000_000 {
			seen[e.Device]++
			if want := uint64(e.Device-1_000_000) + 1_000_000; len(value) > 1 && count != want {
				t.Errorf("device %d: %d, want %d", e.Device, count, want)
			}
		}
	})
	if err != nil || len(seen) != entries {
		t.Errorf("%d of %d entries, %v; %d others", len(seen), entries, err, before)
	}
	for device, times := range seen {
		if times != 1 {
			t.Errorf("device %d was read %d times", device, times)
		}
	}
}

func TestErrorsNameTheCure(t *testing.T) {
	testutil.RequireRoot(t)
	if _, err := Open(t.TempDir(), ""); err == nil || !strings.Contains(err.Error(), "not on a bpffs; run: mount") {
		t.Errorf("no bpffs: %v", err)
	}
	if _, err := Open(testutil.NewBPFFS(t), "vigia-test-absent"); err == nil || !strings.Contains(err.Error(), "does not exist") {
		t.Errorf("no namespace: %v", err)
	}
}

func TestReasonsOfTheFormat(t *testing.T) {
	r, err := parseFormat(`print fmt: "reason: %s", __print_symbolic(REC->reason, { 2, "NOT_SPECIFIED" }, { 0x20005, "OVS_DROP_METER" }, {3,"NO_SOCKET"})`)
	if err != nil {
		t.Fatal(err)
	}
	for n, want := range map[uint32]string{2: "NOT_SPECIFIED", 0x20005: "OVS_DROP_METER", 3: "NO_SOCKET", 9: "REASON_9"} {
		if got := r.Name(n); got != want {
			t.Errorf("%d is %s, want %s", n, got, want)
		}
	}
	if r.Number("NO_SOCKET") != 3 || r.Number("NOPE") != 0 {
		t.Error("numbers do not stem from names")
	}
	for _, bad := range []string{"", `print fmt: "skbaddr=%p", REC->skbaddr`, `{ 99999999999, "X" }`} {
		if _, err := parseFormat(bad); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}

func TestReasonsOfThisKernel(t *testing.T) {
	r, err := KernelReasons()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"NO_SOCKET", "NETFILTER_DROP", "OTHERHOST", socketFilter, "QDISC_DROP"} {
		n := r.Number(name)
		if n == 0 || r.Name(n) != name {
			t.Errorf("%s has the number %d, which is %s", name, n, r.Name(n))
		}
	}
	format, err := os.ReadFile(tracefsFormats[0])
	if err != nil {
		return // tracefs is not mounted: there is nothing to compare with
	}
	other, err := parseFormat(string(format))
	if err != nil {
		t.Fatal(err)
	}
	for n, name := range other.names {
		if r.Name(n) != name && n>>subsystemShift == 0 {
			t.Errorf("%d is %s by BTF and %s by tracefs", n, r.Name(n), name)
		}
	}
}
