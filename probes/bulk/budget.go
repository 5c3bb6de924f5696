package bulk

import (
	"slices"
	"sync"
	"time"
)

// LinkLocks let each link be used by one test at a time, whether it comes from here or
// arrives. Nobody waits for a link, so two nodes cannot wait for each other.
type LinkLocks struct {
	mu    sync.Mutex
	taken map[string]*holding
}

// holding is a link that a test has.
type holding struct {
	test  uint64 // 0 shares it with nobody
	users int    // what of the test is under way: connections, and the runner
	most  int    // of users
}

// acquire locks the link for a test, of which so many users may have it at a time; ok is false
// while another test has it.
func (l *LinkLocks) acquire(link string, test uint64, most int) (release func(), ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	h := l.taken[link]
	switch {
	case h == nil:
		h = &holding{test: test, most: most}
		if l.taken == nil {
			l.taken = make(map[string]*holding)
		}
		l.taken[link] = h
	case test == 0 || h.test != test || h.users >= h.most:
		return nil, false
	}
	h.users++
	return sync.OnceFunc(func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if h.users--; h.users == 0 {
			delete(l.taken, link)
		}
	}), true
}

// minutes in the window of the budget.
const minutes = 60

// budget bounds the bytes of any hour, to the minute.
type budget struct {
	mu    sync.Mutex
	limit uint64
	spent [minutes + 1]uint64 // by minute
	last  int64               // minute of the newest entry
}

func (b *budget) advance(now time.Time) {
	minute := now.Unix() / 60
	for m := max(b.last+1, minute-minutes); m <= minute; m++ {
		b.spent[index(m)] = 0
	}
	b.last = max(b.last, minute)
}

func (b *budget) setLimit(limit uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.limit = limit
}

func (b *budget) left(now time.Time) uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.leftLocked(now)
}

func (b *budget) leftLocked(now time.Time) uint64 {
	b.advance(now)
	var sum uint64
	for _, n := range b.spent {
		sum += n
	}
	return b.limit - min(sum, b.limit)
}

// take reserves bytes; refund returns what was not sent.
func (b *budget) take(now time.Time, n uint64) (refund func(unused uint64), ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if n > b.leftLocked(now) {
		return nil, false
	}
	minute := b.last
	b.spent[index(minute)] += n
	return func(unused uint64) {
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.last-minute <= minutes {
			b.spent[index(minute)] -= min(unused, n)
		}
	}, true
}

// Slots say who may test whom and when, computed alike on every node: a
// round-robin tournament, in which every node meets one other at a time.
type Slots struct {
	Nodes  []string // all that take part, in any order
	Length time.Duration
}

// index returns the number of the slot at a time, and the time when it ends.
func (s *Slots) index(now time.Time) (slot int64, end time.Time) {
	slot = now.UnixNano() / int64(s.Length)
	return slot, time.Unix(0, (slot+1)*int64(s.Length))
}

// peer returns whom node may test in a slot; ok is false when it may test nobody.
// Without Nodes it may test anybody at any time.
func (s *Slots) peer(node string, slot int64) (peer string, ok bool) {
	nodes := slices.Compact(slices.Sorted(slices.Values(s.Nodes)))
	self, found := slices.BinarySearch(nodes, node)
	if !found {
		return "", false
	}
	n := len(nodes) + len(nodes)%2 // with an odd number one has a rest
	if n < 2 {
		return "", false
	}
	// The circle method: the last stays, the others go round.
	round, back := int(slot/2%int64(n-1)), slot%2 == 1
	other := (2*round - self + 2*(n-1)) % (n - 1)
	switch {
	case self == n-1:
		other = round
	case other == self:
		other = n - 1
	}
	// In one half of the time the lower tests the higher, then the reverse.
	if other >= len(nodes) || (self < other) == back {
		return "", false
	}
	return nodes[other], true
}

// cycle returns how often a pair has had its turn.
func (s *Slots) cycle(slot int64) int64 {
	n := int64(len(s.Nodes) + len(s.Nodes)%2)
	if n < 2 {
		return slot
	}
	return slot / (2 * (n - 1))
}
