package bulk

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"sync"
	"time"
)

// Plan says what is tested.
type Plan struct {
	Node string // our own
	// Groups are tests that follow each other in one slot, for example the
	// rates of a class.
	Groups [][]Target
	Budget uint64 // bytes sent in any hour
	Slots  Slots
}

// Overhead is what a test takes beside its duration at most.
const Overhead = 2 * time.Second

// TimeNeeded returns how long a group takes at most.
func TimeNeeded(group []Target) (sum time.Duration) {
	for i := range group {
		sum += group[i].Duration + Overhead
	}
	return sum
}

// turn returns the group whose turn it is in a slot, or nil.
func (p *Plan) turn(slot int64) []Target {
	if len(p.Groups) == 0 {
		return nil
	}
	if len(p.Slots.Nodes) == 0 {
		return p.Groups[uint64(slot)%uint64(len(p.Groups))]
	}
	peer, ok := p.Slots.peer(p.Node, slot)
	if !ok {
		return nil
	}
	var of [][]Target
	for _, g := range p.Groups {
		// What a node sends to itself needs no peer: it has a turn among those to each.
		if dst := g[0].Labels.Dst; dst == peer || dst == p.Node {
			of = append(of, g)
		}
	}
	if len(of) == 0 {
		return nil
	}
	return of[uint64(p.Slots.cycle(slot))%uint64(len(of))]
}

// Options configure a Runner.
type Options struct {
	Links  *LinkLocks
	Logger *slog.Logger
	// State is the file that remembers over a restart what was sent; empty for none.
	State string
	// Burning returns a tenant whose objective burns, or nothing.
	Burning func() (tenant string)
	// Done is called after each test, one at a time.
	Done func(*Target, *Outcome)
}

// Runner runs the tests of a plan, one slot after the other.
type Runner struct {
	options Options
	budget  budget
	changed chan struct{}

	mu   sync.Mutex
	plan Plan
}

// guardInterval is how often the objectives are looked at during a test.
const guardInterval = 200 * time.Millisecond

// NewRunner returns a runner without a plan, which remembers what was sent before.
func NewRunner(o Options) *Runner {
	r := &Runner{options: o, changed: make(chan struct{}, 1)}
	if o.State == "" {
		return r
	}
	s, err := loadState(o.State)
	if err != nil {
		o.Logger.Error("cannot tell what was sent before; the budget begins anew", "err", err)
		return r
	}
	r.budget.restore(s, time.Now())
	return r
}

// Set replaces the plan. What the hour has spent stays spent, and a test under
// way goes on.
func (r *Runner) Set(p Plan) {
	r.budget.setLimit(p.Budget)
	r.mu.Lock()
	r.plan = p
	r.mu.Unlock()
	select {
	case r.changed <- struct{}{}:
	default:
	}
}

// remember writes down what was spent.
func (r *Runner) remember() {
	if r.options.State == "" {
		return
	}
	if err := r.budget.state(time.Now()).save(r.options.State); err != nil {
		r.options.Logger.Error("cannot remember what was sent over a restart", "err", err)
	}
}

// Left returns how many bytes may still be sent in this hour.
func (r *Runner) Left() uint64 { return r.budget.left(time.Now()) }

// Run tests until ctx ends.
func (r *Runner) Run(ctx context.Context) {
	done := int64(-1)
	for ctx.Err() == nil {
		r.mu.Lock()
		p := r.plan
		r.mu.Unlock()
		if len(p.Groups) == 0 {
			select {
			case <-ctx.Done():
			case <-r.changed:
			}
			continue
		}
		slot, end := p.Slots.index(time.Now())
		group := p.turn(slot)
		if slot != done && group != nil && time.Until(end) >= TimeNeeded(group) {
			done = slot
			r.group(ctx, group)
		}
		select {
		case <-ctx.Done():
		case <-r.changed:
		case <-time.After(time.Until(end)):
		}
	}
}

// group runs tests one after the other while our end of their link is theirs.
func (r *Runner) group(ctx context.Context, group []Target) {
	// A test of the node with itself has the link at both ends: as many connections again.
	id := 1 + rand.Uint64N(math.MaxUint64)
	release, ok := r.options.Links.acquire(group[0].Link, id, 1+MaxMachines/2)
	if !ok {
		for i := range group {
			r.options.Done(&group[i], &Outcome{Result: Busy, Err: fmt.Errorf("link %s is in use by a test that arrives", group[i].Link)})
		}
		return
	}
	defer release()
	for i := range group {
		t := group[i]
		t.test = id
		o := r.test(ctx, &t)
		r.options.Done(&group[i], &o)
		if ctx.Err() != nil || o.Result == Stopped {
			return
		}
	}
}

// test runs one test within the budget, and stops it when an objective burns.
func (r *Runner) test(ctx context.Context, t *Target) Outcome {
	if tenant := r.options.Burning(); tenant != "" {
		return Outcome{Result: Stopped, Err: fmt.Errorf("the objective of tenant %s burns", tenant)}
	}
	cost := t.cost()
	refund, ok := r.budget.take(time.Now(), cost)
	if !ok {
		return Outcome{Result: OverBudget, Err: fmt.Errorf("the test needs %d bytes, and %d are left of this hour", cost, r.Left())}
	}
	r.remember() // before anything is sent: a crash must not make it free
	defer r.remember()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	burning := make(chan string, 1)
	go func() {
		ticker := time.NewTicker(guardInterval)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
			if tenant := r.options.Burning(); tenant != "" {
				burning <- tenant
				cancel()
				return
			}
		}
	}()
	o := t.Run(ctx)
	refund(cost - min(o.Sent, cost))
	select {
	case tenant := <-burning:
		o.Err = fmt.Errorf("the objective of tenant %s burns", tenant)
	default:
	}
	return o
}
