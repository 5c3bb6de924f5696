package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"vigia/internal/daemon"
	"vigia/probes/bulk"
	"vigia/probes/clockerror"
	"vigia/probes/discovery"
	"vigia/probes/health"
	"vigia/probes/objective"
	"vigia/probes/pathmtu"
	"vigia/probes/records"
	"vigia/probes/reflector"
	"vigia/probes/sender"
	"vigia/probes/settings"
)

// service is the daemon.
type service struct {
	sender    *sender.Sender
	recorders *recorders
	clock     *clockerror.Watch
	reflector *reflector.Reflector
	paths     atomic.Pointer[[]settings.Path]

	// mu is held while a configuration, or what was discovered, is put into
	// force.
	mu         sync.Mutex
	settings   *settings.Settings
	discovered *discovery.Manager

	objectives *objective.Watch
	bulk       *bulk.Runner
	bulkServer *bulk.Server
	bulkTests  *bulkMetrics
	searches   *pathmtu.Runner
	pathMTUs   *pathMTUMetrics
	logger     *slog.Logger
}

// spareProcs are for sender and reflector: with as many processors for goroutines
// as the machine has, a scrape and the garbage collector can hold them all while a
// probe is due. The kernel then has the choice, and prefers who sleeps most.
const spareProcs = 2

func newService(env daemon.Env) (*service, error) {
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(runtime.NumCPU() + spareProcs)
	}
	s := &service{objectives: objective.New(), clock: clockerror.New()}
	s.recorders = newRecorders(env.Metrics, env.Registry, health.New(os.DirFS("/")))
	s.recorders.objectives = s.objectives
	listeners := newListeners(env.Metrics)
	var err error
	s.sender, err = sender.New(sender.Options{
		Logger: env.Logger, NewRecorder: s.recorders.recorder, Bound: s.clock.Bound, RealTime: true,
	})
	if err != nil {
		return nil, err
	}
	s.reflector, err = reflector.New(reflector.Options{
		Logger: env.Logger, NewCounters: listeners.counters, RemoveCounters: listeners.remove, Bound: s.clock.Bound,
	})
	if err != nil {
		s.sender.Close()
		return nil, err
	}
	s.newBulk(env)
	s.pathMTUs = newPathMTUMetrics(env.Metrics, env.Logger)
	s.searches = pathmtu.NewRunner(pathmtu.Options{Address: s.address, Done: s.pathMTUs.done})
	s.logger = env.Logger
	s.discovered = discovery.New(env.Logger, s.rediscover)
	if err := s.load(env.ConfigPath); err != nil {
		s.close()
		return nil, err
	}
	env.Registry.MustRegister(newCollector(env.Metrics, s))
	env.Mux.HandleFunc("GET /debug/targets", s.handleTargets)
	env.Mux.HandleFunc("GET "+records.Path, s.handleRecords)
	return s, nil
}

// newBulk makes both ends of bulk tests, which share the links.
func (s *service) newBulk(env daemon.Env) {
	leases := &bulk.Leases{}
	s.bulkServer = bulk.NewServer(env.Logger, leases)
	s.bulk = bulk.NewRunner(bulk.Options{
		Leases:  leases,
		Logger:  env.Logger,
		Burning: func() string { return s.objectives.Burning(time.Now()) },
		Done:    func(t *bulk.Target, o *bulk.Outcome) { s.bulkTests.done(t, o) },
	})
	s.bulkTests = newBulkMetrics(env.Metrics, env.Registry, env.Logger, s.bulk.Left)
}

func (s *service) close() {
	s.bulkServer.Close()
	s.sender.Close()
	s.reflector.Close()
}

// load reads the configuration and puts it into force, all of it or nothing.
func (s *service) load(path string) error {
	cfg, err := settings.Load(path)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	answering, err := s.reflector.Prepare(cfg.Reflector)
	if err != nil {
		return err
	}
	targets := s.targets(cfg)
	sending, err := s.sender.Prepare(targets)
	if err != nil {
		answering.Discard()
		return fmt.Errorf("targets: %w", err)
	}
	s.paths.Store(&cfg.Paths)
	s.settings = cfg
	s.recorders.twins.Set(targets)
	s.discovered.Set(cfg.Sources())
	s.recorders.health.SetLimits(cfg.Health)
	s.recorders.maxError.Store(int64(cfg.MaxOnewayError))
	s.clock.Set(cfg.Clock)
	s.sender.SetHardware(cfg.Hardware)
	s.reflector.SetHardware(cfg.Hardware)
	s.objectives.Set(cfg.Objectives)
	s.bulkTests.set(cfg.Bulk.Groups)
	s.bulkServer.Set(cfg.BulkServer)
	s.bulk.Set(cfg.Bulk)
	s.setPathMTU(targets)
	return errors.Join(answering.Commit(), sending.Commit())
}

// targets returns what is configured and what was discovered. A configured target
// goes before a discovered one with the same labels.
func (s *service) targets(cfg *settings.Settings) []sender.Target {
	targets := slices.Clone(cfg.Targets)
	known := make(map[sender.Labels]bool, len(targets))
	for i := range targets {
		known[targets[i].Labels] = true
	}
	for i := range cfg.Sites {
		site := &cfg.Sites[i]
		found, refused := site.Targets(cfg.Node, s.discovered.State(&site.Source))
		if refused != nil {
			s.logger.Warn("discovered nodes are not probed", "err", refused)
		}
		for j := range found {
			if !known[found[j].Labels] {
				known[found[j].Labels] = true
				targets = append(targets, found[j])
			}
		}
	}
	return targets
}

// rediscover puts into force what was discovered.
func (s *service) rediscover() {
	s.mu.Lock()
	defer s.mu.Unlock()
	targets := s.targets(s.settings)
	sending, err := s.sender.Prepare(targets)
	if err != nil {
		s.logger.Error("what was discovered cannot be probed", "err", err)
		return
	}
	s.recorders.twins.Set(targets)
	s.setPathMTU(targets)
	if err := sending.Commit(); err != nil {
		s.logger.Debug("the sender has stopped", "err", err)
	}
}

// undiscovered returns why nodes are not known, or nil.
func (s *service) undiscovered() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for i := range s.settings.Sites {
		st := s.discovered.State(&s.settings.Sites[i].Source)
		switch {
		case st.Err != nil && len(st.Peers) == 0:
			errs = append(errs, fmt.Errorf("discovery[%d]: %w", i, st.Err))
		case st.At.IsZero():
			errs = append(errs, fmt.Errorf("discovery[%d] has not been read yet", i))
		}
	}
	return errors.Join(errs...)
}

// Run probes and reflects until ctx ends.
func (s *service) Run(ctx context.Context) error {
	defer s.close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	var sendErr, reflectErr error
	wg.Go(func() { s.recorders.health.Run(ctx) })
	wg.Go(func() {
		defer cancel()
		sendErr = s.sender.Run(ctx)
	})
	wg.Go(func() {
		defer cancel()
		reflectErr = s.reflector.Run(ctx)
	})
	wg.Go(func() { s.bulk.Run(ctx) })
	wg.Go(func() { s.searches.Run(ctx) })
	wg.Go(func() { s.discovered.Run(ctx) })
	wg.Go(func() { s.clock.Run(ctx) })
	wg.Wait()
	return errors.Join(sendErr, reflectErr)
}

// Reload replaces the configuration.
func (s *service) Reload(_ context.Context, path string) error { return s.load(path) }

// Ready returns nil once every socket is open and every target was probed.
func (s *service) Ready() error {
	return errors.Join(s.reflector.Err(), s.bulkServer.Err(), s.undiscovered(), s.sender.Ready())
}
