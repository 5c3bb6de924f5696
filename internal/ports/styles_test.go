package ports

import (
	"encoding/json"
	"net"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"vigia/internal/ovsdb"
	"vigia/internal/rtnl"
)

// What platforms write, as seen on their nodes.
const (
	portID   = "eedb8ee2-6c1d-4b7e-9f00-1a2b3c4d5e6f"
	vmID     = "72322a80-0c1d-4e2f-9a3b-4c5d6e7f8091"
	netID    = "05f17693-1b2c-4d3e-8f4a-5b6c7d8e9f00"
	project  = "d0bd5c28a1f04a8f9d0c4e5f6a7b8c9d"
	podUID   = "0b9f7f3e-6a55-4c7f-8f0e-6d5c4b3a2910"
	sandbox  = "12939f8d3d906f0aa1b2c3d4e5f60718293a4b5c6d7e8f901a2b3c4d5e6f7a8b"
	oneIface = "5b6c7d8e-1111-4222-8333-944455556666" // made up by libvirt
)

// platformStyle is what a platform writes about the port of a device, and who that is.
type platformStyle struct {
	name             string
	device           string
	port, ifc, other map[string]string // external_ids of Port and Interface, other_config of Port
	f                facts
	want             identity
}

func domains(id identity) map[string]identity {
	return map[string]identity{"dev0": id, "one-12-0": id}
}

func bound() map[string]identity {
	return map[string]identity{portID: {Tenant: project, Network: netID, Workload: vmID, Source: "ovn"}}
}

func openStack() []platformStyle {
	return []platformStyle{
		{
			"Nova and ML2/OVS: the agent writes the network, nobody the project", "dev0", nil,
			map[string]string{"attached-mac": "fa:16:3e:cc:3d:ce", "iface-id": portID, "iface-status": "active", "vm-uuid": vmID},
			map[string]string{"net_uuid": netID, "network_type": "vxlan", "physical_network": "None", "segmentation_id": "99543", "tag": "2"},
			facts{},
			identity{Port: portID, Network: netID, Workload: vmID, Tenant: Unresolved},
		},
		{
			"the same with the domain's nova metadata", "dev0", nil,
			map[string]string{"iface-id": portID, "vm-uuid": vmID},
			map[string]string{"net_uuid": netID},
			facts{libvirt: domains(identity{Port: portID, Tenant: project, Workload: vmID, Source: "libvirt"})},
			identity{Port: portID, Tenant: project, Network: netID, Workload: vmID, Source: "libvirt"},
		},
		{
			"libvirt plugs the port itself", "dev0", nil,
			map[string]string{"attached-mac": "fa:16:3e:cc:3d:ce", "iface-id": portID, "iface-status": "active", "vm-id": vmID},
			nil,
			facts{},
			identity{Port: portID, Workload: vmID, Tenant: Unresolved},
		},
		{
			"Neutron ML2/OVN", "dev0", nil,
			map[string]string{"iface-id": portID, "attached-mac": "fa:16:3e:cc:3d:ce", "iface-status": "active", "vm-uuid": vmID, "ovn-installed": "true", "ovn-installed-ts": "1795225461073"},
			nil,
			facts{southbound: bound()},
			identity{Port: portID, Tenant: project, Network: netID, Workload: vmID, Source: "ovn"},
		},
		{
			"Neutron on a Linux bridge: libvirt knows it all", "dev0", nil, nil, nil,
			facts{libvirt: domains(identity{Port: portID, Tenant: project, Workload: vmID, Source: "libvirt"})},
			identity{Port: portID, Tenant: project, Workload: vmID, Source: "libvirt"},
		},
	}
}

func kubernetes() []platformStyle {
	return []platformStyle{
		{
			"OVN-Kubernetes", "dev0", nil,
			map[string]string{"attached_mac": "0a:58:0a:f4:00:05", "iface-id": "shop_web-0", "iface-id-ver": podUID, "ip_addresses": "10.244.0.5/24", "sandbox": sandbox, "ovn-installed": "true"},
			nil,
			facts{},
			identity{Port: podUID + "/eth0", Tenant: "shop", Workload: "web-0", Source: "ovsdb"},
		},
		{
			"OVN-Kubernetes, a second network", "dev0", nil,
			map[string]string{"iface-id": "blue.shop_shop_web-0", "iface-id-ver": podUID, "sandbox": sandbox, "k8s.ovn.org/network": "blue", "k8s.ovn.org/nad": "shop/blue"},
			nil,
			facts{},
			identity{Port: podUID + "/shop/blue", Tenant: "shop", Workload: "web-0", Network: "blue", Source: "ovsdb"},
		},
		{
			"Kube-OVN", "dev0", nil,
			map[string]string{"iface-id": "web-0.shop", "vendor": "kube-ovn", "pod_name": "web-0", "pod_namespace": "shop", "ip": "10.16.0.9", "pod_netns": "/var/run/netns/cni-1"},
			nil,
			facts{},
			identity{Port: "web-0.shop", Tenant: "shop", Workload: "web-0", Source: "ovsdb"},
		},
		{
			"Antrea writes into the Port row", "dev0",
			map[string]string{"attached-mac": "0e:11:22:33:44:55", "ip-address": "10.10.0.4", "container-id": sandbox, "pod-name": "web-0", "pod-namespace": "shop", "antrea-type": "container"},
			nil, nil,
			facts{},
			identity{Port: sandbox + "/eth0", Tenant: "shop", Workload: "web-0", Source: "ovsdb"},
		},
		{
			"Antrea, a second interface", "dev0",
			map[string]string{"container-id": sandbox, "pod-name": "web-0", "pod-namespace": "shop", "if-dev": "net1"},
			nil, nil,
			facts{},
			identity{Port: sandbox + "/net1", Tenant: "shop", Workload: "web-0", Source: "ovsdb"},
		},
	}
}

func openNebulaAndOperators() []platformStyle {
	return []platformStyle{
		{
			"OpenNebula on Open vSwitch: the name goes before libvirt's iface-id", "one-12-0", nil,
			map[string]string{"attached-mac": "02:00:0a:00:00:01", "iface-id": oneIface, "vm-id": vmID, "iface-status": "active"},
			nil,
			facts{libvirt: domains(identity{Port: oneIface, Tenant: "103", Workload: vmID, Source: "libvirt"})},
			identity{Port: "one-12-0", Tenant: "103", Workload: "one-12", Source: "libvirt"},
		},
		{
			"OpenNebula on a Linux bridge with a ports file", "one-12-0", nil, nil, nil,
			facts{file: []Entry{{Device: "one-12-0", Port: "ignored", Tenant: "103", Network: "7"}}},
			identity{Port: "one-12-0", Tenant: "103", Workload: "one-12", Network: "7", Source: "file"},
		},
		{
			"an operator's own keys go first", "dev0", nil,
			map[string]string{"iface-id": portID, "vm-uuid": vmID, "vigia-tenant": "gold", "vigia-network": "n", "vigia-workload": "w"},
			map[string]string{"net_uuid": netID},
			facts{southbound: bound()},
			identity{Port: portID, Tenant: "gold", Network: "n", Workload: "w", Source: "ovsdb"},
		},
	}
}

func TestEveryPlatformsKeysAreUnderstood(t *testing.T) {
	for _, tc := range slices.Concat(openStack(), kubernetes(), openNebulaAndOperators()) {
		t.Run(tc.name, func(t *testing.T) {
			if tc.port != nil || tc.ifc != nil {
				tc.f.ovs = fromOVS(rows(t, tc.device, tc.port, tc.ifc, tc.other))
			}
			links := []rtnl.Link{{Index: 5, Name: tc.device, MAC: net.HardwareAddr{2, 0, 0, 0, 0, 1}}}
			got := resolve(links, tc.f)
			if len(got) != 1 {
				t.Fatalf("%d ports, want 1", len(got))
			}
			p := got[0]
			if diff := cmp.Diff(tc.want, identity{p.ID, p.Tenant, p.Network, p.Workload, p.Source}); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// rows makes the rows of a port on a bridge.
func rows(t *testing.T, device string, port, ifc, other map[string]string) map[string]ovsdb.Table {
	t.Helper()
	raw := func(v any) json.RawMessage {
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	column := func(m map[string]string) json.RawMessage {
		pairs := [][2]string{}
		for k, v := range m {
			pairs = append(pairs, [2]string{k, v})
		}
		return raw([]any{"map", pairs})
	}
	return map[string]ovsdb.Table{
		"Bridge":    {"b": {"name": raw("br-int"), "datapath_type": raw("system"), "ports": raw([]string{"uuid", "p"})}},
		"Port":      {"p": {"interfaces": raw([]string{"uuid", "i"}), "external_ids": column(port), "other_config": column(other)}},
		"Interface": {"i": {"name": raw(device), "external_ids": column(ifc)}},
	}
}

func TestDevicesThatAreNoPorts(t *testing.T) {
	for _, device := range []string{"one-12", "one-x-0", "one-1-2-3", "xone-1-0", "one-12-0v", "tapeedb8ee2-6c", "eth0"} {
		if got := resolve([]rtnl.Link{{Index: 1, Name: device}}, facts{}); len(got) != 0 {
			t.Errorf("%s is taken for the port %+v", device, got[0])
		}
	}
}
