// Package app is the program vigia-exporter.
package app

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"vigia/exporters/tenant/bpf"
	"vigia/exporters/tenant/identity"
	"vigia/exporters/tenant/podresources"
	"vigia/exporters/tenant/scrape"
	"vigia/internal/config"
	"vigia/internal/daemon"
	"vigia/internal/exposition"
	"vigia/internal/node"
	"vigia/internal/ports"
	"vigia/internal/rtnl"
)

// Program describes vigia-exporter.
func Program() daemon.Program {
	var flags flags
	return daemon.Program{
		Name:           "vigia-exporter",
		Part:           "exporter",
		Description:    "Exports the throughput, drops and flood signals of every tenant's ports on this node.",
		DefaultAddress: "127.0.0.1:9872",
		Check: func(path string) (string, error) {
			c, err := load(path)
			if err != nil {
				return "", err
			}
			return fmt.Sprintf("node %s, %d named tenants", c.Node.Name, len(c.Tenants)), nil
		},
		Commands: []daemon.Command{uninstallCommand()},
		Flags:    flags.register,
		Start:    flags.start,
	}
}

type service struct {
	*node.Node
	links    *rtnl.Conn
	logger   *slog.Logger
	readings *bpf.Readings
	identity *identity.Source
	kubelet  *podresources.Source // nil without its socket
	engine   *scrape.Engine
	fast     *bpf.Fast // nil without the collector bpf
	opened   daemon.Closers
	base     prometheus.Gatherer
	config   Config
}

// Metrics answers GET /metrics.
func (s *service) Metrics() http.Handler { return s.engine.Handler(s.base) }

// WriteFast emits GET /metrics/fast. Nothing is on it where the collector bpf is off.
func (s *service) WriteFast(out *exposition.Page) error {
	if s.fast == nil {
		return nil
	}
	if err := s.Keeper.Ready(); err != nil {
		return err
	}
	return s.fast.Write(out)
}

func (f *flags) start(_ context.Context, env daemon.Env) (_ daemon.Service, err error) {
	c, err := load(env.ConfigPath)
	if err != nil {
		return nil, err
	}
	s := &service{logger: env.Logger, config: c}
	defer func() {
		if err != nil {
			s.opened.Close()
		}
	}()
	if s.Node, err = node.Open(c.Node, env.Logger); err != nil {
		return nil, err
	}
	s.opened.Add(s.Node)
	if s.links, err = rtnl.Dial(c.Node.Sources.NetNS); err != nil {
		return nil, err
	}
	s.opened.Add(s.links)
	if err = s.Manager.SetSettings(c.Flood.settings()); err != nil {
		return nil, err
	}
	s.readings = bpf.NewReadings(s.Manager)
	s.identity = identity.New(env.Metrics, c.Tenants, c.TenantsFile)
	collectors, err := s.collect(f, env.Metrics)
	if err != nil {
		return nil, err
	}
	if slices.ContainsFunc(collectors, func(c scrape.Collector) bool { return c.Name == "bpf" }) {
		s.fast = bpf.NewFast(env.Metrics, s.Manager, s.Inventory)
	}
	s.engine = scrape.New(scrape.Options{
		Collectors: collectors, Inventory: s.Inventory, Families: env.Metrics, Logger: env.Logger, Now: time.Now,
		Detail: f.tier == tierDetail, Series: c.Limits.Series, Gone: time.Duration(c.Limits.Gone),
	})
	s.base = env.Registry
	env.Mux.HandleFunc("GET /debug/ports", s.debugPorts)
	return s, nil
}

// Run keeps ports known and watched until ctx ends.
func (s *service) Run(ctx context.Context) error {
	defer s.opened.Close()
	return s.Node.Run(ctx, s.engine.Run)
}

// Reload swaps the names of tenants and the flood thresholds. The rest is fixed: counters
// depend on it.
func (s *service) Reload(_ context.Context, path string) error {
	c, err := load(path)
	if err != nil {
		return err
	}
	if err := config.Unchanged("vigia-exporter", s.config.Fixed, c.Fixed); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if err := s.Manager.SetSettings(c.Flood.settings()); err != nil {
		return err
	}
	s.identity.SetTenants(c.Tenants)
	s.config = c
	return nil
}

// debugPort is how /debug/ports shows a port and what is wrong with it.
type debugPort struct {
	ports.Port
	Hook    string
	Problem string `json:",omitempty"`
}

const beingAttached = "its programs are being attached: what passes until then is not counted"

// debugPorts answers GET /debug/ports: every port, where its identity comes from, and what is wrong with it.
func (s *service) debugPorts(w http.ResponseWriter, _ *http.Request) {
	list, states := s.Inventory.EveryPort()
	out := struct {
		Ports   []debugPort
		Sources map[string]string
	}{Ports: make([]debugPort, 0, len(list)), Sources: make(map[string]string)}
	for i := range list {
		hook := node.Hook(&list[i])
		p := debugPort{Port: list[i], Hook: hook.String()}
		if p.Index == 0 {
			p.Hook = "none: the kernel has no such device, only the switch counts it"
		}
		if err := s.Keeper.Failed(p.Index); err != nil {
			p.Problem = err.Error()
		} else if p.Tenant == ports.Unresolved {
			p.Problem = "no source names a tenant: set ovn_southbound, libvirt_dir or cni_results_dir, external_ids:vigia-tenant, or add the port to ports_file"
		} else if p.Index != 0 && !s.Keeper.Watches(p.Index, hook) {
			p.Problem = beingAttached
		}
		out.Ports = append(out.Ports, p)
	}
	for _, st := range states {
		out.Sources[st.Name] = "works"
		if st.Err != nil {
			out.Sources[st.Name] = st.Err.Error()
		}
	}
	w.Header().Set("Content-Type", "application/json")
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	// The client is gone if this fails; there is nobody left to tell.
	_ = enc.Encode(out)
}
