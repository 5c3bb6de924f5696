// Package reflector answers STAMP test packets (RFC 8762 section 4.3) with the
// kernel's time stamps of their arrival, and tells with the next answer when the
// last one really left (RFC 8972 section 4.7).
package reflector

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"vigia/probes/eventloop"
	"vigia/probes/sockets"
	"vigia/probes/stamp"
	"vigia/probes/timestamping"
	"vigia/probes/tsinfo"
)

const (
	batch = 32
	// DefaultBuffer is the size of a listener's buffers in bytes.
	DefaultBuffer = 8 << 20
	// housekeeping is how often the drop counters are read, in nanoseconds.
	housekeeping = second
	// errorEstimateAge is how long our clock's error estimate is used.
	errorEstimateAge = 10 * second
)

// Config is what to reflect.
type Config struct {
	Listeners []sockets.Key
	Keys      map[sockets.Key]stamp.Keys // of listeners in authenticated mode
	Allow     []netip.Prefix             // sources that are answered
	MaxRate   int                        // packets per second and source
	// Networks are told to who asks where else we are, at listeners in our own network namespace.
	Networks []stamp.Network
}

// Counters take what happens at the listeners of one name. They are called on
// the reflector's thread.
type Counters interface {
	Received()
	Reflected()
	Rejected(Reason)
	Overflowed(n uint32)
}

// Options configure a Reflector.
type Options struct {
	Logger *slog.Logger
	// NewCounters returns the counters of a listener. It is called again for
	// the same listener when its socket is opened again.
	NewCounters func(sockets.Key) Counters
	// RemoveCounters is called when a listener is no longer wanted.
	RemoveCounters func(sockets.Key)
	// ReceiveBuffer is the size of each listener's receive buffer in bytes; 0
	// stands for DefaultBuffer.
	ReceiveBuffer int
	// Bound tells our clock's error, without waiting; nil asks the kernel.
	Bound Bound
	// Survey finds devices that stamp in hardware; nil stands for
	// tsinfo.SurveyLocal.
	Survey Survey
}

// Bound tells how far our clock may be from true time, and whether it follows an external
// source.
type Bound func() (bound time.Duration, synchronized bool)

// Reflector answers test packets on its listeners.
type Reflector struct {
	options      Options
	loop         *eventloop.Loop
	keeper       *sockets.Keeper
	warmUpSocket *timestamping.Socket
	clock        *timestamping.Clock

	mu sync.Mutex // held from Prepare to Commit

	surveyor *tsinfo.Surveyor

	// Below is for the loop's thread alone.
	responder   responder
	keys        map[sockets.Key]stamp.Keys
	networks    []stamp.Network
	listeners   []*listener // by token; nil where one is free
	nextID      uint32
	inbox       *timestamping.Inbox
	outbox      *timestamping.Outbox
	reports     *timestamping.ErrorQueue
	datagram    timestamping.Datagram
	report      timestamping.Report
	replies     [batch]reply
	steps       uint32 // of the clock before what is handled now arrived
	estimateDue int64
	dropsDue    int64
}

// New returns a reflector without listeners. Close frees it.
func New(o Options) (*Reflector, error) {
	if o.ReceiveBuffer == 0 {
		o.ReceiveBuffer = DefaultBuffer
	}
	if o.Bound == nil {
		o.Bound = timestamping.ErrorBound
	}
	if o.Survey == nil {
		o.Survey = tsinfo.SurveyLocal
	}
	clock, err := timestamping.NewClock()
	if err != nil {
		return nil, err
	}
	loop, err := eventloop.New()
	if err != nil {
		return nil, err
	}
	r := &Reflector{
		options: o, loop: loop, clock: clock, surveyor: tsinfo.NewSurveyor(),
		responder: responder{sessions: newSessionTable(sessionSets), limiter: newLimiter(sourceSets)},
		inbox:     timestamping.NewInbox(batch, stamp.MaxSize), outbox: timestamping.NewOutbox(batch),
		reports: timestamping.NewErrorQueue(batch),
	}
	r.keeper = sockets.NewKeeper(timestamping.Options{
		ReceiveBuffer: o.ReceiveBuffer, SendBuffer: DefaultBuffer, ReportHeader: true,
	}, r, o.Logger)
	if r.warmUpSocket, err = timestamping.WarmUp(); err != nil {
		o.Logger.Warn("cannot warm up time stamps; the first may be late", "err", err)
	}
	return r, nil
}

// Apply replaces the configuration: Prepare and Commit in one.
func (r *Reflector) Apply(c Config) error {
	p, err := r.Prepare(c)
	if err != nil {
		return err
	}
	return p.Commit()
}

// Pending is a configuration that is ready to take the place of the present one.
// Commit or Discard must follow; until then nobody else can prepare another.
type Pending struct {
	reflector *Reflector
	config    Config
	change    *sockets.Change
}

// Prepare does all that may fail of replacing the configuration. On error nothing
// has changed.
func (r *Reflector) Prepare(c Config) (*Pending, error) {
	r.mu.Lock()
	change, err := r.keeper.Prepare(c.Listeners)
	if err != nil {
		r.mu.Unlock()
		return nil, fmt.Errorf("reflector: %w", err)
	}
	return &Pending{reflector: r, config: c, change: change}, nil
}

// Discard leaves everything as it was.
func (p *Pending) Discard() {
	p.change.Discard()
	p.reflector.mu.Unlock()
}

// Commit puts the configuration into force. Listeners that stay keep their
// sockets, sessions and counters. It fails only when the reflector has ended.
func (p *Pending) Commit() error {
	r := p.reflector
	if err := r.loop.Do(func() { r.apply(p.config, p.change) }); err != nil {
		p.Discard()
		return err
	}
	p.change.Commit()
	r.surveyor.Soon()
	r.mu.Unlock()
	return nil
}

func (r *Reflector) apply(c Config, change *sockets.Change) {
	r.keys = maps.Clone(c.Keys)
	for _, l := range r.listeners {
		if l != nil {
			l.keys = r.keys[l.key].Keyring()
		}
	}
	change.Removed(func(key sockets.Key) {
		r.detach(key)
		r.options.RemoveCounters(key)
	})
	change.Opened(func(key sockets.Key, s *timestamping.Socket, _ error) {
		counters := r.options.NewCounters(key) // so that the series exist
		if s != nil {
			r.attach(key, s, counters)
		}
	})
	r.networks = slices.Clone(c.Networks)
	r.responder.allow = slices.Clone(c.Allow)
	r.responder.ports = r.responder.ports[:0]
	for _, l := range c.Listeners {
		r.responder.ports = append(r.responder.ports, l.Local.Port())
	}
	r.responder.limiter.setRate(c.MaxRate)
}

// Attach starts to answer on a socket.
func (r *Reflector) Attach(key sockets.Key, s *timestamping.Socket) {
	r.do(func() { r.attach(key, s, r.options.NewCounters(key)) })
	r.surveyor.Soon()
}

// Detach stops answering on a socket.
func (r *Reflector) Detach(key sockets.Key, _ error) {
	r.do(func() { r.detach(key) })
}

func (r *Reflector) do(fn func()) {
	if err := r.loop.Do(fn); err != nil {
		r.options.Logger.Debug("the reflector has stopped", "err", err)
	}
}

// Run answers until ctx ends.
func (r *Reflector) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { r.keeper.Run(ctx) })
	wg.Go(func() { r.surveyor.Run(ctx, r.surveyOnce) })
	wg.Go(func() {
		<-ctx.Done()
		r.loop.Stop()
	})
	err := r.loop.Run(r)
	cancel()
	wg.Wait()
	return err
}

// Close frees the reflector after Run has returned, or when it never ran.
func (r *Reflector) Close() {
	r.loop.Close()
	r.keeper.Close()
	if r.warmUpSocket != nil {
		r.warmUpSocket.Close()
	}
}

// Err returns why a listener is not open, or nil when all are.
func (r *Reflector) Err() error { return r.keeper.Err() }
