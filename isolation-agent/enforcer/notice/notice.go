// Package notice is the protocol between enforcers: a receiver's enforcer asks the
// enforcer of the sender to limit a vport, and gets an answer.
//
// A notice carries state, not a change: a lost one is made good by the next. It is
// authenticated by HMAC-SHA-256 (RFC 2104, truncated as RFC 2104 section 5 allows)
// under a key that the two nodes share, and cannot be replayed: every sender counts,
// and a restarted one first proves that it is there (Hello).
package notice

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"time"
)

// Kind says what a notice is.
type Kind uint8

// The kinds.
const (
	Any      Kind = 0 // in metrics: of a datagram that was refused before its kind was known
	Hello    Kind = 1 // of a process that the peer does not know yet; Nonce is a challenge
	HelloAck Kind = 2 // answers it; Nonce is the challenge, Boot is proven to be live
	Congest  Kind = 3 // limit the source
	Release  Kind = 4 // the limit is not needed any more
	Ack      Kind = 5 // what is in force now
	Nack     Kind = 6 // refused, see Reason
)

func (k Kind) String() string {
	names := [...]string{Any: "any", Hello: "hello", HelloAck: "hello_ack", Congest: "congest", Release: "release", Ack: "ack", Nack: "nack"}
	if int(k) < len(names) {
		return names[k]
	}
	return "unknown"
}

// Reason says why a notice was refused.
type Reason uint8

// The reasons of a Nack.
const (
	NoReason Reason = iota
	NotHere         // the source is no vport of this node
	NotYours        // the destination is no vport of the asking node
	Failed          // the kernel refused
)

// Flags of a notice.
const (
	AtFloor uint8 = 1 << 0 // Ack: the limit is at the source's guarantee
	Plain   uint8 = 1 << 1 // Congest: without an advised rate, halve
)

// Notice is one message. Names of nodes and vports travel as 64-bit hashes: the
// inventory of the site says what they mean.
type Notice struct {
	Kind     Kind
	KeyID    uint16
	From, To uint64 // nodes, see ID
	Boot     uint64 // of the sending process
	Seq      uint64 // counts up within a boot, from 1
	Nonce    uint64 // Hello and HelloAck: the challenge; Ack and Nack: Seq of what is answered
	// Congest, Release, Ack, Nack:
	Source      [6]byte // MAC address of the sending vport's guest
	Destination [4]byte // address that the source sends to, as the BPF programs fold it; zero = all
	Tenant      uint64  // of the source
	Measured    uint64  // what arrives from the source, bytes per second
	Dropped     uint64  // of it, bytes per second
	Rate        uint64  // Congest: advised; Ack: in force; bytes per second
	Lease       time.Duration
	Severity    uint8
	Flags       uint8
	Reason      Reason
	Sources     uint16 // Congest: how many sources share the guarantee of the destination
}

// Wire format: big endian, fixed size.
const (
	magic   = 0x7669 // "vi"
	version = 1
	body    = 104
	macSize = 16
	// Size of a notice on the wire, in bytes.
	Size = body + macSize
	// MinKey is the shortest key, in bytes.
	MinKey = 32
)

// Append appends the wire form, authenticated under key, to b.
func (n *Notice) Append(b, key []byte) []byte {
	start := len(b)
	b = append(b, make([]byte, body)...)
	w := b[start:]
	be := binary.BigEndian
	be.PutUint16(w, magic)
	w[2], w[3] = version, byte(n.Kind)
	be.PutUint16(w[4:], n.KeyID)
	w[6], w[7] = n.Severity, n.Flags
	for i, v := range []uint64{n.From, n.To, n.Boot, n.Seq, n.Nonce, n.Tenant, n.Measured, n.Dropped, n.Rate} {
		be.PutUint64(w[8+8*i:], v)
	}
	be.PutUint32(w[80:], uint32(n.Lease/time.Millisecond))
	copy(w[84:90], n.Source[:])
	copy(w[90:94], n.Destination[:])
	w[94] = byte(n.Reason)
	be.PutUint16(w[96:], n.Sources)
	return append(b, sum(key, w)...)
}

func sum(key, message []byte) []byte {
	h := hmac.New(sha256.New, key)
	h.Write(message)
	return h.Sum(nil)[:macSize]
}

// Why a datagram is no notice. Nothing but the header is looked at before the
// authentication has succeeded.
var (
	ErrMalformed = errors.New("is not a notice")
	ErrForged    = errors.New("is not authenticated by a key that is live")
)

// Keys finds the key of an id between this node and another; nil if there is none.
type Keys func(from uint64, id uint16) []byte

// Parse reads and authenticates a datagram.
func Parse(b []byte, keys Keys) (Notice, error) {
	be := binary.BigEndian
	if len(b) != Size || be.Uint16(b) != magic || b[2] != version {
		return Notice{}, ErrMalformed
	}
	n := Notice{Kind: Kind(b[3]), KeyID: be.Uint16(b[4:]), Severity: b[6], Flags: b[7]}
	n.From = be.Uint64(b[8:])
	key := keys(n.From, n.KeyID)
	if key == nil || !hmac.Equal(sum(key, b[:body]), b[body:]) {
		return Notice{}, ErrForged
	}
	if n.Kind < Hello || n.Kind > Nack {
		return Notice{}, ErrMalformed
	}
	for i, v := range []*uint64{&n.From, &n.To, &n.Boot, &n.Seq, &n.Nonce, &n.Tenant, &n.Measured, &n.Dropped, &n.Rate} {
		*v = be.Uint64(b[8+8*i:])
	}
	n.Lease = time.Duration(be.Uint32(b[80:])) * time.Millisecond
	n.Source, n.Destination, n.Reason = [6]byte(b[84:90]), [4]byte(b[90:94]), Reason(b[94])
	n.Sources = be.Uint16(b[96:])
	return n, nil
}

// ID returns the 64-bit name of a node or tenant.
func ID(name string) uint64 {
	h := sha256.Sum256([]byte(name))
	return binary.BigEndian.Uint64(h[:])
}
