// Package stamp probes with STAMP test packets (RFC 8762, RFC 8972): the Session-Sender's
// side. The wire format is in vigia/probes/stamp.
package stamp

import (
	"bytes"
	"fmt"

	"vigia/probes/protocol"
	wire "vigia/probes/stamp"
	"vigia/probes/timestamping"
)

// Name is the protocol's name in the configuration.
const Name = "stamp"

// defaultSize is the least size with kernel delays in unauthenticated mode.
const defaultSize = 64

// Protocol is STAMP, authenticated when there are keys.
type Protocol struct{ Keys wire.Keys }

var (
	_ protocol.Packets  = Protocol{}
	_ protocol.Keyed    = Protocol{}
	_ protocol.Searcher = Protocol{}

	_ protocol.LossLocator = (*session)(nil)
)

// Traits say what the protocol is like.
func (Protocol) Traits() protocol.Traits {
	return protocol.Traits{
		Name: Name, Title: "STAMP", Noun: "a STAMP packet",
		Transport: timestamping.UDP, Port: wire.Port, Flows: protocol.PortFlows,
		Size: defaultSize, Sizes: "44, 48 to 64, or 68 to 65507", TwoWay: true,
	}
}

// LoadKeys returns the protocol in authenticated mode, with the keys of a file.
func (Protocol) LoadKeys(path string) (protocol.Protocol, error) {
	keys, err := wire.LoadKeys(path)
	return Protocol{Keys: keys}, err
}

// CheckSize says what is wrong with the size of a probe, and what to write instead.
func (p Protocol) CheckSize(size int) (problem, fix string) {
	mode := p.Keys.Mode()
	if least := mode.BaseSize(); size < least || size > wire.MaxSize {
		return "is not a possible size of a STAMP packet", fmt.Sprintf("write %d to %d bytes of UDP payload", least, wire.MaxSize)
	}
	if _, ok := wire.NewLayout(mode, size); !ok {
		next := size
		for ok = false; !ok; {
			next++
			_, ok = wire.NewLayout(mode, next)
		}
		return "cannot be made up of whole TLVs (RFC 8972)", fmt.Sprintf("write %d", next)
	}
	return "", ""
}

// session is a STAMP session.
type session struct {
	layout   wire.Layout
	keys     *wire.Keyring // nil in unauthenticated mode
	packet   []byte
	padding  []byte
	hardware bool // the packet asks for hardware stamps
	evidence lossEvidence
}

// NewSession returns what is kept of a session.
func (p Protocol) NewSession(s *protocol.Session) any {
	ses := &session{keys: p.Keys.Keyring()}
	ses.layout, _ = wire.NewLayout(p.Keys.Mode(), s.Size)
	ses.packet = ses.layout.New(uint64(s.Size)<<32 | uint64(s.Port))
	ses.layout.PutService(ses.packet, wire.ClassOfService{Wanted: s.DSCP})
	ses.padding = bytes.Clone(ses.layout.PaddingOf(ses.packet))
	ses.evidence = newLossEvidence(s, ses.layout.CanAsk())
	s.MaxAnswer = s.Size
	return ses
}

// Delivery says how far an unanswered probe came.
func (ses *session) Delivery(slot *protocol.Slot) protocol.Delivery {
	return ses.evidence.delivery(slot)
}

// Overflowed attributes a probe that did not arrive to the reflector's host.
func (ses *session) Overflowed(sequence uint64) bool {
	return ses.evidence.overflow.takeCredit(sequence)
}

// AnswersNeeded is how many answers to later probes show that a probe has not arrived.
func (ses *session) AnswersNeeded() int { return int(ses.evidence.reorderLimit) }

// intact reports whether a reply brings the padding back unchanged. A reflector
// that does not know the padding TLV may do with it what it likes; one that does
// returns the TLV with its flags cleared.
func (ses *session) intact(reply []byte) bool {
	if len(reply) > ses.layout.Size {
		return false
	}
	got := ses.layout.PaddingOf(reply)
	if len(got) == 0 {
		return true
	}
	t := wire.TLV(reply[ses.layout.Size-len(got)-wire.TLVHeaderSize:])
	return t.Type() != wire.TypeExtraPadding || t.Flags() != 0 || bytes.Equal(got, ses.padding)
}
