package node

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/promslog"

	"vigia/internal/bpf/vport"
	"vigia/internal/ports"
	"vigia/internal/testutil"
)

// rig is a node namespace with an inventory that runs until the test ends.
type rig struct {
	t    *testing.T
	ns   string
	file string
	inv  *ports.Inventory
}

// newRig has a file of ports, all of which are red's.
func newRig(t *testing.T, devices ...string) *rig {
	t.Helper()
	r := &rig{t: t, ns: testutil.NewNetNS(t), file: filepath.Join(t.TempDir(), "ports.yaml")}
	r.name(devices...)
	inv, err := ports.NewInventory(ports.Sources{NetNS: r.ns, File: r.file}, promslog.NewNopLogger())
	if err != nil {
		t.Fatal(err)
	}
	r.inv = inv
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- inv.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("inventory ended: %v", err)
		}
		inv.Close()
	})
	return r
}

// name says which devices are ports.
func (r *rig) name(devices ...string) {
	r.t.Helper()
	content := "version: 1\nports: [\n"
	for _, d := range devices {
		content += fmt.Sprintf("  {device: %s, port: id-%s, tenant: red},\n", d, d)
	}
	if err := os.WriteFile(r.file, []byte(content+"]\n"), 0o600); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) plug(names ...string) {
	r.t.Helper()
	for _, name := range names {
		testutil.IP(r.t, "-n", r.ns, "link", "add", name, "type", "veth", "peer", "name", name+"p")
		testutil.IP(r.t, "-n", r.ns, "link", "set", name, "up")
		testutil.IP(r.t, "-n", r.ns, "link", "set", name+"p", "up")
	}
}

// await waits until there are so many ports.
func (r *rig) await(n int) {
	r.t.Helper()
	testutil.WaitFor(r.t, fmt.Sprintf("%d ports", n), func() bool { list, _ := r.inv.Ports(); return len(list) == n })
}

func manager(t *testing.T, pins, ns string) *vport.Manager {
	t.Helper()
	m, err := vport.Open(vport.Options{PinDir: pins, NetNS: ns, MaxPorts: 4})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

func attached(t *testing.T, m *vport.Manager) int {
	t.Helper()
	list, err := m.Attached()
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

func TestKeeperAttachesAndForgets(t *testing.T) {
	r := newRig(t, "a0", "b0")
	m := manager(t, testutil.NewBPFFS(t), r.ns)
	k := NewKeeper(r.inv, m, promslog.NewNopLogger())
	if k.Ready() == nil {
		t.Error("ready before the first look")
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { k.Run(ctx); close(done) }()
	defer func() { cancel(); <-done }()
	r.plug("a0")
	testutil.WaitFor(t, "the first port", func() bool { return attached(t, m) == 1 })
	r.plug("b0", "other")
	testutil.WaitFor(t, "the second port", func() bool { return attached(t, m) == 2 })
	testutil.IP(t, "-n", r.ns, "link", "del", "a0")
	testutil.WaitFor(t, "the deleted port to be forgotten", func() bool { return attached(t, m) == 1 })
	testutil.WaitFor(t, "readiness", func() bool { return k.Ready() == nil })
	cancel()
	<-done
	if attached(t, m) != 1 {
		t.Error("the program came off with the process")
	}
}

func TestKeeperKeepsProgramsWhileIdentityIsUnsure(t *testing.T) {
	r := newRig(t, "a0")
	m := manager(t, testutil.NewBPFFS(t), r.ns)
	k := NewKeeper(r.inv, m, promslog.NewNopLogger())
	r.plug("a0")
	r.await(1)
	now := time.Now()
	k.reconcile(now)
	if attached(t, m) != 1 {
		t.Fatal("not attached")
	}
	r.name()
	r.await(0)
	k.reconcile(now)
	k.reconcile(now.Add(forgetAfter - time.Second))
	if attached(t, m) != 1 {
		t.Error("detached too early")
	}
	r.name("a0") // it was a port after all: the clock starts again
	r.await(1)
	k.reconcile(now.Add(forgetAfter))
	r.name()
	r.await(0)
	k.reconcile(now.Add(forgetAfter + time.Second))
	if attached(t, m) != 1 {
		t.Error("detached though it was a port a second ago")
	}
	k.reconcile(now.Add(2*forgetAfter + 2*time.Second))
	if attached(t, m) != 0 {
		t.Error("a program stays on an interface that is no port")
	}
}

// TestKeeperDetachesNothingWhileASourceFails has a file of ports that turns bad while its
// only port is away from it, so that nobody knows what is a port.
func TestKeeperDetachesNothingWhileASourceFails(t *testing.T) {
	r := newRig(t, "a0")
	m := manager(t, testutil.NewBPFFS(t), r.ns)
	k := NewKeeper(r.inv, m, promslog.NewNopLogger())
	r.plug("a0")
	r.await(1)
	now := time.Now()
	k.reconcile(now)
	r.name()
	r.await(0)
	k.reconcile(now) // the clock runs
	if err := os.WriteFile(r.file, []byte("version: 7\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	testutil.WaitFor(t, "the source to fail", func() bool { return r.inv.Ready() != nil })
	k.reconcile(now.Add(10 * forgetAfter))
	if attached(t, m) != 1 {
		t.Error("detached while a source fails")
	}
	testutil.IP(t, "-n", r.ns, "link", "del", "a0") // what is gone is gone, whoever says so
	testutil.WaitFor(t, "the interface to go", func() bool {
		k.reconcile(now.Add(10 * forgetAfter))
		return attached(t, m) == 0
	})
}

func TestKeeperReportsWhatItCannotAttach(t *testing.T) {
	names := []string{"a0", "b0", "c0", "d0", "e0"}
	r := newRig(t, names...)
	m := manager(t, testutil.NewBPFFS(t), r.ns) // room for four
	var log testutil.Output
	k := NewKeeper(r.inv, m, promslog.New(&promslog.Config{Writer: &log}))
	r.plug(names...)
	r.await(5)
	list, _ := r.inv.Ports()
	watched := func() (n int) {
		for i := range list {
			if k.Watches(list[i].Index, Hook(&list[i])) {
				n++
			}
			if k.Watches(list[i].Index, vport.TCXTenant) {
				t.Errorf("%s is watched from the tenant's side", list[i].Device)
			}
		}
		return n
	}
	if n := watched(); n != 0 {
		t.Errorf("%d ports are watched before the first look", n)
	}
	k.reconcile(time.Now())
	failures := 0
	for _, p := range list {
		if k.Failed(p.Index) != nil {
			failures++
		}
	}
	if n := watched(); n != 4 {
		t.Errorf("%d ports are watched, want 4", n)
	}
	if failures != 1 || attached(t, m) != 4 {
		t.Errorf("%d failures, %d attached; want 1 and 4", failures, attached(t, m))
	}
	k.reconcile(time.Now())
	if n := strings.Count(log.String(), "cannot watch port"); n != 1 || !strings.Contains(log.String(), "port=id-e0") {
		t.Errorf("the failure is logged %d times:\n%s", n, log.String())
	}
	testutil.IP(t, "-n", r.ns, "link", "del", "a0")
	r.await(4)
	k.reconcile(time.Now()) // forgets a0
	k.reconcile(time.Now()) // now there is room
	if p, _ := r.inv.Lookup("id-e0"); k.Failed(p.Index) != nil {
		t.Errorf("still failing: %v", k.Failed(p.Index))
	}
}

// TestKeeperPutsBackWhatSomebodyTookOff has another process with the same pins detach a
// program: it is noticed when what was found attached is looked at again.
func TestKeeperPutsBackWhatSomebodyTookOff(t *testing.T) {
	r := newRig(t, "a0")
	pins := testutil.NewBPFFS(t)
	m, other := manager(t, pins, r.ns), manager(t, pins, r.ns)
	k := NewKeeper(r.inv, m, promslog.NewNopLogger())
	r.plug("a0")
	r.await(1)
	now := time.Now()
	k.reconcile(now)
	p, _ := r.inv.Lookup("id-a0")
	if err := other.Detach(p.Index); err != nil {
		t.Fatal(err)
	}
	k.reconcile(now.Add(verifyInterval / 2))
	if attached(t, m) != 0 {
		t.Error("looked at more often than it may cost")
	}
	k.reconcile(now.Add(verifyInterval))
	if attached(t, m) != 1 {
		t.Error("the port has no program any more")
	}
}
