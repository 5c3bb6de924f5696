package stamp

// Layout is how a request of a given size is made up: the base packet, the TLVs
// that fit in this order, and an Extra Padding TLV for the rest.
type Layout struct {
	Mode Mode
	Size int
	// Where the TLVs are; 0 stands for none.
	FollowUp, Window, Service, Measurement, HMAC int
	Padding                                      int // bytes of the padding TLV's value; -1 when there is no such TLV
}

// NewLayout lays out a request of size bytes. ok is false when no whole TLVs
// add up to the size, or it is out of bounds.
func NewLayout(mode Mode, size int) (l Layout, ok bool) {
	at := mode.BaseSize()
	if size < at || size > MaxSize {
		return Layout{}, false
	}
	l = Layout{Mode: mode, Size: size, Padding: -1}
	reserve := 0 // of an HMAC TLV, which is needed as soon as there is another
	if mode == Authenticated {
		reserve = HMACSize
	}
	for _, tlv := range []struct {
		at   *int
		size int
	}{
		{&l.FollowUp, FollowUpSize},
		{&l.Window, ReceivedWindowSize},
		{&l.Service, ClassOfServiceSize},
		{&l.Measurement, DirectMeasurementSize},
	} {
		switch rest := size - at - tlv.size - reserve; {
		case rest == 0 || rest >= TLVHeaderSize:
			*tlv.at = at
			at += tlv.size
		case rest > 0 && tlv.at == &l.FollowUp:
			return Layout{}, false // a little more or less would have kernel delays
		}
	}
	if reserve > 0 && at > mode.BaseSize() {
		l.HMAC = at
		at += HMACSize
	}
	switch rest := size - at; {
	case rest == 0:
	case rest < TLVHeaderSize:
		return Layout{}, false
	default:
		l.Padding = rest - TLVHeaderSize
	}
	return l, true
}

// New returns a request of this layout with everything set that stays the same
// from packet to packet. The padding is pseudo-random, so that it does not
// compress, and the same for the same seed (RFC 8972 section 4.1).
func (l Layout) New(seed uint64) []byte {
	b := make([]byte, l.Size)
	for _, tlv := range []struct {
		at, size int
		kind     Type
	}{
		{l.FollowUp, followUpValueSize, TypeFollowUp},
		{l.Window, windowValueSize, TypeReceivedWindow},
		{l.Service, serviceValueSize, TypeClassOfService},
		{l.Measurement, measurementValueSize, TypeDirectMeasurement},
		{l.HMAC, hmacSize, TypeHMAC},
	} {
		if tlv.at > 0 {
			putHeader(b[tlv.at:], tlv.kind, tlv.size)
		}
	}
	if l.Padding >= 0 {
		at := l.Size - l.Padding - TLVHeaderSize
		putHeader(b[at:], TypeExtraPadding, l.Padding)
		fill(b[at+TLVHeaderSize:], seed)
	}
	return b
}

// CanAsk reports whether a request can ask for the received window in place of the
// follow-up, which has the same size, because there is no room for both.
func (l Layout) CanAsk() bool { return l.Window == 0 && l.FollowUp > 0 }

// AskForWindow makes a request ask for the received window in place of the follow-up, or
// for the follow-up again.
func (l Layout) AskForWindow(b []byte, window bool) {
	if window {
		putHeader(b[l.FollowUp:], TypeReceivedWindow, windowValueSize)
		return
	}
	putHeader(b[l.FollowUp:], TypeFollowUp, followUpValueSize)
}

// AskHardware makes a request ask for hardware stamps, or for the usual ones, by the
// method in its follow-up, which means nothing in a request to anybody else (RFC 8972
// section 4.7). It has no effect without a follow-up.
func (l Layout) AskHardware(b []byte, hardware bool) {
	if l.FollowUp == 0 {
		return
	}
	var f FollowUp
	if hardware {
		f.Method = HardwareAssist
	}
	f.Put(TLV(b[l.FollowUp : l.FollowUp+FollowUpSize]))
}

// PutService writes what answers shall have into a request's Class of Service TLV,
// if it has one.
func (l Layout) PutService(b []byte, c ClassOfService) {
	if l.Service > 0 {
		c.Put(TLV(b[l.Service : l.Service+ClassOfServiceSize]))
	}
}

// PutMeasurement writes the sender's counter into a request's Direct Measurement
// TLV, if it has one.
func (l Layout) PutMeasurement(b []byte, sent uint32) {
	if l.Measurement > 0 {
		DirectMeasurement{SenderTX: sent}.Put(TLV(b[l.Measurement : l.Measurement+DirectMeasurementSize]))
	}
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
