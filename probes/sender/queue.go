package sender

import (
	"cmp"
	"container/heap"
)

// The queues of sessions: by the time the next probe is due, and by the earliest
// time at which a deadline may have passed.
const (
	dueQueue = iota
	settleQueue
	numQueues
)

// queue is a heap of sessions by the time in one of their timers.
type queue struct {
	sessions []*session
	which    int
}

// Len, Less, Swap, Push and Pop are for container/heap.
func (q *queue) Len() int { return len(q.sessions) }

func (q *queue) Less(i, j int) bool {
	a, b := q.sessions[i], q.sessions[j]
	at, other := a.timers[q.which].at, b.timers[q.which].at
	if at != other || q.which != dueQueue || a.target.Twin.Size == 0 && b.target.Twin.Size == 0 {
		return at < other
	}
	// Twins follow each other without anyone else between them.
	return cmp.Or(a.target.Twin.Group.Compare(&b.target.Twin.Group), cmp.Compare(a.target.place(at), b.target.place(at))) < 0
}

func (q *queue) Swap(i, j int) {
	q.sessions[i], q.sessions[j] = q.sessions[j], q.sessions[i]
	q.sessions[i].timers[q.which].index = i
	q.sessions[j].timers[q.which].index = j
}

func (q *queue) Push(x any) {
	s := x.(*session)
	s.timers[q.which].index = len(q.sessions)
	q.sessions = append(q.sessions, s)
}

func (q *queue) Pop() any {
	last := len(q.sessions) - 1
	s := q.sessions[last]
	q.sessions[last] = nil
	q.sessions = q.sessions[:last]
	s.timers[q.which].index = -1
	return s
}

// set puts the session into the queue, or moves it.
func (q *queue) set(s *session, at int64) {
	t := &s.timers[q.which]
	t.at = at
	if t.index < 0 {
		heap.Push(q, s)
		return
	}
	heap.Fix(q, t.index)
}

// settleGrid is the grid of the settle queue: a loss is counted at most this much
// after its deadline, so that not every target needs a wake-up of its own for it.
// Whether an answer was in time depends on its stamp alone.
const settleGrid = int64(10e6)

// onGrid returns the next point of the grid at or after the time.
func onGrid(at int64) int64 { return (at + settleGrid - 1) / settleGrid * settleGrid }

// setEarlier is set, unless the session is queued for an earlier time already.
func (q *queue) setEarlier(s *session, at int64) {
	if t := &s.timers[q.which]; t.index < 0 || at < t.at {
		q.set(s, at)
	}
}

func (q *queue) remove(s *session) {
	if i := s.timers[q.which].index; i >= 0 {
		heap.Remove(q, i)
	}
}

// first returns the session that is due first, or nil.
func (q *queue) first() *session {
	if len(q.sessions) == 0 {
		return nil
	}
	return q.sessions[0]
}

// at returns the time of the first session; 0 when the queue is empty.
func (q *queue) at() int64 {
	if len(q.sessions) == 0 {
		return 0
	}
	return q.sessions[0].timers[q.which].at
}
