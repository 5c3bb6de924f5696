package pathmtu

import (
	"context"
	"fmt"
	"hash/fnv"
	"net/netip"
	"sync"
	"time"

	"vigia/probes/sender"
)

// Plan says what is searched, and how often.
type Plan struct {
	Interval time.Duration
	Limits
}

// Task is a target whose path MTU is searched again and again.
type Task struct {
	Target sender.Target
	Plan   Plan
}

const (
	// concurrent is how many searches run at a time.
	concurrent = 4
	// firstWithin is when the first search of a target begins at the latest, if
	// no others are in its way.
	firstWithin = 3 * time.Second
	// retryAfter is when a search that found nothing is repeated at the latest.
	retryAfter = time.Minute
)

// Options configure a Runner.
type Options struct {
	// Address returns where a target's probes go.
	Address func(*sender.Target) (netip.AddrPort, error)
	// Done takes the result of a search.
	Done func(*sender.Target, *Result)
}

// Runner searches beside the sender, with sockets and packets of its own.
type Runner struct {
	options Options
	changed chan struct{}
	slots   chan struct{}

	mu    sync.Mutex
	tasks map[sender.Labels]*task
}

type task struct {
	Task
	due     time.Time
	running bool
}

// NewRunner returns a runner without tasks.
func NewRunner(o Options) *Runner {
	return &Runner{
		options: o, changed: make(chan struct{}, 1), slots: make(chan struct{}, concurrent),
		tasks: make(map[sender.Labels]*task),
	}
}

// Set replaces the tasks. Those that stay the same keep their schedule, and the
// result of a search whose task has changed is dropped.
func (r *Runner) Set(tasks []Task) {
	r.mu.Lock()
	defer r.mu.Unlock()
	before, now := r.tasks, time.Now()
	r.tasks = make(map[sender.Labels]*task, len(tasks))
	for _, t := range tasks {
		if b := before[t.Target.Labels]; b != nil && b.Task == t {
			r.tasks[t.Target.Labels] = b
			continue
		}
		r.tasks[t.Target.Labels] = &task{Task: t, due: now.Add(phase(&t))}
	}
	r.wake()
}

func (r *Runner) wake() {
	select {
	case r.changed <- struct{}{}:
	default:
	}
}

// phase spreads the searches by what they are searches of.
func phase(t *Task) time.Duration {
	h := fnv.New64a()
	fmt.Fprintf(h, "%+v", t.Target.Labels)
	return time.Duration(h.Sum64() % uint64(firstWithin))
}

// Run searches until ctx ends.
func (r *Runner) Run(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	for {
		t, due := r.take()
		var timer <-chan time.Time
		switch {
		case t != nil:
			wg.Go(func() {
				r.search(ctx, t)
				<-r.slots
				r.wake()
			})
			continue
		case !due.IsZero():
			timer = time.After(time.Until(due))
		}
		select {
		case <-ctx.Done():
			return
		case <-r.changed:
		case <-timer:
		}
	}
}

// take returns the task that is due longest, with a slot to run it in; or when the
// next one is due, zero while none waits.
func (r *Runner) take() (first *task, due time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, t := range r.tasks {
		if !t.running && (first == nil || t.due.Before(first.due)) {
			first = t
		}
	}
	if first == nil {
		return nil, time.Time{}
	}
	if now := time.Now(); first.due.After(now) {
		return nil, first.due
	}
	select {
	case r.slots <- struct{}{}:
		first.running = true
		return first, time.Time{}
	default:
		return nil, time.Time{} // the end of a search wakes us
	}
}

func (r *Runner) search(ctx context.Context, t *task) {
	var result Result
	if to, err := r.options.Address(&t.Target); err != nil {
		result = Result{Outcome: Failed, Err: err}
	} else {
		result = Search(ctx, t.Target, to, t.Plan.Limits)
	}
	r.mu.Lock()
	again, now := t.Plan.Interval, time.Now()
	if result.Outcome != Found {
		again = min(again, retryAfter)
	}
	if t.due = t.due.Add(again); t.due.Before(now) {
		t.due = now.Add(again)
	}
	t.running = false
	current := r.tasks[t.Target.Labels] == t
	r.mu.Unlock()
	if current && ctx.Err() == nil {
		r.options.Done(&t.Target, &result)
	}
}
