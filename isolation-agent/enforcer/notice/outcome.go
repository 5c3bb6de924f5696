package notice

import "errors"

// Outcome says what became of a notice. Its String is the label value of metrics.
type Outcome uint8

// The outcomes.
const (
	_             Outcome = iota
	Sent                  // it left
	SendError             // the socket did not take it
	UnknownSource         // none was sent: nobody knows where the source is
	Received              // it was accepted
	Clamped               // it was accepted, and its rate raised to the guarantee
	Malformed             // refused: it is no notice
	Forged                // refused: no live key made it
	Replayed              // refused: it came before, or too late
	Unproven              // refused: its process has not proven to be live
	Misdirected           // refused: it is for another node
	Unauthorised          // refused: the inventory does not allow it
	Refused               // sent, and refused by the peer: more of the source is asked for next
	outcomes
)

var outcomeNames = [outcomes]string{
	Sent: "sent", SendError: "send_error", UnknownSource: "unknown_source", Received: "received", Clamped: "floor",
	Malformed: "malformed", Forged: "hmac", Replayed: "replay", Unproven: "stale", Misdirected: "misdirected", Unauthorised: "authz",
	Refused: "refused",
}

func (o Outcome) String() string {
	if o == 0 || o >= outcomes {
		return "unknown"
	}
	return outcomeNames[o]
}

// OutcomeOf returns what an error of Parse or Peer.Accept means for the notice.
func OutcomeOf(err error) Outcome {
	for _, r := range []struct {
		err     error
		outcome Outcome
	}{
		{ErrMalformed, Malformed},
		{ErrForged, Forged},
		{ErrReplayed, Replayed},
		{ErrUnproven, Unproven},
		{ErrNotForUs, Misdirected},
	} {
		if errors.Is(err, r.err) {
			return r.outcome
		}
	}
	return Received
}
