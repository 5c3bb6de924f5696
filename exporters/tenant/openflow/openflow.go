// Package openflow is the source of what OpenFlow tells of Open vSwitch's bridges:
// ports that only the switch can count, flow tables, meters, queues, and the flows
// of a cookie.
package openflow

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"vigia/exporters/tenant/source"
	"vigia/internal/openflow"
	"vigia/internal/ports"
)

// Cookie says whose the flows with a cookie are.
type Cookie struct {
	Bridge string
	Cookie uint64
	Tenant string
}

// Options set the source up.
type Options struct {
	// Bridges returns the bridges there are now.
	Bridges func() ([]ports.Bridge, error)
	RunDir  string        // of the sockets BRIDGE.mgmt
	Every   time.Duration // how often the switch is asked; it answers on its main thread
	Cookies []Cookie
}

// bridge is what one bridge said.
type bridge struct {
	ports.Bridge
	err     error
	stats   []openflow.PortStats
	tables  []openflow.TableStats
	meters  []openflow.MeterStats
	queues  []openflow.QueueStats
	cookies []cookieStats
}

type cookieStats struct {
	Cookie
	packets, bytes uint64 // only grow, whatever flows come and go
	flows          int
}

// Source asks bridges at an interval and emits the newest answers.
type Source struct {
	opts   Options
	poller *source.Poller[[]bridge]
	conns  map[string]*openflow.Conn
	totals map[Cookie]*flowTotals
	families
}

// New returns the source.
func New(f source.Families, o Options) *Source {
	s := &Source{opts: o, conns: make(map[string]*openflow.Conn), totals: make(map[Cookie]*flowTotals), families: newFamilies(f)}
	s.poller = source.NewPoller(o.Every, s.read)
	return s
}

// AttributesDrops marks a source that adds to View.Drops.
func (s *Source) AttributesDrops() {}

// Age returns the age of the newest answers.
func (s *Source) Age() (time.Duration, bool) { return s.poller.Age() }

// Run asks until ctx ends.
func (s *Source) Run(ctx context.Context) {
	s.poller.Run(ctx)
	for name := range s.conns {
		s.hangUp(name)
	}
}

// read asks every bridge once. A bridge that does not answer spoils only its own
// part.
func (s *Source) read(ctx context.Context) ([]bridge, error) {
	list, err := s.opts.Bridges()
	if err != nil {
		return nil, err
	}
	var partial error
	present := make(map[string]bool, len(list))
	out := make([]bridge, 0, len(list))
	for _, b := range list {
		present[b.Name] = true
		answer := bridge{Bridge: b}
		if answer.err = s.ask(ctx, &answer); answer.err != nil {
			answer.err = fmt.Errorf("bridge %s: %w", b.Name, answer.err)
			partial = source.ErrPartial
		}
		out = append(out, answer)
	}
	for name := range s.conns {
		if !present[name] {
			s.hangUp(name)
		}
	}
	return out, partial
}

func (s *Source) hangUp(name string) {
	s.conns[name].Close()
	delete(s.conns, name)
}

// ask asks one bridge everything, over the session of the last time or, once that
// has broken, over a new one.
func (s *Source) ask(ctx context.Context, b *bridge) error {
	c, old := s.conns[b.Name]
	if old {
		if err := s.questions(ctx, c, b); err == nil {
			return nil
		}
		s.hangUp(b.Name)
		*b = bridge{Bridge: b.Bridge}
	}
	c, err := openflow.Dial(ctx, filepath.Join(s.opts.RunDir, b.Name+".mgmt"))
	if err != nil {
		return err
	}
	s.conns[b.Name] = c
	if err := s.questions(ctx, c, b); err != nil {
		s.hangUp(b.Name)
		return err
	}
	return nil
}

func (s *Source) questions(ctx context.Context, c *openflow.Conn, b *bridge) (err error) {
	if b.stats, err = c.Ports(ctx); err != nil {
		return err
	}
	if b.tables, err = c.Tables(ctx); err != nil {
		return err
	}
	if b.queues, err = c.Queues(ctx); err != nil && !refused(err) {
		return err
	}
	if b.meters, err = c.Meters(ctx); err != nil && !errors.Is(err, openflow.ErrUnsupported) && !refused(err) {
		return err
	}
	for _, k := range s.opts.Cookies {
		if k.Bridge != b.Name {
			continue
		}
		sum, err := s.cookie(ctx, c, k)
		if err != nil {
			return fmt.Errorf("cookie %#x: %w", k.Cookie, err)
		}
		b.cookies = append(b.cookies, sum)
	}
	return nil
}

// refused tells that the switch answered with an error: it has no such thing.
func refused(err error) bool {
	var e *openflow.Error
	return errors.As(err, &e)
}

// maxFlows bounds the flows that are read for one cookie: reading them costs the
// switch's main thread about a microsecond each.
const maxFlows = 20_000

func (s *Source) cookie(ctx context.Context, c *openflow.Conn, k Cookie) (cookieStats, error) {
	filter := openflow.FlowFilter{Cookie: k.Cookie, Mask: ^uint64(0)}
	sum, err := c.Aggregate(ctx, filter)
	if err != nil && !errors.Is(err, openflow.ErrUnsupported) {
		return cookieStats{}, err
	}
	if sum.Flows > maxFlows {
		return cookieStats{}, fmt.Errorf("it has %d flows, more than %d", sum.Flows, maxFlows)
	}
	t := s.totals[k]
	if t == nil {
		t = &flowTotals{flows: make(map[string]flow)}
		s.totals[k] = t
	}
	t.round++
	err = c.Flows(ctx, filter, t.add)
	if err != nil {
		return cookieStats{}, err
	}
	t.forget()
	return cookieStats{k, t.packets, t.bytes, len(t.flows)}, nil
}

// flowTotals add up flows so that the sum only grows. A flow that goes takes
// nothing with it; one that is installed anew starts again.
type flowTotals struct {
	packets, bytes uint64
	flows          map[string]flow // by table, priority and match
	round          int
}

type flow struct {
	packets, bytes uint64
	round          int
}

func (t *flowTotals) add(f openflow.FlowStats) {
	if len(t.flows) >= 2*maxFlows || f.Packets == openflow.Unknown || f.Bytes == openflow.Unknown {
		return
	}
	key := string(append([]byte{f.Table, byte(f.Priority >> 8), byte(f.Priority)}, f.Match...))
	before := t.flows[key]
	if f.Packets < before.packets || f.Bytes < before.bytes {
		before = flow{}
	}
	t.packets += f.Packets - before.packets
	t.bytes += f.Bytes - before.bytes
	t.flows[key] = flow{f.Packets, f.Bytes, t.round}
}

func (t *flowTotals) forget() {
	for key, f := range t.flows {
		if f.round != t.round {
			delete(t.flows, key)
		}
	}
}
