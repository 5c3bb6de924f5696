package reflector

import (
	"bytes"
	"strings"
	"testing"

	"vigia/probes/stamp"
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
