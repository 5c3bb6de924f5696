package ports

import (
	"cmp"
	"regexp"
	"strings"
)

// identity is what a source says of a port; what it does not know is empty.
type identity struct {
	Port, Tenant, Network, Workload string
	Source                          string // where the tenant comes from
}

// complete fills in what is not known yet.
func (d *identity) complete(o identity) {
	if d.Tenant == "" && o.Tenant != "" {
		d.Tenant, d.Source = o.Tenant, o.Source
	}
	d.Port = cmp.Or(d.Port, o.Port)
	d.Network = cmp.Or(d.Network, o.Network)
	d.Workload = cmp.Or(d.Workload, o.Workload)
}

// Keys by which an operator says in Interface.external_ids whose a port is; they
// go before everything else.
const (
	tenantKey   = "vigia-tenant"
	networkKey  = "vigia-network"
	workloadKey = "vigia-workload"
)

// style is how a platform writes a port's identity into Open vSwitch.
type style struct {
	platform string
	// marks are the keys that tell the platform: all of them are set.
	marks []string
	read  func(o *ovsPort) identity
}

// styles are tried in this order: what is special goes before what many write.
// Keys of the Port row and of its Interface are one map, since Antrea writes into
// the former and all others into the latter.
func styles() []style {
	return []style{
		{"antrea", []string{"container-id", "pod-namespace"}, antrea},
		{"kube-ovn", []string{"iface-id", "pod_namespace"}, kubeOVN},
		{"ovn-kubernetes", []string{"iface-id", "iface-id-ver", "sandbox"}, ovnKubernetes},
		{"neutron", []string{"iface-id"}, neutron},
	}
}

// antrea: the Port row names pod and container; if-dev only where it is not eth0.
func antrea(o *ovsPort) identity {
	ids := o.externalIDs
	return identity{
		Port: ids["container-id"] + "/" + cmp.Or(ids["if-dev"], "eth0"), Tenant: ids["pod-namespace"], Workload: ids["pod-name"],
	}
}

// kubeOVN: iface-id is POD.NAMESPACE, with a provider after it on further networks.
func kubeOVN(o *ovsPort) identity {
	ids := o.externalIDs
	return identity{Port: ids["iface-id"], Tenant: ids["pod_namespace"], Workload: ids["pod_name"]}
}

// ovnKubernetes: iface-id is NAMESPACE_POD, with a network before it on further
// networks, and iface-id-ver is the pod's UID.
func ovnKubernetes(o *ovsPort) identity {
	ids := o.externalIDs
	parts := strings.Split(ids["iface-id"], "_")
	d := identity{Port: ids["iface-id-ver"] + "/" + cmp.Or(ids["k8s.ovn.org/nad"], "eth0"), Network: ids["k8s.ovn.org/network"]}
	if n := len(parts); n >= 2 {
		d.Tenant, d.Workload = parts[n-2], parts[n-1]
	}
	return d
}

// neutron: iface-id is the Neutron port, written by os-vif (with vm-uuid), by
// libvirt (with vm-id) or by an operator. ML2/OVS leaves the network in the Port's
// other_config. The project is not there.
func neutron(o *ovsPort) identity {
	ids := o.externalIDs
	return identity{
		Port: ids["iface-id"], Tenant: ids["tenant-id"], Network: o.otherConfig["net_uuid"], Workload: cmp.Or(ids["vm-uuid"], ids["vm-id"]),
	}
}

// fromStyle reads what the platform wrote; ok is false for a port of the switch's own.
func fromStyle(o *ovsPort) (d identity, ok bool) {
	for _, s := range styles() {
		if !o.has(s.marks) {
			continue
		}
		d, ok = s.read(o), true
		break
	}
	if t := o.externalIDs[tenantKey]; t != "" {
		d.Tenant = t
	}
	d.Network = cmp.Or(o.externalIDs[networkKey], d.Network)
	d.Workload = cmp.Or(o.externalIDs[workloadKey], d.Workload)
	d.Source = "ovsdb"
	return d, ok
}

func (o *ovsPort) has(keys []string) bool {
	for _, k := range keys {
		if o.externalIDs[k] == "" {
			return false
		}
	}
	return true
}

// oneRE is how OpenNebula names the device of a virtual machine: VM id, NIC id.
var oneRE = regexp.MustCompile(`^(one-[0-9]{1,9})-[0-9]{1,4}$`)

// fromName reads what OpenNebula says by the device's name. The iface-id beside
// it is libvirt's invention there, so that the name goes before it.
func fromName(device string) (d identity, ok bool) {
	m := oneRE.FindStringSubmatch(device)
	if m == nil {
		return d, false
	}
	return identity{Port: device, Workload: m[1]}, true
}
