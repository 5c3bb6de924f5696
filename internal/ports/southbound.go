package ports

import (
	"cmp"
	"strings"

	"vigia/internal/ovsdb"
)

const southboundDatabase = "OVN_Southbound"

// southboundColumns are what identity needs of OVN's southbound database.
func southboundColumns() ovsdb.Columns {
	return ovsdb.Columns{portBinding: {logicalPort, "external_ids"}}
}

// Only the bindings of the node's own ports are copied, as ovn-controller does: a
// cloud has hundreds of thousands.
const (
	portBinding = "Port_Binding"
	logicalPort = "logical_port"
)

// logicalPorts returns the names of OVN's ports that are plugged into the node.
func logicalPorts(ovs map[string]ovsPort) []string {
	var out []string
	for _, o := range ovs {
		if id := o.externalIDs["iface-id"]; id != "" {
			out = append(out, id)
		}
	}
	return out
}

// fromSouthbound maps logical ports to what OVN's southbound database says of
// them: northd copies the external_ids of the logical switch port, where Neutron's
// ML2/OVN leaves project, device and network, and OVN-Kubernetes the namespace.
func fromSouthbound(tables map[string]ovsdb.Table) map[string]identity {
	out := make(map[string]identity)
	for _, row := range tables[portBinding] {
		ids := row.Map("external_ids")
		out[row.String(logicalPort)] = identity{
			Tenant:   cmp.Or(ids["neutron:project_id"], ids["namespace"]),
			Network:  strings.TrimPrefix(ids["neutron:network_name"], "neutron-"),
			Workload: ids["neutron:device_id"],
			Source:   "ovn",
		}
	}
	return out
}
