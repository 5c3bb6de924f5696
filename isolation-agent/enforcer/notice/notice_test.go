package notice

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var key = bytes.Repeat([]byte{7}, MinKey)

func keys(uint64, uint16) []byte { return key }

func full() Notice {
	return Notice{
		Kind: Congest, KeyID: 2, From: 3, To: 4, Boot: 5, Seq: 6, Nonce: 7, Source: [6]byte{8, 9, 10, 11, 12, 13},
		Destination: [4]byte{14, 15, 16, 17}, Tenant: 18, Measured: 19, Dropped: 20, Rate: 21, Lease: 2 * time.Second,
		Severity: 22, Flags: AtFloor | Plain, Reason: NotYours, Sources: 23,
	}
}

func TestANoticeSurvivesTheWire(t *testing.T) {
	n := full()
	b := n.Append(nil, key)
	if len(b) != Size {
		t.Fatalf("%d bytes", len(b))
	}
	got, err := Parse(b, keys)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(n, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestEveryFlippedBitIsRefused(t *testing.T) {
	n := full()
	b := n.Append(nil, key)
	for i := range len(b) * 8 {
		b[i/8] ^= 1 << (i % 8)
		if _, err := Parse(b, keys); err == nil {
			t.Fatalf("accepted with bit %d flipped", i)
		}
		b[i/8] ^= 1 << (i % 8)
	}
}

func TestForgeriesAreRefused(t *testing.T) {
	n := full()
	good := n.Append(nil, key)
	for name, tc := range map[string]struct {
		datagram []byte
		keys     Keys
		want     error
	}{
		"another key":     {n.Append(nil, bytes.Repeat([]byte{8}, MinKey)), keys, ErrForged},
		"a key not known": {good, func(uint64, uint16) []byte { return nil }, ErrForged},
		"a retired key": {good, func(_ uint64, id uint16) []byte {
			if id == 2 {
				return nil
			}
			return key
		}, ErrForged},
		"too short":       {good[:Size-1], keys, ErrMalformed},
		"too long":        {append(bytes.Clone(good), 0), keys, ErrMalformed},
		"nothing":         {nil, keys, ErrMalformed},
		"another version": {append([]byte{good[0], good[1], 9}, good[3:]...), keys, ErrMalformed},
	} {
		if _, err := Parse(tc.datagram, tc.keys); !errors.Is(err, tc.want) {
			t.Errorf("%s: %v, want %v", name, err, tc.want)
		}
	}
}

// TestTheWireFormatStays holds a notice against its bytes as another implementation made
// them, by struct.pack and hmac of Python.
func TestTheWireFormatStays(t *testing.T) {
	const want = "7669010300021603000000000000000300000000000000040000000000000005000000000000000600000000000000070000000000000012" +
		"000000000000001300000000000000140000000000000015000007d008090a0b0c0d0e0f101102000017000000000000015540a863991831e70f7aa81391d8bb"
	n := full()
	if got := hex.EncodeToString(n.Append(nil, key)); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	raw, err := hex.DecodeString(want)
	if err != nil {
		t.Fatal(err)
	}
	got, err := Parse(raw, keys)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(n, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestANoticeIsAppended(t *testing.T) {
	n := full()
	b := n.Append([]byte("before"), key)
	if !bytes.HasPrefix(b, []byte("before")) || len(b) != Size+6 || !bytes.Equal(b[6:], n.Append(nil, key)) {
		t.Errorf("%x", b)
	}
}

func TestEveryFieldTravelsAlone(t *testing.T) {
	for name, n := range map[string]Notice{
		"kind":        {Kind: Nack},
		"key":         {Kind: Hello, KeyID: 0xffff},
		"from":        {Kind: Hello, From: math.MaxUint64},
		"to":          {Kind: Hello, To: math.MaxUint64},
		"boot":        {Kind: Hello, Boot: math.MaxUint64},
		"sequence":    {Kind: Hello, Seq: math.MaxUint64},
		"nonce":       {Kind: Hello, Nonce: math.MaxUint64},
		"source":      {Kind: Hello, Source: [6]byte{255, 255, 255, 255, 255, 255}},
		"destination": {Kind: Hello, Destination: [4]byte{255, 255, 255, 255}},
		"tenant":      {Kind: Hello, Tenant: math.MaxUint64},
		"measured":    {Kind: Hello, Measured: math.MaxUint64},
		"dropped":     {Kind: Hello, Dropped: math.MaxUint64},
		"rate":        {Kind: Hello, Rate: math.MaxUint64},
		"lease":       {Kind: Hello, Lease: math.MaxUint32 * time.Millisecond},
		"severity":    {Kind: Hello, Severity: 255},
		"flags":       {Kind: Hello, Flags: 255},
		"reason":      {Kind: Hello, Reason: 255},
		"sources":     {Kind: Hello, Sources: 65535},
	} {
		got, err := Parse(n.Append(nil, key), keys)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if diff := cmp.Diff(n, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestAKindThatNobodyKnowsIsNoNoticeWhoeverSignedIt(t *testing.T) {
	for _, kind := range []Kind{Any, Nack + 1, 100, 255} {
		n := full()
		n.Kind = kind
		if _, err := Parse(n.Append(nil, key), keys); !errors.Is(err, ErrMalformed) {
			t.Errorf("kind %d: %v", kind, err)
		}
	}
}

func TestTheKeyIsAskedForByWhoSendsAndItsNumber(t *testing.T) {
	n := full()
	raw := n.Append(nil, key)
	var asked []string
	_, err := Parse(raw, func(from uint64, id uint16) []byte {
		asked = append(asked, fmt.Sprint(from, " ", id))
		return key
	})
	if err != nil || len(asked) != 1 || asked[0] != "3 2" {
		t.Errorf("asked for %q, %v", asked, err)
	}
	// What is no notice by its header asks for no key: it costs next to nothing.
	for name, junk := range map[string][]byte{"short": raw[:Size-1], "long": append(bytes.Clone(raw), 0), "another magic": append([]byte{0}, raw[1:]...)} {
		if _, err := Parse(junk, func(uint64, uint16) []byte { t.Errorf("%s: a key was asked for", name); return nil }); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestParsingAllocatesLittle(t *testing.T) {
	n := full()
	raw := n.Append(nil, key)
	forged := bytes.Clone(raw)
	forged[50]++
	for name, datagram := range map[string][]byte{"a notice": raw, "a forgery": forged} {
		if got := testing.AllocsPerRun(200, func() { _, _ = Parse(datagram, keys) }); got > 12 {
			t.Errorf("%s: %v allocations", name, got)
		}
	}
	junk := []byte("junk")
	if got := testing.AllocsPerRun(200, func() { _, _ = Parse(junk, keys) }); got > 0 {
		t.Errorf("junk: %v allocations", got)
	}
}

// TestNamesAreDifferent looks at the label values of vigia_enforcer_notices_total.
func TestNamesAreDifferent(t *testing.T) {
	names := map[string]bool{}
	for kind := Any; kind <= Nack; kind++ {
		names[kind.String()] = true
	}
	for o := Outcome(1); o < outcomes; o++ {
		names[o.String()] = true
	}
	if len(names) != int(Nack)+int(outcomes) || names["unknown"] {
		t.Errorf("names repeat: %v", names)
	}
	for _, o := range []Outcome{0, outcomes, 255} {
		if o.String() != "unknown" {
			t.Errorf("outcome %d is called %q", o, o)
		}
	}
	if got := Kind(200).String(); got != "unknown" {
		t.Errorf("kind 200 is called %q", got)
	}
}

func TestEveryRefusalHasItsOutcome(t *testing.T) {
	for err, want := range map[error]Outcome{
		ErrMalformed: Malformed, ErrForged: Forged, ErrReplayed: Replayed, ErrUnproven: Unproven, ErrNotForUs: Misdirected,
	} {
		if got := OutcomeOf(fmt.Errorf("a datagram %w", err)); got != want {
			t.Errorf("%v: %s, want %s", err, got, want)
		}
	}
	if got := OutcomeOf(nil); got != Received {
		t.Errorf("no error: %s", got)
	}
}

func FuzzParse(f *testing.F) {
	n := full()
	f.Add(n.Append(nil, key))
	f.Add([]byte{0x76, 0x69, 1})
	for kind := Hello; kind <= Nack; kind++ {
		n.Kind = kind
		f.Add(n.Append(nil, key))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := Parse(b, keys)
		if err != nil {
			if !errors.Is(err, ErrMalformed) && !errors.Is(err, ErrForged) {
				t.Errorf("error %v", err)
			}
			return
		}
		again := got.Append(nil, key)
		if !bytes.Equal(again[:95], b[:95]) || !bytes.Equal(again[96:98], b[96:98]) { // the rest is padding
			t.Errorf("%+v does not stem from %x", got, b)
		}
		if OutcomeOf(err) != Received || got.Kind.String() == "unknown" {
			t.Errorf("%+v has no names", got)
		}
	})
}

// FuzzForgery changes one byte of a good notice: no change is accepted.
func FuzzForgery(f *testing.F) {
	f.Add(uint16(0), byte(1))
	f.Add(uint16(3), byte(3^6))
	f.Add(uint16(body), byte(0x80))
	f.Add(uint16(Size-1), byte(1))
	f.Fuzz(func(t *testing.T, at uint16, change byte) {
		if change == 0 {
			return
		}
		n := full()
		b := n.Append(nil, key)
		b[int(at)%Size] ^= change
		if got, err := Parse(b, keys); err == nil {
			t.Errorf("accepted as %+v", got)
		}
	})
}
