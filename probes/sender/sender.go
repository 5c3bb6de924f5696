// Package sender sends probes on an open-loop schedule and measures what comes
// back. One thread does all of it, with few sockets, batched system calls and
// nothing allocated per probe.
package sender

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	"vigia/internal/realtime"
	"vigia/probes/accounting"
	"vigia/probes/delay"
	"vigia/probes/resolver"
	"vigia/probes/sockets"
	"vigia/probes/timestamping"
	"vigia/probes/tsinfo"
)

// Options configure a Sender.
type Options struct {
	Logger *slog.Logger
	// NewRecorder makes the recorder of a target that is new.
	NewRecorder func(Target) Recorder
	// ReceiveBuffer is the size of each socket's receive buffer in bytes; 0
	// stands for DefaultBuffer.
	ReceiveBuffer int
	// Lookup resolves names, each every LookupInterval; nil and 0 stand for the
	// system's resolver and resolver.Interval.
	Lookup         resolver.Lookup
	LookupInterval time.Duration
	// Bound tells our clock's error, without waiting; nil asks the kernel.
	Bound Bound
	// Survey finds devices that stamp in hardware; nil stands for tsinfo.Survey.
	Survey Survey
	// RealTime lets sending run before ordinary threads, where the system allows it.
	RealTime bool
}

// DefaultBuffer is the size of a socket's buffers in bytes: room for the answers
// of a second and more at ten thousand small probes per second.
const DefaultBuffer = 8 << 20

// Bound tells how far our clock may be from true time, and whether it follows an external
// source.
type Bound func() (bound time.Duration, synchronized bool)

// Sender probes targets.
type Sender struct {
	options      Options
	engine       *engine
	keeper       *sockets.Keeper
	resolver     *resolver.Resolver
	warmUpSocket *timestamping.Socket

	surveyor *tsinfo.Surveyor

	mu      sync.Mutex // held from Prepare to Commit
	targets map[Labels]Target

	firstRoundMu   sync.Mutex
	firstRoundDone bool // every target was probed once
}

// New returns a sender without targets. Close frees it.
func New(o Options) (*Sender, error) {
	if o.ReceiveBuffer == 0 {
		o.ReceiveBuffer = DefaultBuffer
	}
	if o.LookupInterval == 0 {
		o.LookupInterval = resolver.Interval
	}
	if o.Bound == nil {
		o.Bound = timestamping.ErrorBound
	}
	if o.Survey == nil {
		o.Survey = tsinfo.Survey
	}
	e, err := newEngine(o.Logger, o.Bound)
	if err != nil {
		return nil, err
	}
	s := &Sender{options: o, engine: e, targets: make(map[Labels]Target), surveyor: tsinfo.NewSurveyor()}
	s.keeper = sockets.NewKeeper(timestamping.Options{
		ReceiveBuffer: o.ReceiveBuffer, SendBuffer: DefaultBuffer, ReportErrors: true, ReportTOS: true,
	}, owner{e}, o.Logger)
	s.resolver = resolver.New(o.Lookup, o.LookupInterval, s.resolved)
	if s.warmUpSocket, err = timestamping.WarmUp(); err != nil {
		o.Logger.Warn("cannot warm up time stamps; the first may be late", "err", err)
	}
	return s, nil
}

// owner hands sockets to the engine.
type owner struct{ engine *engine }

func (o owner) Attach(key sockets.Key, s *timestamping.Socket) {
	o.engine.do(func() { o.engine.attach(key, s) })
}

func (o owner) Detach(key sockets.Key, reason error) {
	o.engine.do(func() { o.engine.detach(key, reason) })
}

// do runs fn on the loop's thread, if there still is one.
func (e *engine) do(fn func()) {
	if err := e.loop.Do(fn); err != nil {
		e.logger.Debug("the sender has stopped", "err", err)
	}
}

// Apply replaces the targets: Prepare and Commit in one.
func (s *Sender) Apply(targets []Target) error {
	p, err := s.Prepare(targets)
	if err != nil {
		return err
	}
	return p.Commit()
}

// Pending is a set of targets that is ready to take the place of the present one.
// Commit or Discard must follow; until then nobody else can prepare another.
type Pending struct {
	sender *Sender
	plan   *plan
	change *sockets.Change
}

// Prepare does all that may fail of replacing the targets. On error nothing has
// changed.
func (s *Sender) Prepare(targets []Target) (*Pending, error) {
	s.mu.Lock()
	p, err := s.plan(targets)
	if err != nil {
		s.mu.Unlock()
		return nil, err
	}
	keys := make([]sockets.Key, 0, len(targets))
	for i := range targets {
		keys = append(keys, targets[i].keys()...)
	}
	change, err := s.keeper.Prepare(keys)
	if err != nil {
		s.mu.Unlock()
		return nil, err
	}
	return &Pending{sender: s, plan: p, change: change}, nil
}

// Discard leaves everything as it was.
func (p *Pending) Discard() {
	p.change.Discard()
	p.sender.mu.Unlock()
}

// Commit puts the targets into force. Targets that stay the same keep everything,
// those that change keep their counters. It fails only when the sender has ended.
func (p *Pending) Commit() error {
	s := p.sender
	for i := range p.plan.changes {
		if c := &p.plan.changes[i]; c.series != nil {
			c.series.recorder = s.options.NewRecorder(c.target)
		}
	}
	s.resolver.Set(p.plan.names)
	if err := s.engine.loop.Do(func() { s.engine.apply(p.plan, p.change) }); err != nil {
		p.Discard()
		return err
	}
	p.change.Commit()
	s.surveyor.Soon()
	s.targets = p.plan.wanted
	s.mu.Unlock()
	return nil
}

// plan is what Commit is about to do, with everything made that takes time.
type plan struct {
	wanted  map[Labels]Target
	changes []change
	names   []resolver.Name
	known   func(resolver.Name) (resolver.Result, bool)
}

// change is a target that is new or not what it was.
type change struct {
	target   Target
	series   *series // of a new target, else nil
	sessions []*session
}

func (s *Sender) plan(targets []Target) (*plan, error) {
	p := &plan{wanted: make(map[Labels]Target, len(targets)), known: s.resolver.Result}
	for _, t := range targets {
		if _, twice := p.wanted[t.Labels]; twice {
			return nil, fmt.Errorf("target %+v is there twice", t.Labels)
		}
		if t.Protocol == nil {
			return nil, fmt.Errorf("target %+v has no protocol", t.Labels)
		}
		p.wanted[t.Labels] = t
		if name, ok := t.name(); ok {
			p.names = append(p.names, name)
		}
		before, exists := s.targets[t.Labels]
		if exists && before == t {
			continue
		}
		c := change{target: t}
		if !exists {
			c.series = &series{labels: t.Labels}
		}
		for i := 0; i < t.flows() && !t.Paused; i++ {
			s := newSession(t.flow(i), nil)
			s.flowIndex = i
			c.sessions = append(c.sessions, s)
		}
		p.changes = append(p.changes, c)
	}
	return p, nil
}

// apply makes the plan real, on the loop's thread.
func (e *engine) apply(p *plan, change *sockets.Change) {
	for labels, ser := range e.series {
		if _, ok := p.wanted[labels]; !ok {
			e.remove(ser)
		}
	}
	change.Opened(func(key sockets.Key, s *timestamping.Socket, reason error) {
		if s == nil {
			e.closed[key] = reason
			return
		}
		e.attach(key, s)
	})
	for i := range p.changes {
		e.change(&p.changes[i], p)
	}
	change.Removed(func(key sockets.Key) {
		e.detach(key, nil)
		delete(e.closed, key)
	})
}

// change puts the target's sessions in the place of those that its series has.
func (e *engine) change(c *change, p *plan) {
	ser := c.series
	if ser != nil {
		e.series[ser.labels] = ser
	} else {
		ser = e.series[c.target.Labels]
	}
	for len(ser.current) > 0 {
		e.retire(ser.current[0])
	}
	ser.target = c.target
	for _, s := range c.sessions {
		s.series = ser
		s.Window.Adopt(&ser.counts)
		e.locate(s, p)
		e.add(s)
	}
}

// locate gives the session its address, as far as it is known.
func (e *engine) locate(s *session, p *plan) {
	name, ok := s.target.name()
	if !ok {
		s.setAddress(netip.MustParseAddr(s.target.Host))
		return
	}
	if r, known := p.known(name); known && r.Err == nil {
		s.setAddress(r.Address)
	} else if known {
		s.nameErr = r.Err
	}
}

// resolved takes the result of a look-up.
func (s *Sender) resolved(name resolver.Name, r resolver.Result) {
	if r.Err != nil {
		s.options.Logger.Warn("cannot resolve a name", "name", name.Host, "err", r.Err)
	}
	s.engine.do(func() {
		for _, ser := range s.engine.series {
			if n, ok := ser.target.name(); !ok || n != name {
				continue
			}
			for _, c := range slices.Clone(ser.current) {
				s.engine.setAddress(c, r)
			}
		}
	})
	s.surveyor.Soon()
}

// Run sends and receives until ctx ends.
func (s *Sender) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { s.keeper.Run(ctx) })
	wg.Go(func() { s.resolver.Run(ctx) })
	wg.Go(func() { s.surveyor.Run(ctx, s.surveyOnce) })
	wg.Go(func() {
		<-ctx.Done()
		s.engine.loop.Stop()
	})
	err := make(chan error)
	s.takeTurns()
	go func() { err <- s.engine.loop.Run(s.engine) }()
	failure := <-err
	cancel()
	wg.Wait()
	return failure
}

// takeTurns makes sending urgent while there is much to send, where the system allows it.
func (s *Sender) takeTurns() {
	if !s.options.RealTime {
		return
	}
	// While it is quiet it is an ordinary thread among others.
	if err := realtime.ShortenSlices(); err != nil {
		s.options.Logger.Info("cannot ask for short slices; probes may leave late on a busy machine", "err", err)
	}
	turns, err := realtime.NewTurns()
	if err != nil {
		s.options.Logger.Info("cannot run before ordinary threads; probes may leave late on a busy machine", "err", err)
		return
	}
	s.engine.loop.SetTurns(turns)
}

// Close frees the sender after Run has returned, or when it never ran.
func (s *Sender) Close() {
	s.engine.loop.Close()
	s.keeper.Close()
	if s.warmUpSocket != nil {
		s.warmUpSocket.Close()
	}
}

// Status is the state of one target at one moment.
type Status struct {
	Target   Target
	Counts   accounting.Counts
	InFlight uint64
	Waiting  uint64 // answered, but stamps are missing
	Jitter   float64
	// Source is what takes the stamps of the delays.
	Source      delay.Source
	Quarantined [delay.NumVerdicts]uint64
	// Rewritten counts answered probes whose DSCP was changed on the way there and
	// on the way back.
	Rewritten [2]uint64
	// ErrorBound is Probe.ErrorBound of the last answered probe.
	ErrorBound  int64
	Up          bool
	Address     netip.AddrPort // not valid while unresolved
	Open        bool           // the socket is
	LastError   error
	LastErrorAt time.Time
}

// Totals are what is counted for all targets together.
type Totals struct {
	Stamps [NumPoints][NumSources]uint64
	Stray  uint64 // datagrams that belong to no target
}

// Snapshot appends the state of every target, all at the same moment.
func (s *Sender) Snapshot(to []Status) ([]Status, Totals, error) {
	var totals Totals
	err := s.engine.loop.Do(func() {
		now := s.engine.clock.Now()
		for _, ser := range s.engine.series {
			to = append(to, ser.status(now))
		}
		totals = Totals{Stamps: s.engine.stamps, Stray: s.engine.stray}
	})
	return to, totals, err
}

// Address returns where a target's probes go.
func (s *Sender) Address(t *Target) (a netip.AddrPort, err error) {
	if ip, err := netip.ParseAddr(t.Host); err == nil {
		return netip.AddrPortFrom(ip, t.Port), nil
	}
	err = s.engine.loop.Do(func() {
		if ser := s.engine.series[t.Labels]; ser != nil && len(ser.current) > 0 {
			a = ser.current[0].Address
		}
	})
	if err == nil && !a.IsValid() {
		err = fmt.Errorf("%s has no address yet", t.Host)
	}
	return a, err
}

// upIntervals is how many intervals without an answer make a target be down; at
// least upTime.
const (
	upIntervals = 10
	upTime      = time.Second
)

func (ser *series) status(now int64) Status {
	st := Status{
		Counts: ser.counts, Jitter: ser.jitter.Seconds(), Quarantined: ser.quarantined,
		Rewritten: ser.rewritten, ErrorBound: ser.errorBound, Source: ser.admission.Source(), LastError: ser.lastError.err,
	}
	if ser.lastError.err != nil {
		st.LastErrorAt = time.Unix(0, ser.lastError.at)
	}
	for _, s := range ser.retired {
		st.InFlight += s.Window.InFlight()
		st.Waiting += uint64(s.waiting)
	}
	st.Target, st.Open = ser.target, len(ser.current) > 0
	for _, s := range ser.current {
		st.Address = s.Address
		st.Open = st.Open && s.socket != nil
		st.InFlight += s.Window.InFlight()
		st.Waiting += uint64(s.waiting)
	}
	recent := max(upIntervals*ser.target.Interval, upTime)
	st.Up = len(ser.current) > 0 && ser.answered != 0 && now-ser.answered <= int64(recent)
	return st
}

// Err returns why a socket is not open, or nil when all are.
func (s *Sender) Err() error { return s.keeper.Err() }

// Ready returns nil once every socket is open and every target was probed.
func (s *Sender) Ready() error {
	if err := s.keeper.Err(); err != nil {
		return err
	}
	s.firstRoundMu.Lock()
	defer s.firstRoundMu.Unlock()
	if s.firstRoundDone {
		return nil
	}
	missing, total := 0, 0
	err := s.engine.loop.Do(func() {
		for _, ser := range s.engine.series {
			total++
			if ser.counts.Sent == 0 && !ser.target.Paused {
				missing++
			}
		}
	})
	if err != nil {
		return err
	}
	if missing > 0 {
		return fmt.Errorf("the first round is not finished: %d of %d targets have no result yet", missing, total)
	}
	s.firstRoundDone = true
	return nil
}
