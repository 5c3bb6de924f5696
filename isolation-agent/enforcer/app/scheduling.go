package app

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"vigia/internal/bpf/classify"
	"vigia/internal/catalog"
	"vigia/isolation-agent/enforcer/contracts"
)

// reconcileInterval is how often the kernel is compared with the contracts.
const reconcileInterval = 15 * time.Second

// scheduling keeps the links' schedulers at what the contracts say.
type scheduling struct {
	programs *classify.Programs
	keeper   *contracts.Keeper
	logger   *slog.Logger
	rounds   *prometheus.CounterVec
	drifts   *prometheus.CounterVec
	changed  chan struct{}
	applied  func() // told after links and contracts have been looked at
}

func newScheduling(c *Config, metrics *catalog.Factory, logger *slog.Logger) (*scheduling, error) {
	s := &scheduling{
		logger: logger, changed: make(chan struct{}, 1), applied: func() {},
		rounds: metrics.Counter("vigia_enforcer_reconciles_total"),
		drifts: metrics.Counter("vigia_enforcer_drift_total"),
	}
	for _, outcome := range []string{"clean", "drift", "failed"} {
		s.rounds.WithLabelValues(outcome)
	}
	var err error
	if s.programs, err = classify.Open(classifyDir(c.BPF.PinDir), c.classes()); err != nil {
		return nil, err
	}
	if s.keeper, err = contracts.NewKeeper(c.Sources.NetNS, s.programs, logger); err != nil {
		s.programs.Close()
		return nil, err
	}
	s.keeper.Set(c.links(), c.scheduled())
	// What the configuration promises is there before the first tenant is served.
	s.round()
	return s, nil
}

func (s *scheduling) close() {
	s.keeper.Close()
	s.programs.Close()
}

// set swaps links and contracts and has them applied soon.
func (s *scheduling) set(c *Config) {
	s.keeper.Set(c.links(), c.scheduled())
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

func (s *scheduling) run(ctx context.Context) {
	tick := time.NewTicker(reconcileInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.changed:
		case <-tick.C:
		}
		s.round()
	}
}

func (s *scheduling) round() []contracts.Drift {
	drift, err := s.keeper.Reconcile()
	for _, d := range drift {
		s.drifts.WithLabelValues(d.State, d.Action).Inc()
	}
	switch {
	case err != nil:
		s.rounds.WithLabelValues("failed").Inc()
		s.logger.Error("reconcile", "err", err)
	case len(drift) > 0:
		s.rounds.WithLabelValues("drift").Inc()
	default:
		s.rounds.WithLabelValues("clean").Inc()
	}
	s.applied()
	return drift
}
