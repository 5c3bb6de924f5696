// Package ports knows the tenant-facing ports (vports) of a node: which
// interfaces they are, whose they are, and on which data plane.
//
// The kernel tells what exists. Identity comes from what the platform wrote on the
// node: Open vSwitch's external_ids, OVN's southbound database, libvirt's domains,
// results of CNI plugins, the device's name, and a file for the rest. No cloud's API
// is asked.
package ports

import (
	"cmp"
	"maps"
	"slices"
	"strings"

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
	Source     string // ovsdb, ovn, libvirt, cni or file: where the tenant comes from
}

// ovsColumns are the columns that identity needs. Statistics are left out on
// purpose: they would make ovsdb-server push every five seconds.
func ovsColumns() ovsdb.Columns {
	return ovsdb.Columns{
		"Bridge":     {"name", "ports", "datapath_type", "external_ids", "flow_tables"},
		"Port":       {"interfaces", "external_ids", "other_config"},
		"Interface":  {"name", "external_ids", "type", "ofport"},
		"Flow_Table": {"flow_limit"},
	}
}

// tenantSideKinds are kinds of devices that belong to the tenant, not to a switch.
var tenantSideKinds = []string{"macvlan", "macvtap", "ipvlan", "ipvtap"}

// ovsPort is what Open vSwitch says of an interface.
type ovsPort struct {
	bridge      string
	userspace   bool
	kind        string            // Interface.type
	externalIDs map[string]string // of the Port and the Interface, which goes first
	otherConfig map[string]string // of the Port
}

// fromOVS maps interface names to what the database says of them.
func fromOVS(tables map[string]ovsdb.Table) map[string]ovsPort {
	out := make(map[string]ovsPort)
	for _, bridge := range tables["Bridge"] {
		name, userspace := bridge.String("name"), bridge.String("datapath_type") == "netdev"
		for _, id := range bridge.UUIDs("ports") {
			port := tables["Port"][id]
			for _, id := range port.UUIDs("interfaces") {
				ifc := tables["Interface"][id]
				ids := ifc.Map("external_ids")
				if more := port.Map("external_ids"); len(more) > 0 {
					maps.Copy(more, ids)
					ids = more
				}
				out[ifc.String("name")] = ovsPort{
					bridge: name, userspace: userspace, kind: ifc.String("type"), externalIDs: ids, otherConfig: port.Map("other_config"),
				}
			}
		}
	}
	return out
}

// facts are what the sources say of a node's ports.
type facts struct {
	ovs        map[string]ovsPort  // by device
	southbound map[string]identity // by logical port of OVN
	libvirt    map[string]identity // by device
	cni        map[string]identity // by device of any kind
	file       []Entry
}

// identify joins what the sources say of a device; ok is false if it is no vport.
// kind is that of the device in the kernel.
func (f *facts) identify(device, kind string, entry *Entry) (d identity, ok bool) {
	o := f.ovs[device]
	named, isNamed := fromName(device)
	styled, isStyled := fromStyle(&o)
	lib, isLibvirt := f.libvirt[device]
	if isNamed {
		d = named
	}
	d.complete(styled)
	if sb, known := f.southbound[o.externalIDs["iface-id"]]; known {
		d.complete(sb)
	}
	d.complete(lib)
	pod, isPod := f.cni[device]
	if isPod = isPod && podSide(kind); isPod {
		d.complete(pod)
	}
	if entry != nil {
		d.complete(identity{Port: entry.Port, Tenant: entry.Tenant, Network: entry.Network, Workload: entry.Workload, Source: "file"})
	}
	return d, isNamed || isStyled || isLibvirt || isPod || entry != nil
}

// resolve joins what the kernel and the sources say. Only interfaces that exist
// are returned, sorted by id.
func resolve(links []rtnl.Link, f facts) []Port {
	byIndex := make(map[int]*rtnl.Link, len(links))
	for i := range links {
		byIndex[links[i].Index] = &links[i]
	}
	entries := make(map[string]*Entry, len(f.file))
	for i := range f.file {
		entries[f.file[i].Device] = &f.file[i]
	}
	var out []Port
	seen := make(map[string]bool)
	for i := range links {
		l := &links[i]
		d, ok := f.identify(l.Name, l.Kind, entries[l.Name])
		if !ok {
			continue
		}
		p := Port{
			ID: d.Port, Tenant: d.Tenant, Device: l.Name, Index: l.Index, MAC: l.MAC.String(), Up: l.Up,
			Network: d.Network, Workload: d.Workload, Source: d.Source,
		}
		p.sanitise()
		o, onOVS := f.ovs[l.Name]
		p.placeOn(&o, onOVS, byIndex[l.Master])
		p.TenantSide = o.kind == "internal" || slices.Contains(tenantSideKinds, l.Kind)
		p.makeUnique(seen)
		out = append(out, p)
	}
	slices.SortFunc(out, func(a, b Port) int { return cmp.Compare(a.ID, b.ID) })
	return out
}

// deviceless finds the tenants' ports of userspace bridges that have no device in
// the kernel.
func deviceless(links []rtnl.Link, f facts, known []Port) []Port {
	exists, taken := make(map[string]bool, len(links)), make(map[string]bool, len(known))
	for i := range links {
		exists[links[i].Name] = true
	}
	for i := range known {
		taken[known[i].ID] = true
	}
	var out []Port
	for device, o := range f.ovs {
		d, ok := f.identify(device, "", nil)
		if !ok || exists[device] || !o.userspace || !strings.HasPrefix(o.kind, "dpdkvhostuser") {
			continue
		}
		p := Port{
			ID: d.Port, Tenant: d.Tenant, Device: device, Up: true, Bridge: o.bridge, DataPlane: OVSUserspace,
			Network: d.Network, Workload: d.Workload, Source: d.Source,
		}
		p.sanitise()
		p.makeUnique(taken)
		out = append(out, p)
	}
	return out
}

// makeUnique gives the port an id that is not taken yet, and takes it: two ports with one
// id would make one series of two.
func (p *Port) makeUnique(taken map[string]bool) {
	for taken[p.ID] { // again, if somebody named a port so
		p.ID += "@" + p.Device
	}
	taken[p.ID] = true
}

// sanitise keeps hostile or missing ids out of labels.
func (p *Port) sanitise() {
	if !labelRE.MatchString(p.ID) {
		p.ID = p.Device
	}
	if !labelRE.MatchString(p.Tenant) {
		p.Tenant, p.Source = Unresolved, ""
	}
	for _, s := range []*string{&p.Network, &p.Workload} {
		if !labelRE.MatchString(*s) {
			*s = ""
		}
	}
}

func (p *Port) placeOn(o *ovsPort, onOVS bool, master *rtnl.Link) {
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
