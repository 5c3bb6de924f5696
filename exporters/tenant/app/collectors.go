package app

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/alecthomas/kingpin/v2"

	"vigia/exporters/tenant/attribution"
	"vigia/exporters/tenant/bpf"
	"vigia/exporters/tenant/conntrack"
	"vigia/exporters/tenant/netdev"
	"vigia/exporters/tenant/ovs"
	"vigia/exporters/tenant/ovskernel"
	"vigia/exporters/tenant/qdisc"
	"vigia/exporters/tenant/scrape"
	"vigia/exporters/tenant/source"
	"vigia/exporters/tenant/vf"
	"vigia/internal/bpf/vport"
)

// Tiers: which collectors run unless flags say otherwise.
const (
	tierAlways  = "always"  // has no flag
	tierPorts   = "ports"   // what ports carry and lose, as their devices count
	tierDefault = "default" // and why, flood signals, and shared elements
	tierDetail  = "detail"  // and everything else, with more than ten series a port
)

// tiers are those that a flag chooses, each with all before it.
func tiers() []string { return []string{tierPorts, tierDefault, tierDetail} }

// collector is a row of the table of collectors. The name is that of the source's
// folder, of the flag --collector.NAME and of the label "collector".
type collector struct {
	name, help string
	tier       string // the lowest that has it
	phase      source.Phase
	needsOVS   bool // there is nothing to read without Open vSwitch
	// make makes the source; nil without an error where this node has nothing for it.
	make func(s *service, f source.Families) (source.Source, error)
}

// collectors is the table of collectors, in the order of --help; the phase says when
// in a scrape one runs.
func collectors() []collector {
	return []collector{
		{
			name: "identity", help: "Who the ports and tenants are.", tier: tierAlways, phase: source.Identify,
			make: func(s *service, _ source.Families) (source.Source, error) { return s.identity, nil },
		},
		{
			name: "netdev", help: "Bytes and packets of ports (pinned maps), errors and drops of their devices (rtnetlink).", tier: tierPorts, phase: source.Collect,
			make: func(s *service, f source.Families) (source.Source, error) {
				return netdev.New(f, s.links, s.readings), nil
			},
		},
		{
			name: "bpf", help: "Protocols by tenant, limits' drops and flood signals, from the programs at the ports.",
			tier: tierDefault, phase: source.Collect,
			make: func(s *service, f source.Families) (source.Source, error) {
				return bpf.New(f, s.Manager, s.readings), nil
			},
		},
		{
			name: "kerneldrops", help: "Why the kernel drops ports' packets (raw tracepoint kfree_skb).", tier: tierDefault, phase: source.Collect,
			make: (*service).kernelDrops,
		},
		{
			name: "packetsockets", help: "What Open vSwitch's userspace datapath loses at ports' packet sockets (sock_diag).",
			tier: tierDefault, phase: source.Collect, needsOVS: true,
			make: (*service).packetSockets,
		},
		{
			// Drops at clsact that are bpf's own are counted there already.
			name: "qdisc", help: "What qdiscs and classes drop and hold back (rtnetlink).", tier: tierDefault, phase: source.Reconcile,
			make: func(s *service, f source.Families) (source.Source, error) {
				return qdisc.New(f, s.config.Node.Sources.NetNS, s.config.Node.BPF.Attachment != vport.TCXLinks, qdisc.NewUplinks(s.Manager, s.config.Node.BPF.PinDir))
			},
		},
		{
			name: "podresources", help: "Which pod holds which VF (kubelet, where kubelet_socket is set).", tier: tierDefault, phase: source.Identify,
			make: (*service).podResources,
		},
		{
			name: "vf", help: "SR-IOV virtual functions, from their physical functions (rtnetlink).", tier: tierDefault, phase: source.Collect,
			make: func(s *service, f source.Families) (source.Source, error) { return vf.New(f, s.links, s.vfOwners), nil },
		},
		{
			name: "conntrack", help: "Connections by zone (ctnetlink).", tier: tierDetail, phase: source.Collect,
			make: func(s *service, f source.Families) (source.Source, error) {
				return conntrack.New(f, s.config.Node.Sources.NetNS, s.Inventory.Zones), nil
			},
		},
		{
			name: "ovskernel", help: "Upcalls by port of Open vSwitch's kernel datapath (generic netlink).",
			tier: tierDefault, phase: source.Collect, needsOVS: true,
			make: func(s *service, f source.Families) (source.Source, error) {
				return ovskernel.New(f, s.config.Node.Sources.NetNS)
			},
		},
		{
			name: "openflow", help: "Ports, tables, meters, queues and cookies of Open vSwitch's bridges (OpenFlow).",
			tier: tierDefault, phase: source.Collect, needsOVS: true,
			make: (*service).openFlow,
		},
		{
			name: "ovs", help: "Lookups, upcalls, flow limit and coverage of ovs-vswitchd (unixctl).",
			tier: tierDefault, phase: source.Collect, needsOVS: true,
			make: func(s *service, f source.Families) (source.Source, error) {
				return ovs.New(f, s.runDir(), time.Duration(s.config.OpenFlow.Every)), nil
			},
		},
		{
			name: "attribution", help: "Softirqs, ovs-vswitchd, connection tracking and uplinks, and which tenants use them (procfs).",
			tier: tierDefault, phase: source.Attribute,
			make: func(s *service, f source.Families) (source.Source, error) {
				return attribution.New(f, s.config.Node.Sources.NetNS, s.runDir())
			},
		},
	}
}

// flags are the exporter's own.
type flags struct {
	tier string
	on   map[string]*bool // by collector
	set  map[string]*bool // whether the flag was given
}

func (f *flags) register(app *kingpin.Application) {
	app.Flag("tier", "Collectors that run unless switched one by one: "+strings.Join(tiers(), ", ")+".").
		Default(tierDefault).EnumVar(&f.tier, tiers()...)
	f.on, f.set = make(map[string]*bool), make(map[string]*bool)
	for _, c := range collectors() {
		if c.tier == tierAlways {
			continue
		}
		f.set[c.name] = new(bool)
		f.on[c.name] = app.Flag("collector."+c.name, c.help+" Tier "+c.tier+" and up.").IsSetByUser(f.set[c.name]).Bool()
	}
}

func (f *flags) wants(c *collector) bool {
	switch {
	case c.tier == tierAlways:
		return true
	case *f.set[c.name]:
		return *f.on[c.name]
	}
	return slices.Index(tiers(), f.tier) >= slices.Index(tiers(), c.tier)
}

// collect makes the collectors that are wanted. Those of Open vSwitch are left out on a
// node without it, unless a flag asks for one.
func (s *service) collect(f *flags, families source.Families) ([]scrape.Collector, error) {
	var out []scrape.Collector
	for _, c := range collectors() {
		if !f.wants(&c) {
			continue
		}
		if c.needsOVS && s.config.Node.Sources.OVSDB == "" {
			if *f.set[c.name] {
				return nil, fmt.Errorf("--collector.%s needs Open vSwitch; write ovsdb: unix:/run/openvswitch/db.sock", c.name)
			}
			continue
		}
		made, err := c.make(s, families)
		if err != nil {
			return nil, fmt.Errorf("collector %s: %w", c.name, err)
		}
		if made == nil {
			continue
		}
		if opened, ok := made.(io.Closer); ok {
			s.opened.Add(opened)
		}
		out = append(out, scrape.Collector{Name: c.name, Phase: c.phase, Source: made})
	}
	return out, nil
}
