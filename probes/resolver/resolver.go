// Package resolver keeps host names resolved in the background.
package resolver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"
)

const (
	// Interval is the time between two look-ups of a name whose time to live is
	// not known, like one of the hosts file or one that failed.
	Interval = 30 * time.Second
	// Timeout bounds one look-up.
	Timeout = 5 * time.Second

	maxLookups = 8 // at a time
)

// Name is a host name and the family of the addresses wanted for it.
type Name struct {
	Host string
	IPv6 bool
}

// Result is what the last look-up of a name gave.
type Result struct {
	Address netip.Addr
	Err     error
}

// Lookup asks for the addresses of a host; network is ip4 or ip6.
type Lookup func(ctx context.Context, network, host string) ([]netip.Addr, error)

// Resolver looks up names again and again.
type Resolver struct {
	lookup   Lookup
	interval time.Duration
	update   func(Name, Result)
	changed  chan struct{}

	mu    sync.Mutex
	names map[Name]*state
}

type state struct {
	result Result
	known  bool // a look-up has ended
	due    time.Time
	busy   bool
}

// New returns a resolver that calls update, from its own goroutines and one name
// at a time, whenever the result for a name changes. A nil lookup stands for the
// system's resolver.
func New(lookup Lookup, interval time.Duration, update func(Name, Result)) *Resolver {
	if lookup == nil {
		lookup = System
	}
	return &Resolver{
		lookup: lookup, interval: interval, update: update,
		changed: make(chan struct{}, 1), names: make(map[Name]*state),
	}
}

// Set replaces the names of interest. Results of names that stay are kept.
func (r *Resolver) Set(names []Name) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for name := range r.names {
		if !slices.Contains(names, name) {
			delete(r.names, name)
		}
	}
	for _, name := range names {
		if r.names[name] == nil {
			r.names[name] = &state{}
		}
	}
	select {
	case r.changed <- struct{}{}:
	default:
	}
}

// Result returns what is known of a name; ok is false before its first look-up
// has ended.
func (r *Resolver) Result(name Name) (result Result, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.names[name]
	if s == nil || !s.known {
		return Result{}, false
	}
	return s.result, true
}

// Run resolves until ctx ends.
func (r *Resolver) Run(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	slots := make(chan struct{}, maxLookups)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.changed:
		case <-timer.C:
		}
		for name, ok := r.take(); ok; name, ok = r.take() {
			select {
			case slots <- struct{}{}:
			case <-ctx.Done():
				return
			}
			wg.Go(func() {
				defer func() { <-slots }()
				r.resolve(ctx, name)
			})
		}
		timer.Reset(r.pause())
	}
}

// take returns a name that is due and marks it busy.
func (r *Resolver) take() (Name, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	for name, s := range r.names {
		if !s.busy && !s.due.After(now) {
			s.busy = true
			return name, true
		}
	}
	return Name{}, false
}

// pause returns the time until the next name is due.
func (r *Resolver) pause() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	wait := r.interval
	for _, s := range r.names {
		if !s.busy {
			wait = min(wait, max(time.Until(s.due), 0))
		}
	}
	return wait
}

func (r *Resolver) resolve(ctx context.Context, name Name) {
	lookupCtx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	network := "ip4"
	if name.IPv6 {
		network = "ip6"
	}
	ttl := &lifetime{}
	addresses, err := r.lookup(context.WithValue(lookupCtx, ttlKey{}, ttl), network, name.Host)
	if ctx.Err() != nil {
		return
	}
	r.mu.Lock()
	s := r.names[name]
	if s == nil { // no longer of interest
		r.mu.Unlock()
		return
	}
	before, known := s.result, s.known
	s.result, s.known = next(before, addresses, err), true
	s.due, s.busy = time.Now().Add(ttl.next(r.interval)), false
	after := s.result
	r.mu.Unlock()
	select { // the pause may have been computed while this look-up was busy
	case r.changed <- struct{}{}:
	default:
	}
	if !known || before.Address != after.Address || (before.Err == nil) != (after.Err == nil) {
		r.update(name, after)
	}
}

// next returns the result after a look-up. An address is kept as long as the
// name has it, and also while the name servers do not answer; only a name that
// does not exist loses it.
func next(before Result, addresses []netip.Addr, err error) Result {
	var dns *net.DNSError
	switch {
	case err == nil && len(addresses) > 0:
		for i := range addresses {
			addresses[i] = addresses[i].Unmap().WithZone("")
		}
		if slices.Contains(addresses, before.Address) {
			return Result{Address: before.Address}
		}
		return Result{Address: addresses[0]}
	case err == nil:
		return Result{Err: errors.New("the name has no address of this family")}
	case before.Address.IsValid() && (!errors.As(err, &dns) || !dns.IsNotFound):
		return Result{Address: before.Address}
	}
	return Result{Err: fmt.Errorf("cannot be resolved: %w", err)}
}
