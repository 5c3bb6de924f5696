package ports

import (
	"cmp"
	"strings"

	"vigia/internal/ovsdb"
)

const southboundDatabase = "OVN_Southbound"

// southboundColumns are what identity needs of OVN's southbound database.
func southboundColumns() ovsdb.Columns {
	return ovsdb.Columns{"Port_Binding": {"logical_port", "external_ids"}}
}

// fromSouthbound maps logical ports to what OVN's southbound database says of
// them: northd copies the external_ids of the logical switch port, where Neutron's
// ML2/OVN leaves project, device and network, and OVN-Kubernetes the namespace.
func fromSouthbound(tables map[string]ovsdb.Table) map[string]identity {
	out := make(map[string]identity)
	for _, row := range tables["Port_Binding"] {
		ids := row.Map("external_ids")
		out[row.String("logical_port")] = identity{
			Tenant:   cmp.Or(ids["neutron:project_id"], ids["namespace"]),
			Network:  strings.TrimPrefix(ids["neutron:network_name"], "neutron-"),
			Workload: ids["neutron:device_id"],
			Source:   "ovn",
		}
	}
	return out
}
