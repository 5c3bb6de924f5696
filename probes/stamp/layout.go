package stamp

// Layout is how a request of a given size is made up: the base packet, a
// Follow-Up Telemetry TLV where it fits, and an Extra Padding TLV for the rest.
type Layout struct {
	Size     int
	FollowUp bool
	Padding  int // bytes of the padding TLV's value; -1 when there is no such TLV
}

// NewLayout lays out a request of size bytes. ok is false when no whole TLVs
// add up to the size, or it is out of bounds.
func NewLayout(size int) (l Layout, ok bool) {
	rest := size - BaseSize
	if rest < 0 || size > MaxSize {
		return Layout{}, false
	}
	l = Layout{Size: size, Padding: -1}
	if rest >= FollowUpSize {
		l.FollowUp, rest = true, rest-FollowUpSize
	}
	if rest == 0 {
		return l, true
	}
	if rest < TLVHeaderSize {
		return Layout{}, false
	}
	l.Padding = rest - TLVHeaderSize
	return l, true
}

// New returns a request of this layout with everything set that stays the same
// from packet to packet. The padding is pseudo-random, so that it does not
// compress, and the same for the same seed (RFC 8972 section 4.1).
func (l Layout) New(seed uint64) []byte {
	b := make([]byte, l.Size)
	at := BaseSize
	if l.FollowUp {
		putHeader(b[at:], TypeFollowUp, followUpValueSize)
		at += FollowUpSize
	}
	if l.Padding >= 0 {
		putHeader(b[at:], TypeExtraPadding, l.Padding)
		fill(b[at+TLVHeaderSize:], seed)
	}
	return b
}

// PaddingOf returns the value of the padding TLV in a packet of this layout, or
// nothing when the packet is shorter than the layout.
func (l Layout) PaddingOf(b []byte) []byte {
	if l.Padding < 0 || len(b) < l.Size {
		return nil
	}
	return b[l.Size-l.Padding : l.Size]
}

// fill writes the bytes of a xorshift64* generator.
func fill(b []byte, seed uint64) {
	x := seed | 1
	for i := range b {
		x ^= x >> 12
		x ^= x << 25
		x ^= x >> 27
		b[i] = byte(x * 0x2545F4914F6CDD1D >> 56)
	}
}
