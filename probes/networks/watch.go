package networks

import (
	"context"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	"vigia/internal/rtnl"
	"vigia/probes/stamp"
)

const (
	// every is how often our interfaces are looked at, and how soon a node that has not answered is asked again.
	every = 10 * time.Second
	// again is how soon a node that has answered is asked again.
	again = time.Minute
	// keep is how long a network stays that a node does not tell of any more: until then it is lost, not gone.
	keep = 5 * time.Minute
	// timeout bounds one question.
	timeout = 2 * time.Second
	// maxQuestions is how many are open at a time.
	maxQuestions = 8
	// sysClassNet tells what is hardware.
	sysClassNet = "/sys/class/net"
)

// Peer is a node that is asked.
type Peer struct {
	Node   string
	Host   string // address or name
	Port   uint16
	Keys   stamp.Keys
	Paused bool // not asked, and what is known of it stays
}

// Watch knows our networks, and where others are in them.
type Watch struct {
	logger *slog.Logger
	update func()
	open   func() (Kernel, func() error, error)
	ask    func(context.Context, *Peer) ([]stamp.Network, error)
	sysfs  string
	now    func() time.Time
	soon   chan struct{}

	mu    sync.Mutex
	known netip.Addr // by which we are known; not valid: nothing is to be found
	own   []Network
	peers map[string]*peer // by node
	said  string
}

type peer struct {
	Peer
	at  map[string]place // by network
	due time.Time
}

// place is where a node is in a network.
type place struct {
	address netip.Addr
	told    time.Time
}

// New returns a watch of this network namespace that calls update, one call at a time, when what it
// knows has changed.
func New(logger *slog.Logger, update func()) *Watch {
	return &Watch{
		logger: logger, update: update, sysfs: sysClassNet, now: time.Now,
		open: func() (Kernel, func() error, error) {
			c, err := rtnl.Dial("")
			if err != nil {
				return nil, nil, err
			}
			return c, c.Close, nil
		},
		ask:  func(ctx context.Context, p *Peer) ([]stamp.Network, error) { return ask(ctx, p, timeout) },
		soon: make(chan struct{}, 1), peers: make(map[string]*peer),
	}
}

// Set says by which address we are known (none: nothing is to be found), and who is to be asked. What is
// known of nodes that stay is kept, also where their address is another now, until they answer.
func (w *Watch) Set(known netip.Addr, peers []Peer) {
	w.mu.Lock()
	defer w.mu.Unlock()
	changed := known != w.known
	if changed {
		w.known, w.own = known, nil
	}
	before := w.peers
	w.peers = make(map[string]*peer, len(peers))
	for _, p := range peers {
		now := before[p.Node]
		if now == nil {
			now = &peer{at: make(map[string]place)}
		}
		if now.Peer != p {
			now.Peer, now.due, changed = p, time.Time{}, true
		}
		w.peers[p.Node] = now
	}
	if changed {
		select {
		case w.soon <- struct{}{}:
		default:
		}
	}
}

// Own returns our networks.
func (w *Watch) Own() []Network {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.own)
}

// Address returns where a node is in one of our networks; ok is false if it is not, as far as is known.
func (w *Watch) Address(node, network string) (address netip.Addr, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if p := w.peers[node]; p != nil {
		address, ok = p.at[network].address, p.at[network].address.IsValid()
	}
	return address, ok
}

// Run looks and asks until ctx ends.
func (w *Watch) Run(ctx context.Context) {
	for ctx.Err() == nil {
		if w.look(ctx) && ctx.Err() == nil {
			w.update()
		}
		select {
		case <-ctx.Done():
		case <-w.soon:
		case <-time.After(every):
		}
	}
}

// look looks at our interfaces and asks who is due; it reports whether anything has changed.
func (w *Watch) look(ctx context.Context) (changed bool) {
	w.mu.Lock()
	known := w.known
	w.mu.Unlock()
	if !known.IsValid() {
		return w.found(known, nil)
	}
	kernel, closed, err := w.open()
	if err != nil {
		w.say("cannot look for further networks", "err", err)
		return false
	}
	defer func() { _ = closed() }()
	all, more, err := own(kernel, w.sysfs, known)
	switch {
	case err != nil:
		w.say("cannot look for further networks", "err", err)
		return false
	case more > 0:
		w.say("there are more further networks than can be told; those with the first names are probed", "left_out", more)
	default:
		w.say("")
	}
	changed = w.found(known, all)
	return w.askAll(ctx, kernel) || changed
}

// say logs what is new.
func (w *Watch) say(text string, args ...any) {
	w.mu.Lock()
	said := w.said
	w.said = text
	w.mu.Unlock()
	if text != "" && text != said {
		w.logger.Warn(text, args...)
	}
}

// found takes what our networks are, unless we are known by another address meanwhile. All are asked
// anew when they have changed.
func (w *Watch) found(known netip.Addr, all []Network) (changed bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.known != known || slices.Equal(w.own, all) {
		return false
	}
	w.own = all
	for _, p := range w.peers {
		p.due = time.Time{}
	}
	return true
}

// askAll asks who is due.
func (w *Watch) askAll(ctx context.Context, kernel Kernel) (changed bool) {
	var wg sync.WaitGroup
	var mu sync.Mutex // of changed, and of the kernel's connection
	slots := make(chan struct{}, maxQuestions)
	for _, p := range w.due() {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			told, err := w.ask(ctx, &p)
			mu.Lock()
			defer mu.Unlock()
			changed = w.answered(&p, told, err, kernel) || changed
		})
	}
	wg.Wait()
	return changed
}

// due returns who is to be asked now: nobody where we are in one network alone.
func (w *Watch) due() (out []Peer) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.own) == 0 {
		return nil
	}
	now := w.now()
	for _, p := range w.peers {
		if !p.Paused && !p.due.After(now) {
			out = append(out, p.Peer)
		}
	}
	return out
}

// answered takes an answer. Of what a node tells we believe the networks that we are in as well, and
// addresses that our own interface of that network leads to.
func (w *Watch) answered(asked *Peer, told []stamp.Network, err error, kernel Kernel) (changed bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := w.peers[asked.Node]
	if p == nil || p.Peer != *asked {
		return false
	}
	now := w.now()
	if err != nil {
		w.logger.Debug("a node does not tell of its networks", "node", asked.Node, "err", err)
		p.due = now.Add(every)
		return false
	}
	p.due = now.Add(again)
	for _, n := range told {
		if !w.leads(kernel, n) {
			continue
		}
		changed = changed || p.at[n.Name].address != n.Address
		p.at[n.Name] = place{address: n.Address, told: now}
	}
	for name, at := range p.at {
		if now.Sub(at.told) > keep {
			delete(p.at, name)
			changed = true
		}
	}
	return changed
}

// leads reports whether an address is that of another node in a network of ours.
func (w *Watch) leads(kernel Kernel, n stamp.Network) bool {
	i := slices.IndexFunc(w.own, func(o Network) bool { return o.Name == n.Name })
	ours := func(o Network) bool { return o.Address == n.Address }
	if i < 0 || w.own[i].Address.Is4() != n.Address.Is4() || n.Address == w.known || slices.ContainsFunc(w.own, ours) {
		return false
	}
	device, err := kernel.Egress(rtnl.Flow{To: n.Address, From: w.own[i].Address})
	return err == nil && device == n.Name
}
