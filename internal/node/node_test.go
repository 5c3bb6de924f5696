package node

import (
	"context"
	"errors"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/prometheus/common/promslog"

	"vigia/internal/bpf/vport"
	"vigia/internal/ports"
	"vigia/internal/testutil"
)

func TestHookFollowsTheDataPlane(t *testing.T) {
	for plane, want := range map[string]vport.Hook{
		ports.OVSUserspace: vport.XDP, ports.OVSKernel: vport.TCX, ports.LinuxBridge: vport.TCX, ports.NoSwitch: vport.TCX,
	} {
		if got := Hook(&ports.Port{DataPlane: plane}); got != want {
			t.Errorf("%s: got %s, want %s", plane, got, want)
		}
		if got := Hook(&ports.Port{DataPlane: plane, TenantSide: true}); got != vport.TCXTenant {
			t.Errorf("%s, the tenant's own device: got %s, want %s", plane, got, vport.TCXTenant)
		}
	}
}

// open opens a node as a program does.
func open(t *testing.T, r *rig, pins string) *Node {
	t.Helper()
	n, err := Open(Config{Sources: ports.Sources{NetNS: r.ns, File: r.file}, BPF: vport.Config{PinDir: pins, MaxPorts: 4}}, promslog.NewNopLogger())
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// run runs a node until stop is called, which waits for its end.
func run(t *testing.T, n *Node, beside ...func(context.Context)) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- n.Run(ctx, beside...) }()
	return func() {
		t.Helper()
		cancel()
		if err := <-done; err != nil {
			t.Errorf("the node ended: %v", err)
		}
		n.Close()
	}
}

// TestTwoProgramsOfANodeShareThePins runs exporter and enforcer, as it were, one of which
// ends and comes back.
func TestTwoProgramsOfANodeShareThePins(t *testing.T) {
	r, pins := newRig(t, "a0", "b0"), testutil.NewBPFFS(t)
	r.plug("a0")
	exporter, enforcer := open(t, r, pins), open(t, r, pins)
	if exporter.Ready() == nil {
		t.Error("ready before it runs")
	}
	stopExporter, stopEnforcer := run(t, exporter), run(t, enforcer)
	testutil.WaitFor(t, "readiness of both", func() bool { return exporter.Ready() == nil && enforcer.Ready() == nil })
	testutil.WaitFor(t, "the port", func() bool { return attached(t, enforcer.Manager) == 1 })
	p, ok := exporter.Inventory.Lookup("id-a0")
	if !ok {
		t.Fatal("the port is not known")
	}
	before, err := enforcer.Manager.Read(p.Index)
	if err != nil {
		t.Fatal(err)
	}
	stopExporter()
	r.plug("b0")
	testutil.WaitFor(t, "the port that came meanwhile", func() bool { return attached(t, enforcer.Manager) == 2 })
	exporter = open(t, r, pins)
	stopExporter = run(t, exporter)
	testutil.WaitFor(t, "readiness after a restart", func() bool { return exporter.Ready() == nil })
	after, err := exporter.Manager.Read(p.Index)
	if err != nil {
		t.Fatal(err)
	}
	if before.SinceNs != after.SinceNs || after.SinceNs == 0 {
		t.Error("a restart started the port's counters again")
	}
	stopExporter()
	stopEnforcer()
}

func TestWhatWorksBesideEndsWithTheNode(t *testing.T) {
	r := newRig(t, "a0")
	n := open(t, r, testutil.NewBPFFS(t))
	var began, ended atomic.Int32
	work := func(ctx context.Context) {
		began.Add(1)
		<-ctx.Done()
		ended.Add(1)
	}
	stop := run(t, n, work, work)
	testutil.WaitFor(t, "the work to begin", func() bool { return began.Load() == 2 })
	stop()
	if ended.Load() != 2 {
		t.Errorf("%d of 2 ended before Run returned", ended.Load())
	}
}

// TestANodeWhoseNamespaceGoesEnds says why, and ends what works beside.
func TestANodeWhoseNamespaceGoesEnds(t *testing.T) {
	r := newRig(t, "a0")
	n := open(t, r, testutil.NewBPFFS(t))
	defer n.Close()
	testutil.IP(t, "netns", "del", r.ns)
	ended := false
	err := n.Run(t.Context(), func(ctx context.Context) { <-ctx.Done(); ended = true })
	if !errors.Is(err, os.ErrNotExist) || !ended {
		t.Errorf("%v, ended %v", err, ended)
	}
}

func TestANodeThatCannotBeOpened(t *testing.T) {
	r := newRig(t, "a0")
	for name, tc := range map[string]struct {
		sources ports.Sources
		bpf     vport.Config
		want    string
	}{
		"no namespace": {ports.Sources{NetNS: "vigia-test-absent", File: r.file}, vport.Config{PinDir: testutil.NewBPFFS(t)}, "vigia-test-absent"},
		"no bpffs":     {ports.Sources{NetNS: r.ns, File: r.file}, vport.Config{PinDir: t.TempDir()}, "is not on a bpffs"},
		"no folder":    {ports.Sources{NetNS: r.ns, File: r.file}, vport.Config{PinDir: "relative"}, "absolute path"},
	} {
		n, err := Open(Config{Sources: tc.sources, BPF: tc.bpf}, promslog.NewNopLogger())
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, %v", name, n, err)
		}
	}
	_, err := Open(Config{Sources: ports.Sources{NetNS: "vigia-test-absent"}}, promslog.NewNopLogger())
	if !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the reason is lost: %v", err)
	}
}
