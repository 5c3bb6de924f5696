package ports

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/common/promslog"
	"vigia/internal/ovsdb"
	"vigia/internal/testutil"
)

// rig is a node namespace with an inventory that runs until the test ends.
type rig struct {
	t    *testing.T
	node string
	inv  *Inventory
	stop context.CancelFunc
}

func newRig(t *testing.T, s Sources) *rig {
	t.Helper()
	inv, err := NewInventory(s, promslog.NewNopLogger())
	if err != nil {
		t.Fatal(err)
	}
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
	return &rig{t: t, node: s.NetNS, inv: inv, stop: cancel}
}

func (r *rig) plug(name string) {
	r.t.Helper()
	testutil.IP(r.t, "-n", r.node, "link", "add", name, "type", "veth", "peer", "name", name+"p")
	testutil.IP(r.t, "-n", r.node, "link", "set", name, "up")
	testutil.IP(r.t, "-n", r.node, "link", "set", name+"p", "up")
}

func (r *rig) ids() []string {
	list, _ := r.inv.Ports()
	out := make([]string, len(list))
	for i, p := range list {
		out[i] = p.ID
	}
	return out
}

func portsFile(t *testing.T, devices ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "ports.yaml")
	content := "version: 1\nports:\n"
	for _, d := range devices {
		content += fmt.Sprintf("  - {device: %s, port: id-%s, tenant: red}\n", d, d)
	}
	write(t, path, content)
	return path
}

func TestInventoryFollowsInterfaces(t *testing.T) {
	node := testutil.NewNetNS(t)
	r := newRig(t, Sources{NetNS: node, File: portsFile(t, "a0", "b0")})
	testutil.WaitFor(t, "readiness", func() bool { return r.inv.Ready() == nil })
	if got := r.ids(); len(got) != 0 {
		t.Fatalf("ports %v before any interface exists", got)
	}
	r.plug("a0")
	r.plug("other")
	testutil.WaitFor(t, "the first port", func() bool { return slices.Equal(r.ids(), []string{"id-a0"}) })
	r.plug("b0")
	testutil.WaitFor(t, "the second port", func() bool { return slices.Equal(r.ids(), []string{"id-a0", "id-b0"}) })
	testutil.WaitFor(t, "carrier", func() bool { p, ok := r.inv.Lookup("id-b0"); return ok && p.Up })
	testutil.IP(t, "-n", node, "link", "del", "a0")
	testutil.WaitFor(t, "the port to go", func() bool { return slices.Equal(r.ids(), []string{"id-b0"}) })
	if _, ok := r.inv.Lookup("id-a0"); ok {
		t.Error("a port that went away is still found")
	}
}

func TestInventoryTakesIdentityFromOpenVSwitch(t *testing.T) {
	node := testutil.NewNetNS(t)
	server := testutil.NewOVSDBServer(t)
	server.VSCtl("add-br", "br-int", "--", "set", "bridge", "br-int", "datapath_type=netdev")
	r := newRig(t, Sources{NetNS: node, OVSDB: "unix:" + server.Socket})
	r.plug("tap0")
	server.VSCtl("add-port", "br-int", "tap0", "--", "set", "interface", "tap0", "external_ids:iface-id=uuid-1")
	testutil.WaitFor(t, "the port", func() bool { p, ok := r.inv.Lookup("uuid-1"); return ok && p.Tenant == Unresolved })
	server.VSCtl("set", "interface", "tap0", "external_ids:vigia-tenant=blue")
	testutil.WaitFor(t, "its tenant", func() bool { p, _ := r.inv.Lookup("uuid-1"); return p.Tenant == "blue" })
	if p, _ := r.inv.Lookup("uuid-1"); p.DataPlane != OVSUserspace || p.Bridge != "br-int" {
		t.Errorf("got %+v", p)
	}

	server.Stop()
	testutil.WaitFor(t, "the source to fail", func() bool { return r.inv.Ready() != nil })
	if p, ok := r.inv.Lookup("uuid-1"); !ok || p.Tenant != "blue" {
		t.Error("ports are forgotten while ovsdb-server is away")
	}
	server.Start()
	testutil.WaitFor(t, "the source to work again", func() bool { return r.inv.Ready() == nil })
}

// TestWhatWasReadOnceIsKnown also while its source is away, and not before.
func TestWhatWasReadOnceIsKnown(t *testing.T) {
	server := testutil.NewOVSDBServer(t)
	server.Stop()
	r := newRig(t, Sources{NetNS: testutil.NewNetNS(t), OVSDB: "unix:" + server.Socket})
	testutil.WaitFor(t, "the database to be missed", func() bool {
		err := r.inv.Known()
		return err != nil && strings.HasPrefix(err.Error(), "ovsdb: ")
	})
	server.Start()
	testutil.WaitFor(t, "the ports to be known", func() bool { return r.inv.Known() == nil && r.inv.Ready() == nil })
	server.Stop()
	testutil.WaitFor(t, "the source to fail", func() bool { return r.inv.Ready() != nil })
	if err := r.inv.Known(); err != nil {
		t.Errorf("what was read once is not known any more: %v", err)
	}
}

func TestInventoryErrors(t *testing.T) {
	if _, err := NewInventory(Sources{NetNS: "vigia-test-absent"}, promslog.NewNopLogger()); err == nil {
		t.Error("an absent namespace was accepted")
	}
}

func TestWhatIsMadeOfACopyIsMadeOnce(t *testing.T) {
	server := testutil.NewOVSDBServer(t)
	r, err := ovsdb.NewReplica("unix:"+server.Socket, ovsDatabase, ovsColumns(), promslog.NewNopLogger())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); r.Run(ctx) }()
	defer func() { cancel(); <-done }()
	var d derived[int]
	made := 0
	count := func() int {
		n, _ := d.of(r, func(tables map[string]ovsdb.Table) int { made++; return len(tables["Bridge"]) })
		return n
	}
	for want, name := range []string{"", "br-a", "br-b"} {
		if name != "" {
			server.VSCtl("add-br", name)
		}
		testutil.WaitFor(t, "the copy", func() bool { tables, err := r.Tables(); return err == nil && len(tables["Bridge"]) == want })
		if got := count(); got != want {
			t.Fatalf("made of a copy that was: %d bridges, want %d", got, want)
		}
	}
	testutil.WaitFor(t, "one copy to be read once", func() bool {
		count()
		before := made
		for range 10 {
			count()
		}
		return made == before
	})
}
