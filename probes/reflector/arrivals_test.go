package reflector

import (
	"bytes"
	"net/netip"
	"strings"
	"testing"

	"vigia/probes/stamp"
	"vigia/probes/timestamping"
)

// TestArrivals feeds sequence numbers and drop counters and looks at the window.
func TestArrivals(t *testing.T) {
	type probe struct{ sequence, drops uint32 }
	for _, tc := range []struct {
		name string
		in   []probe
		want stamp.ReceivedWindow
	}{
		{"first", []probe{{7, 100}}, stamp.ReceivedWindow{Highest: 7, Mask: 1}},
		{"in order", []probe{{0, 0}, {1, 0}, {2, 0}}, stamp.ReceivedWindow{Highest: 2, Mask: 0b111}},
		{"gap", []probe{{0, 0}, {3, 0}}, stamp.ReceivedWindow{Highest: 3, Mask: 0b1001}},
		{"reordered", []probe{{0, 0}, {2, 0}, {1, 0}}, stamp.ReceivedWindow{Highest: 2, Mask: 0b111}},
		{"duplicate", []probe{{0, 0}, {0, 0}}, stamp.ReceivedWindow{Highest: 0, Mask: 1}},
		{"gap as wide as the window", []probe{{0, 0}, {64, 0}}, stamp.ReceivedWindow{Highest: 64, Mask: 1}},
		{"a straggler behind it", []probe{{100, 0}, {36, 0}}, stamp.ReceivedWindow{Highest: 100, Mask: 1}},
		{"the last in it", []probe{{100, 0}, {37, 0}}, stamp.ReceivedWindow{Highest: 100, Mask: 1<<63 | 1}},
		{"wrap", []probe{{0xffffffff, 0}, {1, 0}}, stamp.ReceivedWindow{Highest: 1, Mask: 0b101}},
		{"begins anew", []probe{{5000, 0}, {0, 0}, {1, 0}}, stamp.ReceivedWindow{Highest: 1, Mask: 0b11}},
		{"drops in a gap", []probe{{0, 5}, {4, 7}}, stamp.ReceivedWindow{Highest: 4, Mask: 0b10001, Overflowed: 2}},
		{"more drops than are missing", []probe{{0, 5}, {4, 900}}, stamp.ReceivedWindow{Highest: 4, Mask: 0b10001, Overflowed: 3}},
		{"drops of others", []probe{{0, 5}, {1, 900}}, stamp.ReceivedWindow{Highest: 1, Mask: 0b11}},
		{"drops before the first", []probe{{9, 900}}, stamp.ReceivedWindow{Highest: 9, Mask: 1}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var a arrivals
			for _, p := range tc.in {
				a.add(p.sequence, p.drops)
			}
			if a.window != tc.want || a.received != uint32(len(tc.in)) {
				t.Errorf("%+v after %d packets, want %+v", a.window, a.received, tc.want)
			}
		})
	}
}

// TestDropsAreThoseOfTheDatagram: what housekeeping has read of the drop counter since a
// probe was queued must not be taken for what was dropped before it, or the gap that
// the drops tore seems to have none.
func TestDropsAreThoseOfTheDatagram(t *testing.T) {
	r, _ := newReflector(t, 0)
	defer r.Close()
	r.responder.allow = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/24")}
	r.responder.limiter.setRate(1_000_000)
	l := &listener{counters: silentCounters{}, id: 1}
	answer := func(sequence, drops uint32) {
		t.Helper()
		r.outbox.Reset()
		d := timestamping.Datagram{Payload: request(84, sequence, 7), From: alice, Stamp: rx, Drops: drops, HasDrops: drops > 0}
		r.respond(l, 0, &d, r.clock.Now())
		if r.outbox.Len() != 1 {
			t.Fatalf("probe %d is not answered", sequence)
		}
	}
	answer(0, 0)
	l.overflowed(150)  // read while probe 1 waits in the buffer
	answer(1, 0)       // it was queued before the drops
	answer(152, 150)   // and this one after them
	answer(153, 150+9) // other sessions' drops
	key := newSessionKey(alice, 7, 1)
	if got := r.responder.sessions.find(key).arrivals.window.Overflowed; got != 150 {
		t.Errorf("%d probes are put down to the full buffer, want 150", got)
	}
}

type silentCounters struct{}

func (silentCounters) Received()         {}
func (silentCounters) Reflected()        {}
func (silentCounters) Rejected(Reason)   {}
func (silentCounters) Overflowed(uint32) {}

func TestArrivalsThatTheReflectorLost(t *testing.T) {
	var a arrivals
	a.add(0, 0)
	a.refuse() // 1
	a.add(2, 5)
	if a.window.Overflowed != 1 {
		t.Errorf("a probe over the rate and nothing missing besides: %d", a.window.Overflowed)
	}
	a.add(3, 5)
	a.fail(2)
	if want := (stamp.ReceivedWindow{Highest: 3, Mask: 0b1001 &^ 0b10, Overflowed: 2}); a.window != want || a.unsent != 1 {
		t.Errorf("%+v, %d unsent, want %+v", a.window, a.unsent, want)
	}
	back := uint32(stamp.WindowBits)
	a.fail(3 - back) // longer ago than the window
	if a.window.Overflowed != 3 || a.window.Mask != 0b1001 {
		t.Errorf("%+v", a.window)
	}
}

func secret(t testing.TB, digit string) *stamp.Keyring {
	t.Helper()
	k, err := stamp.ParseKeys([]byte(strings.Repeat(digit, 64)))
	if err != nil {
		t.Fatal(err)
	}
	return k.Keyring()
}

// FuzzRespondAuthenticated feeds arbitrary bytes to an authenticated listener: as they
// are nothing may be answered; signed, the answer is of the same size and verifies.
func FuzzRespondAuthenticated(f *testing.F) {
	for _, size := range []int{112, 116, 140, 152, 172, 256, 400} {
		l, ok := stamp.NewLayout(stamp.Authenticated, size)
		if !ok {
			f.Fatal(size)
		}
		f.Add(l.New(9))
	}
	f.Add(bytes.Repeat([]byte{0, 8, 0, 16}, 50))
	f.Add(make([]byte, 111))
	r := newResponder("10.0.0.0/24")
	keys := secret(f, "5")
	now := int64(1)
	f.Fuzz(func(t *testing.T, input []byte) {
		b := bytes.Clone(input) // the fuzzer goes on from its own
		now += second / 100
		a := at(now)
		a.keys = keys
		before := bytes.Clone(b)
		if res := r.respond(b, a); res.reason == answered || !bytes.Equal(b, before) {
			t.Fatalf("without a signature: %v", res.reason)
		}
		if len(b) < stamp.AuthenticatedSize {
			return
		}
		keys.Sign(b, 0)
		tlvs := keys.VerifyTLVs(b, 0)
		now += second / 100
		a.now = now
		res := r.respond(b, a)
		if res.reason != answered || len(b) != len(before) {
			t.Fatalf("signed: %v, %d of %d bytes", res.reason, len(b), len(before))
		}
		keys.Sign(b, res.key)
		if _, ok := keys.Verify(b); !ok || keys.VerifyTLVs(b, res.key) != tlvs {
			t.Fatal("the answer does not verify as the question did")
		}
	})
}
