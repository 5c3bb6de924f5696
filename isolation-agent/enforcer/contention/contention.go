// Package contention measures who takes what others wait for: on a full link, what a tenant
// sends beyond its guarantee while another tenant's frames wait there.
//
// It is no verdict. Bandwidth that nobody else needs is everybody's, and two tenants that both
// send all they can take from each other. It says what is certain: the link was full, this one
// waited, and that one had more than it bought.
package contention

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"vigia/isolation-agent/enforcer/contract"
	"vigia/isolation-agent/enforcer/scheduling"
)

const (
	// Full is the share of a link's limit from which on it counts as full.
	Full = 0.9
	// beyond is the share of a guarantee up to which a tenant is within it: bursts.
	beyond = 1.05
	// window is how long a gauge looks back.
	window = 5 * time.Second
	// slowest is the longest time between two readings of all classes while a link stays full.
	slowest = time.Second
	// most is how many pairs are kept apart; others are counted as taken by Others.
	most = 64
)

// Others stands for the takers of pairs that are too many to be kept apart.
const Others = "_others"

// Pair is who waited, and who took.
type Pair struct {
	Tenant   string // that waited
	By       string // that took
	Received bool   // on the way to the tenants; else on the way from them
}

// Taken is what one tenant took from another.
type Taken struct {
	Pair
	Bytes          float64 // so far
	BytesPerSecond float64 // on average over the last seconds
}

// device is one direction of a link.
type device struct {
	at     time.Time // of the reading before of the root class
	root   uint64
	since  time.Time                  // it has been full; valid if read is
	read   time.Time                  // of the reading before of all classes; zero if it was not full since
	usages map[contract.Owner]reading // then
}

type reading struct {
	bytes uint64
	drops uint32
}

type counter struct {
	total float64
	steps []step // of the last window
}

type step struct {
	at    time.Time
	bytes float64
}

// Book adds up readings of the links' classes. It is safe for concurrent use.
type Book struct {
	mu      sync.Mutex
	devices map[string]*device
	pairs   map[Pair]*counter
}

// NewBook returns an empty book.
func NewBook() *Book {
	return &Book{devices: make(map[string]*device), pairs: make(map[Pair]*counter)}
}

// Filled reports whether all classes of a device are worth reading now: it has been full since it was
// last asked about, by the bytes that have left its root class, and the reading before is half as old
// as that state, or slowest. A short crowd is seen closely, and one that stays costs little.
func (b *Book) Filled(now time.Time, name string, root, limit uint64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	d := b.devices[name]
	if d == nil {
		d = new(device)
		b.devices[name] = d
	}
	passed := now.Sub(d.at).Seconds()
	last := d.root
	known := !d.at.IsZero() && passed > 0 && root >= last
	d.at, d.root = now, root
	full := known && float64(root-last) >= Full*float64(limit)*passed
	switch {
	case !full:
		d.read, d.usages = time.Time{}, nil
		return false
	case d.read.IsZero():
		d.since = now
		return true
	}
	return now.Sub(d.read)+Interval/4 > min(slowest, now.Sub(d.since)/2) // a look may come a little early
}

// Add counts what tenants took from each other on a device since the reading before, if it has been
// full since then: ask Filled first. The first reading after the link filled up only begins.
func (b *Book) Add(now time.Time, name string, received bool, usages []scheduling.Usage) {
	b.mu.Lock()
	defer b.mu.Unlock()
	d := b.devices[name]
	before, passed := d.usages, now.Sub(d.read)
	d.read, d.usages = now, make(map[contract.Owner]reading, len(usages))
	list := make([]share, 0, len(usages))
	for i := range usages {
		u := &usages[i]
		d.usages[u.Owner] = reading{u.Bytes, u.Drops}
		last, known := before[u.Owner]
		if !known || u.Bytes < last.bytes {
			continue
		}
		list = append(list, shareOf(u, last, passed.Seconds()))
	}
	for pair, bytes := range taken(list, received) {
		b.add(now, pair, bytes)
	}
}

// share is a contract's part in a stretch in which the link was full.
type share struct {
	tenant    string
	guarantee float64 // bytes per second
	excess    float64 // bytes beyond the guarantee
	waits     bool
}

func shareOf(u *scheduling.Usage, last reading, seconds float64) share {
	sent, guarantee := float64(u.Bytes-last.bytes), float64(u.Guarantee)
	s := share{tenant: u.Owner.Tenant, guarantee: guarantee}
	if sent > beyond*guarantee*seconds {
		s.excess = sent - guarantee*seconds
	}
	// Who is at its own ceiling waits for nobody.
	s.waits = (u.Backlog > 0 || u.Drops != last.drops) && sent < Full*float64(u.Ceiling)*seconds
	return s
}

// taken divides what each tenant had beyond its guarantees among those who waited, as their
// guarantees are.
func taken(list []share, received bool) map[Pair]float64 {
	out := make(map[Pair]float64)
	for i := range list {
		taker := &list[i]
		if taker.excess <= 0 {
			continue
		}
		var sum float64
		for j := range list {
			if w := &list[j]; w.waits && w.tenant != taker.tenant {
				sum += w.guarantee
			}
		}
		for j := range list {
			if w := &list[j]; w.waits && w.tenant != taker.tenant && sum > 0 {
				out[Pair{w.tenant, taker.tenant, received}] += taker.excess * w.guarantee / sum
			}
		}
	}
	return out
}

func (b *Book) add(now time.Time, pair Pair, bytes float64) {
	c := b.pairs[pair]
	if c == nil && len(b.pairs) >= most {
		pair.By = Others
		c = b.pairs[pair]
	}
	if c == nil {
		c = new(counter)
		b.pairs[pair] = c
	}
	c.total += bytes
	c.forget(now)
	c.steps = append(c.steps, step{now, bytes})
}

// forget drops what is older than the window.
func (c *counter) forget(now time.Time) {
	old := 0
	for old < len(c.steps) && now.Sub(c.steps[old].at) >= window {
		old++
	}
	c.steps = slices.Delete(c.steps, 0, old)
}

// Taken returns what tenants took from each other, what is most now first.
func (b *Book) Taken(now time.Time) []Taken {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := make([]Taken, 0, len(b.pairs))
	for pair, c := range b.pairs {
		c.forget(now)
		t := Taken{Pair: pair, Bytes: c.total}
		for _, s := range c.steps {
			t.BytesPerSecond += s.bytes / window.Seconds()
		}
		out = append(out, t)
	}
	slices.SortFunc(out, func(x, y Taken) int {
		return cmp.Or(cmp.Compare(y.BytesPerSecond, x.BytesPerSecond), cmp.Compare(x.Tenant, y.Tenant), cmp.Compare(x.By, y.By))
	})
	return out
}

// Keep forgets devices that are no links any more, and pairs of tenants without a contract.
func (b *Book) Keep(links, tenants map[string]bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for name := range b.devices {
		if !links[name] {
			delete(b.devices, name)
		}
	}
	for pair := range b.pairs {
		if !tenants[pair.Tenant] || (pair.By != Others && !tenants[pair.By]) {
			delete(b.pairs, pair)
		}
	}
}
