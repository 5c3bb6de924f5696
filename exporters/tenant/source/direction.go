package source

// The values of the label "direction", always seen from the tenant.
const (
	FromTenant = "from_tenant"
	ToTenant   = "to_tenant"
)

// Viewpoint is where a counter's "received" is counted.
type Viewpoint int

// Viewpoints.
const (
	// SwitchSide counters belong to the host's end of the port: a tap of a
	// virtual machine, the host's veth, an OVS port in OpenFlow and in
	// ovs_vport, a representor. What is received there, the tenant sent.
	SwitchSide Viewpoint = iota
	// TenantSide counters belong to the tenant's own end: an SR-IOV VF as its
	// PF reports it, a macvlan or ipvlan, the device of an OVS internal port.
	TenantSide
)

// Directions returns the directions of a viewpoint's received and transmitted
// counters.
func (v Viewpoint) Directions() (received, transmitted string) {
	if v == TenantSide {
		return ToTenant, FromTenant
	}
	return FromTenant, ToTenant
}
