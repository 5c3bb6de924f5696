package echo

import (
	"math/rand/v2"

	"vigia/probes/icmp"
	"vigia/probes/protocol"
	"vigia/probes/timestamping"
)

// search searches the path MTU with echo requests.
type search struct {
	id     uint16
	ssid   uint16
	v6     bool
	raw    bool
	nonces []uint64 // by sequence number
}

// NewSearch returns what makes the probes of a search.
func (Protocol) NewSearch(s *timestamping.Socket, _ uint8) protocol.Search {
	return &search{id: s.Local().Port(), ssid: uint16(rand.Uint32()), v6: s.Local().Addr().Is6(), raw: s.Raw()}
}

// Request returns a probe.
func (s *search) Request(sequence uint32, size int) []byte {
	b := icmp.New(size, s.v6, rand.Uint64())
	s.nonces = append(s.nonces, rand.Uint64())
	icmp.Probe{ID: s.id, SSID: s.ssid, Sequence: sequence, Nonce: s.nonces[sequence]}.Put(b)
	return b
}

// Parse reads an answer.
func (s *search) Parse(b []byte) (a protocol.Arrivals, ok bool) {
	if s.raw && !s.v6 {
		b = icmp.StripIPv4(b)
	}
	r, ok := icmp.ParseReply(b, s.v6)
	ok = ok && r.ID == s.id && r.SSID == s.ssid && uint64(r.Sequence) < uint64(len(s.nonces)) && r.Nonce == s.nonces[r.Sequence]
	return protocol.Arrivals{Sequence: r.Sequence}, ok
}
