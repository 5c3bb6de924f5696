package stamp

import (
	"math/rand/v2"
	"time"

	"vigia/probes/protocol"
	wire "vigia/probes/stamp"
	"vigia/probes/timestamping"
)

// search searches the path MTU with STAMP packets.
type search struct {
	mode  wire.Mode
	keys  *wire.Keyring
	ssid  uint16
	dscp  uint8
	times []wire.Timestamp // by sequence number; must come back
}

// NewSearch returns what makes the probes of a search.
func (p Protocol) NewSearch(_ *timestamping.Socket, dscp uint8) protocol.Search {
	return &search{mode: p.Keys.Mode(), keys: p.Keys.Keyring(), ssid: uint16(rand.Uint32()), dscp: dscp}
}

// Request returns a probe; from the least size of a search on, every size can be made up.
func (s *search) Request(sequence uint32, size int) []byte {
	layout, _ := wire.NewLayout(s.mode, size)
	b := layout.New(rand.Uint64())
	layout.PutService(b, wire.ClassOfService{Wanted: s.dscp})
	now := wire.FromUnixNano(time.Now().UnixNano())
	s.times = append(s.times, now)
	s.mode.PutRequest(b, wire.Request{
		Sequence: sequence, Timestamp: now, ErrorEstimate: wire.NewErrorEstimate(false, time.Second), SSID: s.ssid,
	})
	if s.keys != nil {
		s.keys.Sign(b, 0)
	}
	return b
}

// Parse reads an answer.
func (s *search) Parse(b []byte) (a protocol.Arrivals, ok bool) {
	r, ok := s.mode.ParseReply(b)
	if !ok || uint64(r.SenderSequence) >= uint64(len(s.times)) || r.SenderTimestamp != s.times[r.SenderSequence] {
		return protocol.Arrivals{}, false
	}
	a.Sequence = r.SenderSequence
	if s.keys != nil {
		key, ok := s.keys.Verify(b)
		if !ok {
			return protocol.Arrivals{}, false
		}
		if !s.keys.VerifyTLVs(b, key) {
			return a, true
		}
	}
	tlvs := s.mode.TLVs(b)
	for t, whole := tlvs.Next(); t != nil && whole; t, whole = tlvs.Next() {
		if t.Type() != wire.TypeReceivedWindow || t.Flags() != 0 {
			continue
		}
		if w, ok := wire.ParseReceivedWindow(t); ok {
			a.Highest, a.Mask = w.Highest, w.Mask
		}
	}
	return a, true
}
