package pathmtu

import (
	"math/rand/v2"
	"net/netip"
	"time"

	"vigia/probes/icmp"
	"vigia/probes/stamp"
	"vigia/probes/timestamping"
)

const (
	ipv4Header = 20 // RFC 791, without options
	ipv6Header = 40 // RFC 8200, without extensions
	// transportHeader is as large for UDP as for an ICMP echo.
	transportHeader = 8
)

// Headers returns how many bytes of a packet are not its UDP or ICMP payload.
func Headers(to netip.Addr) int {
	if to.Is4() {
		return ipv4Header + transportHeader
	}
	return ipv6Header + transportHeader
}

// answer is what a received packet tells.
type answer struct {
	sequence uint32
	window   stamp.ReceivedWindow
	told     bool // window is there
}

// wire makes probes and reads answers.
type wire interface {
	// request returns a probe with a payload of size bytes.
	request(sequence uint32, size int) []byte
	// parse reads what came from the other end; ok is false when it answers no
	// probe of ours.
	parse(payload []byte) (a answer, ok bool)
}

// stampWire probes a STAMP reflector.
type stampWire struct {
	mode  stamp.Mode
	keys  *stamp.Keyring
	ssid  uint16
	dscp  uint8
	times []stamp.Timestamp // by sequence number; must come back
}

func newStampWire(keys stamp.Keys, dscp uint8) *stampWire {
	return &stampWire{mode: keys.Mode(), keys: keys.Keyring(), ssid: uint16(rand.Uint32()), dscp: dscp}
}

func (w *stampWire) request(sequence uint32, size int) []byte {
	layout, _ := stamp.NewLayout(w.mode, size) // from LeastSize on every size can be made up
	b := layout.New(rand.Uint64())
	layout.PutService(b, stamp.ClassOfService{Wanted: w.dscp})
	now := stamp.FromUnixNano(time.Now().UnixNano())
	w.times = append(w.times, now)
	w.mode.PutRequest(b, stamp.Request{
		Sequence: sequence, Timestamp: now, ErrorEstimate: stamp.NewErrorEstimate(false, time.Second), SSID: w.ssid,
	})
	if w.keys != nil {
		w.keys.Sign(b, 0)
	}
	return b
}

func (w *stampWire) parse(b []byte) (a answer, ok bool) {
	r, ok := w.mode.ParseReply(b)
	if !ok || uint64(r.SenderSequence) >= uint64(len(w.times)) || r.SenderTimestamp != w.times[r.SenderSequence] {
		return answer{}, false
	}
	a.sequence = r.SenderSequence
	if w.keys != nil {
		key, ok := w.keys.Verify(b)
		if !ok {
			return answer{}, false
		}
		if !w.keys.VerifyTLVs(b, key) {
			return a, true
		}
	}
	tlvs := w.mode.TLVs(b)
	for t, whole := tlvs.Next(); t != nil && whole; t, whole = tlvs.Next() {
		if t.Type() == stamp.TypeReceivedWindow && t.Flags() == 0 {
			a.window, a.told = stamp.ParseReceivedWindow(t)
		}
	}
	return a, true
}

// echoWire probes by ICMP echo.
type echoWire struct {
	id     uint16
	ssid   uint16
	v6     bool
	raw    bool
	nonces []uint64 // by sequence number
}

func newEchoWire(s *timestamping.Socket) *echoWire {
	return &echoWire{id: s.Local().Port(), ssid: uint16(rand.Uint32()), v6: s.Local().Addr().Is6(), raw: s.Raw()}
}

func (w *echoWire) request(sequence uint32, size int) []byte {
	b := icmp.New(size, w.v6, rand.Uint64())
	w.nonces = append(w.nonces, rand.Uint64())
	icmp.Probe{ID: w.id, SSID: w.ssid, Sequence: sequence, Nonce: w.nonces[sequence]}.Put(b)
	return b
}

func (w *echoWire) parse(b []byte) (a answer, ok bool) {
	if w.raw && !w.v6 {
		b = icmp.StripIPv4(b)
	}
	r, ok := icmp.ParseReply(b, w.v6)
	ok = ok && r.ID == w.id && r.SSID == w.ssid && uint64(r.Sequence) < uint64(len(w.nonces)) && r.Nonce == w.nonces[r.Sequence]
	return answer{sequence: r.Sequence}, ok
}
