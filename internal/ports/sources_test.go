package ports

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/promslog"

	"vigia/internal/testutil"
)

// state returns what a source says of itself.
func (r *rig) state(name string) SourceState {
	r.t.Helper()
	_, states := r.inv.Ports()
	for _, s := range states {
		if s.Name == name {
			return s
		}
	}
	r.t.Fatalf("no source %s among %+v", name, states)
	return SourceState{}
}

// TestSourcesCompleteEachOther has one port of which each source knows a part, and takes
// sources away one after the other.
func TestSourcesCompleteEachOther(t *testing.T) {
	t.Parallel()
	central := testutil.NewOVNCentral(t)
	central.NBCtl("ls-add", "net", "--", "lsp-add", "net", portID)
	server := testutil.NewOVSDBServer(t)
	server.VSCtl("add-br", "br-int", "--", "set", "bridge", "br-int", "datapath_type=netdev")
	domains := t.TempDir()
	file := filepath.Join(t.TempDir(), "ports.yaml")
	write(t, file, "version: 1\nports: []\n")
	r := newRig(t, Sources{
		NetNS: testutil.NewNetNS(t), OVSDB: "unix:" + server.Socket, Southbound: "unix:" + central.Southbound, Libvirt: domains, File: file,
	})
	const device = "tapeedb8ee2-6c"
	port := func() Port { p, _ := r.inv.Lookup(portID); return p }
	r.plug(device)
	server.VSCtl("add-port", "br-int", device, "--", "set", "interface", device, "external_ids:iface-id="+portID)
	testutil.WaitFor(t, "the port", func() bool {
		p := port()
		return p.Device == device && p.Tenant == Unresolved && p.DataPlane == OVSUserspace
	})

	// The file goes last, and so fills in what no other says.
	write(t, file, fmt.Sprintf("version: 1\nports:\n  - {device: %s, port: other, tenant: from-file, network: net-of-file}\n", device))
	testutil.WaitFor(t, "the file's tenant", func() bool {
		p := port()
		return p.Tenant == "from-file" && p.Source == "file" && p.Network == "net-of-file"
	})
	write(t, filepath.Join(domains, "vm.xml"), novaDomain)
	testutil.WaitFor(t, "libvirt's project", func() bool {
		p := port()
		return p.Tenant == project && p.Source == "libvirt" && p.Workload == vmID && p.Network == "net-of-file"
	})
	central.NBCtl("set", "Logical_Switch_Port", portID, fmt.Sprintf("external_ids:%q=from-ovn", "neutron:project_id"))
	testutil.WaitFor(t, "OVN's project", func() bool { p := port(); return p.Tenant == "from-ovn" && p.Source == "ovn" && p.Workload == vmID })
	server.VSCtl("set", "interface", device, "external_ids:vigia-tenant=from-operator", "external_ids:vigia-network=net-of-operator")
	testutil.WaitFor(t, "the operator's word", func() bool {
		p := port()
		return p.Tenant == "from-operator" && p.Source == "ovsdb" && p.Network == "net-of-operator"
	})

	// Backwards. What a database says that is away stays as it was.
	central.StopDatabases()
	testutil.WaitFor(t, "OVN to fail", func() bool { return r.state("ovn").Err != nil })
	server.VSCtl("remove", "interface", device, "external_ids", "vigia-tenant")
	testutil.WaitFor(t, "OVN's last word", func() bool { return port().Tenant == "from-ovn" })
	if err := r.inv.Ready(); err == nil || !strings.HasPrefix(err.Error(), "ovn: ") {
		t.Errorf("ready: %v", err)
	}
	central.StartDatabases()
	central.NBCtl("remove", "Logical_Switch_Port", portID, "external_ids", `"neutron:project_id"`)
	testutil.WaitFor(t, "libvirt's project again", func() bool { return port().Tenant == project && r.inv.Ready() == nil })
	if err := os.Remove(filepath.Join(domains, "vm.xml")); err != nil {
		t.Fatal(err)
	}
	testutil.WaitFor(t, "the file's tenant again", func() bool { return port().Tenant == "from-file" })
}

// TestWhatHappensWhileOpenVSwitchIsAwayIsSeenAfterwards restarts its database with other
// ports, and finally empty.
func TestWhatHappensWhileOpenVSwitchIsAwayIsSeenAfterwards(t *testing.T) {
	t.Parallel()
	server := testutil.NewOVSDBServer(t)
	server.VSCtl("add-br", "br-int")
	r := newRig(t, Sources{NetNS: testutil.NewNetNS(t), OVSDB: "unix:" + server.Socket})
	add := func(device string) {
		server.VSCtl("add-port", "br-int", device, "--", "set", "interface", device, "external_ids:iface-id="+device, "external_ids:vigia-tenant=red")
	}
	for _, device := range []string{"a0", "b0", "c0"} {
		r.plug(device)
	}
	add("a0")
	add("b0")
	testutil.WaitFor(t, "two ports", func() bool { return slices.Equal(r.ids(), []string{"a0", "b0"}) })
	before, _ := r.inv.Ports()
	server.Stop()
	testutil.WaitFor(t, "the loss", func() bool { return r.state("ovsdb").Err != nil })
	testutil.IP(t, "-n", r.node, "link", "del", "b0") // the kernel goes on telling
	testutil.WaitFor(t, "the port that went meanwhile", func() bool { return slices.Equal(r.ids(), []string{"a0"}) })
	if exists, healthy := r.inv.Exists(before[0].Index); !exists || healthy {
		t.Errorf("a0 exists %v, all works %v", exists, healthy)
	}
	if exists, _ := r.inv.Exists(before[1].Index); exists {
		t.Error("b0 exists")
	}
	server.Start()
	add("c0")
	testutil.WaitFor(t, "the port that came meanwhile", func() bool { return slices.Equal(r.ids(), []string{"a0", "c0"}) && r.inv.Ready() == nil })
	if age := r.state("ovsdb").Age; age < 0 {
		t.Errorf("the copy is %s old", age)
	}
	server.VSCtl("del-br", "br-int")
	testutil.WaitFor(t, "all to go with their bridge", func() bool { return len(r.ids()) == 0 })
	if list, err := r.inv.Bridges(); err != nil || len(list) != 0 {
		t.Errorf("bridges %+v, %v", list, err)
	}
}

// TestBridgesPortsAndZonesAreThoseOfTheDatabase has numbers of a real switch.
func TestBridgesPortsAndZonesAreThoseOfTheDatabase(t *testing.T) {
	t.Parallel()
	node := testutil.NewNetNS(t)
	s := testutil.NewVSwitch(t, node)
	s.Set("add-br", "br-int", "--", "set", "bridge", "br-int", "datapath_type=netdev", "external_ids:ct-zone-p1=7", "external_ids:ct-zone-bad=x",
		"--", "add-port", "br-int", "vx0", "--", "set", "interface", "vx0", "type=vxlan", "options:remote_ip=10.0.0.2",
		"--", "--id=@t", "create", "Flow_Table", "flow_limit=77", "--", "set", "bridge", "br-int", "flow_tables:3=@t")
	r := newRig(t, Sources{NetNS: node, OVSDB: "unix:" + s.Socket})
	var bridge Bridge
	testutil.WaitFor(t, "the bridge with its ports", func() bool {
		list, err := r.inv.Bridges()
		if err != nil || len(list) != 1 {
			return false
		}
		bridge = list[0]
		return len(bridge.Ports) == 2
	})
	if bridge.Name != "br-int" || !bridge.Userspace || bridge.Limits[3] != 77 || bridge.Ports[localPort].Device != "br-int" {
		t.Errorf("%+v", bridge)
	}
	for number, p := range bridge.Ports {
		if number != localPort && (p != BridgePort{Device: "vx0", Kind: "vxlan"}) {
			t.Errorf("port %d is %+v", number, p)
		}
	}
	if z := r.inv.Zones(); len(z) != 1 || z["p1"] != 7 {
		t.Errorf("zones %v", z)
	}
	none := newRig(t, Sources{NetNS: testutil.NewNetNS(t), File: portsFile(t)})
	if _, err := none.inv.Bridges(); !errors.Is(err, ErrNoSwitch) || none.inv.Zones() != nil {
		t.Errorf("without Open vSwitch: %v", err)
	}
}

// TestTheListStaysTheSameMemoryWhileItIsTheSame holds what others rely on who look ports up.
func TestTheListStaysTheSameMemoryWhileItIsTheSame(t *testing.T) {
	t.Parallel()
	r := newRig(t, Sources{NetNS: testutil.NewNetNS(t), File: portsFile(t, "a0", "b0")})
	r.plug("a0")
	testutil.WaitFor(t, "the port", func() bool { return len(r.ids()) == 1 })
	testutil.WaitFor(t, "its carrier", func() bool { p, _ := r.inv.Lookup("id-a0"); return p.Up })
	before, _ := r.inv.Ports()
	for range 3 { // interfaces that are no ports
		r.plug("x0")
		testutil.IP(t, "-n", r.node, "link", "del", "x0")
	}
	last := "y0"
	r.plug(last)
	index := 0
	testutil.WaitFor(t, "the last of them to be listed", func() bool {
		links, err := r.inv.conn.Links()
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range links {
			if l.Name == last {
				index = l.Index
			}
		}
		exists, _ := r.inv.Exists(index)
		return exists
	})
	after, _ := r.inv.Ports()
	if len(after) != 1 || &before[0] != &after[0] {
		t.Error("the list was made anew though nothing in it changed")
	}
	r.plug("b0")
	testutil.WaitFor(t, "another port", func() bool { return len(r.ids()) == 2 })
	if len(before) != 1 || before[0].ID != "id-a0" {
		t.Errorf("a list that was handed out has changed: %+v", before)
	}
}

func TestAnInventoryIsOpenedWholeOrNotAtAll(t *testing.T) {
	node := testutil.NewNetNS(t)
	for name, s := range map[string]Sources{
		"no such namespace":     {NetNS: "vigia-test-absent", File: portsFile(t)},
		"a remote that is none": {NetNS: node, OVSDB: "nonsense"},
		"TLS without files":     {NetNS: node, OVSDB: "unix:/run/x.sock", Southbound: "ssl:127.0.0.1:6642"},
	} {
		if inv, err := NewInventory(s, promslog.NewNopLogger()); err == nil {
			inv.Close()
			t.Errorf("%s was opened", name)
		}
	}
}

// TestFileSaysItsAge has files that a cloud's answers are written to: they grow older while
// the cloud does not answer.
func TestFileSaysItsAge(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "ports.yaml")
	write(t, file, "version: 1\nports: []\n")
	r := newRig(t, Sources{NetNS: testutil.NewNetNS(t), File: file})
	testutil.WaitFor(t, "the sources", func() bool {
		_, states := r.inv.Ports()
		return len(states) > 0
	})
	for _, tc := range []struct {
		asked       int64
		least, most time.Duration
	}{
		{time.Now().Add(-time.Hour).Unix(), time.Hour, 2 * time.Hour},
		{time.Now().Add(time.Hour).Unix(), 0, 0}, // another machine's clock is ahead
		{0, 0, 0},                                // written by hand
	} {
		write(t, file, fmt.Sprintf("version: 1\nasked: %d\nports: []\n", tc.asked))
		testutil.WaitFor(t, "the file's age", func() bool {
			s := r.state("file")
			return s.Err == nil && s.Age >= tc.least && s.Age <= tc.most
		})
	}
	write(t, file, "version: 1\nasked: -1\nports: []\n")
	testutil.WaitFor(t, "the mistake", func() bool {
		err := r.state("file").Err
		return err != nil && strings.Contains(err.Error(), "write Unix seconds")
	})
}
