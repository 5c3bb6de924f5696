package accounting

import "math"

type state uint8

const (
	unused    state = iota
	inFlight        // sent, deadline not reached
	received        // answered in time
	lost            // deadline reached, or never sent
	late            // lost, and answered afterwards
	uncounted       // sent beside the measurement
)

// Slot is one probe. Value belongs to the caller.
type Slot[T any] struct {
	Sequence uint64
	Deadline int64 // absolute, in nanoseconds of the caller's clock
	Value    T
	state    state
}

// Outcome is what an answer means for the accounts.
type Outcome uint8

// The outcomes of an answer.
const (
	Invalid   Outcome = iota // no such probe was sent
	Received                 // answered in time, for the first time
	Duplicate                // answered before
	Late                     // lost before this answer
	Overdue                  // lost by this answer, which comes after the deadline
	Forgotten                // so old that nothing is known any more; counted as late
	Uncounted                // answer to a probe beside the measurement
)

// Window holds the probes of one session that may still be answered: a ring, so
// that memory is bounded however many are lost. Deadlines must not decrease from
// probe to probe.
type Window[T any] struct {
	counts  *Counts
	slots   []Slot[T]
	mask    uint64
	next    uint64 // sequence number of the next probe
	tail    uint64 // no probe below it is in flight
	highest uint64 // the highest sequence number received
	any     bool   // whether one was received
}

// MinCapacity is the least number of probes that a window remembers, so that
// duplicates and late answers are told apart at low rates, too.
const MinCapacity = 64

// NewWindow returns a window that adds to counts and remembers at least the last
// capacity probes.
func NewWindow[T any](counts *Counts, capacity int) *Window[T] {
	size := MinCapacity
	for size < capacity {
		size *= 2
	}
	return &Window[T]{counts: counts, slots: make([]Slot[T], size), mask: uint64(size - 1)}
}

// Capacity returns how many probes the window remembers, a power of two.
func (w *Window[T]) Capacity() int { return len(w.slots) }

// Adopt makes the window add to other counts. It must not have been used before.
func (w *Window[T]) Adopt(counts *Counts) { w.counts = counts }

// Next returns the sequence number of the next probe.
func (w *Window[T]) Next() uint64 { return w.next }

// Begin takes the next sequence number for a probe that is about to be sent.
// Handed or Refused must follow.
func (w *Window[T]) Begin(deadline int64) *Slot[T] {
	return w.begin(deadline, inFlight)
}

// BeginUncounted does the same for a probe that is no part of the measurement.
// Nothing must follow.
func (w *Window[T]) BeginUncounted() *Slot[T] {
	return w.begin(math.MaxInt64, uncounted)
}

func (w *Window[T]) begin(deadline int64, s state) *Slot[T] {
	slot := &w.slots[w.next&w.mask]
	if slot.state == inFlight {
		w.Lose(slot, Unknown)
	}
	*slot = Slot[T]{Sequence: w.next, Deadline: deadline, state: s}
	w.next++
	return slot
}

// Handed says that the kernel took the probe.
func (w *Window[T]) Handed(*Slot[T]) { w.counts.Handed++ }

// Refused says that the kernel did not take the probe, which is thereby lost.
func (w *Window[T]) Refused(slot *Slot[T]) {
	w.counts.Refused++
	w.Lose(slot, SendError)
}

// Lose settles a probe in flight as lost; it returns false for any other.
func (w *Window[T]) Lose(slot *Slot[T], cause Cause) bool {
	if slot.state != inFlight {
		return false
	}
	slot.state = lost
	w.counts.Sent++
	w.counts.Lost[cause]++
	return true
}

// Recycled returns the old probe whose slot the next one will take, or nil.
func (w *Window[T]) Recycled() *Slot[T] {
	slot := &w.slots[w.next&w.mask]
	if slot.state == unused {
		return nil
	}
	return slot
}

// Expand returns the full sequence number of which an answer carries the low 32
// bits. ok is false when no such probe was sent.
func (w *Window[T]) Expand(low uint32) (sequence uint64, ok bool) {
	back := uint64(uint32(w.next) - low)
	if back == 0 || back > w.next || back > 1<<31 {
		return 0, false
	}
	return w.next - back, true
}

// Lookup returns the probe, or nil when it is no longer remembered.
func (w *Window[T]) Lookup(sequence uint64) *Slot[T] {
	slot := &w.slots[sequence&w.mask]
	if slot.state == unused || slot.Sequence != sequence {
		return nil
	}
	return slot
}

// Answer settles the probe with an answer that arrived at the given time.
func (w *Window[T]) Answer(sequence uint64, at int64) Outcome {
	if sequence >= w.next {
		return Invalid
	}
	slot := w.Lookup(sequence)
	if slot == nil {
		w.counts.Late++
		return Forgotten
	}
	switch slot.state {
	case inFlight:
		if at > slot.Deadline {
			w.Lose(slot, Unknown)
			slot.state = late
			w.counts.Late++
			return Overdue
		}
		w.receive(slot)
		return Received
	case lost:
		slot.state = late
		w.counts.Late++
		return Late
	case uncounted:
		return Uncounted
	}
	w.counts.Duplicate++
	return Duplicate
}

func (w *Window[T]) receive(slot *Slot[T]) {
	slot.state = received
	w.counts.Sent++
	w.counts.Received++
	if w.any && slot.Sequence < w.highest {
		w.counts.Reordered++
		return
	}
	w.any, w.highest = true, slot.Sequence
}

// Overdue returns the oldest probe in flight whose deadline is before now, or
// nil. The caller settles it with Lose.
func (w *Window[T]) Overdue(now int64) *Slot[T] {
	slot := w.oldest()
	if slot == nil || slot.Deadline >= now {
		return nil
	}
	return slot
}

// Deadline returns the earliest deadline of a probe in flight; ok is false when
// there is none.
func (w *Window[T]) Deadline() (at int64, ok bool) {
	slot := w.oldest()
	if slot == nil {
		return 0, false
	}
	return slot.Deadline, true
}

func (w *Window[T]) oldest() *Slot[T] {
	if size := uint64(len(w.slots)); w.next-w.tail > size {
		w.tail = w.next - size
	}
	for ; w.tail < w.next; w.tail++ {
		if slot := &w.slots[w.tail&w.mask]; slot.state == inFlight {
			return slot
		}
	}
	return nil
}

// Oldest returns the oldest probe in flight, or nil.
func (w *Window[T]) Oldest() *Slot[T] { return w.oldest() }

// Remembered returns the lowest sequence number that may still be remembered.
func (w *Window[T]) Remembered() uint64 { return w.next - min(w.next, uint64(len(w.slots))) }

// InFlight counts the probes in flight by looking at each that may be.
func (w *Window[T]) InFlight() uint64 {
	w.oldest()
	var n uint64
	for sequence := w.tail; sequence < w.next; sequence++ {
		if w.slots[sequence&w.mask].state == inFlight {
			n++
		}
	}
	return n
}
