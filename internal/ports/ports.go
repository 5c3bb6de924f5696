// Package ports knows the tenant-facing ports (vports) of a node: which
// interfaces they are, whose they are, and on which data plane.
//
// Identity comes from Open vSwitch's external_ids where the port is on Open
// vSwitch, and from a file otherwise; the kernel tells what exists.
package ports

import (
	"cmp"
	"slices"

	"vigia/internal/bpf/vport"
	"vigia/internal/ovsdb"
	"vigia/internal/rtnl"
)

// Unresolved is the tenant of a port whose owner is not known yet.
const Unresolved = "_unresolved"

// Data planes.
const (
	LinuxBridge  = "linuxbridge"
	OVSKernel    = "ovs-kernel"
	OVSUserspace = "ovs-userspace"
	NoSwitch     = "none"
)

// Port is a vport that exists on the node.
type Port struct {
	ID        string // stable id, the label "port"
	Tenant    string
	Device    string
	Index     int // interface index in the node's namespace
	MAC       string
	Up        bool
	Bridge    string
	DataPlane string
	Network   string
	Workload  string
	// TenantSide tells that the device is the tenant's own end of the port, as
	// that of an OVS internal port or a macvlan is: what it receives goes to
	// the tenant.
	TenantSide bool
	Source     string // ovsdb or file: where the tenant comes from
}

// Hook returns where a program must sit to see and drop what the tenant sends.
func (p *Port) Hook() vport.Hook {
	if p.DataPlane == OVSUserspace {
		return vport.XDP
	}
	return vport.TCX
}

// The keys of Interface.external_ids that give a port its identity, the first
// that is set wins. iface-id is what Neutron, OVN and libvirt write.
var (
	portKeys     = []string{"iface-id"}
	tenantKeys   = []string{"vigia-tenant", "tenant-id"}
	networkKeys  = []string{"vigia-network"}
	workloadKeys = []string{"vigia-workload", "vm-uuid", "vm-id"}
)

// ovsColumns are the columns that identity needs. Statistics are left out on
// purpose: they would make ovsdb-server push every five seconds.
func ovsColumns() ovsdb.Columns {
	return ovsdb.Columns{
		"Bridge":    {"name", "ports", "datapath_type"},
		"Port":      {"interfaces"},
		"Interface": {"name", "external_ids", "type", "ofport"},
	}
}

// tenantSideKinds are kinds of devices that belong to the tenant, not to a switch.
var tenantSideKinds = []string{"macvlan", "macvtap", "ipvlan", "ipvtap"}

// ovsPort is what Open vSwitch says of an interface.
type ovsPort struct {
	bridge      string
	userspace   bool
	kind        string // Interface.type
	externalIDs map[string]string
}

// fromOVS maps interface names to what the database says of them.
func fromOVS(tables map[string]ovsdb.Table) map[string]ovsPort {
	out := make(map[string]ovsPort)
	for _, bridge := range tables["Bridge"] {
		name, userspace := bridge.String("name"), bridge.String("datapath_type") == "netdev"
		for _, port := range bridge.UUIDs("ports") {
			for _, id := range tables["Port"][port].UUIDs("interfaces") {
				ifc := tables["Interface"][id]
				out[ifc.String("name")] = ovsPort{
					bridge: name, userspace: userspace, kind: ifc.String("type"), externalIDs: ifc.Map("external_ids"),
				}
			}
		}
	}
	return out
}

func first(m map[string]string, keys []string) string {
	for _, k := range keys {
		if v := m[k]; v != "" {
			return v
		}
	}
	return ""
}

// resolve joins what the kernel, Open vSwitch and the file say. Only interfaces
// that exist are returned, sorted by id.
func resolve(links []rtnl.Link, ovs map[string]ovsPort, file []Entry) []Port {
	byIndex := make(map[int]*rtnl.Link, len(links))
	for i := range links {
		byIndex[links[i].Index] = &links[i]
	}
	entries := make(map[string]Entry, len(file))
	for _, e := range file {
		entries[e.Device] = e
	}
	var out []Port
	seen := make(map[string]bool)
	for i := range links {
		l := &links[i]
		o, onOVS := ovs[l.Name]
		e, inFile := entries[l.Name]
		id := first(o.externalIDs, portKeys)
		if id == "" && !inFile {
			continue
		}
		p := Port{
			ID: id, Tenant: first(o.externalIDs, tenantKeys), Device: l.Name, Index: l.Index, MAC: l.MAC.String(), Up: l.Up,
			Network: first(o.externalIDs, networkKeys), Workload: first(o.externalIDs, workloadKeys), Source: "ovsdb",
		}
		if inFile {
			p.complete(e)
		}
		p.sanitise()
		p.placeOn(o, onOVS, byIndex[l.Master])
		p.TenantSide = o.kind == "internal" || slices.Contains(tenantSideKinds, l.Kind)
		if seen[p.ID] { // two interfaces with one id would make one series of two
			p.ID += "@" + p.Device
		}
		seen[p.ID] = true
		out = append(out, p)
	}
	slices.SortFunc(out, func(a, b Port) int { return cmp.Compare(a.ID, b.ID) })
	return out
}

// complete fills in from the file what Open vSwitch does not say.
func (p *Port) complete(e Entry) {
	if p.Tenant == "" {
		p.Tenant, p.Source = e.Tenant, "file"
	}
	p.ID = cmp.Or(p.ID, e.Port)
	p.Network = cmp.Or(p.Network, e.Network)
	p.Workload = cmp.Or(p.Workload, e.Workload)
}

// sanitise keeps hostile or missing ids out of labels.
func (p *Port) sanitise() {
	if !labelRE.MatchString(p.ID) {
		p.ID = p.Device
	}
	if !labelRE.MatchString(p.Tenant) {
		p.Tenant = Unresolved
	}
	for _, s := range []*string{&p.Network, &p.Workload} {
		if !labelRE.MatchString(*s) {
			*s = ""
		}
	}
}

func (p *Port) placeOn(o ovsPort, onOVS bool, master *rtnl.Link) {
	switch {
	case onOVS && o.userspace:
		p.Bridge, p.DataPlane = o.bridge, OVSUserspace
	case onOVS:
		p.Bridge, p.DataPlane = o.bridge, OVSKernel
	case master != nil && master.Kind == "bridge":
		p.Bridge, p.DataPlane = master.Name, LinuxBridge
	default:
		p.DataPlane = NoSwitch
	}
}
