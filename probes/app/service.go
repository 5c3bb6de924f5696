package app

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"vigia/internal/exporterkit"
	"vigia/probes/bulk"
	"vigia/probes/flight"
	"vigia/probes/health"
	"vigia/probes/objective"
	"vigia/probes/reflector"
	"vigia/probes/sender"
	"vigia/probes/settings"
	"vigia/probes/timestamping"
)

// service is the daemon.
type service struct {
	sender    *sender.Sender
	recorders *recorders
	bound     timestamping.Bound
	reflector *reflector.Reflector
	paths     atomic.Pointer[[]settings.Path]

	objectives *objective.Watch
	bulk       *bulk.Runner
	bulkServer *bulk.Server
	bulkTests  *bulkMetrics
}

// spareProcs are for sender and reflector: with as many processors for goroutines
// as the machine has, a scrape and the garbage collector can hold them all while a
// probe is due. The kernel then has the choice, and prefers who sleeps most.
const spareProcs = 2

func newService(env exporterkit.Env) (*service, error) {
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(runtime.NumCPU() + spareProcs)
	}
	s := &service{objectives: objective.New()}
	s.recorders = newRecorders(env.Metrics, env.Registry, health.New(os.DirFS("/")))
	s.recorders.objectives = s.objectives
	listeners := newListeners(env.Metrics)
	var err error
	s.sender, err = sender.New(sender.Options{Logger: env.Logger, NewRecorder: s.recorders.recorder, Bound: &s.bound})
	if err != nil {
		return nil, err
	}
	s.reflector, err = reflector.New(reflector.Options{
		Logger: env.Logger, NewCounters: listeners.counters, RemoveCounters: listeners.remove, Bound: &s.bound,
	})
	if err != nil {
		s.sender.Close()
		return nil, err
	}
	s.newBulk(env)
	if err := s.load(env.ConfigPath); err != nil {
		s.close()
		return nil, err
	}
	env.Registry.MustRegister(newCollector(env.Metrics, s))
	env.Mux.HandleFunc("GET /debug/targets", s.handleTargets)
	env.Mux.HandleFunc("GET "+flight.Path, s.handleRecords)
	return s, nil
}

// newBulk makes both ends of bulk tests, which share the links.
func (s *service) newBulk(env exporterkit.Env) {
	leases := &bulk.Leases{}
	s.bulkServer = bulk.NewServer(env.Logger, leases)
	s.bulk = bulk.NewRunner(bulk.Options{
		Leases:  leases,
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
	answering, err := s.reflector.Prepare(cfg.Reflector)
	if err != nil {
		return err
	}
	sending, err := s.sender.Prepare(cfg.Targets)
	if err != nil {
		answering.Discard()
		return fmt.Errorf("targets: %w", err)
	}
	s.paths.Store(&cfg.Paths)
	s.recorders.twins.Set(cfg.Targets)
	s.recorders.health.SetLimits(cfg.Health)
	s.recorders.maxError.Store(int64(cfg.MaxOnewayError))
	s.bound.State(cfg.ErrorBound)
	s.objectives.Set(cfg.Objectives)
	s.bulkTests.set(cfg.Bulk.Groups)
	s.bulkServer.Set(cfg.BulkServer)
	s.bulk.Set(cfg.Bulk)
	return errors.Join(answering.Commit(), sending.Commit())
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
	wg.Wait()
	return errors.Join(sendErr, reflectErr)
}

// Reload replaces the configuration.
func (s *service) Reload(_ context.Context, path string) error { return s.load(path) }

// Ready returns nil once every socket is open and every target was probed.
func (s *service) Ready() error {
	return errors.Join(s.reflector.Err(), s.bulkServer.Err(), s.sender.Ready())
}
