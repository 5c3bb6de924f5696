package notice

import (
	"crypto/hkdf"
	"crypto/sha256"
	"errors"
	"fmt"
)

// Why an authenticated notice is not acted upon.
var (
	ErrReplayed = errors.New("was received before, or is too old")
	ErrUnproven = errors.New("comes from a process that has not proven to be live")
	ErrNotForUs = errors.New("is for another node")
)

// windowSize is how many sequence numbers behind the highest may still come
// (RFC 4303 section 3.4.3 describes such a window).
const windowSize = 64

// Window accepts every sequence number once.
type Window struct {
	highest uint64
	seen    uint64 // bit i: highest - i
}

// Accept reports whether seq is new, and remembers it.
func (w *Window) Accept(seq uint64) bool {
	switch {
	case seq == 0:
		return false
	case seq > w.highest:
		shift := seq - w.highest
		if shift >= windowSize {
			w.seen = 0
		} else {
			w.seen <<= shift
		}
		w.highest, w.seen = seq, w.seen|1
		return true
	case w.highest-seq >= windowSize:
		return false
	}
	bit := uint64(1) << (w.highest - seq)
	if w.seen&bit != 0 {
		return false
	}
	w.seen |= bit
	return true
}

// Peer is what is known of another node's process. The boot that is accepted has
// answered a challenge of ours; notices of any other are refused.
type Peer struct {
	boot      uint64
	window    Window
	challenge uint64 // outstanding, 0 = none
}

// Known reports whether a process of the peer has proven to be live.
func (p *Peer) Known() bool { return p.boot != 0 }

// Challenge remembers a nonce that a live process must answer.
func (p *Peer) Challenge(nonce uint64) { p.challenge = nonce }

// Forget drops what is known, so that the peer must prove itself again.
func (p *Peer) Forget() { *p = Peer{} }

// Accept decides on an authenticated notice of the peer. A Hello is always let
// through: it changes nothing but that it is answered.
func (p *Peer) Accept(n *Notice) error {
	switch {
	case n.Kind == Hello:
		return nil
	case n.Kind == HelloAck:
		if p.challenge == 0 || n.Nonce != p.challenge || n.Boot == 0 {
			return ErrReplayed
		}
		p.challenge = 0
		if p.boot != n.Boot {
			p.boot, p.window = n.Boot, Window{}
		}
	case p.boot == 0 || n.Boot != p.boot:
		return ErrUnproven
	}
	if !p.window.Accept(n.Seq) {
		return ErrReplayed
	}
	return nil
}

// PairKey derives the key of two nodes from a master key (HKDF, RFC 5869). Both
// get the same whichever asks.
func PairKey(master []byte, a, b string, id uint16) ([]byte, error) {
	if a > b {
		a, b = b, a
	}
	key, err := hkdf.Key(sha256.New, master, nil, fmt.Sprintf("vigia notice %d %q %q", id, a, b), MinKey)
	if err != nil {
		return nil, fmt.Errorf("derive key: %w", err)
	}
	return key, nil
}
