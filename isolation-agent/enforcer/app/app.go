// Package app is the program vigia-enforcer.
package app

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"vigia/internal/bpf/vport"
	"vigia/internal/daemon"
	"vigia/internal/node"
	"vigia/internal/secret"
	"vigia/isolation-agent/enforcer/api"
	"vigia/isolation-agent/enforcer/contention"
	"vigia/isolation-agent/enforcer/contract"
	"vigia/isolation-agent/enforcer/fastloop"
	"vigia/isolation-agent/enforcer/leaderterm"
	"vigia/isolation-agent/enforcer/limits"
	"vigia/isolation-agent/enforcer/scheduling"
)

// Program describes vigia-enforcer.
func Program() daemon.Program {
	return daemon.Program{
		Name:           "vigia-enforcer",
		Part:           "enforcer",
		Description:    "Limits tenants' ports in the kernel of this node, never below what they bought.",
		DefaultAddress: "127.0.0.1:9873",
		Check: func(path string) (string, error) {
			c, err := load(path)
			if err != nil {
				return "", err
			}
			return fmt.Sprintf("node %s, %d contracts", c.Node.Name, len(c.Contracts)), nil
		},
		Start:    start,
		Commands: []daemon.Command{issueKeys(), followConfigMap()},
	}
}

// observeInterval is how soon an expired limit is noticed.
const observeInterval = time.Second

type service struct {
	*node.Node
	terms    *leaderterm.Store
	limits   *limits.Limits
	fast     *fast
	api      *api.Server
	schedule *schedule         // nil without links
	watch    *contention.Watch // nil without links
	loop     *fastloop.Loop    // nil without fast_loop
	site     *siteFile         // that it works by
	bought   *contracts
	socket   net.Listener // nil without api_socket
	config   *Config
	logger   *slog.Logger
}

func start(_ context.Context, env daemon.Env) (_ daemon.Service, err error) {
	c, err := load(env.ConfigPath)
	if err != nil {
		return nil, err
	}
	s := &service{config: c, logger: env.Logger, bought: newContracts(c, env.Logger)}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	if s.Node, err = node.Open(c.Node, env.Logger); err != nil {
		return nil, err
	}
	if err = s.Manager.EnsureSettings(vport.DefaultSettings()); err != nil {
		return nil, err
	}
	if s.terms, err = leaderterm.Open(c.Node.BPF.PinDir); err != nil {
		return nil, err
	}
	if len(c.Links) > 0 {
		if s.schedule, err = newSchedule(c, s.bought.all(), env.Metrics, env.Logger); err != nil {
			return nil, err
		}
		s.bought.room = s.schedule.programs.Capacity
		if s.watch, err = contention.NewWatch(c.Node.Sources.NetNS, s.schedule.reconciler.Desired, env.Logger); err != nil {
			return nil, err
		}
	}
	if c.FastLoop != nil {
		if s.loop, s.site, err = newFastLoop(c, s.schedule, s.Manager, s.Inventory, env.Metrics, env.Logger); err != nil {
			return nil, err
		}
		s.schedule.applied = s.loop.Refresh
	}
	s.newLimits(&env)
	if err = s.newAPI(&env); err != nil {
		return nil, err
	}
	env.Registry.MustRegister(newCollector(env.Metrics, s.limits, s.bought.leftOut))
	var book *contention.Book
	if s.watch != nil {
		book = s.watch.Book
		env.Registry.MustRegister(newContentionCollector(env.Metrics, book))
	}
	s.fast = newFast(env.Metrics, s.limits, book)
	return s, nil
}

func (s *service) newLimits(env *daemon.Env) {
	changes := env.Metrics.Counter("vigia_enforcer_limits_total")
	for _, change := range limits.Changes() {
		changes.WithLabelValues(string(change))
	}
	s.limits = limits.New(limits.Config{
		Kernel: s.Manager, Inventory: everyPort{s.Inventory}, Terms: s.terms, Mechanisms: s.mechanisms(), Contracts: s.bought.all(), Logger: env.Logger,
		Count: func(change limits.Change) { changes.WithLabelValues(string(change)).Inc() },
	})
	s.bought.apply = func(links []scheduling.Link, set *contract.Set) {
		if s.schedule != nil {
			s.schedule.set(links, set)
		}
		s.limits.SetContracts(set)
	}
}

func (s *service) newAPI(env *daemon.Env) error {
	token, err := secret.ReadToken(s.config.TokenFile)
	if err != nil {
		return fmt.Errorf("token_file %s %w", s.config.TokenFile, err)
	}
	requests := env.Metrics.Counter("vigia_enforcer_requests_total")
	apply := env.Metrics.Histogram("vigia_enforcer_apply_seconds", prometheus.ExponentialBuckets(100e-6, 4, 8))
	s.api = api.New(s.config.Node.Name, s.limits, s.Manager, env.Logger, func(operation string, code int, took time.Duration) {
		requests.WithLabelValues(operation, strconv.Itoa(code)).Inc()
		switch operation {
		case "state", "pairs", "desired", "actual": // they change nothing
			return
		}
		if code == 200 {
			apply.WithLabelValues(operation).Observe(took.Seconds())
		}
	})
	s.api.SetToken(token)
	s.api.SetReady(s.Known)
	if s.schedule != nil {
		s.api.SetScheduling(s.schedule.reconciler)
	}
	if s.loop != nil {
		s.api.SetLoop(s.loop)
	}
	s.api.Register(env.Mux)
	if socket := s.config.APISocket; socket != nil {
		s.api.SetSocketUsers(socket.UIDs)
		s.socket, err = socket.Listen()
	}
	return err
}

func (s *service) close() {
	if s.socket != nil {
		s.socket.Close()
	}
	if s.loop != nil {
		s.loop.Close()
	}
	if s.watch != nil {
		s.watch.Close()
	}
	if s.schedule != nil {
		s.schedule.close()
	}
	if s.terms != nil {
		s.terms.Close()
	}
	if s.Node != nil {
		s.Node.Close()
	}
}

// Run keeps programs attached and watches limits end until ctx ends. What is
// attached and limited stays so: limits end by themselves.
func (s *service) Run(ctx context.Context) error {
	defer s.close()
	beside := []func(context.Context){s.observe, s.bought.follow}
	if s.schedule != nil {
		beside = append(beside, s.schedule.run, s.watch.Run)
	}
	if s.loop != nil {
		beside = append(beside, s.site.follow, func(ctx context.Context) { _ = s.loop.Run(ctx) }) // ends with ctx
	}
	if s.socket != nil {
		beside = append(beside, func(ctx context.Context) {
			if err := s.api.Serve(ctx, s.socket); err != nil {
				s.logger.Error("cannot serve the API's socket any more", "err", err)
			}
		})
	}
	return s.Node.Run(ctx, beside...)
}

func (s *service) observe(ctx context.Context) {
	tick := time.NewTicker(observeInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			s.limits.Observe()
		}
	}
}
