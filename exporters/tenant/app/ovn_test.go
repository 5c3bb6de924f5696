package app

import (
	"fmt"
	"testing"

	"vigia/internal/testutil"
)

// Ids as Neutron makes them.
const (
	acme, globex = "d0bd5c28a1f04a8f9d0c4e5f6a7b8c9d", "5f1e0a2b3c4d4e5f8a9b0c1d2e3f4a5b"
	acmePort     = "90a91b8c-5a0e-4a5f-8c0d-0f1e2d3c4b5a"
	globexPort   = "eedb8ee2-6c1d-4b7e-9f00-1a2b3c4d5e6f"
	network      = "05f17693-1b2c-4d3e-8f4a-5b6c7d8e9f00"
	instance     = "72322a80-0c1d-4e2f-9a3b-4c5d6e7f8091"
)

// logicalPort makes a logical switch port as Neutron's ML2/OVN driver writes it.
func logicalPort(o *testutil.OVNCentral, port, project string) {
	o.NBCtl("--may-exist", "lsp-add", "neutron-"+network, port,
		"--", "set", "Logical_Switch_Port", port,
		fmt.Sprintf("external_ids:%q=%q", "neutron:project_id", project),
		fmt.Sprintf("external_ids:%q=%q", "neutron:device_id", instance),
		fmt.Sprintf("external_ids:%q=%q", "neutron:network_name", "neutron-"+network),
		fmt.Sprintf("external_ids:%q=%q", "neutron:device_owner", "compute:nova"))
}

// TestProjectsComeFromOVN plugs ports of two projects as nova does and runs a real
// OVN control plane: what Neutron writes northbound reaches /metrics.
func TestProjectsComeFromOVN(t *testing.T) {
	r := newRig(t, "")
	central := testutil.NewOVNCentral(t)
	central.NBCtl("ls-add", "neutron-"+network)
	logicalPort(central, acmePort, acme)

	server := testutil.NewOVSDBServer(t)
	server.VSCtl("add-br", "br-int")
	plug := func(device, port string) {
		testutil.IP(t, "-n", r.node, "link", "add", device, "type", "veth", "peer", "name", device+"p")
		server.VSCtl("add-port", "br-int", device, "--", "set", "interface", device, "external_ids:iface-id="+port,
			"external_ids:vm-uuid="+instance, "external_ids:iface-status=active")
	}
	plug("tap90a91b8c-5a", acmePort)
	r.config = r.write("exporter.yaml", fmt.Sprintf("node: n1\nnetns: %s\novsdb: unix:%s\novn_southbound: unix:%s\nbpf: {pin_dir: %s, max_ports: 8}\n",
		r.node, server.Socket, central.Southbound, testutil.NewBPFFS(t)))
	d := testutil.StartDaemon(t, run, "--config", r.config, "--tier=detail")

	up := func(port, tenant string) string {
		return series("vigia_port_up", fmt.Sprintf("port=%q,tenant=%q", port, tenant))
	}
	sees := func(what, sample string) {
		t.Helper()
		testutil.WaitFor(t, what, func() bool { _, ok := d.Metrics()[sample]; return ok })
	}
	sees("the first project's port", up(acmePort, acme))
	plug("tapeedb8ee2-6c", globexPort)
	sees("the second port without its project", up(globexPort, "_unresolved"))
	logicalPort(central, globexPort, globex)
	sees("the second project's port", up(globexPort, globex))
	m := d.Metrics()
	info := fmt.Sprintf(`bridge="br-int",data_plane="ovs-kernel",device="tap90a91b8c-5a",hook="tcx",mac=%q,network=%q,port=%q,source="ovn",tenant=%q,workload=%q`,
		macOf(t, r.node, "tap90a91b8c-5a"), network, acmePort, acme, instance)
	if m[series("vigia_port_info", info)] != 1 || m[`vigia_exporter_collector_success{collector="ovn"}`] != 1 {
		_, body := d.Get("/metrics")
		t.Errorf("no vigia_port_info{%s} in\n%s", info, body)
	}

	// The southbound database restarts: nothing known is forgotten, and what
	// changes afterwards is seen.
	central.StopDatabases()
	failed := `vigia_exporter_collector_success{collector="ovn"}`
	testutil.WaitFor(t, "the failure to show", func() bool { v, ok := d.Metrics()[failed]; return ok && v == 0 })
	if _, ok := d.Metrics()[up(globexPort, globex)]; !ok {
		t.Error("a project is forgotten while the database is away")
	}
	central.StartDatabases()
	testutil.WaitFor(t, "the source to work again", func() bool { return d.Metrics()[failed] == 1 })
	logicalPort(central, globexPort, acme)
	sees("the port's new project", up(globexPort, acme))
}

func macOf(t *testing.T, ns, device string) string {
	t.Helper()
	return testutil.Run(t, "ip", "netns", "exec", ns, "sh", "-c", "printf %s $(cat /sys/class/net/"+device+"/address)")
}
