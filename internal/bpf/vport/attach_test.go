package vport_test

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"vigia/internal/bpf/vport"
	"vigia/internal/bpf/vport/vporttest"
	"vigia/internal/netns"
	"vigia/internal/testutil"
)

// Indices into vport.Protocols.
const (
	udp   = 1
	arpND = 3
)

const xdpPass = 2

// rig is a port and how programs get onto it.
type rig struct {
	*vporttest.Port
	t          *testing.T
	attachment vport.Attachment
}

func newRig(t *testing.T) *rig {
	t.Helper()
	return &rig{Port: vporttest.NewPort(t), t: t}
}

// connect opens a TCP connection from the tenant to the node.
func (r *rig) connect() {
	r.t.Helper()
	var server net.Listener
	err := netns.Do(r.Node, func() (err error) { server, err = net.Listen("tcp4", vporttest.NodeIP+":5354"); return err })
	if err != nil {
		r.t.Fatal(err)
	}
	defer server.Close()
	err = netns.Do(r.Tenant, func() error {
		c, err := net.DialTimeout("tcp4", server.Addr().String(), 20*time.Second)
		if err == nil {
			err = c.Close()
		}
		return err
	})
	if err != nil {
		r.t.Errorf("connect: %v", err)
	}
}

type where struct {
	hook       vport.Hook
	attachment vport.Attachment
}

// everywhere lists the places where programs can be.
func everywhere() []where {
	return []where{{vport.TCX, vport.TCXLinks}, {vport.TCX, vport.ClsactFilters}, {vport.XDP, vport.TCXLinks}, {vport.XDP, vport.ClsactFilters}}
}

// attachedEverywhere runs a test in each place, on a port whose programs are there.
func attachedEverywhere(t *testing.T, test func(t *testing.T, r *rig, m *vport.Manager, at where)) {
	for _, at := range everywhere() {
		t.Run(at.hook.String()+" "+string(at.attachment), func(t *testing.T) {
			r := newRig(t)
			r.attachment = at.attachment
			m := r.open()
			if err := m.Attach(r.Index, at.hook); err != nil {
				t.Fatal(err)
			}
			test(t, r, m, at)
		})
	}
}

// eachAttachment runs a test with vport.TCX links and with clsact filters.
func eachAttachment(t *testing.T, test func(t *testing.T, r *rig)) {
	for _, a := range []vport.Attachment{vport.TCXLinks, vport.ClsactFilters} {
		t.Run(string(a), func(t *testing.T) {
			r := newRig(t)
			r.attachment = a
			test(t, r)
		})
	}
}

func (r *rig) open() *vport.Manager {
	r.t.Helper()
	return vporttest.Open(r.t, vport.Options{PinDir: r.PinDir, NetNS: r.Node, Attachment: r.attachment})
}

func (r *rig) counters(m *vport.Manager) vport.Counters {
	r.t.Helper()
	c, err := m.Read(r.Index)
	if err != nil {
		r.t.Fatal(err)
	}
	return c
}

func TestTrafficIsCountedExactlyOnBothHooks(t *testing.T) {
	attachedEverywhere(t, func(t *testing.T, r *rig, m *vport.Manager, at where) {
		if got := r.Send(100, 200); got != 100 {
			t.Fatalf("%d of 100 datagrams arrived", got)
		}
		if got := r.Receive(70, 300); got != 70 {
			t.Fatalf("%d of 70 datagrams arrived", got)
		}
		c := r.counters(m)
		const headers = 14 + 20 + 8
		if p, b := c.Packets[vport.FromTenant][udp], c.Bytes[vport.FromTenant][udp]; p != 100 || b != 100*(200+headers) {
			t.Errorf("from tenant: %d packets, %d bytes", p, b)
		}
		if p, b := c.Packets[vport.ToTenant][udp], c.Bytes[vport.ToTenant][udp]; p != 70 || b != 70*(300+headers) {
			t.Errorf("to tenant: %d packets, %d bytes", p, b)
		}
	})
}

// TestTenantsOwnDeviceIsCountedTheOtherWayRound attaches to the tenant's end of the
// pair, as to a macvlan or the device of an OVS internal port, and limits it there.
func TestTenantsOwnDeviceIsCountedTheOtherWayRound(t *testing.T) {
	eachAttachment(t, func(t *testing.T, r *rig) {
		// The programs sit where the tenant is.
		m := vporttest.Open(t, vport.Options{PinDir: r.PinDir, NetNS: r.Tenant, Attachment: r.attachment})
		r.Index = vporttest.Index(t, r.Tenant, "eth0")
		if err := m.Attach(r.Index, vport.TCXTenant); err != nil {
			t.Fatal(err)
		}
		if got := r.Send(100, 200); got != 100 {
			t.Fatalf("%d of 100 datagrams arrived", got)
		}
		if got := r.Receive(70, 300); got != 70 {
			t.Fatalf("%d of 70 datagrams arrived", got)
		}
		c := r.counters(m)
		if from, to := c.Packets[vport.FromTenant][udp], c.Packets[vport.ToTenant][udp]; from != 100 || to != 70 {
			t.Errorf("%d packets from the tenant and %d to it; want 100 and 70", from, to)
		}
		// A limit drops what the tenant sends, and nothing else.
		if err := m.SetLimit(r.Index, vport.LimitRequest{Rate: 1, Burst: 1, TTL: time.Minute}); err != nil {
			t.Fatal(err)
		}
		if got := r.Send(20, 200); got != 0 {
			t.Errorf("%d of 20 datagrams passed the limit", got)
		}
		if got := r.Receive(20, 200); got != 20 {
			t.Errorf("%d of 20 datagrams to the tenant arrived", got)
		}
		if c = r.counters(m); c.PolicedPackets != 20 {
			t.Errorf("%d packets were policed, want 20", c.PolicedPackets)
		}
		if err := m.Attach(r.Index, vport.TCX); err != nil { // another hook takes the old one off
			t.Fatal(err)
		}
		if err := m.Detach(r.Index); err != nil {
			t.Fatal(err)
		}
		if entries, err := os.ReadDir(filepath.Join(r.PinDir, "links")); err != nil || len(entries) != 0 {
			t.Errorf("links left behind: %v, %v", entries, err)
		}
	})
}

func TestLimitBitesReadsBackExpiresAndComesOff(t *testing.T) {
	attachedEverywhere(t, func(t *testing.T, r *rig, m *vport.Manager, at where) {
		if _, err := m.Limit(r.Index); !errors.Is(err, vport.ErrNoLimit) {
			t.Fatalf("before any limit: %v", err)
		}
		id := [16]byte{7}
		// 1 byte a second lets nothing but the burst through: 5 frames of 1042 bytes.
		if err := m.SetLimit(r.Index, vport.LimitRequest{ID: id, Rate: 1, Burst: 5 * 1042, TTL: time.Minute}); err != nil {
			t.Fatal(err)
		}
		first := r.Send(50, 1000)
		l, err := m.Limit(r.Index)
		if err != nil {
			t.Fatal(err)
		}
		if first != 5 || l.PolicedPackets != 45 || l.PolicedBytes != 45*1042 {
			t.Errorf("%d of 50 passed, %d policed (%d bytes); want 5 and 45", first, l.PolicedPackets, l.PolicedBytes)
		}
		if l.ID != id || l.Rate != 1 || l.Burst != 5*1042 || l.Expires <= 0 || l.Expires > time.Minute {
			t.Errorf("read back %+v", l)
		}
		r.connect() // TCP is not limited

		// Renewing goes on counting, another id starts anew.
		if err := m.SetLimit(r.Index, vport.LimitRequest{ID: id, Rate: 1, Burst: 5 * 1042, TTL: time.Minute}); err != nil {
			t.Fatal(err)
		}
		if l, err = m.Limit(r.Index); err != nil || l.PolicedPackets != 45 {
			t.Errorf("after renewal: %+v, %v", l, err)
		}
		if err := m.SetLimit(r.Index, vport.LimitRequest{ID: [16]byte{8}, Rate: 1, Burst: 1, TTL: time.Minute}); err != nil {
			t.Fatal(err)
		}
		if l, err = m.Limit(r.Index); err != nil || l.PolicedPackets != 0 {
			t.Errorf("after another id: %+v, %v", l, err)
		}
		if err := m.SetLimit(r.Index, vport.LimitRequest{ID: [16]byte{8}, Rate: 1, Burst: 1, TTL: 1500 * time.Millisecond}); err != nil {
			t.Fatal(err)
		}
		testutil.WaitFor(t, "the limit to expire", func() bool { _, err := m.Limit(r.Index); return errors.Is(err, vport.ErrNoLimit) })
		if got := r.Send(50, 1000); got != 50 {
			t.Errorf("%d of 50 passed after expiry", got)
		}

		if err := m.SetLimit(r.Index, vport.LimitRequest{ID: id, Rate: 1, Burst: 1, TTL: time.Minute}); err != nil {
			t.Fatal(err)
		}
		if err := m.RemoveLimit(r.Index); err != nil {
			t.Fatal(err)
		}
		if got := r.Send(50, 1000); got != 50 {
			t.Errorf("%d of 50 passed after removal", got)
		}
	})
}

// TestWhoCannotLookLeavesLimitsInForce attaches again, as is done every few seconds, when the process has as many files
// open as it may.
func TestWhoCannotLookLeavesLimitsInForce(t *testing.T) {
	attachedEverywhere(t, func(t *testing.T, r *rig, m *vport.Manager, at where) {
		if err := m.SetLimit(r.Index, vport.LimitRequest{ID: [16]byte{7}, Rate: 1, Burst: 5 * 1042, TTL: time.Minute}); err != nil {
			t.Fatal(err)
		}
		var may unix.Rlimit
		if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &may); err != nil {
			t.Fatal(err)
		}
		refused := 0
		for spare := range uint64(4) {
			next, err := unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0)
			if err != nil {
				t.Fatal(err)
			}
			_ = unix.Close(next)
			few := unix.Rlimit{Cur: uint64(next) + spare, Max: may.Max}
			if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &few); err != nil {
				t.Fatal(err)
			}
			attached := m.Attach(r.Index, at.hook)
			if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &may); err != nil {
				t.Fatal(err)
			}
			switch {
			case errors.Is(attached, unix.EMFILE):
				refused++
			case attached != nil:
				t.Errorf("with room for %d files: %v", spare, attached)
			}
		}
		if refused < 2 {
			t.Errorf("refused %d times: there is a file for the lock and one for a program", refused)
		}
		if err := m.Attach(r.Index, at.hook); err != nil {
			t.Error(err)
		}
		if _, err := m.Limit(r.Index); err != nil {
			t.Errorf("the limit: %v", err)
		}
		if passed := r.Send(50, 1000); passed != 5 {
			t.Errorf("%d of 50 passed, the limit lets 5 pass", passed)
		}
	})
}

// A packet socket is what vport.Open vSwitch's userspace datapath reads a port by.
func TestXDPHidesPolicedPacketsFromPacketSockets(t *testing.T) {
	for _, tc := range []struct {
		hook vport.Hook
		want int
	}{{vport.XDP, 0}, {vport.TCX, 20}} {
		t.Run(tc.hook.String(), func(t *testing.T) {
			r := newRig(t)
			m := r.open()
			if err := m.Attach(r.Index, tc.hook); err != nil {
				t.Fatal(err)
			}
			if err := m.SetLimit(r.Index, vport.LimitRequest{ID: [16]byte{1}, Rate: 1, Burst: 1, TTL: time.Minute}); err != nil {
				t.Fatal(err)
			}
			sock := r.packetSocket()
			defer unix.Close(sock)
			if got := r.Send(20, 100); got != 0 {
				t.Errorf("%d datagrams got through the limit", got)
			}
			seen := 0
			buf := make([]byte, 2048)
			for {
				n, _, err := unix.Recvfrom(sock, buf, unix.MSG_DONTWAIT)
				if err != nil {
					break
				}
				if n == 14+20+8+100 {
					seen++
				}
			}
			if seen != tc.want {
				t.Errorf("a packet socket saw %d dropped datagrams, want %d", seen, tc.want)
			}
		})
	}
}

func (r *rig) packetSocket() int {
	r.t.Helper()
	var fd int
	err := netns.Do(r.Node, func() (err error) {
		const proto = unix.ETH_P_ALL<<8&0xff00 | unix.ETH_P_ALL>>8 // network byte order
		if fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW, proto); err != nil {
			return err
		}
		return unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: proto, Ifindex: r.Index})
	})
	if err != nil {
		r.t.Fatal(err)
	}
	return fd
}

func TestCountersAndLimitsOutliveTheProcess(t *testing.T) {
	eachAttachment(t, countersAndLimitsOutliveTheProcess)
}

func countersAndLimitsOutliveTheProcess(t *testing.T, r *rig) {
	m := r.open()
	if err := m.Attach(r.Index, vport.TCX); err != nil {
		t.Fatal(err)
	}
	const ttl = time.Minute
	since, sent, id := r.counters(m).SinceNs, uint64(0), [16]byte{9}
	testutil.WaitFor(t, "a restart within the limit's time", func() bool { // the kernel checks the programs anew
		id[0]++
		begin := time.Now()
		if err := m.SetLimit(r.Index, vport.LimitRequest{ID: id, Rate: 1, Burst: 3 * 142, TTL: ttl}); err != nil {
			t.Fatal(err)
		}
		if err := m.Close(); err != nil {
			t.Fatal(err)
		}
		passed := r.Send(10, 100)
		sent += 10
		m = r.open()
		if err := m.Attach(r.Index, vport.TCX); err != nil {
			t.Fatal(err)
		}
		c := r.counters(m)
		if c.Packets[vport.FromTenant][udp] != sent || c.SinceNs != since {
			t.Errorf("after the restart: %d packets since %d; want %d since %d", c.Packets[vport.FromTenant][udp], c.SinceNs, sent, since)
		}
		l, err := m.Limit(r.Index)
		if time.Since(begin) >= ttl {
			return false // the test was stalled: it ended meanwhile
		}
		if passed != 3 {
			t.Errorf("with no process running %d of 10 passed, want 3", passed)
		}
		if err != nil || l.ID != id || l.PolicedPackets != 7 {
			t.Errorf("after the restart: limit %+v, %v", l, err)
		}
		return true
	})
}

func TestTwoProcessesShareOnePort(t *testing.T) { eachAttachment(t, twoProcessesShareOnePort) }

func twoProcessesShareOnePort(t *testing.T, r *rig) {
	exporter, enforcer := r.open(), r.open()
	for _, m := range []*vport.Manager{exporter, enforcer, exporter} {
		if err := m.Attach(r.Index, vport.TCX); err != nil {
			t.Fatal(err)
		}
	}
	if got := r.Send(10, 100); got != 10 {
		t.Fatalf("%d of 10 arrived", got)
	}
	for _, m := range []*vport.Manager{exporter, enforcer} {
		if p := r.counters(m).Packets[vport.FromTenant][udp]; p != 10 {
			t.Errorf("%d packets counted, want 10: each is looked at once", p)
		}
	}
	if err := enforcer.SetLimit(r.Index, vport.LimitRequest{ID: [16]byte{1}, Rate: 1, Burst: 1, TTL: time.Minute}); err != nil {
		t.Fatal(err)
	}
	if _, err := exporter.Limit(r.Index); err != nil {
		t.Errorf("the exporter does not see the limit: %v", err)
	}
}

func TestDetachAndUninstallLeaveNothing(t *testing.T) {
	eachAttachment(t, detachAndUninstallLeaveNothing)
}

func detachAndUninstallLeaveNothing(t *testing.T, r *rig) {
	m := r.open()
	for _, hook := range []vport.Hook{vport.TCX, vport.XDP, vport.TCX} { // changing the hook detaches the old one
		if err := m.Attach(r.Index, hook); err != nil {
			t.Fatal(err)
		}
	}
	if out := r.links(); strings.Contains(out, "xdp") {
		t.Errorf("an vport.XDP program stayed after the change to TCX: %s", out)
	}
	for range 2 {
		if err := m.Detach(r.Index); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := m.Read(r.Index); !errors.Is(err, vport.ErrNotAttached) {
		t.Errorf("read after detach: %v", err)
	}
	if got := r.programs(); got != 0 {
		t.Errorf("%d programs are still attached", got)
	}
	if err := m.Attach(r.Index, vport.XDP); err != nil {
		t.Fatal(err)
	}
	if err := m.Uninstall(); err != nil {
		t.Fatal(err)
	}
	if got := r.programs(); got != 0 {
		t.Errorf("%d programs are still attached after uninstalling", got)
	}
	for _, dir := range []string{"maps", "links"} {
		entries, err := os.ReadDir(filepath.Join(r.PinDir, dir))
		if err != nil || len(entries) != 0 {
			t.Errorf("%s still has %v, %v", dir, entries, err)
		}
	}
}

func (r *rig) links() string {
	r.t.Helper()
	return testutil.IP(r.t, "-n", r.Node, "-d", "link", "show", "tap0")
}

// programs counts the programs on the vport, at whatever hook.
func (r *rig) programs() int {
	r.t.Helper()
	n := 0
	err := netns.Do(r.Node, func() error {
		for _, at := range []ebpf.AttachType{ebpf.AttachTCXIngress, ebpf.AttachTCXEgress} {
			res, err := link.QueryPrograms(link.QueryOptions{Target: r.Index, Attach: at})
			if err != nil {
				return fmt.Errorf("query %s: %w", at, err)
			}
			n += len(res.Programs)
		}
		return nil
	})
	if err != nil {
		r.t.Fatal(err)
	}
	if strings.Contains(r.links(), "xdp") {
		n++
	}
	for _, side := range []string{"ingress", "egress"} {
		n += strings.Count(testutil.Run(r.t, "tc", "-n", r.Node, "filter", "show", "dev", "tap0", side), "id ")
	}
	return n
}

func TestRecreatedInterfaceStartsAnew(t *testing.T) { eachAttachment(t, recreatedInterfaceStartsAnew) }

func recreatedInterfaceStartsAnew(t *testing.T, r *rig) {
	m := r.open()
	if err := m.Attach(r.Index, vport.TCX); err != nil {
		t.Fatal(err)
	}
	if got := r.Send(10, 100); got != 10 {
		t.Fatalf("%d of 10 arrived", got)
	}
	old := r.Index
	testutil.IP(t, "-n", r.Node, "link", "del", "tap0")
	// The kernel may give the same number again; here it is asked to.
	testutil.IP(t, "-n", r.Node, "link", "add", "tap0", "index", fmt.Sprint(old), "type", "veth", "peer", "name", "eth0", "netns", r.Tenant)
	if err := m.Attach(old, vport.TCX); err != nil {
		t.Fatal(err)
	}
	if p := r.counters(m).Packets[vport.FromTenant][udp]; p != 0 {
		t.Errorf("the new interface inherited %d packets", p)
	}
	if got := r.programs(); got != 2 {
		t.Errorf("%d programs on the new interface, want 2", got)
	}
}

func TestForeignProgramsStay(t *testing.T) {
	r := newRig(t)
	foreign, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.XDP, License: "GPL", Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, xdpPass), asm.Return()}})
	if err != nil {
		t.Fatal(err)
	}
	defer foreign.Close()
	var theirs link.Link
	err = netns.Do(r.Node, func() (err error) {
		theirs, err = link.AttachXDP(link.XDPOptions{Program: foreign, Interface: r.Index})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer theirs.Close()
	m := r.open()
	err = m.Attach(r.Index, vport.XDP)
	if err == nil || !strings.Contains(err.Error(), "another owner") {
		t.Fatalf("got %v, want a refusal that names the other owner", err)
	}
	if attached, err := m.Attached(); err != nil || len(attached) != 0 {
		t.Errorf("the refused interface kept a slot: %v, %v", attached, err)
	}
	if info, err := theirs.Info(); err != nil || info.XDP().Ifindex != uint32(r.Index) {
		t.Errorf("the foreign program was touched: %v", err)
	}
	if err := m.Attach(r.Index, vport.TCX); err != nil { // beside it, there is room
		t.Error(err)
	}
}

func TestAttachErrors(t *testing.T) {
	r := newRig(t)
	m := r.open()
	if err := m.Attach(99999, vport.TCX); err == nil || !errors.Is(err, unix.ENODEV) && !strings.Contains(err.Error(), "no such device") {
		t.Errorf("absent interface: %v", err)
	}
	if attached, err := m.Attached(); err != nil || len(attached) != 0 {
		t.Errorf("a failed attachment left %v, %v", attached, err)
	}
	for i := range 9 {
		name := fmt.Sprintf("d%d", i)
		testutil.IP(t, "-n", r.Node, "link", "add", name, "type", "veth", "peer", "name", name+"p")
		err := m.Attach(vporttest.Index(t, r.Node, name), vport.TCX)
		if full := errors.Is(err, vport.ErrFull); full != (i == 8) || !full && err != nil {
			t.Fatalf("port %d of 8: %v", i, err)
		}
	}
	if err := m.SetLimit(r.Index, vport.LimitRequest{ID: [16]byte{1}, Rate: 1, Burst: 1, TTL: time.Second}); !errors.Is(err, vport.ErrNotAttached) {
		t.Errorf("limit without a program: %v", err)
	}
	first := vporttest.Index(t, r.Node, "d0")
	for _, l := range []vport.Limit{{Rate: 0, Burst: 1, Expires: 1}, {Rate: 1, Burst: 0, Expires: 1}, {Rate: 1, Burst: 1}, {Rate: vport.MaxRate + 1, Burst: 1, Expires: 1}} {
		if err := m.SetLimit(first, vport.LimitRequest{ID: l.ID, Rate: l.Rate, Burst: l.Burst, TTL: l.Expires}); err == nil {
			t.Errorf("accepted %+v", l)
		}
	}
}

func TestHighInterfaceNumbers(t *testing.T) {
	r := newRig(t)
	m := r.open()
	testutil.IP(t, "-n", r.Node, "link", "add", "high", "index", "70000", "type", "veth", "peer", "name", "highp")
	testutil.IP(t, "-n", r.Node, "link", "set", "high", "up")
	testutil.IP(t, "-n", r.Node, "link", "set", "highp", "up")
	if err := m.Attach(70000, vport.TCX); err != nil {
		t.Fatal(err)
	}
	testutil.IP(t, "-n", r.Node, "addr", "add", "10.9.0.1/24", "dev", "high")
	testutil.WaitFor(t, "an ARP request to be counted", func() bool {
		_ = exec.Command("ip", "netns", "exec", r.Node, "ping", "-c1", "-W1", "10.9.0.2").Run() // nobody answers
		c, err := m.Read(70000)
		return err == nil && c.Packets[vport.ToTenant][arpND] > 0
	})
	if err := m.Detach(70000); err != nil {
		t.Fatal(err)
	}
	if stayed, err := m.HasHighSlot(70000); stayed || err != nil {
		t.Errorf("the slot of interface 70000 stayed: %v, %v", stayed, err)
	}
}

func TestPinsOfAnotherSizeAreReplaced(t *testing.T) {
	r := newRig(t)
	small := vporttest.Open(t, vport.Options{PinDir: r.PinDir, NetNS: r.Node, MaxPorts: 2})
	if err := small.Attach(r.Index, vport.TCX); err != nil {
		t.Fatal(err)
	}
	m := r.open()
	if attached, err := m.Attached(); err != nil || len(attached) != 0 {
		t.Errorf("attached %v, %v; want a fresh start", attached, err)
	}
	if err := m.Attach(r.Index, vport.TCX); err != nil {
		t.Fatal(err)
	}
	if got := r.programs(); got != 2 {
		t.Errorf("%d programs, want 2", got)
	}
}

func TestOpenErrors(t *testing.T) {
	plain := filepath.Join(t.TempDir(), "pins")
	for _, tc := range []struct {
		name string
		o    vport.Options
		want string
	}{
		{"relative pin directory", vport.Options{PinDir: "pins"}, "write an absolute path"},
		{"not a bpffs", vport.Options{PinDir: plain}, "is not on a bpffs; run: mount -t bpf bpf " + filepath.Dir(plain)},
		{"absent namespace", vport.Options{PinDir: testutil.NewBPFFS(t), NetNS: "vigia-test-absent"}, "vigia-test-absent"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if _, err := vport.Open(tc.o); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
	if _, err := os.Stat(plain); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a refused pin directory was made: %v", err)
	}
}
