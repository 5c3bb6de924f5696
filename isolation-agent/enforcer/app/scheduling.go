package app

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"vigia/internal/bpf/classify"
	"vigia/internal/catalog"
	"vigia/isolation-agent/enforcer/contract"
	"vigia/isolation-agent/enforcer/scheduling"
)

// reconcileInterval is how often the kernel is compared with the contracts.
const reconcileInterval = 15 * time.Second

// schedule keeps the links' schedulers at what the contracts say.
type schedule struct {
	programs   *classify.Programs
	reconciler *scheduling.Reconciler
	logger     *slog.Logger
	rounds     *prometheus.CounterVec
	drifts     *prometheus.CounterVec
	changed    chan struct{}
	applied    func() // called after links and contracts have been compared with the kernel
}

func newSchedule(c *Config, bought *contract.Set, metrics *catalog.Factory, logger *slog.Logger) (*schedule, error) {
	s := &schedule{
		logger: logger, changed: make(chan struct{}, 1), applied: func() {},
		rounds: metrics.Counter("vigia_enforcer_reconciles_total"),
		drifts: metrics.Counter("vigia_enforcer_drift_total"),
	}
	for _, outcome := range []string{"clean", "drift", "failed"} {
		s.rounds.WithLabelValues(outcome)
	}
	var err error
	if s.programs, err = classify.Open(classify.Dir(c.Node.BPF.PinDir), c.roomFor(bought)); err != nil {
		return nil, err
	}
	if s.reconciler, err = scheduling.NewReconciler(c.Node.Sources.NetNS, s.programs, logger); err != nil {
		s.programs.Close()
		return nil, err
	}
	s.reconciler.Set(c.links, bought)
	// What the contracts promise is there before the first tenant is served.
	s.round()
	return s, nil
}

func (s *schedule) close() {
	s.reconciler.Close()
	s.programs.Close()
}

// set swaps links and contracts and has them applied soon.
func (s *schedule) set(links []scheduling.Link, bought *contract.Set) {
	s.reconciler.Set(links, bought)
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

func (s *schedule) run(ctx context.Context) {
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

func (s *schedule) round() []scheduling.Drift {
	drift, err := s.reconciler.Reconcile()
	for _, d := range drift {
		s.drifts.WithLabelValues(d.State, d.Action).Inc()
	}
	switch {
	case err != nil:
		s.rounds.WithLabelValues("failed").Inc()
		s.logger.Error("cannot bring the schedulers to what the contracts say", "err", err)
	case len(drift) > 0:
		s.rounds.WithLabelValues("drift").Inc()
	default:
		s.rounds.WithLabelValues("clean").Inc()
	}
	s.applied()
	return drift
}
