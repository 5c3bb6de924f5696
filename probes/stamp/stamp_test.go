package stamp

import (
	"bytes"
	"encoding/hex"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// unhex reads a byte vector written as in the RFC's figures: one line of four
// octets, blanks for reading.
func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.Join(strings.Fields(s), ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// requestVector is figure 3 of RFC 8762 with the SSID of figure 1 of RFC 8972.
const requestVector = `
	0000 002a
	e8f0 f5c1
	8000 0000
	8a05 7e57
	` + zeros28

const zeros28 = `
	0000 0000
	0000 0000
	0000 0000
	0000 0000
	0000 0000
	0000 0000
	0000 0000`

// replyVector is figure 5 of RFC 8762 with the SSID of figure 2 of RFC 8972.
const replyVector = `
	0000 0007
	e8f0 f5c1
	c000 0000
	8a05 7e57
	e8f0 f5c1
	4000 0000
	0000 002a
	e8f0 f5c0
	8000 0000
	0901 0000
	3f00 0000`

func TestRequestVector(t *testing.T) {
	want := Request{Sequence: 42, Timestamp: 0xe8f0f5c1_80000000, ErrorEstimate: 0x8a05, SSID: 0x7e57}
	raw := unhex(t, requestVector)
	got, ok := ParseRequest(raw)
	if !ok {
		t.Fatal("refused")
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("parse (-want +got):\n%s", diff)
	}
	b := make([]byte, BaseSize)
	want.Put(b)
	if !bytes.Equal(b, raw) {
		t.Errorf("put:\n%x\nwant\n%x", b, raw)
	}
}

func TestReplyVector(t *testing.T) {
	want := Reply{
		Sequence: 7, Timestamp: 0xe8f0f5c1_c0000000, ErrorEstimate: 0x8a05, SSID: 0x7e57,
		ReceiveTimestamp: 0xe8f0f5c1_40000000, SenderSequence: 42,
		SenderTimestamp: 0xe8f0f5c0_80000000, SenderErrorEstimate: 0x0901, SenderTTL: 63,
	}
	raw := unhex(t, replyVector)
	got, ok := ParseReply(raw)
	if !ok {
		t.Fatal("refused")
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("parse (-want +got):\n%s", diff)
	}
	b := bytes.Repeat([]byte{0xff}, BaseSize)
	want.Put(b)
	if !bytes.Equal(b, raw) {
		t.Errorf("put over a used buffer:\n%x\nwant\n%x", b, raw)
	}
}

func TestShortPackets(t *testing.T) {
	for n := range LightSize {
		b := make([]byte, n)
		if _, ok := ParseRequest(b); ok {
			t.Errorf("a request of %d bytes was accepted", n)
		}
		if _, ok := ParseReply(b); ok {
			t.Errorf("a reply of %d bytes was accepted", n)
		}
		w := Unauthenticated.TLVs(b)
		if tlv, _ := w.Next(); tlv != nil {
			t.Errorf("%d bytes have a TLV", n)
		}
	}
}

func TestTimestampKnownInstants(t *testing.T) {
	unix := func(s string) int64 {
		v, err := time.Parse(time.RFC3339Nano, s)
		if err != nil {
			t.Fatal(err)
		}
		return v.UnixNano()
	}
	for _, tc := range []struct {
		at   string
		want Timestamp
	}{
		{"1970-01-01T00:00:00Z", 0x83aa7e80_00000000},
		{"2000-01-01T00:00:00.5Z", 0xbc17c200_80000000},
		{"2036-02-07T06:28:15.75Z", 0xffffffff_c0000000},
		{"2036-02-07T06:28:16Z", 0x00000000_00000000}, // the era ends
	} {
		ns := unix(tc.at)
		got := FromUnixNano(ns)
		if got != tc.want {
			t.Errorf("%s: got %016x, want %016x", tc.at, uint64(got), uint64(tc.want))
		}
		for _, off := range []time.Duration{0, time.Hour, -time.Hour, 60 * 365 * 24 * time.Hour, -60 * 365 * 24 * time.Hour} {
			if back := got.UnixNano(NTP, ns+int64(off)); back != ns {
				t.Errorf("%s seen from %v away: got %d, want %d", tc.at, off, back, ns)
			}
		}
	}
}

func TestTimestampKeepsTheNanosecond(t *testing.T) {
	base := time.Date(2031, 5, 6, 7, 8, 9, 0, time.UTC).UnixNano()
	for _, frac := range []int64{0, 1, 2, 3, 499_999_999, 500_000_000, 999_999_998, 999_999_999, 123_456_789} {
		ns := base + frac
		if got := FromUnixNano(ns).UnixNano(NTP, base); got != ns {
			t.Errorf("%d became %d", ns, got)
		}
	}
	for ns := base; ns < base+int64(time.Second); ns += 9_973 {
		if got := FromUnixNano(ns).UnixNano(NTP, base); got != ns {
			t.Fatalf("%d became %d", ns, got)
		}
	}
	if got := FromUnixNano(-1).UnixNano(NTP, 0); got != -1 {
		t.Errorf("the nanosecond before 1970 became %d", got)
	}
}

func TestTimestampPTP(t *testing.T) {
	ns := time.Date(2026, 1, 2, 3, 4, 5, 678, time.UTC).UnixNano()
	ptp := Timestamp(uint64(ns/1e9)<<32 | uint64(ns%1e9))
	if got := ptp.UnixNano(PTP, ns+int64(time.Minute)); got != ns {
		t.Errorf("got %d, want %d", got, ns)
	}
	late := time.Date(2120, 1, 2, 3, 4, 5, 0, time.UTC).UnixNano() // after the wrap of 2106
	ptp = Timestamp(uint64(late/1e9)<<32 | uint64(late%1e9))
	if got := ptp.UnixNano(PTP, late); got != late {
		t.Errorf("after the wrap: got %d, want %d", got, late)
	}
}

func TestErrorEstimate(t *testing.T) {
	if e := ErrorEstimate(0xC0FF); !e.Synchronized() || e.Format() != PTP || e.Seconds() != math.Ldexp(255, -32) {
		t.Errorf("C0FF: got %v %v %g", e.Synchronized(), e.Format(), e.Seconds())
	}
	for _, tc := range []struct {
		bound time.Duration
		want  ErrorEstimate
	}{
		{0, 0x0001}, // a multiplier of zero is not allowed
		{-time.Second, 0x0001},
		{time.Second, 0x1980},      // 128 * 2^(25-32)
		{time.Millisecond, 0x0f84}, // 132 * 2^(15-32) = 1.0071 ms
		{16 * time.Second, 0x1d80}, // the kernel's NTP limit
		{math.MaxInt64, 0x3a8a},    // 292 years fit as well
	} {
		got := NewErrorEstimate(false, tc.bound)
		if got != tc.want {
			t.Errorf("%v: got %04x, want %04x", tc.bound, uint16(got), uint16(tc.want))
		}
		if got.Seconds() < tc.bound.Seconds() {
			t.Errorf("%v: the estimate %g s is below the error", tc.bound, got.Seconds())
		}
		if tc.bound > 0 && got.Seconds() > 1.02*tc.bound.Seconds() {
			t.Errorf("%v: the estimate %g s is too coarse", tc.bound, got.Seconds())
		}
	}
	if e := NewErrorEstimate(true, time.Second); e != 0x9980 || !e.Synchronized() || e.Format() != NTP {
		t.Errorf("synchronized: got %04x", uint16(e))
	}
}

// followUpVector is figure 18 of RFC 8972: the Follow-Up Telemetry TLV as a
// reflector returns it.
const followUpVector = `
	0007 0010
	0000 0006
	e8f0 f5c1
	c000 1000
	0200 0000`

func TestFollowUpVector(t *testing.T) {
	raw := unhex(t, followUpVector)
	want := FollowUp{Sequence: 6, Timestamp: 0xe8f0f5c1_c0001000, Method: SoftwareLocal}
	got, ok := ParseFollowUp(TLV(raw))
	if !ok {
		t.Fatal("refused")
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("parse (-want +got):\n%s", diff)
	}
	b := bytes.Repeat([]byte{0xff}, FollowUpSize)
	putHeader(b, TypeFollowUp, followUpValueSize)
	TLV(b).SetFlags(0)
	want.Put(TLV(b))
	if !bytes.Equal(b, raw) {
		t.Errorf("put:\n%x\nwant\n%x", b, raw)
	}
	if _, ok := ParseFollowUp(TLV(raw[:FollowUpSize-1])); ok {
		t.Error("a short value was accepted")
	}
}

func TestTLVWalk(t *testing.T) {
	base := strings.Repeat("00", BaseSize)
	type seen struct {
		Flags Flags
		Type  Type
		Value string
		Whole bool
	}
	for _, tc := range []struct {
		name, tlvs string
		want       []seen
	}{
		{"none", "", nil},
		{"less than a header", "8001 00", nil},
		{"empty padding", "8001 0000", []seen{{Unrecognized, TypeExtraPadding, "", true}}},
		{"two", "8001 0002 aabb 4063 0001 cc", []seen{{Unrecognized, TypeExtraPadding, "aabb", true}, {Malformed, 99, "cc", true}}},
		{"too long", "8001 0001 aa 2007 0010 0102", []seen{{Unrecognized, TypeExtraPadding, "aa", true}, {NoIntegrity, TypeFollowUp, "0102", false}}},
		{"longest length", "8001 ffff", []seen{{Unrecognized, TypeExtraPadding, "", false}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var got []seen
			w := Unauthenticated.TLVs(unhex(t, base+tc.tlvs))
			for tlv, whole := w.Next(); tlv != nil; tlv, whole = w.Next() {
				got = append(got, seen{tlv.Flags(), tlv.Type(), hex.EncodeToString(tlv.Value()), whole})
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestTLVWalkIsBounded(t *testing.T) {
	w := Unauthenticated.TLVs(make([]byte, MaxSize)) // 16 365 empty TLVs of type 0
	n := 0
	for tlv, _ := w.Next(); tlv != nil; tlv, _ = w.Next() {
		n++
	}
	if n != MaxTLVs {
		t.Errorf("looked at %d TLVs, want %d", n, MaxTLVs)
	}
}

func TestLayouts(t *testing.T) {
	const none = -1
	for _, tc := range []struct {
		mode Mode
		size int
		ok   bool
		tlvs string // initials: follow-up, window, service, measurement, HMAC
		pad  int
	}{
		{Unauthenticated, 0, false, "", 0},
		{Unauthenticated, 43, false, "", 0},
		{Unauthenticated, 44, true, "", none},
		{Unauthenticated, 45, false, "", 0},
		{Unauthenticated, 47, false, "", 0},
		{Unauthenticated, 48, true, "", 0},
		{Unauthenticated, 52, true, "s", none},
		{Unauthenticated, 63, true, "s", 7},
		{Unauthenticated, 64, true, "f", none},
		{Unauthenticated, 65, false, "", 0},
		{Unauthenticated, 67, false, "", 0},
		{Unauthenticated, 68, true, "f", 0},
		{Unauthenticated, 84, true, "fw", none},
		{Unauthenticated, 92, true, "fws", none},
		{Unauthenticated, 108, true, "fwsm", none},
		{Unauthenticated, 128, true, "fwsm", 16},
		{Unauthenticated, 1400, true, "fwsm", 1288},
		{Unauthenticated, MaxSize, true, "fwsm", MaxSize - 112},
		{Unauthenticated, MaxSize + 1, false, "", 0},
		{Authenticated, 111, false, "", 0},
		{Authenticated, 112, true, "", none},
		{Authenticated, 116, true, "", 0},
		{Authenticated, 140, true, "sh", none},
		{Authenticated, 153, false, "", 0},
		{Authenticated, 152, true, "fh", none},
		{Authenticated, 172, true, "fwh", none},
		{Authenticated, 256, true, "fwsmh", 56},
	} {
		l, ok := NewLayout(tc.mode, tc.size)
		if ok != tc.ok {
			t.Errorf("%d: accepted %v, want %v", tc.size, ok, tc.ok)
		}
		if !ok {
			continue
		}
		got := ""
		for i, at := range []int{l.FollowUp, l.Window, l.Service, l.Measurement, l.HMAC} {
			if at > 0 {
				got += string("fwsmh"[i])
			}
		}
		if got != tc.tlvs || l.Padding != tc.pad || l.Size != tc.size || l.Mode != tc.mode {
			t.Errorf("%d: TLVs %q and padding %d, want %q and %d", tc.size, got, l.Padding, tc.tlvs, tc.pad)
		}
		checkLayout(t, l)
	}
}

// checkLayout reads back what New wrote and demands that the TLVs fill the
// packet to the last byte.
func checkLayout(t *testing.T, l Layout) {
	t.Helper()
	b := l.New(99)
	used := l.Mode.BaseSize()
	w := l.Mode.TLVs(b)
	want := map[Type]int{
		TypeFollowUp: l.FollowUp, TypeReceivedWindow: l.Window, TypeClassOfService: l.Service,
		TypeDirectMeasurement: l.Measurement, TypeHMAC: l.HMAC,
	}
	for tlv, whole := w.Next(); tlv != nil; tlv, whole = w.Next() {
		if !whole || tlv.Flags() != Unrecognized {
			t.Errorf("%d: TLV %d whole %v, flags %02x", l.Size, tlv.Type(), whole, tlv.Flags())
		}
		if tlv.Type() == TypeExtraPadding {
			if !bytes.Equal(tlv.Value(), l.PaddingOf(b)) {
				t.Errorf("%d: PaddingOf differs from the TLV's value", l.Size)
			}
		} else if want[tlv.Type()] != used || !bytes.Equal(tlv.Value(), make([]byte, len(tlv.Value()))) {
			t.Errorf("%d: TLV of type %d at %d: %x", l.Size, tlv.Type(), used, tlv)
		}
		used += len(tlv)
	}
	if used != l.Size || len(b) != l.Size {
		t.Errorf("%d: base packet and TLVs make %d of %d bytes", l.Size, used, len(b))
	}
	if l.Padding > 100 && bytes.Equal(l.PaddingOf(b), l.PaddingOf(l.New(100))) {
		t.Errorf("%d: the padding does not depend on the seed", l.Size)
	}
	if l.Padding > 0 && l.PaddingOf(b[:l.Size-1]) != nil {
		t.Errorf("%d: a shorter packet has padding", l.Size)
	}
}

func TestNothingAllocates(t *testing.T) {
	l, _ := NewLayout(Unauthenticated, 128)
	b := l.New(1)
	allocs := testing.AllocsPerRun(1000, func() { exercise(b) })
	if allocs != 0 {
		t.Errorf("%v allocations per packet, want 0", allocs)
	}
}

// exercise writes and reads one packet each way.
func exercise(b []byte) (sum uint64) {
	Request{Sequence: 1, Timestamp: FromUnixNano(1_700_000_000_123_456_789), SSID: 7}.Put(b)
	req, _ := ParseRequest(b)
	Reply{Sequence: 2, SenderSequence: req.Sequence, SenderTimestamp: req.Timestamp}.Put(b)
	w := Unauthenticated.TLVs(b)
	for tlv, _ := w.Next(); tlv != nil; tlv, _ = w.Next() {
		if f, ok := ParseFollowUp(tlv); ok {
			f.Sequence++
			f.Put(tlv)
		}
	}
	reply, _ := ParseReply(b)
	return uint64(reply.SenderTimestamp.UnixNano(reply.ErrorEstimate.Format(), 1_700_000_000_000_000_000))
}

func BenchmarkPacket(b *testing.B) {
	l, _ := NewLayout(Unauthenticated, 128)
	packet := l.New(1)
	b.ReportAllocs()
	for b.Loop() {
		exercise(packet)
	}
}

// FuzzPacket feeds arbitrary bytes to every decoder and demands that what they
// hand out lies inside the packet and writes back unchanged.
func FuzzPacket(f *testing.F) {
	base := strings.Repeat("00", BaseSize)
	for _, s := range []string{
		"", "00", requestVector, replyVector, requestVector + followUpVector,
		requestVector + "8001 0004 01020304", requestVector + "8007 000f" + strings.Repeat("00", 15),
		base + "8001 ffff 00", base + strings.Repeat("00000000", 40), requestVector + "ff",
	} {
		f.Add(unhex(f, s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		req, ok := ParseRequest(b)
		if ok != (len(b) >= LightSize) {
			t.Fatalf("request of %d bytes: %v", len(b), ok)
		}
		reply, _ := ParseReply(b)
		if ok {
			c := bytes.Clone(b)
			if len(b) >= BaseSize {
				req.Put(c)
			}
			if len(b) >= BaseSize && !bytes.Equal(b, c) {
				t.Fatal("writing a request back changes it")
			}
			reply.Put(c)
			if again, _ := ParseReply(c); again != reply {
				t.Fatalf("reply %+v became %+v", reply, again)
			}
			for _, format := range []Format{NTP, PTP} {
				near := reply.ReceiveTimestamp.UnixNano(format, 0)
				got := reply.Timestamp.UnixNano(format, near)
				if d := time.Duration(got - near).Abs(); d > (1<<31+6)*time.Second {
					t.Fatalf("%016x is decoded %v away from what it should be near", uint64(reply.Timestamp), d)
				}
			}
		}
		used, n := BaseSize, 0
		w := Unauthenticated.TLVs(b)
		for tlv, _ := w.Next(); tlv != nil; tlv, _ = w.Next() {
			used, n = used+len(tlv), n+1
			ParseFollowUp(tlv)
		}
		if n > 0 && used > len(b) || n > MaxTLVs {
			t.Fatalf("%d TLVs reach to byte %d of %d", n, used, len(b))
		}
	})
}
