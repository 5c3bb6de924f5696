package ports

import (
	"fmt"
	"testing"

	"vigia/internal/testutil"
)

// TestOnlyOwnPortsAreCopiedFromOVN has a cloud of many ports, of which one is here.
func TestOnlyOwnPortsAreCopiedFromOVN(t *testing.T) {
	central := testutil.NewOVNCentral(t)
	central.NBCtl("ls-add", "net")
	for i := range 40 {
		port := fmt.Sprintf("port-%d", i)
		central.NBCtl("lsp-add", "net", port, "--", "set", "Logical_Switch_Port", port, fmt.Sprintf("external_ids:%q=project-%d", "neutron:project_id", i))
	}
	server := testutil.NewOVSDBServer(t)
	server.VSCtl("add-br", "br-int")
	r := newRig(t, Sources{NetNS: testutil.NewNetNS(t), OVSDB: "unix:" + server.Socket, Southbound: "unix:" + central.Southbound})
	tenantOf := func(id string) string {
		p, _ := r.inv.Lookup(id)
		return p.Tenant
	}
	copied := func() int {
		tables, _ := r.inv.south.Tables()
		return len(tables[portBinding])
	}
	for i, port := range []string{"port-7", "port-39"} {
		device := fmt.Sprintf("tap%d", i)
		r.plug(device)
		server.VSCtl("add-port", "br-int", device, "--", "set", "interface", device, "external_ids:iface-id="+port)
		testutil.WaitFor(t, "the project of "+port, func() bool { return tenantOf(port) == "project"+port[len("port"):] })
		if got := copied(); got != i+1 {
			t.Errorf("%d bindings are copied, want %d", got, i+1)
		}
	}
	server.VSCtl("del-port", "br-int", "tap0")
	testutil.WaitFor(t, "the binding of the port that went to be let go", func() bool { return copied() == 1 })
}
