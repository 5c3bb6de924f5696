package sender

import "cmp"

// The queues of sessions: by the time the next probe is due, and by the earliest
// time at which a deadline may have passed.
const (
	dueQueue = iota
	settleQueue
	numQueues
)

// queue is a heap of sessions by the time in one of their timers. With many sessions
// each look at one misses the cache: so the times stand in the heap itself, and it has
// few levels, since each that an entry passes is a session whose index must be written.
type queue struct {
	entries []entry
	kind    int
}

// fanout is how many children an entry has: as many as share a line of the cache.
const fanout = 4

type entry struct {
	at      int64
	session *session
}

// before reports whether a comes before b.
func (q *queue) before(a, b *entry) bool {
	if a.at != b.at || q.kind != dueQueue {
		return a.at < b.at
	}
	s, t := a.session.target, b.session.target
	if s.Twin.Size == 0 && t.Twin.Size == 0 {
		return false
	}
	// Twins follow each other without anyone else between them.
	return cmp.Or(s.Twin.Group.Compare(&t.Twin.Group), cmp.Compare(s.place(a.at), t.place(b.at))) < 0
}

// put writes an entry to its place.
func (q *queue) put(i int, e entry) {
	q.entries[i] = e
	e.session.timers[q.kind].index = i
}

// up moves an entry, which belongs at i or above, to its place, and reports whether
// that is another one.
func (q *queue) up(i int, e entry) bool {
	from := i
	for i > 0 {
		parent := (i - 1) / fanout
		if !q.before(&e, &q.entries[parent]) {
			break
		}
		q.put(i, q.entries[parent])
		i = parent
	}
	q.put(i, e)
	return i != from
}

// down moves an entry, which belongs at i or below, to its place.
func (q *queue) down(i int, e entry) {
	for {
		child := fanout*i + 1
		if child >= len(q.entries) {
			break
		}
		for other := child + 1; other < min(fanout*(i+1)+1, len(q.entries)); other++ {
			if q.before(&q.entries[other], &q.entries[child]) {
				child = other
			}
		}
		if !q.before(&q.entries[child], &e) {
			break
		}
		q.put(i, q.entries[child])
		i = child
	}
	q.put(i, e)
}

// set puts the session into the queue, or moves it.
func (q *queue) set(s *session, at int64) {
	t := &s.timers[q.kind]
	t.at = at
	e := entry{at: at, session: s}
	if t.index < 0 {
		q.entries = append(q.entries, entry{})
		q.up(len(q.entries)-1, e)
		return
	}
	q.move(t.index, e)
}

// move puts an entry at i and from there to its place.
func (q *queue) move(i int, e entry) {
	if !q.up(i, e) {
		q.down(i, e)
	}
}

// settleGrid is the grid of the settle queue: a loss is counted at most this much
// after its deadline, so that not every target needs a wake-up of its own for it.
// Whether an answer was in time depends on its stamp alone.
const settleGrid = int64(10e6)

// onGrid returns the next point of the grid at or after the time.
func onGrid(at int64) int64 { return (at + settleGrid - 1) / settleGrid * settleGrid }

// setEarlier is set, unless the session is queued for an earlier time already.
func (q *queue) setEarlier(s *session, at int64) {
	if t := &s.timers[q.kind]; t.index < 0 || at < t.at {
		q.set(s, at)
	}
}

func (q *queue) remove(s *session) {
	t := &s.timers[q.kind]
	i, last := t.index, len(q.entries)-1
	if i < 0 {
		return
	}
	t.index = -1
	e := q.entries[last]
	q.entries[last] = entry{}
	q.entries = q.entries[:last]
	if i < last {
		q.move(i, e)
	}
}

// first returns the session that is due first, or nil.
func (q *queue) first() *session {
	if len(q.entries) == 0 {
		return nil
	}
	return q.entries[0].session
}

// at returns the time of the first session; 0 when the queue is empty.
func (q *queue) at() int64 {
	if len(q.entries) == 0 {
		return 0
	}
	return q.entries[0].at
}
