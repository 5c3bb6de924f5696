package app

import (
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/alecthomas/kingpin/v2"

	"vigia/exporters/tenant/bridges"
	"vigia/exporters/tenant/conntrack"
	"vigia/exporters/tenant/netdev"
	"vigia/exporters/tenant/ovs"
	"vigia/exporters/tenant/podresources"
	"vigia/exporters/tenant/programs"
	"vigia/exporters/tenant/queues"
	"vigia/exporters/tenant/shared"
	"vigia/exporters/tenant/source"
	"vigia/exporters/tenant/vf"
	"vigia/exporters/tenant/vports"
	"vigia/internal/bpf/vport"
)

// Tiers: which collectors run unless flags say otherwise.
const (
	tierPorts   = "ports"   // what ports carry and lose, as their devices count
	tierDefault = "default" // and why, flood signals, and shared elements
	tierDetail  = "detail"  // and everything else, with more than ten series a port
)

// collector is a collector that can be switched.
type collector struct {
	name, help string
	tier       string // the lowest that has it
	needsOVS   bool
	make       func(s *service, f source.Families) (source.Source, error)
}

func collectors() []collector {
	return []collector{
		{
			"netdev", "Bytes, packets, errors and drops of ports' devices (rtnetlink).", tierPorts, false,
			func(s *service, f source.Families) (source.Source, error) { return netdev.New(f, s.stats), nil },
		},
		{
			"bpf", "Protocols by tenant, limits' drops and flood signals, from the programs at the ports.", tierDefault, false,
			func(s *service, f source.Families) (source.Source, error) { return programs.New(f, s.Manager), nil },
		},
		{
			"kfree_skb", "Why the kernel drops ports' packets (raw tracepoint).", tierDefault, false,
			func(s *service, f source.Families) (source.Source, error) { return s.kernelDrops(f) },
		},
		{
			"packet_socket", "What Open vSwitch's userspace datapath loses at ports' packet sockets (sock_diag).", tierDefault, true,
			func(s *service, f source.Families) (source.Source, error) { return s.packetSockets(f) },
		},
		{
			"qdisc", "What qdiscs and classes drop and hold back (rtnetlink).", tierDefault, false,
			func(s *service, f source.Families) (source.Source, error) {
				return queues.New(f, s.config.Sources.NetNS, s.config.BPF.Attachment != vport.TCXLinks)
			},
		},
		{
			"pod_resources", "Which pod holds which VF (kubelet, where kubelet_socket is set).", tierDefault, false,
			func(s *service, _ source.Families) (source.Source, error) { return s.podResources() },
		},
		{
			"vf", "SR-IOV virtual functions, from their physical functions (rtnetlink).", tierDefault, false,
			func(s *service, f source.Families) (source.Source, error) {
				return vf.New(f, s.stats, s.vfOwners), nil
			},
		},
		{
			"conntrack", "Connections by zone (ctnetlink).", tierDetail, false,
			func(s *service, f source.Families) (source.Source, error) {
				return conntrack.New(f, s.config.Sources.NetNS, s.Inventory.Zones), nil
			},
		},
		{
			"ovs_vport", "Upcalls by port of Open vSwitch's kernel datapath (generic netlink).", tierDefault, true,
			func(s *service, f source.Families) (source.Source, error) {
				return vports.New(f, s.config.Sources.NetNS)
			},
		},
		{
			"openflow", "Ports, tables, meters, queues and cookies of Open vSwitch's bridges (OpenFlow).", tierDefault, true,
			func(s *service, f source.Families) (source.Source, error) { return s.bridges(f) },
		},
		{
			"ovs", "Lookups, upcalls, flow limit and coverage of ovs-vswitchd (unixctl).", tierDefault, true,
			func(s *service, f source.Families) (source.Source, error) {
				return ovs.New(f, s.runDir(), time.Duration(s.config.OpenFlow.Every)), nil
			},
		},
		{
			"shared", "Softirqs, ovs-vswitchd and connection tracking, and which tenants use them (procfs).", tierDefault, false,
			func(s *service, f source.Families) (source.Source, error) {
				dir := ""
				if s.config.Sources.OVSDB != "" {
					dir = s.runDir()
				}
				return shared.New(f, s.config.Sources.NetNS, dir), nil
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
		f.set[c.name] = new(bool)
		f.on[c.name] = app.Flag("collector."+c.name, c.help+" Tier "+c.tier+" and up.").IsSetByUser(f.set[c.name]).Bool()
	}
}

func tiers() []string { return []string{tierPorts, tierDefault, tierDetail} }

func (f *flags) wants(c *collector) bool {
	if *f.set[c.name] {
		return *f.on[c.name]
	}
	return slices.Index(tiers(), f.tier) >= slices.Index(tiers(), c.tier)
}

// sources makes the collectors that are wanted. Those of Open vSwitch are left
// out on a node without it, unless a flag asks for one.
func (s *service) sources(f *flags, families source.Families) ([]source.Source, error) {
	out := []source.Source{s.identity}
	for _, c := range collectors() {
		if !f.wants(&c) {
			continue
		}
		if c.needsOVS && s.config.Sources.OVSDB == "" {
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
			continue // this kernel cannot, as was logged
		}
		if c, ok := made.(io.Closer); ok {
			s.closers = append(s.closers, c)
		}
		out = append(out, made)
	}
	return out, nil
}

// runDir returns the folder of Open vSwitch's sockets.
func (s *service) runDir() string {
	if s.config.OVSRunDir != "" {
		return s.config.OVSRunDir
	}
	return filepath.Dir(strings.TrimPrefix(s.config.Sources.OVSDB, "unix:"))
}

// podResources makes the source of VFs' owners; none without the kubelet's socket.
func (s *service) podResources() (source.Source, error) {
	if s.config.KubeletSocket == "" {
		return nil, nil
	}
	var err error
	s.kubelet, err = podresources.New(s.config.KubeletSocket)
	if err != nil {
		return nil, err
	}
	return s.kubelet, nil
}

// vfOwners tells who holds the VF with a PCI address.
func (s *service) vfOwners() map[string]vf.Owner {
	if s.kubelet == nil {
		return nil
	}
	held := s.kubelet.Owners()
	out := make(map[string]vf.Owner, len(held))
	for id, o := range held {
		out[id] = vf.Owner{Tenant: o.Namespace, Workload: o.Pod, Source: "kubelet"}
	}
	return out
}

func (s *service) bridges(f source.Families) (source.Source, error) {
	o := bridges.Options{Bridges: s.Inventory.Bridges, RunDir: s.runDir(), Every: time.Duration(s.config.OpenFlow.Every)}
	for _, k := range s.config.OpenFlow.Cookies {
		number, err := k.number()
		if err != nil {
			return nil, err
		}
		o.Cookies = append(o.Cookies, bridges.Cookie{Bridge: k.Bridge, Cookie: number, Tenant: k.Tenant})
	}
	return bridges.New(f, o), nil
}
