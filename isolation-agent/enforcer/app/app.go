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
	"vigia/internal/ports"
	"vigia/isolation-agent/enforcer/api"
	"vigia/isolation-agent/enforcer/fastloop"
	"vigia/isolation-agent/enforcer/fence"
	"vigia/isolation-agent/enforcer/limits"
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
			return fmt.Sprintf("node %s, %d contracts", c.Node, len(c.Contracts)), nil
		},
		Start: start,
	}
}

// observeInterval is how soon an expired limit is noticed.
const observeInterval = time.Second

type service struct {
	*ports.Node
	fence    *fence.Fence
	limits   *limits.Limits
	api      *api.Server
	schedule *scheduling    // nil without links
	loop     *fastloop.Loop // nil without fast_loop
	socket   net.Listener   // nil without api_socket
	config   Config
	logger   *slog.Logger
}

func start(_ context.Context, env daemon.Env) (_ daemon.Service, err error) {
	c, err := load(env.ConfigPath)
	if err != nil {
		return nil, err
	}
	s := &service{config: c, logger: env.Logger}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	if s.Node, err = ports.OpenNode(c.Sources, c.BPF, env.Logger); err != nil {
		return nil, err
	}
	if err = s.Manager.EnsureSettings(vport.DefaultSettings()); err != nil {
		return nil, err
	}
	if s.fence, err = fence.Open(c.BPF.PinDir); err != nil {
		return nil, err
	}
	if len(c.Links) > 0 {
		if s.schedule, err = newScheduling(&c, env.Metrics, env.Logger); err != nil {
			return nil, err
		}
	}
	if c.FastLoop != nil {
		if s.loop, err = newFastLoop(&c, s.schedule, s.Manager, s.Inventory, env.Metrics, env.Logger); err != nil {
			return nil, err
		}
		s.schedule.applied = s.loop.Refresh
	}
	changes := env.Metrics.Counter("vigia_enforcer_limits_total")
	for _, change := range limits.Changes() {
		changes.WithLabelValues(string(change))
	}
	s.limits = limits.New(s.Manager, s.Inventory, s.fence, c.contracts(), env.Logger, func(change limits.Change) {
		changes.WithLabelValues(string(change)).Inc()
	})
	if s.schedule != nil {
		s.limits.SetShaper(s.schedule.keeper)
	}
	token, err := readToken(c.TokenFile)
	if err != nil {
		return nil, fmt.Errorf("token_file %s %w", c.TokenFile, err)
	}
	requests := env.Metrics.Counter("vigia_enforcer_requests_total")
	apply := env.Metrics.Histogram("vigia_enforcer_apply_seconds", prometheus.ExponentialBuckets(100e-6, 4, 8))
	s.api = api.New(c.Node, s.limits, s.Manager, env.Logger, func(operation string, code int, took time.Duration) {
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
	if s.schedule != nil {
		s.api.SetScheduling(s.schedule.keeper)
	}
	if s.loop != nil {
		s.api.SetLoop(s.loop)
	}
	s.api.Register(env.Mux)
	if c.APISocket != nil {
		if s.socket, err = c.APISocket.Listen(); err != nil {
			return nil, err
		}
	}
	env.Registry.MustRegister(newCollector(env.Metrics, s.limits))
	return s, nil
}

func (s *service) close() {
	if s.socket != nil {
		s.socket.Close()
	}
	if s.loop != nil {
		s.loop.Close()
	}
	if s.schedule != nil {
		s.schedule.close()
	}
	if s.fence != nil {
		s.fence.Close()
	}
	if s.Node != nil {
		s.Node.Close()
	}
}

// Run keeps programs attached and watches limits end until ctx ends. What is
// attached and limited stays so: limits end by themselves.
func (s *service) Run(ctx context.Context) error {
	defer s.close()
	beside := []func(context.Context){s.observe}
	if s.schedule != nil {
		beside = append(beside, s.schedule.run)
	}
	if s.loop != nil {
		beside = append(beside, func(ctx context.Context) { _ = s.loop.Run(ctx) }) // ends with ctx
	}
	if s.socket != nil {
		beside = append(beside, func(ctx context.Context) {
			if err := s.api.Serve(ctx, s.socket, s.config.APISocket); err != nil {
				s.logger.Error("api socket", "err", err)
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

// Reload swaps contracts and the token.
func (s *service) Reload(_ context.Context, path string) error {
	c, err := load(path)
	if err != nil {
		return err
	}
	if c.Node != s.config.Node || c.Sources != s.config.Sources || c.BPF != s.config.BPF {
		return fmt.Errorf("%s: node, netns, ovsdb, ports_file and bpf cannot change in a running enforcer; restart it", path)
	}
	if (len(c.Links) > 0) != (s.schedule != nil) {
		return fmt.Errorf("%s: links cannot be switched on or off in a running enforcer; restart it", path)
	}
	if s.schedule != nil && c.classes() > s.schedule.programs.Capacity() {
		return fmt.Errorf("%s: %d contracts on %d links are more than a running enforcer has room for; restart it", path, len(c.Contracts), len(c.Links))
	}
	token, err := readToken(c.TokenFile)
	if err != nil {
		return fmt.Errorf("token_file %s %w", c.TokenFile, err)
	}
	if err := s.reloadLoop(&c, path); err != nil {
		return err
	}
	if s.schedule != nil {
		s.schedule.set(&c)
	}
	s.api.SetToken(token)
	s.limits.SetContracts(c.contracts())
	s.config = c
	return nil
}

// reloadLoop swaps inventory and keys of the fast loop.
func (s *service) reloadLoop(c *Config, path string) error {
	if (c.FastLoop != nil) != (s.loop != nil) || (s.loop != nil && (c.FastLoop.Listen != s.config.FastLoop.Listen || c.FastLoop.variant() != s.config.FastLoop.variant())) {
		return fmt.Errorf("%s: fast_loop, its listen and its variant cannot change in a running enforcer; restart it", path)
	}
	if s.loop == nil {
		return nil
	}
	site, keys, err := c.FastLoop.load()
	if err != nil {
		return err
	}
	return s.loop.SetSite(site, keys)
}
