package kerneldrops

import (
	"strings"

	"vigia/exporters/tenant/source"
)

// loss is what a kernel reason means for a tenant.
type loss struct {
	reason source.Reason
	where  source.Where
}

// none are reasons that are no loss, or that another source reports: qdiscs what
// they drop, Vigia's own programs what they police. What a TCP socket refuses has
// arrived where it was sent to.
func none(name string) bool {
	switch name {
	case "NOT_DROPPED_YET", "CONSUMED", "SOCKET_FILTER", "TC_INGRESS", "XDP":
		return true
	}
	for _, prefix := range []string{"QDISC_", "FQ_", "CAKE_", "TCP_"} {
		if strings.HasPrefix(name, prefix) && name != "TCP_CSUM" {
			return true
		}
	}
	return false
}

// losses say which of the closed list a kernel's name belongs to. What a tap or the
// core counts as dropped by the device as well is within its count.
func losses() map[string]loss {
	within := func(r source.Reason) loss { return loss{r, source.Within} }
	beside := func(r source.Reason) loss { return loss{r, source.Beside} }
	return map[string]loss{
		"NETFILTER_DROP": beside(source.Policy), "TC_EGRESS": beside(source.Policy), "BPF_CGROUP_EGRESS": beside(source.Policy),
		"XFRM_POLICY": beside(source.Policy),

		"OTHERHOST": beside(source.MACVLANFilter), "UNHANDLED_PROTO": within(source.MACVLANFilter), "PTYPE_ABSENT": within(source.MACVLANFilter),
		"VLAN_FILTER": beside(source.MACVLANFilter), "TAP_FILTER": within(source.MACVLANFilter), "TAP_TXFILTER": within(source.MACVLANFilter),

		"IP_RPFILTER": beside(source.Spoof), "IP_INVALID_SOURCE": beside(source.Spoof), "IP_LOCAL_SOURCE": beside(source.Spoof),
		"IP_LOCALNET": beside(source.Spoof), "MAC_INVALID_SOURCE": beside(source.Spoof), "LOCAL_MAC": beside(source.Spoof),

		"IP_CSUM": beside(source.Checksum), "TCP_CSUM": beside(source.Checksum), "UDP_CSUM": beside(source.Checksum),
		"ICMP_CSUM": beside(source.Checksum), "SKB_CSUM": beside(source.Checksum),

		"PKT_TOO_BIG": beside(source.MTU), "OVS_DROP_FRAG_L2_TOO_LONG": beside(source.MTU),
		"IP_TTL_EXCEEDED": beside(source.TTL), "OVS_DROP_IP_TTL": beside(source.TTL),

		"FULL_RING": within(source.VhostBackpressure), "CPU_BACKLOG": within(source.CPUBacklog),
		"SOCKET_RCVBUFF": beside(source.QueueFull), "SOCKET_BACKLOG": beside(source.QueueFull), "PROTO_MEM": beside(source.QueueFull),
		"NEIGH_QUEUEFULL": beside(source.QueueFull),
		"NOMEM":           beside(source.NoMemory), "SKB_UCOPY_FAULT": within(source.NoMemory),
		"DEV_READY": within(source.LinkDown), "DEV_HDR": within(source.Other), "RECURSION_LIMIT": within(source.Other),

		"NO_SOCKET": beside(source.NoFlow), "NO_TX_TARGET": beside(source.NoFlow), "IP_OUTNOROUTES": beside(source.NoFlow),
		"IP_INNOROUTES": beside(source.NoFlow), "IP_NOPROTO": beside(source.NoFlow),

		"BRIDGE_INGRESS_STP_STATE": beside(source.BridgeState),
		"TUNNEL_TXINFO":            beside(source.TunnelError), "IP_TUNNEL_ECN": beside(source.TunnelError), "OVS_DROP_TUNNEL_PUSH": beside(source.TunnelError),

		"OVS_DROP_LAST_ACTION": beside(source.Policy), "OVS_DROP_EXPLICIT": beside(source.Policy),
		"OVS_DROP_EXPLICIT_WITH_ERROR": beside(source.Policy), "OVS_DROP_METER": beside(source.Meter),
		"OVS_DROP_CONNTRACK": beside(source.ConntrackInvalid),
	}
}

// meaning returns what a kernel's reason means; false if it is none of ours.
func meaning(table map[string]loss, name string) (loss, bool) {
	if none(name) {
		return loss{}, false
	}
	if l, ok := table[name]; ok {
		return l, true
	}
	if strings.HasPrefix(name, "VXLAN_") {
		return loss{source.TunnelError, source.Beside}, true
	}
	return loss{source.Other, source.Beside}, true
}
