package app

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"vigia/internal/bpf/vport"
	"vigia/internal/catalog"
	"vigia/internal/config"
	"vigia/internal/ports"
	"vigia/isolation-agent/enforcer/fastloop"
	"vigia/isolation-agent/enforcer/fastloop/control"
	"vigia/isolation-agent/enforcer/notice"
)

// fastLoopKeys are the keys of the fast_loop section: how enforcers reach each other.
type fastLoopKeys struct {
	Listen   string          `yaml:"listen"`    // address:port for notices
	SiteFile string          `yaml:"site_file"` // inventory of all nodes and ports
	KeysFile string          `yaml:"keys_file"` // one or two master keys
	Variant  control.Variant `yaml:"variant"`   // vigia, or paper to compare
}

func (f *fastLoopKeys) variant() control.Variant {
	if f.Variant == "" {
		return control.Vigia
	}
	return f.Variant
}

// load reads the files of the section.
func (f *fastLoopKeys) load() (*fastloop.Site, []fastloop.MasterKey, error) {
	site, err := fastloop.LoadSite(f.SiteFile)
	if err != nil {
		return nil, nil, err
	}
	keys, err := fastloop.LoadKeys(f.KeysFile)
	if err != nil {
		return nil, nil, fmt.Errorf("keys_file %s %w", f.KeysFile, err)
	}
	return site, keys, nil
}

func (c *Config) validateFastLoop() error {
	f := c.FastLoop
	if f == nil {
		return nil
	}
	var errs []error
	fault := func(field string, value any, problem, fix string) {
		errs = append(errs, &config.FieldError{Field: "fast_loop." + field, Value: value, Problem: problem, Fix: fix})
	}
	if len(c.Links) == 0 {
		fault("listen", f.Listen, "needs links", "list the node's uplinks, or remove fast_loop")
	}
	if _, err := netip.ParseAddrPort(f.Listen); err != nil {
		fault("listen", f.Listen, "is not address:port", "write the node's management address, for example 192.0.2.1:9876")
	}
	if v := f.variant(); v != control.Vigia && v != control.Paper {
		fault("variant", f.Variant, "is not known", "write vigia or paper")
	}
	if site, err := fastloop.LoadSite(f.SiteFile); err != nil {
		fault("site_file", f.SiteFile, err.Error(), "correct the file")
	} else if !hasNode(site, c.Node.Name) {
		fault("site_file", f.SiteFile, fmt.Sprintf("does not list node %s", c.Node.Name), "list every node, this one too")
	}
	if _, err := fastloop.LoadKeys(f.KeysFile); err != nil {
		fault("keys_file", f.KeysFile, err.Error(), "write a file of mode 0600 with one or two lines: a number and a key")
	}
	return errors.Join(errs...)
}

func hasNode(site *fastloop.Site, name string) bool {
	for _, n := range site.Nodes {
		if n.Node == name {
			return true
		}
	}
	return false
}

func newFastLoop(c *Config, s *schedule, m *vport.Manager, inv *ports.Inventory, metrics *catalog.Factory, logger *slog.Logger) (*fastloop.Loop, error) {
	site, keys, err := c.FastLoop.load()
	if err != nil {
		return nil, err
	}
	listen, err := netip.ParseAddrPort(c.FastLoop.Listen)
	if err != nil {
		return nil, err
	}
	notices := metrics.Counter("vigia_enforcer_notices_total")
	lateness := metrics.Histogram("vigia_enforcer_tick_lateness_seconds", []float64{100e-6, 400e-6, 1.6e-3, 5e-3, 20e-3, 100e-3, 400e-3}).WithLabelValues()
	reaction := metrics.Histogram("vigia_enforcer_reaction_seconds", prometheus.ExponentialBuckets(100e-6, 4, 8))
	peers := metrics.Gauge("vigia_enforcer_peer_unresponsive")
	for i := range site.Nodes {
		if site.Nodes[i].Node != c.Node.Name {
			peers.WithLabelValues(site.Nodes[i].Node).Set(0)
		}
	}
	stage := func(name string) func(time.Duration) {
		o := reaction.WithLabelValues(name)
		return func(d time.Duration) { o.Observe(d.Seconds()) }
	}
	return fastloop.New(fastloop.Config{
		Node: c.Node.Name, NetNS: c.Node.Sources.NetNS, Listen: listen, Variant: c.FastLoop.variant(), Site: site, Keys: keys,
	}, s.reconciler, s.programs, m, inv, logger, fastloop.Events{
		Notice: func(kind notice.Kind, outcome notice.Outcome) {
			notices.WithLabelValues(kind.String(), outcome.String()).Inc()
		},
		Lateness: func(d time.Duration) { lateness.Observe(d.Seconds()) },
		Detected: stage("detect"), Applied: stage("apply"), Round: stage("notify"),
		Peer: func(node string, unresponsive bool) {
			v := 0.0
			if unresponsive {
				v = 1
			}
			peers.WithLabelValues(node).Set(v)
		},
	})
}
