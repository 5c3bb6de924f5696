package stamp

import (
	"time"

	"vigia/probes/protocol"
	wire "vigia/probes/stamp"
)

// lossEvidence is what a session knows of where its probes are lost. It says so only when the
// answers leave no doubt:
//
// The Received Window TLV, which is ours, names which of the last 64 probes had arrived
// when the answer that carries it was made. What is missing there has not arrived, unless
// it may still be under way: a packet is taken to be overtaken by fewer than reorderLimit
// others.
//
// A stateful reflector numbers its answers (RFC 8762 section 4.3). Once the deadline of a
// probe has passed, the numbers that have not come are of answers that were lost, and
// between two answers from before and after the probe they are compared with the probes
// that nobody answered: no number is missing, so none of these has arrived; as many are
// missing as there are probes, so all have. Where it is some, nothing is said. Nor do
// numbers tell which probe was duplicated or overtaken on the way there; reflectors
// without the TLV are taken to get each probe once and in order, until an answer shows
// that they do not.
type lossEvidence struct {
	session      *protocol.Session
	canAsk       bool // for the window in place of the follow-up
	reorderLimit uint64

	// numbers are the answers by the reflector's number, a ring.
	numbers []numberedAnswer
	epoch   epoch
	windows windowState

	stateful   bool // the numbers are the reflector's own, not copies of ours
	ownNumbers int  // answers that have another number than their probe, up to stateChecks
	disordered bool // probes were overtaken on the way there
	duplicated bool // probes arrived more than once
	refused    bool // answers were refused by the reflector's kernel

	overflow overflow
	asking   bool   // the next probe shall ask for the window
	asked    uint64 // sequence number of the last that did

	verdict verdict
}

// numberedAnswer is an answer under the reflector's number.
type numberedAnswer struct{ number, sequence uint32 }

// epoch is what was answered since the reflector began to count.
type epoch struct {
	any   bool
	since uint64 // its first answered probe; 0 for the first run of the session
	// latest is the highest sequence number answered, and number the answer's.
	latest uint64
	number uint32
	top    uint32 // the highest number
	count  uint64 // of answers, to notice new ones
}

// windowState is what was read of received windows.
type windowState struct {
	any    bool
	number uint32 // of the answer with the newest
}

const (
	// reorderExtent is the least number of later packets by which no packet is
	// overtaken (RFC 4737 section 4.2.1).
	reorderExtent = 3
	// slow is from which interval on no packet is overtaken at all.
	slow = 100 * time.Millisecond
	// stateChecks is how many answers must have another number than their probes
	// before the reflector is taken to count: one may be damaged.
	stateChecks = 2
)

func newLossEvidence(s *protocol.Session, canAsk bool) lossEvidence {
	e := lossEvidence{session: s, canAsk: canAsk, reorderLimit: reorderExtent, numbers: make([]numberedAnswer, s.Window.Capacity())}
	if s.Interval >= slow {
		e.reorderLimit = 1
	}
	for i := range e.numbers {
		e.numbers[i].number = uint32(i) + 1 // no number that belongs here
	}
	return e
}

// answeredAs returns the probe whose first answer has the reflector's number, or nil.
func (e *lossEvidence) answeredAs(number uint32) *protocol.Slot {
	if !e.seen(number) {
		return nil
	}
	sequence, ok := e.session.Window.Expand(e.numbers[e.at(number)].sequence)
	slot := e.session.Window.Lookup(sequence)
	if !ok || slot == nil || !slot.Value.Numbered || slot.Value.Number != number {
		return nil
	}
	return slot
}

func (e *lossEvidence) at(number uint32) uint64 { return uint64(number) & uint64(len(e.numbers)-1) }

// seen reports whether an answer with the number has come, as far as is remembered.
func (e *lossEvidence) seen(number uint32) bool { return e.numbers[e.at(number)].number == number }

// learn takes an answer to the probe with the sequence number.
func (e *lossEvidence) learn(sequence uint64, number uint32, t *tlvAnswers, ending bool) {
	e.note(sequence, number)
	e.learnState(sequence, number, t)
	if t.hasWindow {
		e.learnWindow(number, &t.window)
	}
	e.askForWindow(sequence, ending)
}

// note takes the number of an answer.
func (e *lossEvidence) note(sequence uint64, number uint32) {
	r := &e.epoch
	if r.any && e.restarted(sequence, number) {
		*r, e.windows, e.overflow.credit = epoch{since: sequence, count: r.count}, windowState{}, 0
	}
	switch {
	case !r.any:
		r.latest, r.number, r.top = sequence, number, number
	case sequence > r.latest:
		e.disordered = e.disordered || int32(number-r.number) < 0
		r.latest, r.number = sequence, number
	case sequence < r.latest:
		e.disordered = e.disordered || int32(number-r.number) > 0
	}
	r.any = true
	r.count++
	if int32(number-r.top) > 0 {
		r.top = number
	}
	e.numbers[e.at(number)] = numberedAnswer{number: number, sequence: uint32(sequence)}
	slot := e.session.Window.Lookup(sequence)
	switch {
	case slot == nil:
	case !slot.Value.Numbered:
		slot.Value.Number, slot.Value.Numbered = number, true
	case slot.Value.Number != number:
		e.duplicated = true
	}
}

// restarted reports whether the reflector has begun to count anew: an answer to a probe
// that nothing else can have overtaken has a number that was there before.
func (e *lossEvidence) restarted(sequence uint64, number uint32) bool {
	behind := int32(e.epoch.number - number)
	return sequence >= e.epoch.latest+e.reorderLimit && behind >= 0 || sequence > e.epoch.latest && behind > wire.WindowBits
}

// learnState finds out whether the reflector counts its answers, and how it fares.
func (e *lossEvidence) learnState(sequence uint64, number uint32, t *tlvAnswers) {
	if number != uint32(sequence) && e.ownNumbers < stateChecks {
		e.ownNumbers++
	}
	// A stateless reflector has nothing to follow up (RFC 8972 section 4.7).
	e.stateful = e.stateful || e.ownNumbers == stateChecks || t.hasWindow || t.followUp.Timestamp != 0
	// A reflector's counters may be of anything. They are of this session when it
	// has received as many packets as it has numbered.
	if m := &t.measurement; t.hasMeasurement && m.ReflectorRX == number+1 && m.ReflectorTX != m.ReflectorRX {
		e.refused = true
	}
}

// learnWindow takes a received window from the answer with a number. Answers overtake each
// other: what is known from a later one stays.
func (e *lossEvidence) learnWindow(number uint32, w *wire.ReceivedWindow) {
	highest, ok := e.session.Window.Expand(w.Highest)
	if !ok {
		return
	}
	newest := !e.windows.any || int32(number-e.windows.number) > 0
	if newest {
		e.overflow.update(w.Overflowed, highest)
		e.windows.any, e.windows.number = true, number
	}
	oldest := e.session.Window.Oldest()
	if oldest == nil {
		return
	}
	for sequence := max(oldest.Sequence, highest-min(highest, wire.WindowBits-1)); sequence <= highest; sequence++ {
		slot := e.session.Window.Lookup(sequence)
		if slot == nil || slot.Value.State != protocol.InFlight {
			continue
		}
		p := &slot.Value
		switch {
		case !newest && p.Delivery != protocol.DeliveryUnknown:
		case w.Mask>>(highest-sequence)&1 != 0:
			p.Delivery = protocol.Delivered
		case sequence < e.epoch.since:
		case p.Delivery == protocol.Delivered, sequence+e.reorderLimit <= highest:
			p.Delivery = protocol.NotDelivered // a mark that is gone: the answer was refused
		}
	}
}

// askForWindow lets the next probe ask for the received window when probes are missing
// before the one that was answered, and there is no room to ask with every one.
func (e *lossEvidence) askForWindow(sequence uint64, ending bool) {
	if !e.canAsk || sequence < e.asked {
		return
	}
	oldest := e.session.Window.Oldest()
	if oldest == nil {
		return
	}
	overtaken := e.reorderLimit
	if ending {
		overtaken = max(overtaken, 2) - 1 // the probe that asks is one more
	}
	for at := max(oldest.Sequence, sequence-min(sequence, wire.WindowBits-1)); at+overtaken <= sequence; at++ {
		if slot := e.session.Window.Lookup(at); slot != nil && slot.Value.State == protocol.InFlight && slot.Value.Delivery == protocol.DeliveryUnknown {
			e.asking = true
			return
		}
	}
}

// takeAsk reports whether the next probe shall ask for the received window, once.
func (e *lossEvidence) takeAsk(sequence uint64) bool {
	if !e.asking {
		return false
	}
	e.asking, e.asked = false, sequence
	return true
}

// overflow is what the reflector has reported: probes that its own host lost.
type overflow struct {
	reported uint32 // as last read
	credit   uint32 // of that, not attributed to a loss yet
	upTo     uint64 // the credit is for probes up to this
}

func (o *overflow) update(reported uint32, highest uint64) {
	if more := reported - o.reported; int32(more) > 0 {
		o.credit += more
		o.upTo = highest
	} else if more != 0 {
		o.credit = 0 // the reflector began anew
	}
	o.reported = reported
}

// takeCredit attributes a probe that did not arrive to the reflector's host, if it had reported
// one by then.
func (o *overflow) takeCredit(sequence uint64) bool {
	if sequence > o.upTo {
		o.credit = 0
	}
	if o.credit == 0 {
		return false
	}
	o.credit--
	return true
}

// delivery says how far an unanswered probe came.
func (e *lossEvidence) delivery(slot *protocol.Slot) protocol.Delivery {
	if w := slot.Value.Delivery; w != protocol.DeliveryUnknown || !e.stateful {
		return w
	}
	return e.compareNumbers(slot.Sequence)
}
