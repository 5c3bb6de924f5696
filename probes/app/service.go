package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"vigia/internal/config"
	"vigia/internal/daemon"
	"vigia/internal/exposition"
	"vigia/probes/bulk"
	"vigia/probes/clockerror"
	"vigia/probes/discovery"
	"vigia/probes/export"
	"vigia/probes/health"
	"vigia/probes/moment"
	"vigia/probes/networks"
	"vigia/probes/objective"
	"vigia/probes/pages"
	"vigia/probes/pathkind"
	"vigia/probes/pathmtu"
	"vigia/probes/protocol/registry"
	"vigia/probes/reflector"
	"vigia/probes/sender"
	"vigia/probes/settings"
	"vigia/probes/twin"
)

// service is the daemon.
type service struct {
	sender    *sender.Sender
	reflector *reflector.Reflector
	recorders *export.Recorders
	costs     *export.Costs
	twins     *twin.Pairs
	health    *health.Monitor
	clock     *clockerror.Watch
	paths     atomic.Pointer[[]settings.Path]

	// mu is held while a configuration, or what was discovered, is put into
	// force.
	mu         sync.Mutex
	settings   *settings.Settings
	discovered *discovery.Manager
	networks   *networks.Watch
	own        []networks.Network // those in force

	objectives *objective.Watch
	judges     *objective.Book
	bulk       *bulk.Runner
	bulkServer *bulk.Server
	bulkTests  *export.Bulk
	searches   *pathmtu.Runner
	pathMTUs   *export.PathMTUs
	moments    *moment.Watch
	pages      pages.Pages
	fast       *export.Fast
	logger     *slog.Logger
}

// spareProcs are for sender and reflector: with as many processors for goroutines
// as the machine has, a scrape and the garbage collector can hold them all while a
// probe is due. The kernel then has the choice, and prefers who sleeps most.
const spareProcs = 2

func newService(env daemon.Env) (*service, error) {
	cfg, err := settings.Load(env.ConfigPath)
	if err != nil {
		return nil, err
	}
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(runtime.NumCPU() + spareProcs)
	}
	s := &service{
		objectives: objective.New(), judges: objective.NewBook(cfg.ObjectivesState, env.Logger), clock: clockerror.New(), twins: twin.New(), health: health.New("/"), logger: env.Logger,
	}
	if s.costs, err = export.NewCosts(registry.All()); err != nil {
		return nil, err
	}
	measuring := export.Context{Host: s.health, Objectives: s.objectives, Judges: s.judges, Twins: s.twins}
	s.recorders = export.NewRecorders(env.Metrics, env.Registry, measuring, registry.All())
	listeners := export.NewReflector(env.Metrics)
	s.sender, err = sender.New(sender.Options{
		Logger: env.Logger, NewRecorder: s.recorders.New, Bound: s.clock.Bound, RealTime: true,
	})
	if err != nil {
		return nil, err
	}
	s.reflector, err = reflector.New(reflector.Options{
		Logger: env.Logger, NewCounters: listeners.Counters, RemoveCounters: listeners.Remove, Bound: s.clock.Bound,
	})
	if err != nil {
		s.sender.Close()
		return nil, err
	}
	s.newBulk(env, cfg.BulkState)
	s.pathMTUs = export.NewPathMTUs(env.Metrics, env.Registry, env.Logger, s.recorders.Hidden)
	s.searches = pathmtu.NewRunner(pathmtu.Options{Address: s.sender.Address, Done: s.pathMTUs.Done})
	s.moments = moment.New(moment.Options{
		Sources: moment.Sources{Trace: s.sender.Trace, Address: s.sender.Address, Recent: s.recorders.Recent, Health: s.health.Reading},
		Bad:     s.recorders.Bad, Count: export.NewMoments(env.Metrics).Count,
		State: cfg.MomentsState, Logger: env.Logger,
	})
	s.discovered = discovery.New(env.Logger, s.rediscover)
	s.networks = networks.New(env.Logger, s.rediscover)
	if err := s.apply(cfg); err != nil {
		s.close()
		return nil, err
	}
	env.Registry.MustRegister(export.NewCollector(env.Metrics, export.Sources{
		Targets: s.sender, Recorders: s.recorders, Host: s.health, Clock: s.clock, Objectives: s.objectives,
		Paths: s.describedPaths(),
	}))
	s.pages = pages.Pages{Targets: s.sender, Records: s.recorders, PathMTUs: s.pathMTUs, Pairs: s.recorders, Moments: s.moments, Node: s.node, Ready: s.Ready}
	s.pages.Register(env.Mux)
	s.fast = export.NewFast(env.Metrics, s.recorders)
	return s, nil
}

// describedPaths returns what tells the paths with what is found out of them.
func (s *service) describedPaths() export.Paths {
	finder := pathkind.New(s.logger)
	return func() []settings.Path {
		node, own := s.place()
		return finder.Fill(node, settings.PathsIn(*s.paths.Load(), own))
	}
}

// newBulk makes both ends of bulk tests, which share the links. The file state remembers
// what was sent.
func (s *service) newBulk(env daemon.Env, state string) {
	links := &bulk.LinkLocks{}
	s.bulkServer = bulk.NewServer(env.Logger, links)
	s.bulk = bulk.NewRunner(bulk.Options{
		Links:   links,
		Logger:  env.Logger,
		State:   state,
		Burning: func() string { return s.objectives.Burning(time.Now()) },
		Done:    func(t *bulk.Target, o *bulk.Outcome) { s.bulkTests.Done(t, o) },
	})
	s.bulkTests = export.NewBulk(env.Metrics, env.Registry, env.Logger, s.bulk.Left)
}

func (s *service) close() {
	s.bulkServer.Close()
	s.sender.Close()
	s.reflector.Close()
}

// part puts a field of settings.Live into force; it cannot fail.
type part struct {
	field string
	put   func(*settings.Live)
}

// parts are what takes the live configuration, in this order. Fields that have none are
// taken in apply, which prepares what may fail.
func (s *service) parts() []part {
	return []part{
		{"Paths", func(l *settings.Live) { s.paths.Store(&l.Paths) }},
		{"Sites", func(l *settings.Live) { s.discovered.Set(l.Sources()) }},
		{"Health", func(l *settings.Live) { s.health.SetLimits(l.Health) }},
		{"MaxOnewayError", func(l *settings.Live) { s.recorders.SetMaxOnewayError(l.MaxOnewayError) }},
		{"Moments", func(l *settings.Live) { s.moments.Configure(l.Moments) }},
		{"AllSeries", func(l *settings.Live) { s.recorders.ShowAll(l.AllSeries) }},
		{"Clock", func(l *settings.Live) { s.clock.Set(l.Clock) }},
		{"Hardware", func(l *settings.Live) {
			s.sender.SetHardware(l.Hardware)
			s.reflector.SetHardware(l.Hardware)
		}},
		{"Objectives", func(l *settings.Live) { s.objectives.Set(l.Objectives) }}, // they stop bulk tests
		{"BulkServer", func(l *settings.Live) { s.bulkServer.Set(l.BulkServer) }},
		{"Bulk", func(l *settings.Live) {
			s.bulkTests.Set(l.Bulk.Groups)
			s.bulk.Set(l.Bulk)
		}},
	}
}

// prepared are the fields of settings.Live that apply takes itself: the node's name is in
// the labels of the targets, and searches of path MTUs, objectives and series belong to targets.
func prepared() []string {
	return []string{"Node", "Reflector", "Targets", "PathMTU", "Bounds", "PairSeries"}
}

// apply puts a configuration into force, all of it or nothing.
func (s *service) apply(cfg *settings.Settings) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.settings != nil {
		if err := config.Unchanged("vigia-probe", s.settings.Fixed, cfg.Fixed); err != nil {
			return err
		}
	}
	// Our networks are looked for anew where we are known by another address now.
	var own []networks.Network
	if s.settings != nil && s.settings.Known() == cfg.Known() {
		own = s.own
	}
	next, err := s.prepare(cfg, own)
	if err != nil {
		return err
	}
	s.settings = cfg
	for _, p := range s.parts() {
		p.put(&cfg.Live)
	}
	return s.commit(next)
}

// next are sockets and targets that are ready to take the place of the present ones.
type next struct {
	own       []networks.Network
	aims      aims
	answering *reflector.Pending
	sending   *sender.Pending
}

// prepare does all that may fail of probing and answering in our networks. On error nothing has changed.
func (s *service) prepare(cfg *settings.Settings, own []networks.Network) (n next, err error) {
	n = next{own: own, aims: s.targets(cfg, own)}
	if n.answering, err = s.reflector.Prepare(cfg.ReflectorIn(own)); err != nil {
		return n, err
	}
	if n.sending, err = s.sender.Prepare(n.aims.targets); err != nil {
		n.answering.Discard()
		return n, fmt.Errorf("targets: %w", err)
	}
	return n, nil
}

// commit puts what is prepared into force.
func (s *service) commit(n next) error {
	s.own = n.own
	s.setTargets(n.aims)
	return errors.Join(n.answering.Commit(), n.sending.Commit())
}

// aims are what is probed, and who is asked for its networks.
type aims struct {
	targets []sender.Target
	members map[sender.Labels]export.Member // those that are pairs of a mesh
	asked   []networks.Peer
}

// targets returns what is configured and what was discovered, in our networks. A configured target goes
// before a discovered one with the same labels.
func (s *service) targets(cfg *settings.Settings, own []networks.Network) aims {
	targets := slices.Clone(cfg.Targets)
	known := make(map[sender.Labels]bool, len(targets))
	for i := range targets {
		known[targets[i].Labels] = true
	}
	members := make(map[sender.Labels]export.Member)
	var asked []networks.Peer
	sites := cfg.SitesIn(own)
	for i := range sites {
		site := &sites[i]
		site.Places = s.networks
		share := site.Share(cfg.Node, s.discovered.State(&site.Source))
		if share.Refused != nil {
			s.logger.Warn("cannot probe every discovered node", "err", share.Refused)
		}
		asked = append(asked, share.Asked...)
		nodes := &export.Site{Mesh: share.Mesh, Self: share.Self}
		for j := range share.Targets {
			t := &share.Targets[j]
			if known[t.Labels] {
				continue
			}
			known[t.Labels] = true
			targets = append(targets, *t)
			_, searched := cfg.PathMTU[t.Labels.Probe]
			members[t.Labels] = export.Member{
				Site: nodes, Peer: share.Peers[t.Labels.Dst], Interval: t.Interval, Paused: t.Paused,
				Cost: s.costs.Of(t.Protocol, searched), Asked: site.Shows(t.Labels.Dst),
			}
		}
	}
	return aims{targets: targets, members: members, asked: asked}
}

// rediscover puts into force what was discovered: nodes, and networks of ours and theirs.
func (s *service) rediscover() {
	s.mu.Lock()
	defer s.mu.Unlock()
	own := s.networks.Own()
	next, err := s.prepare(s.settings, own)
	if err != nil && len(own) > 0 {
		s.logger.Error("cannot probe in further networks; the rest is probed", "err", err)
		next, err = s.prepare(s.settings, nil)
	}
	if err != nil {
		s.logger.Error("cannot probe what was discovered", "err", err)
		return
	}
	if err := s.commit(next); err != nil {
		s.logger.Debug("the sender has stopped", "err", err)
	}
}

// setTargets tells of the targets all who keep something of each.
func (s *service) setTargets(p aims) {
	targets := p.targets
	s.networks.Set(s.settings.Known(), p.asked)
	s.recorders.SetMesh(export.Membership{Members: p.members, Budget: s.settings.PairSeries})
	s.twins.Set(targets)
	s.judges.Set(s.settings.Judged(targets))
	s.moments.Set(targets)
	s.setPathMTU(targets)
}

// setPathMTU puts the searches among the targets into force. Paused targets keep
// their series and are not searched.
func (s *service) setPathMTU(targets []sender.Target) {
	wanted := make(map[sender.Labels]bool)
	var tasks []pathmtu.Task
	for i := range targets {
		plan, ok := s.settings.PathMTU[targets[i].Labels.Probe]
		if !ok {
			continue
		}
		wanted[targets[i].Labels] = true
		if !targets[i].Paused {
			tasks = append(tasks, pathmtu.Task{Target: targets[i], Plan: plan})
		}
	}
	s.pathMTUs.Set(wanted)
	s.searches.Set(tasks)
}

// node returns the node's name and what it does.
func (s *service) node() (name, summary string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.settings.Node, s.settings.Summary()
}

// place returns the node's name and the networks that it is probed in.
func (s *service) place() (name string, own []networks.Network) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.settings.Node, s.own
}

// WriteFast emits GET /metrics/fast.
func (s *service) WriteFast(out *exposition.Page) error {
	s.fast.Write(out, time.Now())
	return nil
}

// ServeLanding shows every target, its last rounds, and why it fails.
func (s *service) ServeLanding(w http.ResponseWriter, r *http.Request) { s.pages.ServeLanding(w, r) }

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
	wg.Go(func() { s.health.Run(ctx) })
	wg.Go(func() {
		defer cancel()
		sendErr = s.sender.Run(ctx)
	})
	wg.Go(func() {
		defer cancel()
		reflectErr = s.reflector.Run(ctx)
	})
	wg.Go(func() { s.bulk.Run(ctx) })
	wg.Go(func() { s.judges.Run(ctx) })
	wg.Go(func() { s.searches.Run(ctx) })
	wg.Go(func() { s.moments.Run(ctx) })
	wg.Go(func() { s.discovered.Run(ctx) })
	wg.Go(func() { s.networks.Run(ctx) })
	wg.Go(func() { s.clock.Run(ctx) })
	wg.Wait()
	return errors.Join(sendErr, reflectErr)
}

// Reload replaces the configuration.
func (s *service) Reload(_ context.Context, path string) error {
	cfg, err := settings.Load(path)
	if err != nil {
		return err
	}
	return s.apply(cfg)
}

// Ready returns nil once every socket is open and every target was probed.
func (s *service) Ready() error {
	return errors.Join(s.reflector.Err(), s.bulkServer.Err(), s.undiscovered(), s.sender.Ready())
}
