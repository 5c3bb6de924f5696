package packetsockets

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"vigia/exporters/tenant/source"
	"vigia/exporters/tenant/source/sourcetest"
	"vigia/internal/exposition"
	"vigia/internal/ports"
	"vigia/internal/sockdiag"
)

// list is what sock_diag answers.
type list struct {
	sockets []sockdiag.PacketSocket
	err     error
}

func (l *list) PacketSockets(into []sockdiag.PacketSocket) ([]sockdiag.PacketSocket, error) {
	return append(into, l.sockets...), l.err
}

func at(inode uint32, index int, drops uint32) sockdiag.PacketSocket {
	return sockdiag.PacketSocket{Inode: inode, Index: index, Protocol: unix.ETH_P_ALL, Drops: drops}
}

const ovs, bridge = 5, 6

// drops collects and returns the drops of the Open vSwitch port, and of all.
func drops(t *testing.T, s *Source, indices ...int) (port, all uint64) {
	t.Helper()
	var ps []ports.Port
	for _, i := range indices {
		plane := ports.OVSUserspace
		if i == bridge {
			plane = ports.LinuxBridge
		}
		ps = append(ps, ports.Port{ID: strconv.Itoa(i), Tenant: "red", Index: i, DataPlane: plane})
	}
	v := sourcetest.View(ps, nil, nil, time.Now())
	if err := s.Collect(v, exposition.NewPage(nil)); err != nil {
		t.Fatal(err)
	}
	for _, n := range v.Drops.Counts {
		all += n
	}
	return v.Drops.Counts[source.DropKey{Port: strconv.Itoa(ovs), Tenant: "red", Direction: source.FromTenant, Reason: source.QueueFull}], all
}

func TestOnlyUserspaceSwitchesSocketsCount(t *testing.T) {
	l := &list{sockets: []sockdiag.PacketSocket{
		at(1, ovs, 10),
		at(2, bridge, 100), // a capture on a Linux bridge's port
		at(3, 77, 1000),    // on no port at all
		{Inode: 4, Index: ovs, Protocol: unix.ETH_P_ARP, Drops: 5},
		at(5, 0, 7), // bound to no interface
	}}
	port, all := drops(t, New(l, t.TempDir()), ovs, bridge)
	if port != 10 || all != 10 {
		t.Errorf("%d at the port, %d in all; want 10", port, all)
	}
}

func TestDropsOnlyGrow(t *testing.T) {
	l := &list{}
	s := New(l, t.TempDir())
	for i, tc := range []struct {
		sockets []sockdiag.PacketSocket
		want    uint64
	}{
		{[]sockdiag.PacketSocket{at(1, ovs, 10)}, 10},
		{[]sockdiag.PacketSocket{at(1, ovs, 15)}, 15},
		{nil, 15}, // ovs-vswitchd is away
		{[]sockdiag.PacketSocket{at(2, ovs, 0)}, 15},
		{[]sockdiag.PacketSocket{at(2, ovs, 4294967290)}, 4294967305},
		{[]sockdiag.PacketSocket{at(2, ovs, 4)}, 4294967315}, // the kernel's 32 bits ran over
	} {
		l.sockets = tc.sockets
		if got, _ := drops(t, s, ovs); got != tc.want {
			t.Errorf("step %d: %d, want %d", i, got, tc.want)
		}
	}
	drops(t, s) // the port goes
	l.sockets = []sockdiag.PacketSocket{at(3, ovs, 1)}
	if got, _ := drops(t, s, ovs); got != 1 {
		t.Errorf("a new port starts at %d", got)
	}
}

// TestSocketsAreKnownInWhateverOrderTheyAreListed has two of a switch that cannot be
// told apart, and one that goes between.
func TestSocketsAreKnownInWhateverOrderTheyAreListed(t *testing.T) {
	l := &list{sockets: []sockdiag.PacketSocket{at(1, ovs, 10), at(2, ovs, 20), at(3, ovs, 5)}}
	s := New(l, t.TempDir())
	for i, step := range []struct {
		sockets []sockdiag.PacketSocket
		want    uint64
	}{
		{l.sockets, 35},
		{[]sockdiag.PacketSocket{at(3, ovs, 6), at(1, ovs, 10), at(2, ovs, 20)}, 36},
		{[]sockdiag.PacketSocket{at(3, ovs, 6), at(2, ovs, 22)}, 38},
		{[]sockdiag.PacketSocket{at(4, ovs, 1), at(3, ovs, 6), at(2, ovs, 22)}, 39},
	} {
		l.sockets = step.sockets
		if got, _ := drops(t, s, ovs); got != step.want {
			t.Errorf("step %d: %d, want %d", i, got, step.want)
		}
	}
}

// TestForeignSocketsAreToldApart runs the test itself as the switch: of two packet
// sockets at the port, it holds one.
func TestForeignSocketsAreToldApart(t *testing.T) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	pid := filepath.Join(dir, "ovs-vswitchd.pid")
	if err := os.WriteFile(pid, []byte(strconv.Itoa(os.Getpid())+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	own, capture := uint32(st.Ino), uint32(4000000000)
	l := &list{sockets: []sockdiag.PacketSocket{at(own, ovs, 3), at(capture, ovs, 100)}}
	s := New(l, dir)
	if got, _ := drops(t, s, ovs); got != 3 {
		t.Errorf("%d drops, want the switch's 3", got)
	}
	if err := os.Remove(pid); err != nil { // known sockets are not looked up again
		t.Fatal(err)
	}
	if got, _ := drops(t, s, ovs); got != 3 {
		t.Errorf("%d drops without the pid file, want 3", got)
	}
	l.sockets = append(l.sockets, at(capture+1, ovs, 1000))
	if got, _ := drops(t, s, ovs); got != 3+100+1000 {
		t.Errorf("%d drops when the switch cannot be told apart, want all", got)
	}
}

func TestFailureIsReported(t *testing.T) {
	v := sourcetest.View(nil, nil, nil, time.Now())
	if err := New(&list{err: errors.New("gone")}, t.TempDir()).Collect(v, nil); err == nil {
		t.Error("a failure to list is no failure")
	}
}
