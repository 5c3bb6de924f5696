package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"time"

	"github.com/alecthomas/kingpin/v2"
	"github.com/prometheus/client_golang/prometheus"

	"vigia/internal/bpf/vport"
	"vigia/internal/catalog"
	"vigia/internal/config"
	"vigia/internal/daemon"
	"vigia/internal/ports"
	"vigia/isolation-agent/enforcer/fastloop"
	"vigia/isolation-agent/enforcer/fastloop/control"
	"vigia/isolation-agent/enforcer/notice"
)

// fastLoopKeys are the keys of the fast_loop section: how enforcers reach each other.
type fastLoopKeys struct {
	Listen   string          `yaml:"listen"`    // address:port for notices
	SiteFile string          `yaml:"site_file"` // inventory of all nodes and ports
	KeysFile string          `yaml:"keys_file"` // keys of the pairs of this node and each other one
	Variant  control.Variant `yaml:"variant"`   // vigia, or paper to compare
}

func (f *fastLoopKeys) variant() control.Variant {
	if f.Variant == "" {
		return control.Vigia
	}
	return f.Variant
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
	site, err := fastloop.LoadSite(f.SiteFile)
	if err != nil {
		fault("site_file", f.SiteFile, err.Error(), "correct the file")
	} else if !site.Lists(c.Node.Name) {
		fault("site_file", f.SiteFile, fmt.Sprintf("does not list node %s", c.Node.Name), "list every node, this one too")
		site = nil
	}
	keys, err := fastloop.LoadKeys(f.KeysFile)
	if err != nil {
		fault("keys_file", f.KeysFile, err.Error(), "write a file of mode 0600 by vigia-enforcer issue-keys")
	} else if site != nil {
		if err := ofThisSite(site, keys, c.Node.Name); err != nil {
			fault("keys_file", f.KeysFile, err.Error(), "write it anew by vigia-enforcer issue-keys")
		}
	}
	return errors.Join(errs...)
}

// ofThisSite returns an error if all keys are of other nodes than the site's. Some nodes may be new, and get theirs.
func ofThisSite(site *fastloop.Site, keys *fastloop.Keys, self string) error {
	strangers := site.Strangers(keys, self)
	if keys.Empty() || len(strangers) == 0 || len(strangers) < len(site.Nodes)-1 {
		return nil
	}
	return fmt.Errorf("has no key for node %s of the site file, nor for any other", strangers[0])
}

// issueKeys prints what a node gets of the site's keys.
func issueKeys() daemon.Command {
	return daemon.Command{
		Name: "issue-keys", Help: "Derive the keys of a node's fast loop from the site's master key, which stays where it is, and print its keys_file.",
		Register: func(cmd *kingpin.CmdClause) func(context.Context, io.Writer, io.Writer) error {
			site := cmd.Flag("site", "Site file: every node and port.").Required().String()
			master := cmd.Flag("master", "File of mode 0600 with one or two lines, a number and a key of 32 bytes in hexadecimal; the first is used to send.").Required().String()
			node := cmd.Flag("node", "Node of the site file that the keys are for.").Required().String()
			return func(_ context.Context, stdout, _ io.Writer) error {
				s, err := fastloop.LoadSite(*site)
				if err != nil {
					return fmt.Errorf("--site %s: %w", *site, err)
				}
				masters, err := fastloop.LoadMaster(*master)
				if err != nil {
					return fmt.Errorf("--master %s %w", *master, err)
				}
				keys, err := fastloop.Issue(s, *node, masters)
				if err != nil {
					return fmt.Errorf("--node: %w", err)
				}
				return keys.Write(stdout)
			}
		},
	}
}

// newFastLoop opens the fast loop, for those nodes of its site whose keys are here.
func newFastLoop(c *Config, s *schedule, m *vport.Manager, inv *ports.Inventory, metrics *catalog.Factory, logger *slog.Logger) (*fastloop.Loop, *siteFile, error) {
	peers := metrics.Gauge("vigia_enforcer_peer_unresponsive")
	file := newSiteFile(c, peers, logger)
	site, keys, err := file.load(c.FastLoop, file.file)
	if err != nil {
		return nil, nil, err
	}
	listen, err := netip.ParseAddrPort(c.FastLoop.Listen)
	if err != nil {
		return nil, nil, err
	}
	notices := metrics.Counter("vigia_enforcer_notices_total")
	lateness := metrics.Histogram("vigia_enforcer_tick_lateness_seconds", []float64{100e-6, 400e-6, 1.6e-3, 5e-3, 20e-3, 100e-3, 400e-3}).WithLabelValues()
	reaction := metrics.Histogram("vigia_enforcer_reaction_seconds", prometheus.ExponentialBuckets(100e-6, 4, 8))
	stage := func(name string) func(time.Duration) {
		o := reaction.WithLabelValues(name)
		return func(d time.Duration) { o.Observe(d.Seconds()) }
	}
	strangers := site.Strangers(keys, c.Node.Name)
	loop, err := fastloop.New(fastloop.Config{
		Node: c.Node.Name, NetNS: c.Node.Sources.NetNS, Listen: listen, Variant: c.FastLoop.variant(), Site: site.Without(strangers), Keys: keys,
	}, s.reconciler, s.programs, m, inv, logger, fastloop.Events{
		Notice: func(kind notice.Kind, outcome notice.Outcome) {
			notices.WithLabelValues(kind.String(), outcome.String()).Inc()
		},
		Lateness: func(d time.Duration) { lateness.Observe(d.Seconds()) },
		Detected: stage("detect"), Applied: stage("apply"), Round: stage("notify"),
		Peer: file.peer,
	})
	if err != nil {
		return nil, nil, err
	}
	file.set = loop.SetSite
	file.taken(site, strangers)
	return loop, file, nil
}
